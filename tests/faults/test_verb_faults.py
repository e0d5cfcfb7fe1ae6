"""Every single fault, and every crash inside the recovery from a crash, under each verb of the public API."""

from __future__ import annotations

import random
from typing import Any

import pytest

from faults.injection import CRASHES, ERRORS, Fault, FaultStorage
from faults.sweep import Tally, choose, double_fault, expect, recovery_calls, run_with, single_fault
from faults.verbs import OPERATIONS, Operation, Run, call, start
from faults.worlds import World
from sweeps import Sweep


@pytest.fixture(params=OPERATIONS, ids=lambda operation: operation.name)
def operation(request: pytest.FixtureRequest) -> Operation:
    return request.param


def test_any_single_fault_leaves_old_or_new(
    world: World, operation: Operation, sweep: Sweep, rng: random.Random
) -> None:
    expected = expect(world, operation)
    faults = [Fault(kind, call) for call in range(1, expected.calls + 1) for kind in (*CRASHES, *ERRORS)]
    tally = Tally()
    for fault in (*choose(sweep, rng, faults, 90), *(Fault("torn", move) for move in expected.moves)):
        tally[f"{fault.kind} -> {single_fault(world, operation, expected, fault)}"] += 1
    print(f"{sum(tally.values())} of {len(faults)} single faults: {tally}")
    assert tally.total() > 0


@pytest.mark.more
def test_every_fault_inside_recovery_leaves_old_or_new(
    world: World, operation: Operation, sweep: Sweep, rng: random.Random
) -> None:
    expected = expect(world, operation)
    firsts = [Fault(kind, call) for call in range(1, expected.calls + 1) for kind in CRASHES]
    pairs = [
        (first, Fault(kind, call))
        for first in choose(sweep, rng, firsts, 20)
        for call in range(1, recovery_calls(world, operation, first) + 1)
        for kind in (*CRASHES, "error before", "error after", "stays broken")
    ]
    chosen = choose(sweep, rng, pairs, 60)
    for first, second in chosen:
        double_fault(world, operation, expected, first, second)
    print(f"{len(chosen)} of {len(pairs)} double faults")
    assert pairs


@pytest.mark.parametrize("verb", ["compact", "optimize"])
def test_interrupted_run_of_many_commits_is_resumed(world: World, verb: str, sweep: Sweep, rng: random.Random) -> None:
    options: dict[str, Any] = {"target_mb_per_file": 1} if verb == "compact" else {"zorder_columns": ["id"]}
    run: Run = call(f"{verb}_parquet_dataset", max_groups_per_commit=1, **options)
    start(world)
    world.keep()
    rows = world.raw_rows()
    storage = FaultStorage(world.new_storage())
    whole = run(storage, world.root)
    assert len(whole.commits) == 2
    half_done = 0
    for number in choose(sweep, rng, list(range(1, len(storage.calls) + 1)), 45):
        world.reset()
        run_with(world, run, Fault("crash after", number))
        again = run(world.new_storage(), world.root)
        half_done += 0 < again.compacted_file_count < whole.compacted_file_count
        assert world.raw_rows() == rows
        assert again.after_file_count == whole.after_file_count
    assert half_done > 0
