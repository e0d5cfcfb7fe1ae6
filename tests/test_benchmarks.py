"""The benchmarks run: every case with every installed contender at a tiny size. Times are not looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CASES = ("clustered", "scattered", "again", "uuid", "full_merge", "plan-1k", "plan-10k")


def _bench(folder: Path, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    report = folder / "report.json"
    command = [sys.executable, "-m", "benchmarks", *arguments, "--data", str(folder / "data"), "--json", str(report)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout, json.loads(report.read_text())


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("bench")
    _, _, found = _bench(folder, "--scale", "0.0001", "--repeats", "1", "--no-cold")
    return found


def test_every_contender_gives_the_right_rows(report: dict[str, Any]) -> None:
    assert {name: case["failures"] for name, case in report["cases"].items()} == dict.fromkeys(CASES, {})


@pytest.mark.parametrize("case", CASES)
def test_every_case_measures_us_and_the_limit(report: dict[str, Any], case: str) -> None:
    best = report["cases"][case]["best"]
    assert {"wall", "cpu", "peak_mb", "written_mb", "prepare"} <= best["fsspeckit"].keys()
    assert len(best) >= 2


def test_a_merge_reports_its_counts_and_its_commit(report: dict[str, Any]) -> None:
    run = report["cases"]["full_merge"]["best"]["fsspeckit"]
    assert run["inserted"] > 0
    assert run["deleted"] > 0
    assert 0 < run["unchanged"] < run["updated"]
    assert 0 < run["commit_seconds"] < run["wall"]


def test_the_same_merge_again_rewrites_nothing(report: dict[str, Any]) -> None:
    run = report["cases"]["again"]["best"]["fsspeckit"]
    assert run["rewritten_files"] == 0
    assert run["updated"] == run["unchanged"] > 0


def test_bars_are_judged(report: dict[str, Any]) -> None:
    judged = [bar["case"] for bar in report["bars"] if bar["passed"] is not None]
    assert set(judged) == set(CASES)


def test_a_cold_run_fills_the_tables_in_a_document(tmp_path: Path) -> None:
    document = tmp_path / "results.md"
    document.write_text("before\n<!-- results -->\nold\n<!-- end of results -->\nafter\n")
    options = ("--contender", "fsspeckit", "--contender", "limit", "--scale", "0.0001", "--repeats", "2")
    _, text, found = _bench(tmp_path, "clustered", *options, "--markdown", str(document))
    assert "read_mb" in found["cases"]["clustered"]["best"]["limit"]
    assert "clustered: wall at most 2 x limit" in text
    lines = document.read_text().splitlines()
    assert lines[0] == "before"
    assert lines[-1] == "after"
    assert "old" not in lines
    assert any(line.startswith("| fsspeckit |") for line in lines)


def test_an_unknown_case_is_refused() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks", "nonsense"], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 2
    assert b"no such case: nonsense" in done.stderr
