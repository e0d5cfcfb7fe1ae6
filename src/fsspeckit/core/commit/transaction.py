"""The commit: the only code that creates, replaces or deletes anything in a dataset folder.

A change is staged beside the dataset, decided by one record in the journal, and then carried out. Two commits that
rewrite the same file, or one that needed to see a file the other adds, conflict: the first record wins, the second
writer gets :class:`CommitConflictError` and has changed nothing. Pure appends conflict with nobody.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Self

from fsspeckit.common.errors import AlreadyCommittedError, CommitConflictError, OutcomeUnknownError, StorageError
from fsspeckit.core.commit.journal import Log, LogState, SidecarLocations
from fsspeckit.core.commit.listing import View, list_dataset
from fsspeckit.core.commit.nesting import check_not_inside_dataset, check_partition_folders
from fsspeckit.core.commit.record import IDEMPOTENCY_KEY, Identity, Published, Record, Retired, new_id
from fsspeckit.core.commit.replay import JournalStatus, Recovery, Replayer, journal_status, recover, replay_pending
from fsspeckit.core.file_names import is_data_file, is_inside
from fsspeckit.core.model import ViewFile
from fsspeckit.core.parquet.footer import check_staged
from fsspeckit.core.storage import Entry, Handle, Storage, for_each, join, parent

_ATTEMPTS_TO_CLAIM = 100
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Publish:
    """A staged file and the name it gets. ``replaces``: it takes the place of an input of that name (local only)."""

    staged: str
    path: str
    rows: int
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Changes:
    """One change of a dataset.

    ``inputs`` are files that must still be as the view saw them; retired and replaced ones are implied. With
    ``complete_view`` a data file that the view did not see is a conflict too.
    """

    publish: tuple[Publish, ...] = ()
    retire: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    complete_view: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Commit:
    """A change that is decided. Not ``published``: the storage failed afterwards; the next operation finishes it."""

    seq: int
    seconds: float
    bytes_published: int
    published: bool = True


Check = Callable[[View, View, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms changes are committed.

    Under ``key`` there is one commit at most. ``check`` is shown the dataset before and after, staged files included,
    with the change's info, and may raise; nobody may change the dataset meanwhile. A change that is empty is
    committed too.
    """

    key: str | None = None
    check: Check | None = None

    def __bool__(self) -> bool:
        return self.key is not None or self.check is not None


class Journal:
    """The journal of one dataset.

    Example:
        >>> journal = Journal(storage, root)                                      # doctest: +SKIP
        >>> journal.recover()                                                     # doctest: +SKIP
        >>> with journal.begin(journal.view(), "append") as transaction:          # doctest: +SKIP
        ...     staged = transaction.staged_path()
        ...     write_parquet(staged)
        ...     transaction.commit(Changes(publish=(Publish(staged, "part-0.parquet", rows=3),)))
    """

    def __init__(self, storage: Storage, root: str, terms: Terms = Terms()) -> None:  # noqa: B008 - it is frozen
        self._storage = storage
        self._root = root
        self._places = SidecarLocations(storage, root)
        self.terms = terms
        self.on_commit: Callable[[], None] = _nothing

    def committed(self, key: str) -> int | None:
        """The slot of the commit that was made under an idempotency key. Writes nothing."""
        sidecar = self._places.find()
        return None if sidecar is None else Log(self._storage, sidecar).committed(key)

    def recover(self) -> Recovery:
        """Finish a commit that was cut off and remove what dead writers left. Creates nothing."""
        sidecar = self._places.find()
        if sidecar is None:
            return Recovery()
        done = recover(self._storage, self._root, Log(self._storage, sidecar))
        if done.replayed:
            self.on_commit()
        return done

    def status(self) -> JournalStatus:
        """What a recovery would find. Writes nothing."""
        sidecar = self._places.find()
        return JournalStatus() if sidecar is None else journal_status(self._storage, Log(self._storage, sidecar))

    def view(self) -> View:
        """List the dataset as one snapshot; a missing one gives a view that does not exist. Writes nothing."""
        return list_dataset(self._storage, self._root, self._places)

    def view_to_change(self, *, takes_filter: bool = False) -> View:
        """List the dataset for an operation that changes it; raises where its files could belong to other datasets.

        ``takes_filter`` tells errors that the operation has a `partition_filter`.
        """
        check_not_inside_dataset(self._storage, self._root, self._has_sidecar, takes_filter=takes_filter)
        view = self.view()
        check_partition_folders(self._root, (file.path for file in view.files), self._has_sidecar)
        return view

    def _has_sidecar(self) -> bool:
        return self._places.find() is not None

    def begin(self, view: View, operation: str) -> Transaction:
        """Open a transaction on a view: create its staging folder and show that we are alive."""
        sidecar = self._places.find()
        if sidecar is None:
            sidecar = self._places.create()
        else:
            check_not_inside_dataset(self._storage, self._root)  # again: now its own journal is there for others to see
        log = Log(self._storage, sidecar)
        transaction = new_id()
        self._storage.make_dirs(log.folder)  # its creator may have died before it came to this
        with self._storage.lock(log.lock_path):
            handle = self._storage.claim_staging(log.staging_path(transaction))
        return Transaction(self._storage, self._places, log, view, operation, transaction, handle, self)


def _nothing() -> None:
    """Nobody is notified of commits."""


class Transaction:
    """Staged files on their way into a dataset; leaving it without a commit drops them."""

    def __init__(
        self,
        storage: Storage,
        places: SidecarLocations,
        log: Log,
        view: View,
        operation: str,
        transaction: str,
        handle: Handle,
        journal: Journal,
    ) -> None:
        self._storage = storage
        self._places = places
        self._log = log
        self._view = view
        self._operation = operation
        self._id = transaction
        self._handle = handle
        self._terms, self._on_commit = journal.terms, journal.on_commit
        self._files = {file.path: file for file in view.files}
        self._droppable = True
        self.staging = log.staging_path(transaction)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Drop what was staged, unless a record may refer to it; then the next recovery decides."""
        try:
            if self._droppable:
                self._drop()
        finally:
            self._handle.release()

    def staged_path(self) -> str:
        """A fresh name in the staging folder that no reader takes for data."""
        return join(self.staging, f"{new_id()}.staged")

    def commit(self, changes: Changes) -> Commit:
        """Make the change, all of it or none.

        Raises:
            CommitConflictError: Another writer was first; nothing was changed.
            DamagedFileError: A staged file is not what it should be; nothing was changed.
            OutcomeUnknownError: The storage broke down while the record was being written.
            AlreadyCommittedError: There is a commit under the same key; nothing was changed.
        """
        if not changes.publish and not changes.retire and not self._terms:
            return Commit(self._view.head, 0.0, 0)
        self._check_shape(changes)
        staged = self._seal(changes)
        if self._terms.check is not None:
            changes = replace(changes, inputs=tuple(self._files), complete_view=True)
            self._terms.check(self._view, self._after(changes, staged), changes.info)
        started = time.perf_counter()
        with self._storage.lock(self._log.lock_path):
            record, state = self._claim(changes, staged)
            published = self._carry_out(record, state)
        self._droppable = published and self._storage.is_local
        self._on_commit()
        size = sum(item.size for item in record.publish)
        return Commit(record.seq, time.perf_counter() - started, size, published)

    def _check_shape(self, changes: Changes) -> None:
        """Refuse a change that could not be carried out on this view, before anything else."""
        replaced = [item.path for item in changes.publish if item.replaces]
        named_once = [item.path for item in changes.publish] + list(changes.retire)
        if len(set(named_once)) != len(named_once):
            raise ValueError("a file is published or retired twice in one change")
        unknown = [path for path in (*replaced, *changes.retire, *changes.inputs) if path not in self._files]
        if unknown:
            raise ValueError(f"not in the view that the change was planned on: {', '.join(unknown[:5])}")
        if replaced and not self._storage.in_place:
            raise ValueError("this storage cannot replace a file in place; publish under a new name and retire the old")
        for item in changes.publish:
            if not is_data_file(item.path) or not is_inside(item.path):
                raise ValueError(f"{item.path!r} is not the name of a data file inside the dataset")
            if parent(item.staged) != self.staging:
                raise ValueError(f"{item.staged} is not staged in this transaction")
            if item.path in self._files and not item.replaces:
                raise FileExistsError(f"{join(self._view.root, item.path)} exists already. Choose another file name.")

    def _seal(self, changes: Changes) -> dict[str, Entry]:
        """Check every staged file and its final name, and make all of them durable together."""
        staged = {entry.path: entry for entry in self._storage.list_dir(self.staging)}
        names = [item.staged.rpartition("/")[2] for item in changes.publish]
        missing = [name for name in names if name not in staged]
        if missing:
            raise StorageError(
                f"{missing[0]} is gone from {self.staging}. Nothing was changed; run the operation again."
            )
        self._storage.check_publishable(self.staging, [join(self._view.root, item.path) for item in changes.publish])
        for_each(
            self._storage,
            lambda item: check_staged(
                self._storage, item.staged, staged[item.staged.rpartition("/")[2]].size, item.rows
            ),
            changes.publish,
        )
        self._storage.sync_files(item.staged for item in changes.publish)
        self._storage.sync_dirs([self.staging, self._log.sidecar, parent(self._log.sidecar)])
        return staged

    def _after(self, changes: Changes, staged: Mapping[str, Entry]) -> View:
        """The dataset as it will be, with new files read where they are staged."""
        gone = {*changes.retire, *(item.path for item in changes.publish)}
        files = {path: file for path, file in self._files.items() if path not in gone}
        for item in changes.publish:
            entry = staged[item.staged.rpartition("/")[2]]
            files[item.path] = ViewFile(item.path, item.staged, entry.size, entry.stamp)
        return replace(self._view, exists=True, files=tuple(files[path] for path in sorted(files)))

    def _claim(self, changes: Changes, staged: Mapping[str, Entry]) -> tuple[Record, LogState]:
        """Take the next slot; whenever another writer takes it first, check again whether we may still commit."""
        replayer = Replayer(self._storage, self._view.root, self._log)
        for _ in range(_ATTEMPTS_TO_CLAIM):
            state = self._log.state()
            replay_pending(self._log, replayer, state)
            self._check_first_of_its_key()
            self._check_no_conflict(changes, state)
            record = self._record(changes, staged, state.newest + 1)
            self._droppable = False
            try:
                if self._log.claim(record):
                    return record, state
            except OutcomeUnknownError:
                raise
            except (OSError, CommitConflictError):
                self._droppable = True
                raise
            self._droppable = True
        raise CommitConflictError(
            f"other writers of {self._view.root} kept being first. Nothing was changed; run again."
        )

    def _check_first_of_its_key(self) -> None:
        seq = None if self._terms.key is None else self._log.committed(self._terms.key)
        if seq is not None:
            raise AlreadyCommittedError(
                f"{self._view.root}: slot {seq} was committed under the key {self._terms.key!r} before. "
                "Nothing was changed now; use another key for another change.",
                seq,
            )

    def _record(self, changes: Changes, staged: Mapping[str, Entry], seq: int) -> Record:
        publish = []
        for item in changes.publish:
            name = item.staged.rpartition("/")[2]
            old = self._identity(item.path) if item.replaces else None
            publish.append(Published(name, item.path, item.rows, staged[name].size, staged[name].stamp, old))
        retire = [Retired(path, self._identity(path)) for path in changes.retire]
        retire += [Retired(entry.path, Identity(entry.size, entry.stamp)) for entry in self._stale_side_files(changes)]
        info = {"operation": self._operation, "at": datetime.now(UTC).isoformat()} | dict(changes.info)
        info |= {IDEMPOTENCY_KEY: self._terms.key} if self._terms.key is not None else {}
        folders = self._missing_folders(changes)
        return Record(seq, "commit", self._id, tuple(publish), tuple(retire), folders, info=info)

    def _identity(self, path: str) -> Identity:
        file = self._files[path]
        return Identity(file.size, file.stamp)

    def _stale_side_files(self, changes: Changes) -> list[Entry]:
        """Summary files lie as soon as any data file changes, a checksum file as soon as its own does."""
        gone = [*changes.retire, *(item.path for item in changes.publish if item.replaces)]
        checksums = {join(parent(path), f".{path.rpartition('/')[2]}.crc") for path in gone}
        return [entry for entry in self._view.side_files if not entry.path.endswith(".crc") or entry.path in checksums]

    def _missing_folders(self, changes: Changes) -> tuple[str, ...]:
        """Folders that the change brings, the dataset's own (as ``""``) included."""
        if not self._storage.has_folders:
            return ()
        missing: dict[str, bool] = {}
        for item in changes.publish:
            folder = parent(item.path)
            while folder not in missing:
                missing[folder] = self._storage.stat(join(self._view.root, folder)) is None
                folder = parent(folder)
        return tuple(sorted(folder for folder, is_missing in missing.items() if is_missing))

    def _check_no_conflict(self, changes: Changes, state: LogState) -> None:
        """Everything that could have changed since the view: the journal, our own staging, the inputs, the names."""
        checks: list[Callable[[], str | None]] = [
            self._find_lost_staging,
            lambda: self._find_foreign_commit(changes, state),
        ]
        if changes.complete_view:
            checks.append(lambda: self._find_change_in_tree(changes))
        else:
            checks += [partial(self._find_changed_file, path) for path in self._inputs(changes)]
            checks += [partial(self._find_taken_name, item.path) for item in changes.publish if not item.replaces]
        reasons = [reason for reason in for_each(self._storage, lambda check: check(), checks) if reason]
        if reasons:
            raise CommitConflictError(f"{self._view.root}: {reasons[0]}. Nothing was changed; run the operation again.")

    @staticmethod
    def _inputs(changes: Changes) -> list[str]:
        replaced = (item.path for item in changes.publish if item.replaces)
        return sorted({*changes.inputs, *changes.retire, *replaced})

    def _find_lost_staging(self) -> str | None:
        if self._places.find_again() != self._log.sidecar:
            return "its journal was moved meanwhile"
        return (
            None
            if self._storage.staging_exists(self.staging)
            else "this writer was taken for dead and its files removed"
        )

    def _find_foreign_commit(self, changes: Changes, state: LogState) -> str | None:
        """Records since the view. Where some are pruned already, the listing of files has to tell."""
        since = [seq for seq in state.records if seq > self._view.head]
        inputs = set(self._inputs(changes))
        names = {item.path for item in changes.publish}
        for record in for_each(self._storage, self._read_record, since):
            if record is None or record.kind != "commit":
                continue
            published = {item.path for item in record.publish}
            touched = published | {item.path for item in record.retire}
            if touched & inputs or published & names or (changes.complete_view and published):
                return f"another writer committed {record.info.get('operation', 'a change')} (slot {record.seq})"
        return None

    def _read_record(self, seq: int) -> Record | None:
        try:
            return self._log.read(seq)
        except FileNotFoundError:
            return None

    def _find_change_in_tree(self, changes: Changes) -> str | None:
        """List again: programs that know nothing of the journal may have written too."""
        try:
            listed = self._storage.list_tree(self._view.root).files
        except FileNotFoundError:
            listed = ()
        current = {entry.path: entry for entry in listed if is_data_file(entry.path)}
        for path in self._inputs(changes):
            if not self._identity(path).matches(current.get(path)):
                return f"{path} was changed by another program"
        added = sorted(current.keys() - self._files.keys())
        return f"{added[0]} was added by another program" if added else None

    def _find_changed_file(self, path: str) -> str | None:
        current = self._storage.stat(join(self._view.root, path))
        return None if self._identity(path).matches(current) else f"{path} was changed by another program"

    def _find_taken_name(self, path: str) -> str | None:
        taken = self._storage.stat(join(self._view.root, path)) is not None
        return f"{path} was created by another program" if taken else None

    def _carry_out(self, record: Record, state: LogState) -> bool:
        """Publish what is decided. Errors do not undo it: the caller has its commit, and recovery has the rest."""
        replayer = Replayer(self._storage, self._view.root, self._log)
        try:
            replayer.publish_all(record)
        except OSError as first:
            _logger.info("publishing commit %d failed, trying once more: %s", record.seq, first)
            try:
                replayer.replay(record)
            except OSError as error:
                _logger.warning(
                    "commit %d of %s is decided, but not all of it is published (%s); recover() finishes it",
                    record.seq,
                    self._view.root,
                    error,
                )
                return False
        self._prune(state)
        return True

    def _prune(self, state: LogState) -> None:
        try:
            self._log.prune(state)
        except OSError as error:
            _logger.info("old records stay for the next commit to prune: %s", error)

    def _drop(self) -> None:
        """Delete the staging folder; what cannot be deleted now is an orphan for the next recovery."""
        self._droppable = False
        try:
            self._storage.remove_tree(self.staging)
        except OSError as error:
            _logger.info("%s stays for the next recovery to remove: %s", self.staging, error)
