"""Mutation tests of the sweeps: without one fsync, check or order of steps, a sweep must find a violation.

Mutants that need an order of events that a sweep cannot reach are in `test_protocol_mutants`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

import pytest

from faults.disk import recording, stamps_that_survive_copying
from faults.injection import Crash, Fault
from faults.operations import OPERATIONS, Operation, append
from faults.sweep import check_before_recovery, expect, recover_and_check, single_fault
from faults.test_exchange import (
    test_changes_of_other_programs_during_the_exchange_are_kept as changes_during_an_exchange,
)
from faults.test_power_loss import lose_power, record
from faults.worlds import LocalWorld, MemoryWorld, Violation, World
from fsspeckit.common.errors import OutcomeUnknownError, StorageError
from fsspeckit.core.commit.exchange import Exchange
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.log import Log
from fsspeckit.core.commit.record import Record
from fsspeckit.core.commit.replay import Replayer
from fsspeckit.core.commit.sidecar import SidecarLocations
from fsspeckit.core.commit.transaction import Transaction
from fsspeckit.core.storage import LocalStorage, for_each, join
from fsspeckit.core.storage.local import os as real_os

NAMED = {operation.name: operation for operation in OPERATIONS}
Mutant = Callable[[], AbstractContextManager[Any]]
Check = Callable[[], None]


def patch(target: object, name: str, value: object) -> Mutant:
    return lambda: mock.patch.object(target, name, value)


def without_syncing(unwanted: Callable[[str], bool]) -> Mutant:
    original = LocalStorage.sync_dirs

    def sync_dirs(self: LocalStorage, paths: Iterable[str]) -> None:
        original(self, [path for path in paths if not unwanted(path)])

    return patch(LocalStorage, "sync_dirs", sync_dirs)


def _unsynced_write(folder: int, name: str, data: bytes, *, sync: bool) -> None:
    WRITE(folder, name, data, sync=False)


WRITE = LocalStorage._write


def _create_in_place(self: LocalStorage, path: str, data: bytes) -> None:
    import fsspeckit.core.storage.local as module

    descriptor = module.os.open(path, real_os.O_WRONLY | real_os.O_CREAT | real_os.O_EXCL, 0o666)
    try:
        module.os.write(descriptor, data[: len(data) // 2])
        module.os.write(descriptor, data[len(data) // 2 :])
        module.os.fsync(descriptor)
    finally:
        os.close(descriptor)
    self.sync_dirs([os.path.dirname(path)])


def _done_first(self: Replayer, item: Record, *_: object, **__: object) -> None:
    self._log.finish(item)
    CARRY_OUT(self, item)


CARRY_OUT = Replayer.publish_all
MOVES = Replayer._moves


def _retire_first(self: Replayer, item: Record, *_: object, **__: object) -> None:
    self._make_folders(item)
    for_each(self._storage, lambda pair: self._retire(item, *pair), enumerate(item.retire))
    self._publish(item, [(file, file.path) for file in item.publish])
    self._storage.sync_dirs(self._folders_of(item))
    self._close(item)


def _keep_last(self: Replayer, item: Record, *_: object, **__: object) -> None:
    with mock.patch.object(Replayer, "_keep"):
        CARRY_OUT(self, item)
    self._keep(item.kept)


def _folders_not_synced(self: Replayer, item: Record) -> None:
    for folder in item.folders:
        self._storage.make_dirs(join(self._root, folder))


def _nothing(*_: object) -> None:
    return None


def give_up(self: Log, item: Record, error: OSError) -> bool:
    raise error


def _always_delete_staging(self: Transaction, *_: object) -> None:
    self._delete_staging()
    self._handle.release()


def _raise_after_commit(self: Transaction, item: Record, state: object) -> bool:
    Replayer(self._storage, self._view.root, self._log).publish_all(item)
    return True


def _create_without_sync(self: SidecarLocations, place: str) -> None:
    self._storage.make_dirs(join(place, "log"))
    self._storage.write_bytes(join(place, "lock"), b"")


def power_loss(name: str) -> Check:
    """Lose power after every event, with many subsets of unsynced changes."""

    def check() -> None:
        with local_world() as world, stamps_that_survive_copying():
            expected = expect(world, NAMED[name])
            disk = record(world, NAMED[name])
            for seed in range(60):
                for at in range(len(disk.events) + 1):
                    lose_power(world, expected, disk, at, seed, name)

    return check


def power_loss_after_kill(name: str) -> Check:
    """Lose power during the recovery from a kill."""

    def check() -> None:
        with local_world() as world, stamps_that_survive_copying():
            expected = expect(world, NAMED[name])
            steps = record(world, NAMED[name]).steps
            for step in range(1, steps + 1):
                disk = record(world, NAMED[name], step, "after")
                killed = len(disk.events)
                disk.dead, disk.crash_at = False, -1
                with recording(disk) as storage:
                    Journal(storage, world.root).recover()
                for at in range(killed, len(disk.events) + 1):
                    for seed in range(6):
                        lose_power(world, expected, disk, at, seed, name)

    return check


def power_loss_after_half_a_start(seeds: int = 60) -> None:
    """A first writer is killed between creating the sidecar and syncing it; a second one commits; then power loss."""
    operation = NAMED["append to bare"]

    def killed_then_run(storage: LocalStorage, root: str) -> None:
        with mock.patch.object(LocalStorage, "sync_dirs", side_effect=Crash), pytest.raises(Crash):
            SidecarLocations(storage, root).create()
        append(storage, root)

    with local_world() as world, stamps_that_survive_copying():
        expected = expect(world, operation)
        disk = record(world, Operation("half a start", operation.prepare, killed_then_run))
        for seed in range(seeds):
            for at in range(len(disk.events) + 1):
                lose_power(world, expected, disk, at, seed, "half a start")


def kills(name: str) -> Check:
    """A kill at every system call."""

    def check() -> None:
        with local_world() as world:
            expected = expect(world, NAMED[name])
            for step in range(1, record(world, NAMED[name]).steps + 1):
                record(world, NAMED[name], step, "after")
                check_before_recovery(world, expected, f"kill at {step}")
                recover_and_check(world, expected, f"kill at {step}")

    return check


def faults(make: Callable[[], World], name: str, *kinds: str) -> Check:
    """Single faults of some kinds at every call."""

    def check() -> None:
        world = make()
        try:
            expected = expect(world, NAMED[name])
            for call in range(1, expected.calls + 1):
                for kind in kinds:
                    single_fault(world, NAMED[name], expected, Fault(kind, call))  # type: ignore[arg-type]
        finally:
            world.close()

    return check


def exchanging(check: Check) -> Check:
    """The same check, with commits that are published by an exchange of folders."""

    def checked() -> None:
        with mock.patch.object(Journal, "publish", "exchange"):
            check()

    return checked


@contextmanager
def local_world() -> Iterator[LocalWorld]:
    world = LocalWorld()
    try:
        yield world
    finally:
        world.close()


def foreign_changes(*, crash: bool) -> Check:
    """Another program adds and replaces files during an exchange."""

    def check() -> None:
        with local_world() as world:
            changes_during_an_exchange(world, crash)

    return exchanging(check)


MUTANTS: dict[str, tuple[Mutant, Check]] = {
    "staged files are not synced": (
        patch(LocalStorage, "sync_files", lambda self, paths: None),
        power_loss("append"),
    ),
    "the staging folder is not synced": (
        without_syncing(lambda path: "/.staging_" in path),
        power_loss("append"),
    ),
    "the new tree of an exchange is not synced": (
        without_syncing(lambda path: "/folder" in path),
        exchanging(power_loss("rewrite")),
    ),
    "staged files are moved into the tree of an exchange": (
        patch(LocalStorage, "link", LocalStorage.publish),
        exchanging(faults(LocalWorld, "rewrite", "crash before")),
    ),
    "the sidecar is not synced": (
        without_syncing(lambda path: path.endswith(".fsspeckit")),
        power_loss("append"),
    ),
    "new folders above the sidecar are not synced": (
        patch(SidecarLocations, "_create_at", _create_without_sync),
        power_loss("create deep"),
    ),
    "the folder of the sidecar is not synced at commit": (
        without_syncing(lambda path: path.endswith("/lake")),
        power_loss_after_half_a_start,
    ),
    "the record is not synced": (
        patch(LocalStorage, "_write", staticmethod(_unsynced_write)),
        power_loss("append"),
    ),
    "the folder of the records is not synced": (
        without_syncing(lambda path: path.endswith("/log")),
        power_loss("append"),
    ),
    "recovery does not sync the record it found": (
        patch(Log, "sync", lambda self: None),
        power_loss_after_kill("create"),
    ),
    "new partition folders are not synced before files move in": (
        patch(Replayer, "_make_folders", _folders_not_synced),
        power_loss("rewrite"),
    ),
    "the dataset's folders are not synced before done": (
        patch(Replayer, "_folders_of", lambda self, item: []),
        power_loss("rewrite"),
    ),
    "the record is written in place": (
        patch(LocalStorage, "create_exclusive", _create_in_place),
        kills("append"),
    ),
    "done comes before publishing (local)": (
        patch(Replayer, "publish_all", _done_first),
        faults(LocalWorld, "rewrite", "torn"),
    ),
    "done comes before publishing (object store)": (
        patch(Replayer, "publish_all", _done_first),
        faults(MemoryWorld, "rewrite", "crash before"),
    ),
    "retiring comes before publishing": (
        patch(Replayer, "publish_all", _retire_first),
        faults(LocalWorld, "compact", "crash before"),
    ),
    "retiring comes before publishing (local)": (
        patch(Replayer, "_moves", lambda self, item: MOVES(self, item)[::-1]),
        kills("compact"),
    ),
    "an exchange ignores what other programs add": (
        patch(Exchange, "_repeat_foreign_changes", _nothing),
        foreign_changes(crash=False),
    ),
    "recovery ignores what other programs added to an exchanged folder": (
        patch(Exchange, "keep_additions", _nothing),
        foreign_changes(crash=True),
    ),
    "a lost response counts as a failure (local)": (
        patch(Log, "_resolve_failed_create", give_up),
        faults(LocalWorld, "rewrite", "error after"),
    ),
    "a lost response counts as a failure (object store)": (
        patch(Log, "_resolve_failed_create", give_up),
        faults(MemoryWorld, "rewrite", "error after"),
    ),
    "staging is deleted although the outcome is unknown": (
        patch(Transaction, "__exit__", _always_delete_staging),
        faults(LocalWorld, "append", "two errors"),
    ),
    "an error while publishing is reported as a failed commit": (
        patch(Transaction, "_apply", _raise_after_commit),
        faults(LocalWorld, "append", "error before"),
    ),
    "records are not replayed": (
        patch(Replayer, "replay", lambda self, item: self._log.finish(item)),
        faults(MemoryWorld, "rewrite", "crash before"),
    ),
    "new files are not published again": (
        patch(Replayer, "_path_for", lambda self, item, file, current: None),
        faults(MemoryWorld, "append", "crash before"),
    ),
    "retired files are not retired again": (
        patch(Replayer, "_is_unchanged", lambda self, item, file, current: False),
        faults(MemoryWorld, "rewrite", "crash before"),
    ),
    "kept files are not synced before files are replaced": (
        without_syncing(lambda path: path.endswith("/kept")),
        power_loss("rewrite, keep versions"),
    ),
    "recovery does not keep files": (
        patch(Replayer, "_unchanged", lambda self, items: []),
        faults(MemoryWorld, "rewrite, keep versions", "crash before"),
    ),
    "files are kept after they are replaced": (
        patch(Replayer, "publish_all", _keep_last),
        faults(LocalWorld, "rewrite, keep versions", "crash before"),
    ),
    "orphans are not removed": (
        patch(Log, "stagings", lambda self: []),
        faults(LocalWorld, "append", "crash before"),
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_sweep_detects_mutant(name: str) -> None:
    mutate, check = MUTANTS[name]
    with mutate(), pytest.raises((Violation, StorageError, OutcomeUnknownError)):
        check()


def test_checks_pass_without_mutants() -> None:
    power_loss_after_half_a_start(seeds=6)
    kills("append")()
    faults(MemoryWorld, "compact", "two errors")()
