"""Commit a change to a dataset folder, atomically and with conflict detection.

A transaction stages files in the sidecar, creates one record in the journal, and then publishes the files. The record
is the commit: before it exists nothing has changed, after it exists the change is final. Two commits conflict if they
rewrite the same file, or if one needs a complete view and the other adds a file. Then the second one lists the dataset
again and asks the operation whether the change is right for that view too. If not, it raises
:class:`CommitConflictError` and changes nothing. Appends never conflict.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol, Self

import pyarrow as pa

from fsspeckit.common.bridge import text_array
from fsspeckit.common.choices import PublishMode
from fsspeckit.common.errors import (
    AlreadyCommittedError,
    CommitConflictError,
    DatasetLostError,
    FsspeckitError,
    OutcomeUnknownError,
)
from fsspeckit.common.text import counted, is_storable
from fsspeckit.core.commit.conflicts import Changes, Conflicts, OutdatedViewError, Publish, check_is_possible
from fsspeckit.core.commit.footer_index import FooterIndex
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.log import Log, LogState
from fsspeckit.core.commit.memory import Memory, expected_files, lost
from fsspeckit.core.commit.new_record import RecordBuilder
from fsspeckit.core.commit.publishing import Distribute, check_staged_files
from fsspeckit.core.commit.record import (
    Record,
    new_id,
)
from fsspeckit.core.commit.replay import (
    Replayer,
    replay_pending,
)
from fsspeckit.core.commit.revalidation import ATTEMPTS, NewerView, Queue, Revalidate, commit_in_turn
from fsspeckit.core.commit.sidecar import SidecarLocations
from fsspeckit.core.commit.terms import Check, Terms
from fsspeckit.core.file_names import is_unique
from fsspeckit.core.model import DataFile, ViewFile
from fsspeckit.core.storage import FOLDER, Entry, Handle, Storage, join, parent

__all__ = ["Changes", "Check", "Commit", "Publish", "Revalidate", "Settings", "Terms", "Transaction"]

_LISTED_AGAIN_SECONDS = 60.0
"""After this time, the slots are listed again before one is claimed. It affects the cost only."""
_OLD_FOLDER_SECONDS = 0.02
"""For so long an exchanged folder stays, because a reader may be listing it."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed change. If not ``published``, the storage failed after the commit; the next operation finishes it.

    ``partition_types`` are the types that the commit recorded for the partition columns.
    """

    seq: int
    seconds: float
    bytes_published: int
    published: bool = True
    partition_types: tuple[str, ...] = ()


CheckExportable = Callable[[frozenset[str], Sequence[ViewFile], Mapping[str, bytes]], None]
"""Raises if files with these footers, by path, cannot be described by the exports of some kinds."""


class ListAgain(Protocol):
    """Returns a newer view. ``may_lock``: the lock of the journal may be taken, because the caller does not hold it."""

    def __call__(self, *, may_lock: bool) -> View: ...


@dataclass(frozen=True, slots=True, eq=False)
class Settings:
    """What a journal wants of a transaction: its terms, how files become visible, and what to call."""

    terms: Terms
    publish: PublishMode
    distribute: Distribute
    list_again: ListAgain
    on_commit: Callable[[], None]
    refresh_exports: Callable[[], None]
    check_exportable: CheckExportable


def _staged_files(changes: Changes, staged: Mapping[str, Entry]) -> list[ViewFile]:
    """Return the files that a change publishes, each where it is staged."""
    entries = ((item, staged[item.staged.rpartition("/")[2]]) for item in changes.publish)
    return [ViewFile(item.path, item.staged, entry.size, entry.stamp) for item, entry in entries]


class Transaction:
    """A context manager for one commit. Leaving it without a commit deletes the staged files."""

    def __init__(
        self,
        storage: Storage,
        locations: SidecarLocations,
        log: Log,
        view: View,
        operation: str,
        transaction: str,
        handle: Handle,
        settings: Settings,
    ) -> None:
        self._storage = storage
        self._log = log
        self._view = view
        self._records = RecordBuilder(storage, transaction, operation, settings.terms, log)
        self._handle = handle
        self._terms, self._on_commit = settings.terms, settings.on_commit
        self._distribute, self._by_exchange = settings.distribute, settings.publish == "exchange"
        self._refresh_exports, self._check_exportable = settings.refresh_exports, settings.check_exportable
        self._kept = view.log.kept
        self._list_again = settings.list_again
        self._is_rebased = False
        self._exchanged_at: float | None = None
        self.queue = Queue(storage, log)
        self._files = {file.path: file for file in view.files}
        self._can_delete_staging, self._may_be_committed = True, False
        self._staged: tuple[str, ...] = ()
        self._footers: dict[str, bytes] = {}
        self.staging = log.staging_path(transaction)
        self._conflicts = Conflicts(storage, locations, log, view, self.staging)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Delete the staged files, unless a record may refer to them; the next recovery then handles them."""
        try:
            if self._can_delete_staging:
                self._delete_staging()
        finally:
            self._handle.release()

    def staged_path(self) -> str:
        """Return a new path in the staging folder. Its name is not that of a data file."""
        return join(self.staging, f"{new_id()}.staged")

    @property
    def is_alive(self) -> bool:
        """Return whether the staged files are still there."""
        return self._storage.staging_exists(self.staging)

    def lost(self) -> CommitConflictError | None:
        """Return the conflict if a recovery has removed the staged files and no record can name them."""
        if self._may_be_committed or self.is_alive:
            return None
        return CommitConflictError(
            f"{self._view.root}: a recovery considered this writer dead and removed its staged files. "
            "Nothing was changed. Run the operation again."
        )

    def rebase(self, view: View) -> None:
        """Continue on another view. The staged files stay."""
        self._view, self._is_rebased = view, True
        self._files = {file.path: file for file in view.files}
        self._conflicts = self._conflicts.on(view)

    def commit(self, changes: Changes, revalidate: Revalidate | None = None) -> Commit:
        """Commit the change, all of it or nothing.

        ``revalidate`` is called if others committed since the view and no input changed. With it, the commit can
        continue on a newer view.

        Raises:
            CommitConflictError: Another writer committed first; nothing was changed.
            DamagedFileError: A staged file is damaged; nothing was changed.
            OutcomeUnknownError: The storage failed while the record was being written.
            AlreadyCommittedError: A commit with the same idempotency key exists; nothing was changed.
        """
        if changes.is_empty and not self._terms:
            return Commit(self._view.head, 0.0, 0)
        check_is_possible(self._storage, self._view.root, self._files, self.staging, changes)
        try:
            staged = self._check_and_sync_staged(changes)
        except OSError as error:
            if (conflict := self.lost()) is not None:
                raise conflict from error
            raise
        self._check_exportable(self._kept, _staged_files(changes, staged), self._footers)
        if self._terms.check is not None:
            changes, revalidate = replace(changes, inputs=tuple(self._files), complete_view=True), None
            self._terms.check(self._view, self._view_after(changes, staged), changes.info)
        started = time.perf_counter()
        record, published = self._commit(changes, staged, revalidate)
        self._can_delete_staging = published and self._storage.is_local
        if published and self._view.index is not None and self._view.index.is_used:
            self._save_index(self._view.index, record)
        self._on_commit()
        _logger.info(
            "commit %d of %s by %s: %s published, %s removed",
            record.seq,
            self._view.root,
            self._records.operation,
            counted(len(record.publish), "file"),
            counted(len(record.retire), "file"),
        )
        if published and self._kept:
            self._refresh_exports()
        size = sum(item.size for item in record.publish)
        types = () if record.partition_types is None else tuple(map(str, record.partition_types.types))
        return Commit(record.seq, time.perf_counter() - started, size, published, types)

    def _commit(
        self, changes: Changes, staged: Mapping[str, Entry], revalidate: Revalidate | None
    ) -> tuple[Record, bool]:
        """Create and apply the record, on a newer view if that is needed and possible."""
        if revalidate is None:
            with self.queue.turn():
                return self._create_and_apply(changes, staged)
        committed = commit_in_turn(
            self.queue,
            lambda: self._create_and_apply(changes, staged),
            lambda: self._look_at_newer_view(changes),
            lambda newer: self._continue_on(newer, revalidate),
        )
        if committed is None:
            raise self._always_lost()
        return committed

    def _create_and_apply(self, changes: Changes, staged: Mapping[str, Entry]) -> tuple[Record, bool]:
        record, state = self._claim(changes, staged)
        return record, self._apply(record, state)

    def _look_at_newer_view(self, changes: Changes) -> NewerView:
        """Return the view as it is now. Raise if an input of the change is not the same in it."""
        view = self._list_again(may_lock=False)
        return NewerView(view, self._conflicts.check_newer(changes, view))

    def _continue_on(self, newer: NewerView, revalidate: Revalidate) -> None:
        """Continue on a newer view. Raise if the change is not right for it."""
        revalidate(newer.view, newer.new)
        self.rebase(newer.view)

    def _check_and_sync_staged(self, changes: Changes) -> dict[str, Entry]:
        """Check the staged files and their final paths, and make the files durable. Return the entries by name."""
        self._conflicts.refuse_links(changes)
        # The read of the footer of a single file on an object store also returns its size and stamp.
        lists = self._storage.has_folders or len(changes.staged) != 1 or self._is_rebased
        listed = {entry.path: entry for entry in self._storage.list_dir(self.staging)} if lists else None
        gone = {parent(path): path for path in changes.retire}  # one path of each folder, as their names are there
        names = [*(item.path for item in changes.publish), *gone.values()]
        self._storage.check_publishable(self.staging, [join(self._view.root, name) for name in names])
        found = check_staged_files(self._storage, self._distribute, self.staging, listed, changes.staged)
        self._footers = {item.path: footer for item, (_, footer) in zip(changes.publish, found, strict=False)}
        self._staged = tuple(entry.path for entry in (listed or {}).values() if entry.size != FOLDER)
        self._storage.sync_files(path for path, _ in changes.staged)
        self._storage.sync_dirs([self.staging, self._log.sidecar, parent(self._log.sidecar)])
        names = [path.rpartition("/")[2] for path, _ in changes.staged]
        return {name: entry for name, (entry, _) in zip(names, found, strict=True)}

    def _view_after(self, changes: Changes, staged: Mapping[str, Entry]) -> View:
        """Return the view after the change. New files have the path of their staged file."""
        removed = {*changes.retire, *(item.path for item in changes.publish)}
        files = {path: file for path, file in self._files.items() if path not in removed}
        files.update((file.path, file) for file in _staged_files(changes, staged))
        emptied = None if files else changes.emptied() or self._view.emptied
        ordered, types = tuple(files[path] for path in sorted(files)), changes.partition_types
        types = types or self._view.partition_types
        return replace(self._view, exists=True, files=ordered, emptied=emptied, partition_types=types)

    def _claim(self, changes: Changes, staged: Mapping[str, Entry]) -> tuple[Record, LogState]:
        """Create the record in the next slot. If another writer gets the slot, check for conflicts and try the next."""
        replayer = Replayer(self._storage, self._view.root, self._log)
        if self._knows_next_slot():
            with suppress(CommitConflictError):  # the attempts below find out who changed what
                self._conflicts.check(changes, None)
                record = self._new_record(changes, staged, self._view.log)
                if self._create(record):
                    return record, self._view.log
        for _ in range(ATTEMPTS):
            state = self._log.state()
            if replay_pending(self._log, replayer, state):
                state = self._log.state()
            self._check_key_is_unused()
            self._conflicts.check(changes, state)
            self._log.remove_unused_marks(state)
            record = self._new_record(changes, staged, state)
            if self._create(record):
                return record, state
        raise self._always_lost()

    def _always_lost(self) -> CommitConflictError:
        return CommitConflictError(
            f"Other writers of {self._view.root} committed first in each of {ATTEMPTS} attempts. "
            "Nothing was changed. Run the operation again."
        )

    def _create(self, record: Record) -> bool:
        """Create the record. While it may exist, the staged files must not be deleted."""
        self._can_delete_staging, self._may_be_committed = False, True
        try:
            created = self._log.claim(record)
        except OutcomeUnknownError:
            raise
        except (OSError, CommitConflictError):
            self._can_delete_staging, self._may_be_committed = True, False
            raise
        self._can_delete_staging, self._may_be_committed = not created, created
        return created

    def _knows_next_slot(self) -> bool:
        """Return whether to claim the slot after those of the view without listing them again.

        A commit since the view, or a fence of this transaction, is in that slot, so the claim fails. If the slot was
        used and pruned, the check after the claim fails.
        """
        if self._storage.has_folders or self._terms.key is not None:
            return False
        return self._view.log.is_settled and time.monotonic() - self._view.listed_at < _LISTED_AGAIN_SECONDS

    def _check_key_is_unused(self) -> None:
        key = self._terms.key
        memory = Memory(self._storage, self._view.root, self._log, reload=self._terms.reload)
        seq = None if key is None else memory.committed(key)
        if seq is not None:
            raise AlreadyCommittedError(
                f"{self._view.root}: slot {seq} was already committed under the key {self._terms.key!r}. "
                "Nothing was changed. Use another key for another change.",
                seq,
            )

    def _new_record(self, changes: Changes, staged: Mapping[str, Entry], state: LogState) -> Record:
        """Return the record for the slot after those of ``state``, which lists the policy that applies to it."""
        self._kept = state.kept
        self._check_new_names(changes, state)
        anew = self._starts_anew(state)
        return self._records.build(self._view, self._files, changes, staged, state, anew=anew)

    def _starts_anew(self, state: LogState) -> bool:
        """Return whether rows of earlier commits are gone: none of the files that the newest ones left is in the view.

        A file whose name was made here shows without a request that some are left. A commit since the view has decided
        it, and its files are not in the view.
        """
        is_reload = self._terms.reload
        if not self._files:
            anew = self._view.is_lost or (is_reload and bool(state.records))
        elif not state.records or (
            not is_reload and (state.newest != self._view.head or any(map(is_unique, self._files)))
        ):
            return False
        else:
            anew = is_reload
            for path, size in expected_files(map(self._log.read_or_none, reversed(self._log.effective(state)))):
                if path in self._files and self._files[path].size == size:
                    return False
                anew = True
        if anew and self._terms.continues and not is_reload:
            raise lost(self._storage, self._view.root, "another program wrote the folder anew")
        if anew and state.newest != self._view.head:
            raise OutdatedViewError(f"{self._view.root}: another writer committed. Run the operation again.")
        return anew

    def _check_new_names(self, changes: Changes, state: LogState) -> None:
        """Raise if a file would be replaced under its name although exported metadata describes it."""
        if state.exports and any(item.replaces for item in changes.publish):
            raise CommitConflictError(
                f"{self._view.root} was exported during the operation, so that its files must not be replaced under "
                "their names. Nothing was changed. Run the operation again."
            )

    def _apply(self, record: Record, state: LogState) -> bool:
        """Publish the committed files. Return False after an error; recovery then finishes the commit."""
        replayer = Replayer(self._storage, self._view.root, self._log)
        try:
            if replayer.publish_all(
                record,
                state,
                self._staged,
                self._distribute,
                by_exchange=self._by_exchange,
                put_back=self._view.put_back,
            ):
                self._exchanged_at = time.monotonic()
        except (OSError, FsspeckitError) as first:
            _logger.info("publishing commit %d failed, retrying once: %s", record.seq, first)
            try:
                replayer.replay(record, state)
            except (OSError, DatasetLostError) as error:
                _logger.warning(
                    "commit %d of %s is final, but not all of its files are published (%s); run recover() to finish it",
                    record.seq,
                    self._view.root,
                    error,
                )
                return False
        self._prune(state)
        return True

    def _save_index(self, index: FooterIndex, record: Record) -> None:
        """Add the files that this operation read or published to the footer index. It is only a cache."""
        try:
            published = index.published_files(self._view.root, record, self._footers)
        except (OSError, pa.ArrowException, MemoryError) as error:
            _logger.info("the files of commit %d are not added to the footer index: %s", record.seq, error)
            return
        gone = {item.path for item in record.retire}
        kept = (*self._files.keys(), *(entry.path for entry in self._view.others if is_storable(entry.path)))
        paths = {*kept, *(item.path for item in record.publish)} - gone
        index.save(self._log.sidecar, record.seq, published, lambda: text_array(sorted(paths)))

    def rebuild_index(self, files: Iterable[DataFile]) -> None:
        """Replace the footer index by the facts of these files."""
        index = FooterIndex(self._storage, self._log.sidecar)
        index.save(self._log.sidecar, self._view.head, list(files), lambda: text_array([]), anew=True)

    def _prune(self, state: LogState) -> None:
        try:
            self._log.prune(state)
        except OSError as error:
            _logger.info("old records could not be pruned, the next commit tries again: %s", error)

    def _delete_staging(self) -> None:
        """Delete the staging folder. If that fails, the next recovery does it."""
        self._can_delete_staging = False
        if self._exchanged_at is not None:
            time.sleep(max(0.0, self._exchanged_at + _OLD_FOLDER_SECONDS - time.monotonic()))
        try:
            self._storage.remove_tree(self.staging)
        except OSError as error:
            _logger.info("%s could not be removed, the next recovery tries again: %s", self.staging, error)
