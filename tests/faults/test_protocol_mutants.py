"""Take one check or order away from under the tests of the protocol and of the commit: they must fail.

These are what it takes an order of events to find that a sweep of one process cannot reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from core.commit import test_transaction as commits
from faults import test_protocol as protocol
from faults.operations import start
from faults.test_mutants import Hunt, Mutant, give_up, patch
from faults.worlds import LocalWorld, MemoryWorld, World
from fsspeckit.common.errors import FsspeckitError
from fsspeckit.core.commit import journal, replay, transaction
from fsspeckit.core.commit.journal import Log, LogState
from fsspeckit.core.commit.record import Record
from fsspeckit.core.commit.replay import Replayer
from fsspeckit.core.commit.transaction import Transaction
from fsspeckit.core.storage import LocalStorage, Storage
from fsspeckit.core.storage.fsspec import FsspecStorage


def _replay_everything(log: Log, replayer: Replayer, state: LogState) -> tuple[int, ...]:
    for seq in state.records:
        if seq not in state.done:
            replayer.replay(log.read(seq))
    return ()


def _delete_without_fence(storage: Storage, log: Log, replayer: Replayer) -> tuple[str, ...]:
    orphans = replay._orphans(storage, log, log.stagings())
    for name in orphans:
        storage.remove_tree(log.staging_path(name))
    return orphans


def _close_then_drop(self: Replayer, item: Record) -> None:
    self._log.finish(item)
    for name in (*item.fenced, item.owner):
        self._storage.remove_tree(self._log.staging_path(name))


def _prune_wrongly(self: Log, state: LogState) -> None:
    if len(state.records) > journal.KEPT_RECORDS + 32:
        for seq in state.records[: -journal.KEPT_RECORDS]:
            for kind in ("json", "done"):
                self._storage.remove(self._path(seq, kind))


@contextmanager
def _no_lock(self: LocalStorage, path: str, *, shared: bool = False) -> Iterator[None]:
    yield


def _nothing(*_: object, **__: object) -> None:
    return None


def in_world(make: Callable[[], World], test: Callable[..., None], *arguments: object) -> Hunt:
    """A test of the protocol or of the commit, in a world of its own."""

    def hunt() -> None:
        world = make()
        try:
            start(world)
            world.keep()
            with mock.patch.object(journal, "KEPT_RECORDS", 4):
                test(world, *arguments)
        finally:
            world.close()

    return hunt


PROTOCOL_MUTANTS: dict[str, tuple[Mutant, Hunt]] = {
    "a pruned slot may be taken again": (
        patch(Log, "_check_not_late", _nothing),
        in_world(MemoryWorld, protocol.test_a_slot_that_was_pruned_cannot_be_taken_again, 4),
    ),
    "a taken slot is always ours": (
        patch(Log, "_is_ours", lambda self, item: True),
        in_world(MemoryWorld, protocol.test_a_writer_taken_for_dead_never_commits, "create_exclusive"),
    ),
    "whether staging still stands is not checked (object store)": (
        patch(FsspecStorage, "staging_exists", lambda self, folder: True),
        in_world(MemoryWorld, protocol.test_a_writer_taken_for_dead_never_commits, "staging_exists"),
    ),
    "whether staging still stands is not checked (local)": (
        patch(LocalStorage, "staging_exists", lambda self, folder: True),
        in_world(LocalWorld, protocol.test_a_writer_that_lost_its_staging_folder_never_commits),
    ),
    "orphans are deleted without a fence": (
        patch(replay, "_fence_orphans", _delete_without_fence),
        in_world(MemoryWorld, protocol.test_a_fence_is_written_before_anything_is_deleted),
    ),
    "the living are taken for dead": (
        patch(LocalStorage, "is_alive", lambda self, folder: False),
        in_world(LocalWorld, protocol.test_a_living_writer_is_left_alone),
    ),
    "staging goes after done on an object store": (
        patch(Replayer, "_close", _close_then_drop),
        in_world(MemoryWorld, protocol.test_a_helper_brings_nothing_back_even_while_the_lease_of_the_dead_writer_runs),
    ),
    "replay retires whatever has the name": (
        patch(Replayer, "_retire_again", Replayer._retire),
        in_world(LocalWorld, protocol.test_replay_keeps_a_file_that_came_under_a_retired_name),
    ),
    "replay replaces whatever has the name": (
        patch(Replayer, "_republish", Replayer._publish),
        in_world(LocalWorld, protocol.test_replay_keeps_a_file_that_was_changed_after_we_decided_to_replace_it),
    ),
    "ghosts are replayed": (
        patch(replay, "replay_pending", _replay_everything),
        in_world(MemoryWorld, protocol.test_only_the_newest_record_is_ever_replayed),
    ),
    "records are pruned before done": (
        patch(Log, "prune", _prune_wrongly),
        in_world(MemoryWorld, protocol.test_pruning_takes_done_before_the_record_and_never_the_newest, 4),
    ),
    "there is no lock": (
        patch(LocalStorage, "lock", _no_lock),
        in_world(LocalWorld, protocol.test_the_lock_is_held_while_files_move),
    ),
    "a slot given up stays free": (
        patch(Log, "_settle", give_up),
        in_world(MemoryWorld, protocol.test_a_create_that_arrives_late_finds_its_slot_taken),
    ),
    "the journal is not asked for conflicts": (
        patch(Transaction, "_find_foreign_commit", _nothing),
        in_world(LocalWorld, commits.test_the_journal_tells_a_conflict_that_the_attributes_of_files_hide),
    ),
    "inputs are not looked at again": (
        patch(Transaction, "_find_changed_file", _nothing),
        in_world(LocalWorld, commits.test_an_input_that_a_foreign_program_changed_is_a_conflict, False),
    ),
    "the folder is not listed again": (
        patch(Transaction, "_find_change_in_tree", _nothing),
        in_world(
            LocalWorld, commits.test_a_file_that_a_foreign_program_added_is_a_conflict_for_who_needs_to_see_every_file
        ),
    ),
    "names are not looked at again": (
        patch(Transaction, "_find_taken_name", _nothing),
        in_world(LocalWorld, commits.test_a_name_that_a_foreign_program_took_is_a_conflict),
    ),
    "staged files are not checked": (
        patch(transaction, "check_staged", _nothing),
        in_world(LocalWorld, commits.test_a_staged_file_that_is_not_whole_is_refused),
    ),
    "final names are not checked": (
        patch(LocalStorage, "check_publishable", _nothing),
        in_world(LocalWorld, commits.test_a_name_too_long_for_the_disk_is_refused_before_anything_changes, 300),
    ),
    "a journal that moved is not noticed": (
        patch(Transaction, "_find_lost_staging", _nothing),
        in_world(LocalWorld, commits.test_a_journal_that_appears_inside_meanwhile_is_a_conflict),
    ),
}


@pytest.mark.parametrize("name", sorted(PROTOCOL_MUTANTS))
def test_a_test_of_the_protocol_finds(name: str) -> None:
    mutate, hunt = PROTOCOL_MUTANTS[name]
    hunt()
    with mutate(), pytest.raises((AssertionError, FsspeckitError, OSError, pytest.fail.Exception)):
        hunt()
