"""Concurrent writers: commits per second of small merges, by one process and by eight, in eight partitions and in one.

`python -m benchmarks.writers` prints one line for each case, and pass or FAIL for each bar. A merge updates ten rows of
its writer. Processes start their clocks together, after imports and a first merge.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pyarrow as pa

from fsspeckit import CommitConflictError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

WRITERS = 8
_UPDATED = 10
_ROWS = 1000
_SPAWN = multiprocessing.get_context("spawn")
SCALING_BAR = 1.5


@dataclass(frozen=True, slots=True)
class Case:
    """So many processes, each in its own partition or all in one."""

    name: str
    writers: int
    own_partition: bool


@dataclass(frozen=True, slots=True)
class Timing:
    """What the writers of one case did: commits, conflicts that callers saw, and seconds."""

    name: str
    commits: int
    conflicts: int
    seconds: float

    @property
    def rate(self) -> float:
        """Commits per second."""
        return self.commits / self.seconds


CASES = (
    Case("one writer", 1, own_partition=True),
    Case("eight writers, eight partitions", WRITERS, own_partition=True),
    Case("eight writers, one partition", WRITERS, own_partition=False),
)


def rows_of(writer: int, partition: int, ids: Sequence[int], value: int) -> pa.Table:
    """Rows of one writer, whose keys no other writer has."""
    count = len(ids)
    return pa.table(
        {
            "id": pa.array([writer * 10**9 + number for number in ids], pa.int64()),
            "value": pa.array([value] * count, pa.int64()),
            "text": ["some text of usual length"] * count,
            "part": pa.array([partition] * count, pa.int64()),
        }
    )


def write_target(folder: str, case: Case) -> None:
    """Write the rows of every writer before the first merge."""
    parts = [rows_of(number, number if case.own_partition else 0, range(_ROWS), 0) for number in range(WRITERS)]
    PyarrowDatasetIO().write_dataset(pa.concat_tables(parts), folder, partition_by="part")


def merge_again_and_again(folder: str, writer: int, partition: int, merges: int, start: Barrier, results: Any) -> None:
    """Run the merges of one writer, and put its commits, conflicts and times into the queue."""
    io, conflicts, commits = PyarrowDatasetIO(), 0, 0
    options: dict[str, Any] = {"strategy": "upsert", "key_columns": ["part", "id"]}
    io.merge(rows_of(writer, partition, [0], 0), folder, dry_run=True, **options)
    start.wait()
    began = time.time()
    for number in range(1, merges + 1):
        ids = range(_UPDATED)
        try:
            io.merge(rows_of(writer, partition, ids, number), folder, **options)
            commits += 1
        except CommitConflictError:
            conflicts += 1
    results.put((commits, conflicts, began, time.time()))


def run_case(case: Case, merges: int) -> Timing:
    """Run the writers of a case, and check the rows afterwards."""
    with tempfile.TemporaryDirectory(prefix="fsspeckit-writers-") as base:
        folder = str(Path(base, "ds"))
        write_target(folder, case)
        start, results = _SPAWN.Barrier(case.writers), _SPAWN.Queue()
        processes = [
            _SPAWN.Process(
                target=merge_again_and_again,
                args=(folder, number, number if case.own_partition else 0, merges, start, results),
            )
            for number in range(case.writers)
        ]
        for process in processes:
            process.start()
        found = [results.get(timeout=600) for _ in processes]
        for process in processes:
            process.join()
        commits, conflicts = (sum(each[i] for each in found) for i in range(2))
        _check(folder, case, merges, conflicts)
    return Timing(case.name, commits, conflicts, max(each[3] for each in found) - min(each[2] for each in found))


def _check(folder: str, case: Case, merges: int, conflicts: int) -> None:
    """Raise if rows are missing, duplicated or old, after merges without a conflict."""
    table = PyarrowDatasetIO().read_parquet(folder)
    assert len(set(table["id"].to_pylist())) == table.num_rows
    if conflicts == 0:
        assert table.num_rows == WRITERS * _ROWS
        newest = [value for value in table["value"].to_pylist() if value == merges]
        assert len(newest) == case.writers * _UPDATED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all cases; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.writers", description=__doc__)
    parser.add_argument("--merges", type=int, default=40, help="merges of each process")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each case; the best counts")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args(arguments)
    runs = [[run_case(case, options.merges) for case in CASES] for _ in range(options.repeats)]
    best = [max(each, key=lambda timing: timing.rate) for each in zip(*runs, strict=True)]
    for timing in best:
        print(f"{timing.name:34} {timing.rate:7.1f} commits/s  {timing.commits} commits  {timing.conflicts} conflicts")
    scaling = best[1].rate / best[0].rate
    conflicts = sum(timing.conflicts for each in runs for timing in each)
    bars = {
        f"eight partitions: {scaling:.2f} x one writer, at least {SCALING_BAR} x": scaling >= SCALING_BAR,
        f"conflicts that reached a caller: {conflicts}, none allowed": conflicts == 0,
    }
    for text, passed in bars.items():
        print(f"{'pass' if passed else 'FAIL'}  {text}")
    if options.json:
        options.json.write_text(json.dumps({"cases": [asdict(timing) for timing in best], "bars": bars}, indent=1))
    return 0 if all(bars.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
