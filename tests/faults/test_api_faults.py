"""The same faults under the public operations: write modes, merge strategies, row changes, and maintenance."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from faults.injection import CRASHES, ERRORS, Fault, FaultStorage
from faults.operations import Operation
from faults.row_changes import ROW_CHANGES
from faults.sweep import Tally, choose, double_fault, expect, recovery_calls, run_with, single_fault
from faults.worlds import LocalWorld, MemoryWorld, World
from fsspeckit.core.storage import Storage, join
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from sweeps import Sweep

WORLDS = {"local": LocalWorld, "memory": MemoryWorld}
_SINGLES_IN_CI = 45
_DOUBLES_IN_CI = 20


def rows(ids: range, day: str, value: str) -> pa.Table:
    return pa.table({"id": list(ids), "day": [day] * len(ids), "value": [value] * len(ids)})


def start(world: World) -> None:
    """Two files in each of two partitions."""
    io = PyarrowDatasetIO(filesystem=world.storage)
    for first in (0, 10):
        data = pa.concat_tables(
            [rows(range(first, first + 5), "a", "old"), rows(range(first + 5, first + 10), "b", "old")]
        )
        io.write_dataset(data, world.root, partition_by=["day"])
    world.storage.write_bytes(join(world.root, "notes.txt"), b"none of our business")


def start_doubled(world: World) -> None:
    """The same and a few rows again, in a third file of one partition and a large one of the other."""
    start(world)
    io = PyarrowDatasetIO(filesystem=world.storage)
    again = pa.concat_tables([rows(range(2, 4), "a", "again"), rows(range(8, 20), "b", "again")])
    io.write_dataset(again, world.root, partition_by=["day"])


CHANGED = pa.concat_tables(
    [
        rows(range(2, 4), "a", "new"),
        rows(range(6, 7), "b", "new"),
        rows(range(40, 42), "a", "new"),
        rows(range(50, 52), "c", "new"),
    ]
)


def write(mode: str) -> Callable[[Storage, str], Any]:
    def run(storage: Storage, root: str) -> Any:
        return PyarrowDatasetIO(filesystem=storage).write_dataset(CHANGED, root, mode=mode, partition_by=["day"])

    return run


def merge(strategy: str) -> Callable[[Storage, str], Any]:
    def run(storage: Storage, root: str) -> Any:
        return PyarrowDatasetIO(filesystem=storage).merge(CHANGED, root, strategy=strategy, key_columns=["id"])

    return run


def maintain(method: str, **options: Any) -> Callable[[Storage, str], Any]:
    def run(storage: Storage, root: str) -> Any:
        return getattr(PyarrowDatasetIO(filesystem=storage), f"{method}_parquet_dataset")(root, **options)

    return run


MAINTENANCE = [
    Operation("compact", start, maintain("compact", target_mb_per_file=1), same_rows=True),
    Operation("optimize", start, maintain("optimize", zorder_columns=["id"], target_rows_per_file=6), same_rows=True),
    Operation("deduplicate dataset", start, maintain("deduplicate", key_columns=["value"], dedup_order_by=["id"])),
    Operation(
        "optimize and deduplicate",
        start,
        maintain("optimize", zorder_columns=["id"], curve="hilbert", deduplicate_key_columns=["value", "day"]),
    ),
    Operation(
        "deduplicate and join",
        start_doubled,
        maintain("optimize", deduplicate_key_columns=["id"], target_rows_per_file=8),
    ),
]
OPERATIONS = [
    Operation(f"write {mode}", start, write(mode)) for mode in ("append", "overwrite", "overwrite_partitions")
] + [
    Operation(strategy, start, merge(strategy))
    for strategy in ("upsert", "insert", "update", "full_merge", "deduplicate")
]
OPERATIONS += [*MAINTENANCE, *ROW_CHANGES]


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = WORLDS[request.param]()
    yield made
    made.close()


@pytest.fixture(params=OPERATIONS, ids=lambda operation: operation.name)
def operation(request: pytest.FixtureRequest) -> Operation:
    return request.param


def test_any_single_fault_leaves_old_or_new(
    world: World, operation: Operation, sweep: Sweep, rng: random.Random
) -> None:
    expected = expect(world, operation)
    faults = [Fault(kind, call) for call in range(1, expected.calls + 1) for kind in (*CRASHES, *ERRORS)]
    tally = Tally()
    for fault in choose(sweep, rng, faults, _SINGLES_IN_CI):
        tally[f"{fault.kind} -> {single_fault(world, operation, expected, fault)}"] += 1
    print(f"{sum(tally.values())} of {len(faults)} single faults: {tally}")
    assert tally.total() > 0


def test_every_crash_inside_recovery_leaves_old_or_new(
    world: World, operation: Operation, sweep: Sweep, rng: random.Random
) -> None:
    expected = expect(world, operation)
    firsts = [Fault("crash after", call) for call in range(1, expected.calls + 1)]
    pairs = [
        (first, Fault(kind, call))
        for first in choose(sweep, rng, firsts, 10)
        for call in range(1, recovery_calls(world, operation, first) + 1)
        for kind in CRASHES
    ]
    chosen = choose(sweep, rng, pairs, _DOUBLES_IN_CI)
    for first, second in chosen:
        double_fault(world, operation, expected, first, second)
    print(f"{len(chosen)} of {len(pairs)} double faults")
    assert pairs


PIECEMEAL = [
    maintain("compact", target_mb_per_file=1, max_groups_per_commit=1),
    maintain("optimize", zorder_columns=["id"], max_groups_per_commit=1),
]


@pytest.mark.parametrize("run", PIECEMEAL, ids=["compact", "optimize"])
def test_interrupted_run_of_many_commits_is_resumed(
    world: World, run: Callable[[Storage, str], Any], sweep: Sweep, rng: random.Random
) -> None:
    start(world)
    world.keep()
    rows = world.raw_rows()
    storage = FaultStorage(world.new_storage())
    whole = run(storage, world.root)
    assert len(whole.commits) == 2
    half_done = 0
    for call in choose(sweep, rng, list(range(1, len(storage.calls) + 1)), _SINGLES_IN_CI):
        world.reset()
        run_with(world, run, Fault("crash after", call))
        again = run(world.new_storage(), world.root)
        half_done += 0 < again.compacted_file_count < whole.compacted_file_count
        assert world.raw_rows() == rows
        assert again.after_file_count == whole.after_file_count
    assert half_done > 0
