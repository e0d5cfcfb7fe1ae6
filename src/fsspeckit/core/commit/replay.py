"""Apply journal records to a dataset: publish a commit, and finish it in a recovery after a crash.

Every function is idempotent: it can be interrupted at any step or run by two processes, and a repeated run completes
the record. The caller holds the lock of the sidecar.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from fsspeckit.common.errors import CommitConflictError, DatasetLostError
from fsspeckit.common.text import counted
from fsspeckit.core.commit.exchange import Exchange, can_exchange
from fsspeckit.core.commit.exclusive_create import ensure_exclusive_create
from fsspeckit.core.commit.file_kinds import is_data
from fsspeckit.core.commit.log import Log, LogState, Survey
from fsspeckit.core.commit.publishing import Copy, Distribute, KeepFiles, PublishFiles, in_one_batch
from fsspeckit.core.commit.record import Kept, Published, Record, Retired, new_id
from fsspeckit.core.file_names import is_side_file, is_unique
from fsspeckit.core.result_view import ResultView
from fsspeckit.core.storage import Entry, Storage, for_each, join, parent
from fsspeckit.core.storage.base import OWNER

_ATTEMPTS_TO_FENCE = 20
_COMPARED_BYTES = 2**16
_LISTED_FILES = 100
_MOST_OPEN_FOLDERS = 200
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Recovery(ResultView):
    """Result of a recovery: the records that it applied and the transactions whose staging folders it removed."""

    replayed: tuple[int, ...] = ()
    removed: tuple[str, ...] = ()

    def _lines(self) -> list[tuple[str, str]]:
        removed = counted(len(self.removed), "abandoned staging folder")
        return [("finished", counted(len(self.replayed), "commit")), ("removed", removed)]

    def __bool__(self) -> bool:
        return bool(self.replayed or self.removed)


@dataclass(frozen=True, slots=True)
class JournalStatus:
    """State of a journal: ``pending`` is the record to apply, ``dead`` and ``alive`` are transactions with staging."""

    sidecar: str | None = None
    newest: int = 0
    pending: int | None = None
    dead: tuple[str, ...] = ()
    alive: tuple[str, ...] = ()

    @property
    def needs_recovery(self) -> bool:
        """Return whether a recovery would change anything."""
        return self.pending is not None or bool(self.dead)


class Replayer:
    """Applies records to one dataset."""

    def __init__(self, storage: Storage, root: str, log: Log) -> None:
        self._storage = storage
        self._root = root
        self._log = log

    def publish_all(
        self,
        record: Record,
        state: LogState,
        staged: Iterable[str] = (),
        distribute: Distribute = in_one_batch,
        *,
        by_exchange: bool = False,
        put_back: Sequence[str] = (),
    ) -> bool:
        """Apply a record that was just created. The inputs were just checked, so no file is checked again.

        Return whether a folder was exchanged.
        ``state`` is the listing of the slots before the record. ``staged`` are the names of more files in the staging
        folder, which are deleted with those of the record; ``put_back`` are files of the dataset that are not data.
        """
        self._log.note_removed(record, state)
        put_back = [path for path in put_back if is_unique(path)]  # another name may be in use again
        self._keep(record.kept, distribute)
        self._publish_tombstones(record)
        if by_exchange and can_exchange(self._storage, self._root, record) and self._exchange(record).publish():
            self._close(record)
            return True
        self._make_folders(record)
        if self._storage.is_local and len({parent(path) for path in record.paths}) <= _MOST_OPEN_FOLDERS:
            self._storage.move_many(self._moves(record))
        else:
            if not self._publish(record, [(item, item.path) for item in record.publish], distribute):
                self._log.remember_copies(record, state)
            if not self._storage.has_folders:
                self._close_in_bulk(record, staged, put_back)
                return False
            for_each(self._storage, lambda pair: self._retire(record, *pair), enumerate(record.retire))
            self._storage.remove_many(join(self._root, path) for path in put_back)
        self._storage.sync_dirs(self._folders_of(record))
        self._close(record)
        return False

    def _close_in_bulk(self, record: Record, staged: Iterable[str], put_back: Iterable[str]) -> None:
        """Remove retired and staged files in any order, because all new files are published, then mark as applied."""
        staging = self._log.staging_path(record.owner)
        names = {OWNER, *staged, *record.staged}
        retired = [
            join(self._root, path) for path in dict.fromkeys([*(each.path for each in record.retire), *put_back])
        ]
        self._storage.remove_many([*retired, *(join(staging, name) for name in sorted(names))])
        self._finish(record)

    def _finish(self, record: Record) -> None:
        """Mark the record as applied. If another process did, remove own copies of files that later commits removed."""
        if self._log.finish(record):
            return
        gone = self._log.gone(self._log.state())
        paths = [path for item in record.publish for path in (item.path, item.other_path) if path in gone]
        self._storage.remove_many(join(self._root, path) for path in paths)

    def remove_put_back(self, state: LogState) -> None:
        """Remove the files that late copies have put back."""
        gone = self._log.gone(state)
        current = self._current(gone)
        found = for_each(self._storage, lambda path: (path, current(path)), gone)
        paths = [join(self._root, path) for path, entry in found if entry is not None and entry.size == gone[path][1]]
        self._storage.remove_many(paths)
        if paths:
            _logger.warning("removed %s that late copies had put back in %s", counted(len(paths), "file"), self._root)

    def replay(self, record: Record, state: LogState) -> None:
        """Apply a pending record, possibly for the second time. Change only files that match the record.

        ``state`` is a listing of the slots.
        """
        self._refuse_links(record)
        self._check_root_exists(record)
        if record.kind == "commit":
            if record.retire and self._storage.has_folders:
                self._storage.make_dirs(self._log.staging_path(record.owner))
            self._make_folders(record)
            self._log.note_removed(record, state)
            self._keep(self._unchanged(record.kept))
            self._publish_tombstones(record)
            current = self._current(item.path for item in record.publish)
            paths = for_each(
                self._storage, lambda item: self._path_for(record, item, current(item.path)), record.publish
            )
            if not self._storage.is_local:  # a copy of the process that created the record may still be running
                self._log.remember_copies(record, state, filter(None, paths))
            self._publish(record, [(item, path) for item, path in zip(record.publish, paths, strict=True) if path])
            self._retire_unchanged(record)
            if self._storage.can_exchange and not any(paths):
                self._exchange(record).keep_additions()
            self._storage.sync_dirs(folder for folder in self._folders_of(record) if self._storage.stat(folder))
        self._close(record)
        if record.kind == "commit" and self._storage.is_local:
            self._storage.remove_tree(self._log.staging_path(record.owner))

    def _exchange(self, record: Record) -> Exchange:
        return Exchange(self._storage, self._root, self._log.staging_path(record.owner), record)

    def _refuse_links(self, record: Record) -> None:
        """Raise if a path of the record leaves the dataset through a symbolic link: the record may be forged."""
        folders = {*record.folders, *map(parent, record.paths)} - {""}
        self._storage.refuse_links(self._storage.canonical(self._root), folders)
        self._storage.list_names(self._log.staging_path(record.owner))

    def _check_root_exists(self, record: Record) -> None:
        """Raise if the dataset was deleted after the commit: its last change alone is not the dataset."""
        expected = bool(record.paths) and "" not in record.folders and self._storage.has_folders
        if expected and self._storage.stat(self._root) is None:
            raise DatasetLostError(
                f"{self._root} was deleted while commit {record.seq} was not finished. Restore the folder, or run "
                f"`fsspeckit forget {self._root}` to start a new dataset."
            )

    def _close(self, record: Record) -> None:
        """Mark the record as applied.

        Without a lock, staged files are deleted first, so that a slow process cannot publish them after the mark.
        """
        for transaction in record.fenced:
            self._storage.remove_tree(self._log.staging_path(transaction))
        if record.kind == "commit" and not self._storage.is_local:
            self._storage.remove_tree(self._log.staging_path(record.owner))
        self._finish(record)
        self._remove_empty_folders(record)

    def _make_folders(self, record: Record) -> None:
        """Create new folders and make them durable before the first file is moved into them."""
        for folder in record.folders:
            self._storage.make_dirs(join(self._root, folder))
        self._storage.sync_dirs(parent(join(self._root, folder)) for folder in record.folders)

    def _keep(self, items: Sequence[Kept], distribute: Distribute = in_one_batch) -> None:
        """Keep files that a record removes, durably before the first of them is replaced."""
        if not items:
            return
        folder = self._log.kept_folder
        self._storage.sync_dirs(map(parent, self._storage.make_dirs(folder)))
        copies = [Copy(join(self._root, item.path), join(folder, item.name), item.identity.size) for item in items]
        for item, is_kept in zip(items, distribute(self._storage, KeepFiles(self._storage), copies), strict=True):
            if not is_kept:
                _logger.info("%s was removed before it was kept as %s", item.path, item.name)
        self._storage.sync_dirs([folder])

    def _publish_tombstones(self, record: Record) -> None:
        """Move the new files of tombstones to their folder, durably before the list that names them is stored."""
        if not record.new_tombstones:
            return
        staging, folder = self._log.staging_path(record.owner), self._log.tombstones_folder
        self._storage.make_dirs(folder)
        self._storage.sync_dirs([parent(folder)])  # also if it exists: its creator may have died before this step
        files = [Copy(join(staging, file.staged), join(folder, file.name), file.size) for file in record.new_tombstones]
        for file, found in zip(files, PublishFiles(self._storage)(files), strict=True):
            if not found.is_there:
                _logger.error("%s of commit %d was deleted by another program", file.path, record.seq)
        self._storage.sync_dirs([folder])

    def _unchanged(self, items: Sequence[Kept]) -> list[Kept]:
        """Return the files that were not replaced yet. The others were kept before, or changed by another program."""
        current = self._current(item.path for item in items)
        matches = for_each(self._storage, lambda item: item.identity.matches(current(item.path)), items)
        return [item for item, is_same in zip(items, matches, strict=True) if is_same]

    def _publish(
        self, record: Record, files: Sequence[tuple[Published, str]], distribute: Distribute = in_one_batch
    ) -> bool:
        """Publish staged files. Return whether it is certain that no request to do so is still running."""
        staging = self._log.staging_path(record.owner)
        copies = [Copy(join(staging, item.staged), join(self._root, path), item.size) for item, path in files]
        done = distribute(self._storage, PublishFiles(self._storage), copies)
        for (_, path), found in zip(files, done, strict=True):
            if not found.is_there:
                _logger.error("%s of commit %d was deleted by another program", path, record.seq)
        return all(found.is_over for found in done)

    def _current(self, paths: Iterable[str]) -> Callable[[str], Entry | None]:
        """Return a function that returns the file at a path. Many files of an object store are listed together."""
        wanted = list(paths)
        if self._storage.has_folders or len(wanted) < _LISTED_FILES:
            return lambda path: self._storage.stat_file(join(self._root, path))
        try:
            listed = {entry.path: entry for entry in self._storage.list_tree(self._root).files}
        except FileNotFoundError:
            listed = {}
        return listed.get

    def _path_for(self, record: Record, item: Published, current: Entry | None) -> str | None:
        """Return the path at which to publish a staged file, or None if it is published or another file has to stay.

        A program that changed the replaced file wrote after the commit, so its change is newer and stays. If a program
        created a file with the name of a new file, the rows of both stay: the staged file gets another name.
        """
        if current is not None and (current.size, current.stamp) == (item.size, item.stamp):
            return None
        if current is None or self._is_published(record, item, current):
            return item.path
        if item.replaces is None:
            _logger.warning("%s was created after commit %d; its file gets another name", item.path, record.seq)
            return item.other_path
        if item.replaces.matches(current) and self._is_data(item.path, current):
            return item.path
        _logger.warning("%s was changed after commit %d replaced it; the change is kept", item.path, record.seq)
        return None

    def _is_published(self, record: Record, item: Published, current: Entry) -> bool:
        if self._storage.in_place or not item.is_at(current, in_place=False):
            return False
        try:
            staged = self._storage.read_tail(join(self._log.staging_path(record.owner), item.staged), _COMPARED_BYTES)
            return staged == self._storage.read_tail(join(self._root, item.path), _COMPARED_BYTES)
        except FileNotFoundError:
            return True  # the staged file was published and deleted

    def _moves(self, record: Record) -> list[tuple[str, str]]:
        """Return the renames of a commit. From the first to the last one, another reader can list old and new files."""
        staging = self._log.staging_path(record.owner)
        publish = [(join(staging, item.staged), join(self._root, item.path)) for item in record.publish]
        retire = [(join(self._root, item.path), self._trash(record, at)) for at, item in enumerate(record.retire)]
        return publish + retire

    def _trash(self, record: Record, index: int) -> str:
        return join(self._log.staging_path(record.owner), f"{index}.retired")

    def _retire(self, record: Record, index: int, item: Retired) -> None:
        self._storage.retire(join(self._root, item.path), self._trash(record, index))

    def _retire_unchanged(self, record: Record) -> None:
        """Retire the files that are still those of the record; on an object store in bulk."""
        current = self._current(item.path for item in record.retire)
        same = for_each(self._storage, lambda item: self._is_unchanged(record, item, current(item.path)), record.retire)
        retired = [pair for pair, is_same in zip(enumerate(record.retire), same, strict=True) if is_same]
        if self._storage.has_folders:
            for_each(self._storage, lambda pair: self._retire(record, *pair), retired)
        else:
            self._storage.remove_many([join(self._root, item.path) for _, item in retired])

    def _is_unchanged(self, record: Record, item: Retired, current: Entry | None) -> bool:
        if current is None:
            return False
        if item.identity.matches(current) and (is_side_file(item.path) or self._is_data(item.path, current)):
            return True
        _logger.warning("%s is not the file that commit %d retired; the file is kept", item.path, record.seq)
        return False

    def _is_data(self, path: str, current: Entry) -> bool:
        return is_data(self._storage, self._root, replace(current, path=path))

    def _folders_of(self, record: Record) -> list[str]:
        return sorted({parent(join(self._root, path)) for path in record.paths})

    def _remove_empty_folders(self, record: Record) -> None:
        """Remove partition folders that lost their last file. The folder of the dataset stays."""
        if not self._storage.has_folders:
            return
        for retired in sorted({parent(item.path) for item in record.retire}, reverse=True):
            folder = retired
            while folder and self._storage.remove_dir_if_empty(join(self._root, folder)):
                folder = parent(folder)


def journal_status(storage: Storage, log: Log, *, end_writers: bool = False) -> JournalStatus:
    """Return what a recovery would work on. Writes nothing."""
    state, stagings = log.state(), log.stagings()
    dead = _orphans(storage, log, stagings, end_writers=end_writers)
    alive = tuple(name for name in stagings if name not in dead)
    return JournalStatus(log.sidecar, state.newest, state.newest if state.is_pending else None, dead, alive)


def needs_recovery(storage: Storage, survey: Survey, *, end_writers: bool = False) -> bool:
    """Return whether a recovery may have something to do. Writes nothing."""
    if survey.sidecar is None:
        return False
    state, log = survey.state, Log(storage, survey.sidecar)
    orphans = _orphans(storage, log, survey.stagings, end_writers=end_writers)
    return bool(state.is_pending or state.leftovers or orphans or (end_writers and state.gone))


def recover(storage: Storage, root: str, log: Log, *, end_writers: bool = False) -> Recovery:
    """Apply a pending record and remove the staging folders of dead transactions.

    With ``end_writers``, a transaction counts as dead unless the storage is certain that its owner is alive. If it is
    alive after all, its commit is a conflict.
    """
    replayer = Replayer(storage, root, log)
    with storage.lock(log.lock_path):
        state = log.state()
        ensure_exclusive_create(storage, log, state)
        replayed = replay_pending(log, replayer, state)
        for_each(storage, storage.remove, state.leftovers)
        if end_writers:
            replayer.remove_put_back(state)
        with storage.lock(log.staging_lock_path):  # no writer is creating a staging folder, so each has its owner
            removed = _fence_orphans(storage, log, replayer, end_writers=end_writers)
    return Recovery(replayed, removed)


def replay_pending(log: Log, replayer: Replayer, state: LogState) -> tuple[int, ...]:
    """Apply the newest record if it is pending. Older records without ``.done`` have no effect.

    The record is synced first: its writer may have died before the record was durable.
    """
    if not state.is_pending:
        return ()
    log.sync()
    record = log.read(state.newest)
    replayer.replay(record, state)
    return (record.seq,) if record.kind == "commit" else ()


def _fence_orphans(storage: Storage, log: Log, replayer: Replayer, *, end_writers: bool) -> tuple[str, ...]:
    """Delete the staging folders of dead transactions. A fence record first ensures that they can no longer commit."""
    for _ in range(_ATTEMPTS_TO_FENCE):
        state = log.state()
        replay_pending(log, replayer, state)
        orphans = _orphans(storage, log, log.stagings(), end_writers=end_writers)
        if not orphans:
            return ()
        storage.make_dirs(log.folder)
        log.remove_unused_marks(state)
        record = Record(seq=state.newest + 1, kind="fence", owner=new_id(), fenced=orphans)
        if log.claim(record):
            replayer.replay(record, state)
            return orphans
    raise CommitConflictError(f"Other writers created each next slot of {log.folder} first. Run recover() again.")


def _orphans(storage: Storage, log: Log, transactions: Iterable[str], *, end_writers: bool) -> tuple[str, ...]:
    candidates = list(transactions)
    if end_writers and not storage.knows_owners:
        return tuple(candidates)
    alive = for_each(storage, lambda transaction: storage.is_alive(log.staging_path(transaction)), candidates)
    return tuple(name for name, is_alive in zip(candidates, alive, strict=True) if not is_alive)
