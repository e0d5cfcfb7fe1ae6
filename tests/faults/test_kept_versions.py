"""Faults in the steps that only datasets with kept versions have: the policy, folding of old records, and vacuum."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from faults.disk import stamps_that_survive_copying
from faults.injection import CRASHES, ERRORS, Crash, Fault, FaultStorage
from faults.sweep import choose, run_with, versions_of
from faults.test_power_loss import record
from faults.verbs import UPDATE, Operation, Run, call, start, start_kept, table
from faults.worlds import LocalWorld, World
from fsspeckit.common.errors import OutcomeUnknownError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import Storage, join, recover, short_journals
from sweeps import Sweep

_FAULTS_IN_CI = 60


@pytest.fixture(autouse=True)
def _folded_early() -> Iterator[None]:
    with short_journals():
        yield


def append_one(storage: Storage, root: str, number: int) -> None:
    call("write_dataset", table([(100 + number, "a", 1, "new")]))(storage, root)


def many_versions(world: World) -> None:
    """A dataset whose journal was folded several times, and is folded again by the next commit."""
    start_kept(world)
    for number in range(12):
        append_one(world.storage, world.root, number)


def faults_of(world: World, run: Run, sweep: Sweep, rng: random.Random) -> Iterator[tuple[Fault, object]]:
    """Run with many faults, recover after each, and yield the outcome."""
    world.keep()
    storage = FaultStorage(world.new_storage())
    run(storage, world.root)
    points = [Fault(kind, call) for call in range(1, len(storage.calls) + 1) for kind in (*CRASHES, *ERRORS)]
    for fault in choose(sweep, rng, points, _FAULTS_IN_CI):
        world.reset()
        outcome = run_with(world, run, fault)
        recover(world.new_storage(), world.root)
        yield fault, outcome


def test_policy_is_set_or_not(world: World, sweep: Sweep, rng: random.Random) -> None:
    start(world)
    rows = world.raw_rows()
    for fault, outcome in faults_of(world, call("keep_history"), sweep, rng):
        assert world.raw_rows() == rows
        UPDATE(world.new_storage(), world.root)
        found = versions_of(world)
        assert found in ([], [rows, world.raw_rows()]), fault
        if not isinstance(outcome, (Crash, OutcomeUnknownError)):
            assert bool(found) != isinstance(outcome, Exception), fault


def test_every_version_stays_readable_while_records_are_folded(world: World, sweep: Sweep, rng: random.Random) -> None:
    many_versions(world)
    before = versions_of(world)
    assert len(before) == 14
    assert len(world.storage.list_names(sidecar_of(world, "history"))) > 2
    for fault, _ in faults_of(world, lambda storage, root: append_one(storage, root, 99), sweep, rng):
        assert versions_of(world)[: len(before)] == before, fault
        append_one(world.new_storage(), world.root, 98)
        assert versions_of(world)[: len(before)] == before, fault


def test_vacuum_removes_whole_versions(world: World, sweep: Sweep, rng: random.Random) -> None:
    many_versions(world)
    before, rows, vacuum = versions_of(world), world.raw_rows(), call("vacuum", older_than="0s")
    for fault, outcome in faults_of(world, vacuum, sweep, rng):
        found = versions_of(world)
        assert found == before[-len(found) :], fault
        assert len(found) == 1 if not isinstance(outcome, BaseException) else found, fault
        vacuum(world.new_storage(), world.root)
        assert versions_of(world) == before[-1:], fault
        assert world.storage.list_names(sidecar_of(world, "kept")) == [], fault
        assert world.raw_rows() == rows


def test_power_loss_never_loses_a_kept_version(sweep: Sweep, rng: random.Random) -> None:
    """Lose power during commits that set the policy, replace files and fold records."""
    world = LocalWorld()

    def run(storage: Storage, root: str) -> None:
        PyarrowDatasetIO(filesystem=storage).keep_history(root)
        UPDATE(storage, root)
        for number in range(6):
            append_one(storage, root, number)

    with stamps_that_survive_copying(), short_journals(records=2):
        start(world)
        world.keep()
        disk = record(world, Operation("keep", start, run))
        wanted = versions_of(world)
        assert len(wanted) == 8
        points = [(at, rng.randrange(2**32)) for at in range(len(disk.events) + 1) for _ in range(8)]
        for at, seed in choose(sweep, rng, points, _FAULTS_IN_CI):
            disk.lose_power(at, random.Random(seed), world.folder)
            recover(world.new_storage(), world.root)
            found = versions_of(world)
            assert found == wanted[: len(found)], (at, seed)
            assert not found or found[-1] == world.raw_rows(), (at, seed)
    world.close()


def sidecar_of(world: World, name: str) -> str:
    return join(world.root.rpartition("/")[0], ".ds.fsspeckit", name)
