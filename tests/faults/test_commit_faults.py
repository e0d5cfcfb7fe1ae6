"""Every single fault, and every crash inside the recovery from a crash, on the operations of the commit layer."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from faults.injection import CRASHES, ERRORS, Fault
from faults.operations import OPERATIONS, Operation
from faults.sweep import Tally, choose, double_fault, expect, recovery_calls, single_fault
from faults.worlds import LocalWorld, MemoryWorld, World
from sweeps import Sweep

WORLDS = {"local": LocalWorld, "memory": MemoryWorld}
_SINGLES_IN_CI = 120
_FIRSTS_IN_CI = 40
_DOUBLES_IN_CI = 120


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


def test_every_fault_inside_recovery_leaves_old_or_new(
    world: World, operation: Operation, sweep: Sweep, rng: random.Random
) -> None:
    expected = expect(world, operation)
    firsts = [Fault(kind, call) for call in range(1, expected.calls + 1) for kind in CRASHES]
    pairs = [
        (first, Fault(kind, call))
        for first in choose(sweep, rng, firsts, _FIRSTS_IN_CI)
        for call in range(1, recovery_calls(world, operation, first) + 1)
        for kind in (*CRASHES, "error before", "error after", "stays broken")
    ]
    chosen = choose(sweep, rng, pairs, _DOUBLES_IN_CI)
    for first, second in chosen:
        double_fault(world, operation, expected, first, second)
    print(f"{len(chosen)} of {len(pairs)} double faults")
    assert pairs
