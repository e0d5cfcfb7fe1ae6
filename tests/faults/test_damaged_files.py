"""Damaged footers give a typed error or a correct result in every operation on every engine, and no crash."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faults.damaged import GOOD, OPERATIONS, Case, damaged, sound_files, try_out
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from sweeps import sweep_size

PROGRAM = Path(__file__).with_name("damaged.py")


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ["pyarrow", "duckdb"])
def test_damaged_footers(engine: str) -> None:
    """Runs in child processes, because a damaged file can crash one. A full sweep tests ten thousand files."""
    count = str(sweep_size().size(ci=30, full=10_000))
    command = [sys.executable, str(PROGRAM), "--engine", engine, "--damage", count, "--seed", "17"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert done.stdout.endswith(", 0 bad\n")


@pytest.mark.spark
@pytest.mark.sweep
def test_damaged_footers_on_spark(tmp_path: Path) -> None:
    from fsspeckit.datasets.spark import SparkDatasetIO

    io: Any = SparkDatasetIO()
    rng, files = random.Random(5), sound_files(tmp_path / "sound")
    for number in range(sweep_size().size(ci=1, full=50)):
        for kind, sound in files.items():
            case = Case(f"{kind} {number}", damaged(sound, rng), sound)
            for name in OPERATIONS:
                outcome = try_out(io, name, case)
                assert outcome.startswith(GOOD), (case.name, name, outcome)


def test_valid_files_give_correct_results(tmp_path: Path) -> None:
    """Otherwise the tests above could pass because every file is rejected."""
    io = PyarrowDatasetIO()
    for kind, sound in sound_files(tmp_path / "sound").items():
        for name in OPERATIONS:
            assert try_out(io, name, Case(kind, sound, sound)) == "ok"
