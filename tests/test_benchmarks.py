"""The benchmarks run: every case with every installed contender at a tiny size. Times are not looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweeps import sweep_size

pytestmark = [pytest.mark.sweep, pytest.mark.more]
ROOT = Path(__file__).parents[1]
MERGES = ("clustered", "scattered", "again", "uuid", "full_merge", "plan-1k", "plan-10k", "plan-50k")
GROWTH = tuple(f"{name}{part}" for name in ("compact", "cluster", "deduplicate") for part in ("-quarter", "-half", ""))
MEMORY = ("memory-cluster", "memory-deduplicate")
ROW_CHANGES = ("delete-range", "delete-scattered", "update-column", "merge-columns", "feed")
HISTORY = ("history-merge", "history-list", "history-open", "history-view")
CASES = (*MERGES, *ROW_CHANGES, *HISTORY, *GROWTH, "cluster-zorder", "cluster-hilbert", *MEMORY)
CHOSEN = (
    "again",
    "full_merge",
    "plan-50k",
    "delete-range",
    "feed",
    "history-merge",
    "compact",
    "cluster-zorder",
    "memory-deduplicate",
)
"""One case of each kind; a full sweep runs all."""
RUN = CASES if sweep_size().full else CHOSEN
TINY = ("--scale", "0.0001", "--repeats", "1", "--no-cold")
SPARK_CASES = ("large", "small", "growth", "feed") if sweep_size().full else ("small", "feed")
slow = pytest.mark.skipif(not sweep_size().full, reason="starts Spark several times; `make test-full` runs it")


def test_plan_of_very_many_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.million", "--files", "6000", "--data", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "6,000 files" in done.stdout


def _bench(folder: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    report = folder / "report.json"
    command = [sys.executable, "-m", "benchmarks", *arguments, "--data", str(folder / "data"), "--json", str(report)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout, json.loads(report.read_text())


def test_every_case_measures_every_contender_and_finds_its_result_right(tmp_path: Path) -> None:
    _, report = _bench(tmp_path, *RUN, *TINY)
    cases = report["cases"]
    assert tuple(cases) == RUN
    for name, case in cases.items():
        assert case["failures"] == {}, name
        alone = "-quarter" in name or "-half" in name or name in (*MEMORY, "history-list")
        assert len(case["best"]) >= (1 if alone else 2)
        ours = "fsspeckit, DuckDB, 1 GB" if name in MEMORY else "fsspeckit"
        assert {"wall", "cpu", "peak_mb", "written_mb", "prepare"} <= case["best"][ours].keys()
    unbarred = {name for name in RUN if name.endswith("-quarter")}
    assert {bar["case"] for bar in report["bars"] if bar["passed"] is not None} == set(RUN) - unbarred

    synced = cases["full_merge"]["best"]["fsspeckit"]
    assert synced["inserted"] > 0
    assert synced["deleted"] > 0
    assert 0 < synced["unchanged"] < synced["updated"]
    assert 0 < synced["commit_seconds"] < synced["wall"]

    deleted = cases["delete-range"]["best"]["fsspeckit"]
    assert deleted["deleted"] > deleted["rewritten_files"] == 2
    fed = cases["feed"]["best"]["fsspeckit"]
    assert min(fed["updated"], fed["inserted"], fed["deleted"]) > 0

    again = cases["again"]["best"]["fsspeckit"]
    assert again["rewritten_files"] == 0
    assert again["updated"] == again["unchanged"] > 0


@slow
@pytest.mark.spark
def test_queries_are_asked_in_two_orders(tmp_path: Path) -> None:
    _, report = _bench(tmp_path, "skipping", "--contender", "fsspeckit", "--contender", "linear", *TINY)
    found = report["cases"]["skipping"]
    assert found["failures"] == {}
    assert {"ts_mb", "ts_duckdb_mb", "ts_spark_rows"} <= found["best"]["fsspeckit"].keys() & found["best"][
        "linear"
    ].keys()
    assert [bar["passed"] is not None for bar in report["bars"]] == [True]


def test_a_cold_run_fills_the_tables_in_a_document(tmp_path: Path) -> None:
    document = tmp_path / "results.md"
    document.write_text("before\n<!-- results -->\nold\n<!-- end of results -->\nafter\n")
    options = ("--contender", "fsspeckit", "--contender", "limit", "--scale", "0.0001", "--repeats", "2")
    text, found = _bench(tmp_path, "clustered", *options, "--markdown", str(document))
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
    assert f"no such case: nonsense; choose among {', '.join([*CASES, 'skipping'])}" in done.stderr.decode()


@pytest.mark.spark
def test_the_spark_cases_run_in_one_session_and_join_what_was_measured_before(tmp_path: Path) -> None:
    document, report = tmp_path / "results.md", tmp_path / "report.json"
    document.write_text("before\n<!-- results -->\n<!-- end of results -->\nafter\n")
    command = [sys.executable, "-m", "benchmarks.spark", "--scale", "0.0001", "--repeats", "1", "--json", str(report)]
    command += ["--data", str(tmp_path / "data")]
    first, *others = SPARK_CASES
    done = subprocess.run([*command, first], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert json.loads(report.read_text())["cases"][first]["failures"] == {}

    earlier = ["--earlier", str(report), "--markdown", str(document)]
    done = subprocess.run([*command, *others, *earlier], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(report.read_text())
    assert tuple(found["cases"]) == SPARK_CASES
    assert all(case["failures"] == {} for case in found["cases"].values())
    assert all(bar["passed"] is not None for bar in found["bars"] if bar["case"] != "feed")  # Delta has no jar here
    assert "| three empty jobs |" in document.read_text()
    if "large" in found["cases"]:
        best = found["cases"]["large"]["best"]
        assert best["fsspeckit, shuffle"]["shuffle_mb"] > 0 == best["fsspeckit"]["shuffle_mb"]
