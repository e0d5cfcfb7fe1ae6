"""Mutation tests of the protocol and commit tests: without one check or order of steps, a test must fail.

These mutants need an order of events that a sweep of one process cannot reach.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from core.commit import test_transaction as commits
from core.operations import test_concurrent_commits as concurrent
from faults import test_protocol as protocol
from faults.operations import start
from faults.test_mutants import Check, Mutant, give_up, patch
from faults.worlds import LocalWorld, MemoryWorld, World
from fsspeckit.common.errors import FsspeckitError
from fsspeckit.core.commit import log, publishing, replay
from fsspeckit.core.commit.conflicts import Changes, Conflicts
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.log import Log, LogState
from fsspeckit.core.commit.record import Record
from fsspeckit.core.commit.replay import Replayer
from fsspeckit.core.operations import attempts
from fsspeckit.core.operations.change import Revalidation
from fsspeckit.core.storage import LocalStorage, Storage
from fsspeckit.core.storage.fsspec import FsspecStorage


def _replay_everything(log: Log, replayer: Replayer, state: LogState) -> tuple[int, ...]:
    for seq in state.records:
        if seq not in state.done:
            replayer.replay(log.read(seq))
    return ()


def _delete_without_fence(storage: Storage, log: Log, replayer: Replayer, *, end_writers: bool) -> tuple[str, ...]:
    orphans = replay._orphans(storage, log, log.stagings(), end_writers=end_writers)
    for name in orphans:
        storage.remove_tree(log.staging_path(name))
    return orphans


CLOSE_IN_BULK = Replayer._close_in_bulk


def _finish_then_close(self: Replayer, item: Record, staged: Iterable[str]) -> None:
    self._log.finish(item)
    CLOSE_IN_BULK(self, item, staged)


def _finish_then_delete(self: Replayer, item: Record) -> None:
    self._log.finish(item)
    for name in (*item.fenced, item.owner):
        self._storage.remove_tree(self._log.staging_path(name))


def _prune_wrongly(self: Log, state: LogState) -> None:
    if len(state.records) > log.KEPT_RECORDS + 32:
        for seq in state.records[: -log.KEPT_RECORDS]:
            for kind in ("json", "done"):
                self._storage.remove_many([self._path(seq, kind)])


@contextmanager
def _no_lock(self: LocalStorage, path: str, *, shared: bool = False) -> Iterator[None]:
    yield


def _nothing(*_: object, **__: object) -> None:
    return None


def in_world(make: Callable[[], World], test: Callable[..., None], *arguments: object) -> Check:
    """Run a protocol or commit test in its own world."""

    def check() -> None:
        world = make()
        try:
            start(world)
            world.keep()
            with mock.patch.object(log, "KEPT_RECORDS", 4):
                test(world, *arguments)
        finally:
            world.close()

    return check


CHECK_NEWER = Conflicts.check_newer


def _trust_size_and_stamp(self: Conflicts, changes: Changes, view: View) -> frozenset[str]:
    with mock.patch.object(Conflicts, "_commits_since", return_value=[]):
        return CHECK_NEWER(self, changes, view)


def in_folder(test: Callable[..., None], *arguments: object) -> Check:
    """Run a test of concurrent operations in its own folder."""

    def check() -> None:
        with tempfile.TemporaryDirectory() as base:
            test(f"{base}/d", *arguments)

    return check


def in_path(test: Callable[..., None]) -> Check:
    """Run a test that gets a path and a monkeypatch."""

    def check() -> None:
        with tempfile.TemporaryDirectory() as base, pytest.MonkeyPatch.context() as patches:
            test(Path(base), patches)

    return check


NO_INPUT = "inputs are not compared with a newer view"
"""Without an input in the view, no record can be made: this mutant is found by a KeyError."""
PROTOCOL_MUTANTS: dict[str, tuple[Mutant, Check]] = {
    "a pruned slot can be used again": (
        patch(Log, "_check_is_newest", _nothing),
        in_world(MemoryWorld, protocol.test_pruned_slot_cannot_be_used_again, 4),
    ),
    "any record in the slot counts as own": (
        patch(Log, "_is_own", lambda self, item: True),
        in_world(MemoryWorld, protocol.test_fenced_writer_cannot_commit, "create_exclusive"),
    ),
    "existence of the staging folder is not checked (object store)": (
        patch(FsspecStorage, "staging_exists", lambda self, folder: True),
        in_world(MemoryWorld, protocol.test_fenced_writer_cannot_commit, "open_output"),
    ),
    "existence of the staging folder is not checked (local)": (
        patch(LocalStorage, "staging_exists", lambda self, folder: True),
        in_world(LocalWorld, protocol.test_writer_without_staging_folder_cannot_commit),
    ),
    "orphans are deleted without a fence": (
        patch(replay, "_fence_orphans", _delete_without_fence),
        in_world(MemoryWorld, protocol.test_fence_is_written_before_any_deletion),
    ),
    "live writers are considered dead": (
        patch(LocalStorage, "is_alive", lambda self, folder: False),
        in_world(LocalWorld, protocol.test_live_writer_is_not_fenced),
    ),
    "staging is deleted after done on an object store": (
        patch(Replayer, "_close_in_bulk", _finish_then_close),
        in_world(MemoryWorld, protocol.test_delayed_replay_restores_no_file_within_the_lease),
    ),
    "staging is deleted after done in a recovery on an object store": (
        patch(Replayer, "_close", _finish_then_delete),
        in_world(MemoryWorld, protocol.test_delayed_replay_restores_no_file_after_a_recovery_that_crashed),
    ),
    "the slot after those of an old view is claimed without a check": (
        patch(Log, "_check_is_newest", _nothing),
        in_world(MemoryWorld, protocol.test_writer_with_an_old_view_commits_in_a_new_slot, 4),
    ),
    "the next slot is claimed although a commit is pending": (
        patch(LogState, "is_settled", property(lambda self: bool(self.records))),
        in_world(MemoryWorld, protocol.test_pending_commit_is_finished_before_the_next),
    ),
    "replay retires any file at the path": (
        patch(Replayer, "_is_unchanged", lambda self, item, file, current: True),
        in_world(LocalWorld, protocol.test_replay_keeps_a_new_file_at_a_retired_path),
    ),
    "replay replaces any file at the path": (
        patch(Replayer, "_path_for", lambda self, item, file, current: file.path),
        in_world(LocalWorld, protocol.test_replay_keeps_a_file_changed_after_the_commit),
    ),
    "older records without done are replayed": (
        patch(replay, "replay_pending", _replay_everything),
        in_world(MemoryWorld, protocol.test_only_the_newest_record_is_replayed),
    ),
    "records are pruned before done": (
        patch(Log, "prune", _prune_wrongly),
        in_world(MemoryWorld, protocol.test_prune_deletes_done_before_records_and_keeps_the_newest, 4),
    ),
    "there is no lock": (
        patch(LocalStorage, "lock", _no_lock),
        in_world(LocalWorld, protocol.test_lock_is_held_during_publishing),
    ),
    "a slot stays free after a failed create": (
        patch(Log, "_resolve_failed_create", give_up),
        in_world(MemoryWorld, protocol.test_delayed_create_fails_on_the_abort_record),
    ),
    "the journal is not checked for conflicts": (
        patch(Conflicts, "_find_foreign_commit", _nothing),
        in_world(LocalWorld, commits.test_journal_shows_a_conflict_that_size_and_stamp_do_not),
    ),
    "inputs are not checked again": (
        patch(Conflicts, "_find_changed_file", _nothing),
        in_world(LocalWorld, commits.test_input_changed_by_another_program_is_a_conflict, False),
    ),
    "the folder is not listed again": (
        patch(Conflicts, "_find_change_in_tree", _nothing),
        in_world(LocalWorld, commits.test_file_added_by_another_program_conflicts_with_a_complete_view),
    ),
    "new paths are not checked again": (
        patch(Conflicts, "_find_taken_name", _nothing),
        in_world(LocalWorld, commits.test_file_created_by_another_program_is_a_conflict),
    ),
    "staged files are not checked": (
        patch(publishing, "check_staged", lambda storage, path, entry, rows: (entry, b"")),
        in_world(LocalWorld, commits.test_damaged_staged_file_is_rejected),
    ),
    "final names are not checked": (
        patch(LocalStorage, "check_publishable", _nothing),
        in_world(LocalWorld, commits.test_too_long_file_name_is_rejected_before_any_change, 300),
    ),
    "a change is not revalidated": (
        patch(Revalidation, "__call__", _nothing),
        in_folder(concurrent.test_two_upserts_of_one_new_key_end_in_one_row),
    ),
    "new files are not searched for rows of a condition": (
        patch(Revalidation, "__call__", _nothing),
        in_folder(concurrent.test_delete_and_update_look_at_new_files_by_their_condition, [()]),
    ),
    NO_INPUT: (
        patch(Conflicts, "check_newer", lambda self, changes, view: frozenset(file.path for file in view.files)),
        in_folder(concurrent.test_a_row_that_another_writer_deletes_stays_deleted),
    ),
    "a revalidation trusts size and stamp": (
        patch(Conflicts, "check_newer", _trust_size_and_stamp),
        in_path(concurrent.test_the_journal_shows_an_input_that_size_and_stamp_do_not),
    ),
    "staged files are used again although their inputs changed": (
        patch(attempts, "_parts", lambda task: [b"same"]),
        in_path(
            lambda path, patches: concurrent.test_staged_files_whose_inputs_are_unchanged_are_used_again(
                f"{path}/d", patches
            )
        ),
    ),
    "a moved journal is not detected": (
        patch(Conflicts, "_find_lost_staging", _nothing),
        in_world(LocalWorld, commits.test_moved_journal_is_a_conflict),
    ),
}


@pytest.mark.parametrize("name", sorted(PROTOCOL_MUTANTS))
def test_protocol_tests_detect_mutant(name: str) -> None:
    mutate, check = PROTOCOL_MUTANTS[name]
    errors = (AssertionError, FsspeckitError, OSError, pytest.fail.Exception)
    check()
    with mutate(), pytest.raises(KeyError if name == NO_INPUT else errors):
        check()
