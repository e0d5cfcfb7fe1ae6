"""Eight writers of one dataset, in eight partitions and in one: no conflict reaches them, and no row is lost.

And merges that are revalidated, because another writer commits meanwhile, under faults at any call.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from faults.injection import CRASHES, ERRORS, Fault, FaultStorage
from faults.sweep import check_clean, choose, run_with
from faults.worlds import Violation, World
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import Storage, recover
from sweeps import Sweep

ROOT = Path(__file__).parents[2]
_IN_CI = 60


@pytest.mark.more
def test_eight_processes_in_eight_partitions_and_in_one(tmp_path: Path, sweep: Sweep) -> None:
    """The benchmark checks every row. Its times are not looked at."""
    report = tmp_path / "report.json"
    merges = "30" if sweep.full else "3"
    command = [sys.executable, "-m", "benchmarks.writers", "--merges", merges, "--repeats", "1", "--json", str(report)]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode in (0, 1), done.stderr
    cases = {case["name"]: case for case in json.loads(report.read_text())["cases"]}
    assert [case["conflicts"] for case in cases.values()] == [0, 0, 0], done.stderr
    assert [case["commits"] for case in cases.values()] == [int(merges) * count for count in (1, 8, 8)]


def rows(ids: range, value: str, day: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "value": [value] * len(ids), "day": [day] * len(ids)})


def start(world: World) -> None:
    io = PyarrowDatasetIO(filesystem=world.storage)
    io.write_dataset(
        pa.concat_tables([rows(range(5), "old", 1), rows(range(5, 9), "old", 2)]), world.root, partition_by="day"
    )


def merge_beside_another(world: World, storage: Storage, other: range, value: str) -> Any:
    """Upsert three rows; before the commit, another writer without faults appends rows to another partition."""
    left = [1]

    def append(event: Any) -> None:
        if left and event.stage == "write" and event.done == event.total:
            left.pop()
            io = PyarrowDatasetIO(filesystem=world.new_storage())
            io.merge(rows(other, value, 2), world.root, strategy="upsert", key_columns="id")

    io = PyarrowDatasetIO(filesystem=storage)
    return io.merge(
        rows(range(3, 6 if value == "clash" else 5), "new", 1),
        world.root,
        strategy="upsert",
        key_columns="id",
        progress=append,
        partition_move="move",
    )


@pytest.mark.parametrize("kind", ["revalidated", "planned again"])
def test_fault_in_a_commit_beside_another(world: World, kind: str, sweep: Sweep, rng: random.Random) -> None:
    """The dataset has none, one or both changes. What was reported as done is there."""
    other, value = (range(7, 11), "other") if kind == "revalidated" else (range(5, 7), "clash")
    start(world)
    world.keep()
    old = world.raw_rows()
    storage = FaultStorage(world.new_storage())
    merge_beside_another(world, storage, other, value)
    both, calls = world.raw_rows(), len(storage.calls)
    world.reset()
    PyarrowDatasetIO(filesystem=world.storage).merge(
        rows(other, value, 2), world.root, strategy="upsert", key_columns="id"
    )
    theirs = world.raw_rows()
    assert len({frozenset(each.items()) for each in (old, theirs, both)}) == 3
    faults = [Fault(fault, call) for call in range(1, calls + 1) for fault in (*CRASHES, *ERRORS)]
    reached = 0
    for fault in choose(sweep, rng, faults, _IN_CI):
        world.reset()
        outcome = run_with(world, lambda storage, _: merge_beside_another(world, storage, other, value), fault)
        where = f"{kind}, {fault.kind} at call {fault.call}"
        seen = world.seen_rows()
        recover(world.new_storage(), world.root)
        after = world.raw_rows()
        if after not in (old, theirs, both) or after != seen:
            raise Violation(f"{where}: {after}")
        if isinstance(outcome, Exception) and "unknown" not in str(outcome) and after == both:
            raise Violation(f"{where}: an error was reported, and the change was made: {outcome!r}")
        if not isinstance(outcome, BaseException) and after != both:
            raise Violation(f"{where}: success was reported, and a change is missing")
        check_clean(world, where)
        reached += after == both
    assert reached > 0 or sweep.faults < 0.3
