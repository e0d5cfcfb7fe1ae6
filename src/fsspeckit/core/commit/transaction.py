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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from fsspeckit.common.bridge import text_array
from fsspeckit.common.errors import (
    AlreadyCommittedError,
    CommitConflictError,
    FsspeckitError,
    OutcomeUnknownError,
    StorageError,
)
from fsspeckit.common.text import is_storable
from fsspeckit.core.commit.conflicts import Changes, Conflicts, OutdatedViewError, Publish
from fsspeckit.core.commit.footer_index import FooterIndex
from fsspeckit.core.commit.history import Expired
from fsspeckit.core.commit.journal import Log, LogState, Survey
from fsspeckit.core.commit.listing import View, list_dataset
from fsspeckit.core.commit.nesting import check_not_inside_dataset, check_partition_folders
from fsspeckit.core.commit.publishing import CheckStaged, Distribute, Staged, in_one_batch
from fsspeckit.core.commit.record import (
    IDEMPOTENCY_KEY,
    POSITIONS,
    FileList,
    Identity,
    Published,
    Record,
    Retired,
    check_key,
    is_path_in_dataset,
    new_id,
)
from fsspeckit.core.commit.replay import (
    JournalStatus,
    Recovery,
    Replayer,
    journal_status,
    needs_recovery,
    recover,
    replay_pending,
)
from fsspeckit.core.commit.sidecar import SidecarLocations
from fsspeckit.core.commit.versions import Versions
from fsspeckit.core.file_names import is_data_file
from fsspeckit.core.model import DataFile, ViewFile
from fsspeckit.core.storage import FOLDER, Entry, Handle, Storage, join, parent

__all__ = ["Changes", "Check", "Commit", "Journal", "Publish", "Revalidate", "Terms", "Transaction"]

_ATTEMPTS_TO_CLAIM = 100
_LISTED_AGAIN_SECONDS = 60.0
"""After this time, the slots are listed again before one is claimed. It affects the cost only."""
_SURVEY_SECONDS = 10.0
_MAX_NOTE = 1000
_LONGEST_WAIT_SECONDS = 10.0
"""So long a commit lets a writer go first that has lost against others several times."""
_SHORT_WAIT_SECONDS = 0.005
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed change. If not ``published``, the storage failed after the commit; the next operation finishes it."""

    seq: int
    seconds: float
    bytes_published: int
    published: bool = True


Check = Callable[[View, View, Mapping[str, Any]], None]
Revalidate = Callable[[View, frozenset[str]], None]
"""Raises :class:`CommitConflictError` if a change that was planned on an older view is not right for this view.

The second argument has the paths of the files that are not in the older view."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Conditions of a commit.

    At most one commit has a given idempotency ``key``. ``check`` gets the views before and after the change, with
    staged files, and the change's info; it raises to reject the change. With a check, any concurrent change of the
    dataset is a conflict. With either condition, an empty change is committed too. ``note`` is stored in the record,
    and so are ``positions``: the versions of other datasets up to which the change has processed their changes.
    """

    key: str | None = None
    check: Check | None = None
    note: str | None = None
    positions: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.key is not None:
            check_key(self.key)
        if self.note is not None and (not is_storable(self.note) or len(self.note) > _MAX_NOTE):
            raise ValueError(f"The note of a commit is not a text of at most {_MAX_NOTE} characters. Shorten it.")

    def __bool__(self) -> bool:
        return self.key is not None or self.check is not None


class Journal:
    """The journal of one dataset.

    Examples:
        >>> journal = Journal(storage, root)                                      # doctest: +SKIP
        >>> journal.recover()                                                     # doctest: +SKIP
        >>> with journal.begin(journal.view(), "append") as transaction:          # doctest: +SKIP
        ...     staged = transaction.staged_path()
        ...     write_parquet(staged)
        ...     transaction.commit(Changes(publish=(Publish(staged, "part-0.parquet", rows=3),)))
    """

    by_exchange = False
    """Whether commits are published by an exchange of folders, where the storage can do it."""

    def __init__(self, storage: Storage, root: str, terms: Terms = Terms()) -> None:  # noqa: B008 - it is frozen
        self._storage = storage
        # Canonical, so that a link above the dataset that is changed during an operation has no effect on it.
        self._root = storage.canonical(root)
        self._locations = SidecarLocations(storage, self._root)
        self._survey: Survey | None = None
        self._is_checked = False
        self.terms = terms
        self.on_commit: Callable[[], None] = lambda: None
        self.distribute: Distribute = in_one_batch

    def committed(self, key: str) -> int | None:
        """Return the slot of the commit with an idempotency key, or None. Writes nothing."""
        check_key(key)
        sidecar = self._locations.find()
        return None if sidecar is None else Log(self._storage, sidecar).committed(key)

    def position(self, reader: str) -> int | None:
        """Return the last version that a reader of changes has processed into this dataset, or None."""
        sidecar = self._locations.find()
        return None if sidecar is None else Log(self._storage, sidecar).position(reader)

    def recover(self) -> Recovery:
        """Finish an interrupted commit and remove the staged files of dead writers. Creates no journal."""
        survey = self._locations.survey()
        if not needs_recovery(self._storage, survey):
            self._survey = survey
            return Recovery()
        sidecar = self._locations.refresh()  # looks for a second journal before anything is changed
        if sidecar is None:
            return Recovery()
        done = recover(self._storage, self._root, Log(self._storage, sidecar))
        if done.replayed:
            self.on_commit()
        return done

    def status(self) -> JournalStatus:
        """Return what a recovery would work on. Writes nothing."""
        sidecar = self._locations.find()
        return JournalStatus() if sidecar is None else journal_status(self._storage, Log(self._storage, sidecar))

    def view(self, *, consistent: bool = True, may_lock: bool = True) -> View:
        """Return a snapshot of the dataset; ``exists`` is False if there is none. Writes nothing.

        ``may_lock``: the lock of the journal may be taken, because the caller does not hold it.
        One that is not ``consistent`` can have some of the files of a commit during the listing. It is enough for an
        append: no commit depends on it, and on an object store it takes one request less.
        """
        survey, self._survey = self._survey, None
        if survey is not None and survey.age > _SURVEY_SECONDS:
            survey = None  # a commit since then is likely, and would cost a second listing of the dataset
        return list_dataset(
            self._storage, self._root, self._locations, survey, consistent=consistent, may_lock=may_lock
        )

    def versions(self, view: View, path: str) -> Versions:
        """Return the versions of the dataset as of a view; errors name ``path``. Writes nothing."""
        sidecar = self._locations.find()
        return Versions(self._storage, None if sidecar is None else Log(self._storage, sidecar), view, path)

    def expire(self, floor: int, *, dry_run: bool) -> Expired:
        """Remove what only versions before ``floor`` need, and return what that is."""
        sidecar = self._locations.find()
        if sidecar is None:
            return Expired(0)
        log = Log(self._storage, sidecar)
        with self._storage.lock(log.lock_path, shared=dry_run):
            return log.expire(floor, dry_run=dry_run)

    def view_to_change(self, *, takes_filter: bool = False, consistent: bool = True, may_lock: bool = True) -> View:
        """Return a snapshot for an operation that changes the dataset. Raise if files may belong to other datasets.

        ``takes_filter`` says that the operation has a `partition_filter`, which errors then suggest.
        """
        # Who creates an outer dataset later sees the journal that is known here, so one check is enough.
        self._is_checked = self._locations.is_known
        check_not_inside_dataset(self._storage, self._root, self._has_sidecar, takes_filter=takes_filter)
        view = self.view(consistent=consistent, may_lock=may_lock)
        check_partition_folders(self._root, (file.path for file in view.files), self._has_sidecar)
        return view

    def _has_sidecar(self) -> bool:
        return self._locations.find() is not None

    def begin(self, view: View, operation: str) -> Transaction:
        """Open a transaction on a view: create its staging folder and mark it as in use."""
        sidecar = self._locations.find()
        if sidecar is None:
            sidecar = self._locations.create()
        elif not self._is_checked:
            check_not_inside_dataset(self._storage, self._root)  # again: now its own journal is there for others to see
        log = Log(self._storage, sidecar)
        transaction = new_id()
        self._storage.make_dirs(log.folder)  # the creator of the sidecar may have died before this step
        with self._storage.lock(log.lock_path):
            handle = self._storage.claim_staging(log.staging_path(transaction))
        return Transaction(self._storage, self._locations, log, view, operation, transaction, handle, self)


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
        journal: Journal,
    ) -> None:
        self._storage = storage
        self._log = log
        self._view = view
        self._operation = operation
        self._id = transaction
        self._handle = handle
        self._terms, self._on_commit = journal.terms, journal.on_commit
        self._distribute, self._by_exchange = journal.distribute, journal.by_exchange
        self._newer_view = journal.view_to_change
        self._is_rebased = self.is_first = False
        self._files = {file.path: file for file in view.files}
        self._can_delete_staging = True
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

    def rebase(self, view: View) -> None:
        """Continue on another view. The staged files stay."""
        self._view, self._is_rebased = view, True
        self._files = {file.path: file for file in view.files}
        self._conflicts = self._conflicts.on(view)

    @contextmanager
    def first_in_queue(self) -> Iterator[None]:
        """Let the commits of others wait, for a limited time and where the storage has locks, until the context ends.

        It saves a writer from losing against faster ones again and again; no check depends on it.
        """
        with self._storage.lock(self._log.queue_path):
            with self._storage.lock(self._log.lock_path):
                pass  # a commit that has begun ends first
            self.is_first = True
            try:
                yield
            finally:
                self.is_first = False

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
        self._check_shape(changes)
        staged = self._check_and_sync_staged(changes)
        if self._terms.check is not None:
            changes, revalidate = replace(changes, inputs=tuple(self._files), complete_view=True), None
            self._terms.check(self._view, self._view_after(changes, staged), changes.info)
        started = time.perf_counter()
        record, published = self._commit(changes, staged, revalidate)
        self._can_delete_staging = published and self._storage.is_local
        if published and self._view.index is not None and self._view.index.is_used:
            self._save_index(self._view.index, record)
        self._on_commit()
        size = sum(item.size for item in record.publish)
        return Commit(record.seq, time.perf_counter() - started, size, published)

    def _commit(
        self, changes: Changes, staged: Mapping[str, Entry], revalidate: Revalidate | None
    ) -> tuple[Record, bool]:
        """Create and apply the record, on a newer view if that is needed and possible.

        The first newer view is examined without the lock: others may have committed much since. What they commit
        meanwhile is examined with the lock, so that they cannot commit again and again before this commit.
        """
        if revalidate is not None:
            with suppress(OutdatedViewError), self._commit_lock():
                return self._create_and_apply(changes, staged)
            self._revalidate(changes, revalidate)
        with self._commit_lock():
            for _ in range(_ATTEMPTS_TO_CLAIM):
                try:
                    return self._create_and_apply(changes, staged)
                except OutdatedViewError:
                    if revalidate is None:
                        raise
                self._revalidate(changes, revalidate)
        raise self._always_lost()

    def _create_and_apply(self, changes: Changes, staged: Mapping[str, Entry]) -> tuple[Record, bool]:
        record, state = self._claim(changes, staged)
        return record, self._apply(record, state)

    def _revalidate(self, changes: Changes, revalidate: Revalidate) -> None:
        """Continue on a newer view. Raise if the change is not right for it."""
        with suppress(FileNotFoundError):  # another commit removed a file of the view, so it is outdated again
            view = self._newer_view(may_lock=False)
            revalidate(view, self._conflicts.check_newer(changes, view))
            self.rebase(view)

    @contextmanager
    def _commit_lock(self) -> Iterator[None]:
        """Lock the journal, after the commit of a writer that is first in the queue."""
        last = time.monotonic() + _LONGEST_WAIT_SECONDS
        while True:
            with self._storage.lock(self._log.lock_path):
                is_late = self.is_first or time.monotonic() >= last
                if is_late or not self._storage.is_locked(self._log.queue_path):
                    yield
                    return
            time.sleep(_SHORT_WAIT_SECONDS)

    def _check_shape(self, changes: Changes) -> None:
        """Raise if the change is not possible on this view. This check comes first."""
        replaced = [item.path for item in changes.publish if item.replaces]
        named_once = [item.path for item in changes.publish] + list(changes.retire)
        if len(set(named_once)) != len(named_once):
            raise ValueError("A file is published or retired twice in one change. Name each file once.")
        unknown = [path for path in (*replaced, *changes.retire, *changes.inputs) if path not in self._files]
        if unknown:
            raise ValueError(f"Not in the view of this transaction: {', '.join(unknown[:5])}. Plan on this view.")
        if replaced and not self._storage.in_place:
            raise ValueError("This storage cannot replace files. Publish under a new name and retire the old file.")
        for item in changes.publish:
            if not is_data_file(item.path) or not is_path_in_dataset(item.path):
                raise ValueError(f"{item.path!r} is not a data file inside the dataset. Choose another name.")
            if parent(item.staged) != self.staging:
                raise ValueError(f"{item.staged} is not in the staging folder {self.staging}. Write it there.")
            if item.path in self._files and not item.replaces:
                raise FileExistsError(f"{join(self._view.root, item.path)} already exists. Choose another file name.")

    def _check_and_sync_staged(self, changes: Changes) -> dict[str, Entry]:
        """Check the staged files and their final paths, and make the files durable. Return the entries by name."""
        self._conflicts.refuse_links(changes)
        # The read of the footer of a single file on an object store also returns its size and stamp.
        lists = self._storage.has_folders or len(changes.publish) != 1 or self._is_rebased
        listed = {entry.path: entry for entry in self._storage.list_dir(self.staging)} if lists else {}
        names = [item.staged.rpartition("/")[2] for item in changes.publish]
        if lists:
            self._check_none_missing(name for name in names if name not in listed)
        self._storage.check_publishable(self.staging, [join(self._view.root, item.path) for item in changes.publish])
        files = [
            Staged(item.staged, listed.get(name), item.rows) for item, name in zip(changes.publish, names, strict=True)
        ]
        checked = self._distribute(self._storage, CheckStaged(self._storage), files)
        self._check_none_missing(name for name, found in zip(names, checked, strict=True) if found is None)
        known = [found for found in checked if found is not None]
        staged = {name: entry for name, (entry, _) in zip(names, known, strict=True)}
        self._footers = {item.path: footer for item, (_, footer) in zip(changes.publish, known, strict=True)}
        self._staged = tuple(entry.path for entry in listed.values() if entry.size != FOLDER)
        self._storage.sync_files(item.staged for item in changes.publish)
        self._storage.sync_dirs([self.staging, self._log.sidecar, parent(self._log.sidecar)])
        return staged

    def _check_none_missing(self, names: Iterable[str]) -> None:
        missing = next(iter(names), None)
        if missing is not None:
            raise StorageError(f"{missing} is missing in {self.staging}. Nothing was changed. Run the operation again.")

    def _view_after(self, changes: Changes, staged: Mapping[str, Entry]) -> View:
        """Return the view after the change. New files have the path of their staged file."""
        removed = {*changes.retire, *(item.path for item in changes.publish)}
        files = {path: file for path, file in self._files.items() if path not in removed}
        for item in changes.publish:
            entry = staged[item.staged.rpartition("/")[2]]
            files[item.path] = ViewFile(item.path, item.staged, entry.size, entry.stamp)
        return replace(self._view, exists=True, files=tuple(files[path] for path in sorted(files)))

    def _claim(self, changes: Changes, staged: Mapping[str, Entry]) -> tuple[Record, LogState]:
        """Create the record in the next slot. If another writer gets the slot, check for conflicts and try the next."""
        replayer = Replayer(self._storage, self._view.root, self._log)
        if self._knows_next_slot():
            with suppress(CommitConflictError):  # the attempts below find out who changed what
                self._conflicts.check(changes, None)
                record = self._record(changes, staged, self._view.log)
                if self._create(record):
                    return record, self._view.log
        for _ in range(_ATTEMPTS_TO_CLAIM):
            state = self._log.state()
            if replay_pending(self._log, replayer, state):
                state = self._log.state()
            self._check_key_is_unused()
            self._conflicts.check(changes, state)
            self._log.remove_unused_marks(state)
            record = self._record(changes, staged, state)
            if self._create(record):
                return record, state
        raise self._always_lost()

    def _always_lost(self) -> CommitConflictError:
        return CommitConflictError(
            f"Other writers of {self._view.root} committed first in each of {_ATTEMPTS_TO_CLAIM} attempts. "
            "Nothing was changed. Run the operation again."
        )

    def _create(self, record: Record) -> bool:
        """Create the record. While it may exist, the staged files must not be deleted."""
        self._can_delete_staging = False
        try:
            created = self._log.claim(record)
        except OutcomeUnknownError:
            raise
        except (OSError, CommitConflictError):
            self._can_delete_staging = True
            raise
        self._can_delete_staging = not created
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
        seq = None if self._terms.key is None else self._log.committed(self._terms.key)
        if seq is not None:
            raise AlreadyCommittedError(
                f"{self._view.root}: slot {seq} was already committed under the key {self._terms.key!r}. "
                "Nothing was changed. Use another key for another change.",
                seq,
            )

    def _record(self, changes: Changes, staged: Mapping[str, Entry], state: LogState) -> Record:
        """Return the record for the slot after those of ``state``, which lists the policy that applies to it."""
        publish = []
        for item in changes.publish:
            name = item.staged.rpartition("/")[2]
            old = self._conflicts.identity(item.path) if item.replaces else None
            publish.append(Published(name, item.path, item.rows, staged[name].size, staged[name].stamp, old))
        retire = [Retired(path, self._conflicts.identity(path)) for path in changes.retire]
        retire += [Retired(entry.path, Identity(entry.size, entry.stamp)) for entry in self._stale_side_files(changes)]
        info = {"operation": self._operation, "at": datetime.now(UTC).isoformat()} | dict(changes.info)
        info |= {IDEMPOTENCY_KEY: self._terms.key} if self._terms.key is not None else {}
        info |= {"note": self._terms.note} if self._terms.note is not None else {}
        info |= {POSITIONS: dict(self._terms.positions)} if self._terms.positions else {}
        folders = self._missing_folders(changes)
        keeps = bool(state.retain or changes.retain)
        return Record(
            state.newest + 1,
            "commit",
            self._id,
            tuple(publish),
            tuple(retire),
            folders,
            info=info,
            keep=bool(state.retain),
            retain=changes.retain,
            listed=self._files_after(publish, changes.retire, state) if keeps else None,
        )

    def _files_after(self, publish: Iterable[Published], retire: Iterable[str], state: LogState) -> FileList:
        """Return the data files after the commit. If others committed since the view, the dataset is listed again."""
        if state.newest == self._view.head:
            sizes = {path: file.size for path, file in self._files.items()}
        else:
            sizes = {}
            with suppress(FileNotFoundError):
                tree = self._storage.list_tree(self._view.root).files
                sizes = {entry.path: entry.size for entry in tree if is_data_file(entry.path)}
        for path in retire:
            sizes.pop(path, None)
        return FileList.of(sizes | {item.path: item.size for item in publish})

    def _stale_side_files(self, changes: Changes) -> list[Entry]:
        """Return the side files that the change makes invalid: all summary files, and checksums of changed files."""
        changed = [*changes.retire, *(item.path for item in changes.publish if item.replaces)]
        checksums = {join(parent(path), f".{path.rpartition('/')[2]}.crc") for path in changed}
        return [entry for entry in self._view.side_files if not entry.path.endswith(".crc") or entry.path in checksums]

    def _missing_folders(self, changes: Changes) -> tuple[str, ...]:
        """Return the folders to create, including ``""``, the folder of the dataset."""
        if not self._storage.has_folders:
            return ()
        missing: dict[str, bool] = {}
        for item in changes.publish:
            folder = parent(item.path)
            while folder not in missing:
                missing[folder] = self._storage.stat(join(self._view.root, folder)) is None
                folder = parent(folder)
        return tuple(sorted(folder for folder, is_missing in missing.items() if is_missing))

    def _apply(self, record: Record, state: LogState) -> bool:
        """Publish the committed files. Return False after an error; recovery then finishes the commit."""
        replayer = Replayer(self._storage, self._view.root, self._log)
        try:
            replayer.publish_all(record, self._staged, self._distribute, by_exchange=self._by_exchange)
        except (OSError, FsspeckitError) as first:
            _logger.info("publishing commit %d failed, retrying once: %s", record.seq, first)
            try:
                replayer.replay(record)
            except OSError as error:
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
        except (OSError, pa.ArrowException) as error:
            _logger.info("the files of commit %d are not added to the footer index: %s", record.seq, error)
            return
        gone = {item.path for item in record.retire}
        paths = {*self._files.keys(), *(item.path for item in record.publish)} - gone
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
        try:
            self._storage.remove_tree(self.staging)
        except OSError as error:
            _logger.info("%s could not be removed, the next recovery tries again: %s", self.staging, error)
