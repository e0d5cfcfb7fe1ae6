"""Faults in the steps that only datasets with kept versions have: the policy, folding of old records, and vacuum."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from unittest import mock

import pytest

from faults.disk import stamps_that_survive_copying
from faults.injection import CRASHES, ERRORS, Crash, Fault, FaultStorage
from faults.operations import Operation, append_files, keep_versions, rewrite, set_policy, start, table
from faults.sweep import choose, run_with, versions_of
from faults.test_power_loss import record
from faults.worlds import LocalWorld, MemoryWorld, World
from fsspeckit.common.errors import OutcomeUnknownError
from fsspeckit.core.commit import history, log
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.operations import versions
from fsspeckit.core.storage import Storage
from sweeps import Sweep

WORLDS = {"local": LocalWorld, "memory": MemoryWorld}
_FAULTS_IN_CI = 60
_LOSSES_IN_CI = 60


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = WORLDS[request.param]()
    with (
        mock.patch.object(log, "KEPT_RECORDS", 4),
        mock.patch.object(log, "_PRUNE_SLACK", 1),
        mock.patch.object(history, "_JOINED", 2),
    ):
        yield made
    made.close()


def append_one(storage: Storage, root: str, number: int) -> None:
    append_files(storage, root, {f"n{number}.parquet": table([100 + number], "new")})


def many_versions(world: World) -> None:
    """A dataset whose journal was folded several times, and is folded again by the next commit."""
    keep_versions(world)
    rewrite(world.storage, world.root)
    for number in range(11):
        append_one(world.storage, world.root, number)


def faults_of(
    world: World, run: Callable[[Storage, str], object], sweep: Sweep, rng: random.Random
) -> Iterator[tuple[Fault, object]]:
    """Run with many faults, recover after each, and yield the outcome."""
    world.keep()
    storage = FaultStorage(world.new_storage())
    run(storage, world.root)
    points = [Fault(kind, call) for call in range(1, len(storage.calls) + 1) for kind in (*CRASHES, *ERRORS)]
    for fault in choose(sweep, rng, points, _FAULTS_IN_CI):
        world.reset()
        outcome = run_with(world, run, fault)
        Journal(world.new_storage(), world.root).recover()
        yield fault, outcome


def test_policy_is_set_or_not(world: World, sweep: Sweep, rng: random.Random) -> None:
    start(world)
    rows = world.raw_rows()
    for fault, outcome in faults_of(world, lambda storage, root: set_policy(storage, root, 60), sweep, rng):
        retain = Journal(world.new_storage(), world.root).view().log.retain
        if not isinstance(outcome, (Crash, OutcomeUnknownError)):
            assert retain == (0 if isinstance(outcome, Exception) else 60), fault
        assert world.raw_rows() == rows
        rewrite(world.new_storage(), world.root)
        found = versions_of(world)
        assert found == ([rows, world.raw_rows()] if retain else []), fault


def test_every_version_stays_readable_while_records_are_folded(world: World, sweep: Sweep, rng: random.Random) -> None:
    many_versions(world)
    before = versions_of(world)
    assert len(before) == 14
    assert len(history.list_segments(world.storage, sidecar_of(world, "history"))) > 2
    for fault, _ in faults_of(world, lambda storage, root: append_one(storage, root, 99), sweep, rng):
        assert versions_of(world)[: len(before)] == before, fault
        append_one(world.new_storage(), world.root, 98)
        assert versions_of(world)[: len(before)] == before, fault


def test_vacuum_removes_whole_versions(world: World, sweep: Sweep, rng: random.Random) -> None:
    many_versions(world)
    before, rows, floor = versions_of(world), world.raw_rows(), 9

    def vacuum(storage: Storage, root: str) -> None:
        place = Place.of(root, storage, None)
        listed = place.journal.versions(place.journal.view(), root)
        versions.remove_versions(place, listed, floor, dry_run=False)

    for fault, outcome in faults_of(world, vacuum, sweep, rng):
        found = versions_of(world)
        assert found == before[-len(found) :], fault
        assert len(found) == len(before) - 7 if not isinstance(outcome, BaseException) else len(found) > 6, fault
        vacuum(world.new_storage(), world.root)
        assert versions_of(world) == before[-len(found) :][-7:], fault
        assert world.storage.list_names(sidecar_of(world, "kept")) == [], fault
        assert world.raw_rows() == rows


def test_power_loss_never_loses_a_kept_version(sweep: Sweep, rng: random.Random) -> None:
    """Lose power during commits that set the policy, replace files and fold records."""
    world = LocalWorld()

    def run(storage: Storage, root: str) -> None:
        set_policy(storage, root, 60)
        rewrite(storage, root)
        for number in range(6):
            append_one(storage, root, number)

    with (
        stamps_that_survive_copying(),
        mock.patch.object(log, "KEPT_RECORDS", 2),
        mock.patch.object(log, "_PRUNE_SLACK", 1),
    ):
        start(world)
        world.keep()
        disk = record(world, Operation("keep", start, run))
        wanted = versions_of(world)
        assert len(wanted) == 8
        points = [(at, rng.randrange(2**32)) for at in range(len(disk.events) + 1) for _ in range(8)]
        for at, seed in choose(sweep, rng, points, _LOSSES_IN_CI):
            disk.lose_power(at, random.Random(seed), world.folder)
            Journal(world.new_storage(), world.root).recover()
            found = versions_of(world)
            assert found == wanted[: len(found)], (at, seed)
            assert not found or found[-1] == world.raw_rows(), (at, seed)
    world.close()


def sidecar_of(world: World, name: str) -> str:
    return f"{world.root.rpartition('/')[0]}/.ds.fsspeckit/{name}"
