"""Faults, kills and power loss in commits that are published in another way than the default."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import get_args

import pytest

from faults.disk import stamps_that_survive_copying
from faults.injection import CRASHES, ERRORS, Fault
from faults.sweep import Tally, check_before_recovery, choose, double_fault, expect, recover_and_check, single_fault
from faults.test_power_loss import lose_power, record
from faults.verbs import NAMED, Operation
from faults.worlds import LocalWorld
from fsspeckit.common.choices import DEFAULT_PUBLISH, PublishMode
from inside import publish_by
from sweeps import Sweep

NAMES = {
    "exchange": ("write append", "upsert", "write overwrite", "delete all", "compact", "upsert inside", "delete"),
    "replace": ("upsert", "upsert inside", "update rows", "merge columns"),
}
KEPT = ("apply changes, keep versions", "restore")
OTHERS = [mode for mode in get_args(PublishMode) if mode != DEFAULT_PUBLISH]
CASES = [(mode, NAMED[name]) for mode in OTHERS for name in (*NAMES[mode], *KEPT)]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1].name}")
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LocalWorld, Operation]]:
    mode, operation = request.param
    publish_by(monkeypatch, mode)
    world = LocalWorld()
    yield world, operation
    world.close()


def test_any_fault_and_any_second_one_leave_old_or_new(
    case: tuple[LocalWorld, Operation], sweep: Sweep, rng: random.Random
) -> None:
    world, operation = case
    expected, tally = expect(world, operation), Tally()
    faults = [Fault(kind, call) for call in range(1, expected.calls + 1) for kind in (*CRASHES, *ERRORS)]
    for fault in choose(sweep, rng, faults, 90):
        tally[single_fault(world, operation, expected, fault)] += 1
    crashes = [Fault(kind, call) for call in range(1, expected.calls + 1) for kind in CRASHES]
    for first in choose(sweep, rng, crashes, 30):
        double_fault(world, operation, expected, first, Fault(rng.choice(CRASHES), rng.randrange(1, 15)))
    print(tally)
    assert tally.total() > 0


def test_kills_and_power_loss_leave_old_or_new(
    case: tuple[LocalWorld, Operation], sweep: Sweep, rng: random.Random
) -> None:
    world, operation = case
    with stamps_that_survive_copying():
        expected = expect(world, operation)
        disk = record(world, operation)
        for at in choose(sweep, rng, range(len(disk.events) + 1), 40):
            lose_power(world, expected, disk, at, rng.randrange(2**32), operation.name)
        points = [(step, when) for step in range(1, disk.steps + 1) for when in ("before", "after")]
        for step, when in choose(sweep, rng, points, 25):
            record(world, operation, step, when)
            where = f"{operation.name}, killed {when} system call {step}"
            check_before_recovery(world, expected, where)
            recover_and_check(world, expected, where)
