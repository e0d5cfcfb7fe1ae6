"""Kills at every system call, and power loss after each of them with any subset of the unsynced changes lost."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import suppress

import pytest

from faults.disk import Disk, recording, stamps_that_survive_copying
from faults.injection import Crash
from faults.sweep import Expected, check_before_recovery, choose, expect, recover_and_check
from faults.verbs import NAMED, OPERATIONS, Operation
from faults.worlds import LocalWorld, Violation
from inside import LocalStorage, half_a_start, recover
from sweeps import Sweep

_KILLS_IN_CI = 30
_LOSSES_IN_CI = 60
_SUBSETS = 30


@pytest.fixture
def world() -> Iterator[LocalWorld]:
    made = LocalWorld()
    with stamps_that_survive_copying():
        yield made
    made.close()


@pytest.fixture(params=OPERATIONS, ids=lambda operation: operation.name)
def operation(request: pytest.FixtureRequest) -> Operation:
    return request.param


def record(world: LocalWorld, operation: Operation, crash_at: int | None = None, when: str = "before") -> Disk:
    """Run the operation on a recorded disk until its end or the kill."""
    world.reset()
    disk = Disk(world.folder)
    disk.crash_at, disk.crash_when = crash_at, when
    with recording(disk) as storage, suppress(Crash):
        operation.run(storage, world.root)
    return disk


def lose_power(world: LocalWorld, expected: Expected, disk: Disk, at: int, seed: int, where: str) -> None:
    """Create one possible disk after a power loss, recover, and check it."""
    disk.lose_power(at, random.Random(seed), world.folder)
    where = f"{where}, power loss after event {at} of {len(disk.events)}, seed {seed}"
    seen = world.seen_rows()
    if seen not in (expected.old, expected.new):
        raise Violation(f"{where}: our own reader sees neither the old nor the new dataset")
    rows = recover_and_check(world, expected, where)
    if at == len(disk.events) and disk.crash_at is None and rows != expected.new:
        raise Violation(f"{where}: success was reported, and the change is lost")


@pytest.mark.more
def test_kill_at_every_system_call(world: LocalWorld, operation: Operation, sweep: Sweep, rng: random.Random) -> None:
    expected = expect(world, operation)
    steps = record(world, operation).steps
    points = [(step, when) for step in range(1, steps + 1) for when in ("before", "after")]
    for step, when in choose(sweep, rng, points, _KILLS_IN_CI):
        record(world, operation, step, when)
        where = f"{operation.name}, killed {when} system call {step}"
        check_before_recovery(world, expected, where)
        recover_and_check(world, expected, where)
    print(f"{len(points)} kill points")
    assert steps > 10


def test_power_loss_after_every_event(
    world: LocalWorld, operation: Operation, sweep: Sweep, rng: random.Random
) -> None:
    expected = expect(world, operation)
    disk = record(world, operation)
    points = [(at, rng.randrange(2**32)) for at in range(len(disk.events) + 1) for _ in range(_SUBSETS)]
    for at, seed in choose(sweep, rng, points, _LOSSES_IN_CI):
        lose_power(world, expected, disk, at, seed, operation.name)
    print(f"{len(points)} power losses")
    assert len(disk.events) > 10


@pytest.mark.more
def test_power_loss_during_recovery_from_a_kill(
    world: LocalWorld, operation: Operation, sweep: Sweep, rng: random.Random
) -> None:
    expected = expect(world, operation)
    steps = record(world, operation).steps
    done = 0
    for step in choose(sweep, rng, range(1, steps + 1), 20):
        disk = record(world, operation, step, "after")
        killed = len(disk.events)
        disk.dead, disk.crash_at = False, -1
        with recording(disk) as storage:
            recover(storage, world.root)
        points = [(at, rng.randrange(2**32)) for at in range(killed, len(disk.events) + 1) for _ in range(4)]
        for at, seed in choose(sweep, rng, points, 20):
            lose_power(world, expected, disk, at, seed, f"{operation.name}, killed at system call {step}")
            done += 1
    print(f"{done} power losses during recovery")
    assert done > 0


def test_power_loss_after_a_writer_that_was_killed_while_it_created_the_journal(
    world: LocalWorld, sweep: Sweep, rng: random.Random
) -> None:
    """The first writer is killed before it syncs the folder above the sidecar; a second one commits."""
    operation = NAMED["append to bare"]

    def run(storage: LocalStorage, root: str) -> None:
        half_a_start(storage, root, Crash)
        operation.run(storage, root)

    expected = expect(world, operation)
    disk = record(world, Operation("half a start", operation.prepare, run))
    points = [(at, seed) for at in range(len(disk.events) + 1) for seed in range(60)]
    for at, seed in choose(sweep, rng, points, 4000):
        lose_power(world, expected, disk, at, seed, "half a start")


def test_model_loses_unsynced_changes(tmp_path: os.PathLike[str]) -> None:
    base = os.path.join(tmp_path, "disk")
    os.mkdir(base)
    disk = Disk(base)
    with recording(disk) as storage:
        storage.make_dirs(f"{base}/kept")
        storage.write_bytes(f"{base}/kept/synced", b"data")
        storage.sync_files([f"{base}/kept/synced"])
        storage.sync_dirs([base, f"{base}/kept"])
        storage.write_bytes(f"{base}/kept/unsynced", b"data")
    seen = set()
    for seed in range(40):
        disk.lose_power(len(disk.events), random.Random(seed), base)
        with open(f"{base}/kept/synced", "rb") as file:
            assert file.read() == b"data"
        unsynced = f"{base}/kept/unsynced"
        seen.add(os.path.getsize(unsynced) if os.path.exists(unsynced) else None)
    assert seen == {None, 0, 2, 4}
