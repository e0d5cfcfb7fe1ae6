"""Compare a dataset with the view of a transaction: what did others change since then? Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fsspeckit.common.errors import CommitConflictError
from fsspeckit.core.commit.emptied import Emptied
from fsspeckit.core.commit.file_kinds import split_entries
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.log import Log, LogState
from fsspeckit.core.commit.partition_types import PartitionTypes
from fsspeckit.core.commit.record import Identity, Record, is_path_in_dataset
from fsspeckit.core.commit.sidecar import SidecarLocations
from fsspeckit.core.commit.tombstones import TombstoneFile
from fsspeckit.core.file_names import is_data_file, is_unique
from fsspeckit.core.model import ViewFile
from fsspeckit.core.storage import Storage, for_each, join, parent

_LISTED_FILES = 1000


class OutdatedViewError(CommitConflictError):
    """The dataset has changed since the view. The change may still be right for a newer view."""


@dataclass(frozen=True, slots=True)
class Publish:
    """A staged file and its path in the dataset. ``replaces``: it replaces the file at that path (local only)."""

    staged: str
    path: str
    rows: int
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Changes:
    """One change of a dataset.

    ``inputs`` are files that must be unchanged since the view; retired and replaced files are always inputs. With
    ``complete_view``, any other data file that is added, changed or removed makes the view outdated. ``retain`` sets
    the policy for kept versions: seconds, or 0. ``emptied`` returns the columns of the dataset; it is called if no data
    file is left. ``is_empty_write`` says that the change makes it a dataset without rows and with these columns.
    ``tombstones`` are all files of tombstones after the change, if it changes them; new ones have the path of the
    staged file. ``tombstones_at`` is the slot of the list of tombstones on which the change depends.
    ``partition_types`` are the types of the partition columns after the change, if they are known, and ``key`` is the
    key to record.
    """

    publish: tuple[Publish, ...] = ()
    retire: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    complete_view: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    retain: int | None = None
    emptied: Callable[[], Emptied | None] = field(default=lambda: None, compare=False)
    is_empty_write: bool = False
    tombstones: tuple[TombstoneFile, ...] | None = None
    tombstones_at: int | None = None
    partition_types: PartitionTypes | None = None
    key: tuple[str, ...] | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to commit."""
        is_same = self.retain is None and self.tombstones is None and self.key is None
        return is_same and not (self.publish or self.retire or self.is_empty_write)

    @property
    def staged(self) -> list[tuple[str, int]]:
        """Return the paths and rows of all staged files, those of tombstones last."""
        files = [(item.staged, item.rows) for item in self.publish]
        return files + [(file.staged, file.rows) for file in self.tombstones or () if file.staged]


def inputs_of(changes: Changes) -> list[str]:
    """Return the files that must be unchanged since the view."""
    replaced = (item.path for item in changes.publish if item.replaces)
    return sorted({*changes.inputs, *changes.retire, *replaced})


def check_is_possible(
    storage: Storage, root: str, files: Mapping[str, ViewFile], staging: str, changes: Changes
) -> None:
    """Raise if the change is not possible on the files of a view."""
    replaced = [item.path for item in changes.publish if item.replaces]
    named_once = [item.path for item in changes.publish] + list(changes.retire)
    if len(set(named_once)) != len(named_once):
        raise ValueError("A file is published or retired twice in one change. Name each file once.")
    unknown = [path for path in (*replaced, *changes.retire, *changes.inputs) if path not in files]
    if unknown:
        raise ValueError(f"Not in the view of this transaction: {', '.join(unknown[:5])}. Plan on this view.")
    if replaced and not storage.in_place:
        raise ValueError("This storage cannot replace files. Publish under a new name and retire the old file.")
    for item in changes.publish:
        if not (item.replaces or is_data_file(item.path)) or not is_path_in_dataset(item.path):
            raise ValueError(f"{item.path!r} is not a data file inside the dataset. Choose another name.")
        if parent(item.staged) != staging:
            raise ValueError(f"{item.staged} is not in the staging folder {staging}. Write it there.")
        if item.path in files and not item.replaces:
            raise FileExistsError(f"{join(root, item.path)} already exists. Choose another file name.")


def _call(check: Callable[[], str | None]) -> str | None:
    return check()


class Conflicts:
    """Finds changes since a view."""

    def __init__(
        self,
        storage: Storage,
        locations: SidecarLocations,
        log: Log,
        view: View,
        staging: str,
        known: dict[int, Record] | None = None,
    ) -> None:
        self._storage, self._locations, self._log = storage, locations, log
        self._known = {} if known is None else known
        self._view, self._staging = view, staging
        self._files = {file.path: file for file in view.files}

    def on(self, view: View) -> Conflicts:
        """Return the same for another view."""
        return Conflicts(self._storage, self._locations, self._log, view, self._staging, self._known)

    def identity(self, path: str) -> Identity:
        """Return the size and stamp of a file of the view."""
        file = self._files[path]
        return Identity(file.size, file.stamp)

    def check(self, changes: Changes, state: LogState | None) -> None:
        """Raise if the journal, our staging folder, an input or a new path changed since the view.

        Without ``state``, the claim of the next slot shows whether the journal or the staging folder changed.
        """
        if state is not None and changes.tombstones_at not in (None, state.tombstones[0]):
            raise CommitConflictError(self._message("another writer committed deleted keys"))
        self.refuse_links(changes)
        inputs, unsure = inputs_of(changes), self._unsure_names(changes)
        checks: list[Callable[[], str | None]] = []
        if state is not None:
            checks += [self._find_lost_staging, lambda: self._find_foreign_commit(changes, state)]
        pages = 1 + len(self._files) // _LISTED_FILES
        if changes.complete_view or (not self._storage.has_folders and len(inputs) + len(unsure) > pages):
            checks.append(lambda: self._find_change_in_tree(changes))
        else:
            checks += [partial(self._find_changed_file, path) for path in inputs]
            checks += [partial(self._find_taken_name, path) for path in unsure]
        reason = self._first_reason(checks)
        if reason is not None:
            is_lost = state is not None and reason[0] == 0
            raise (CommitConflictError if is_lost else OutdatedViewError)(self._message(reason[1]))

    def _first_reason(self, checks: Sequence[Callable[[], str | None]]) -> tuple[int, str] | None:
        """Return the first conflict with the number of its check. On a remote storage, the checks run in parallel."""
        found = map(_call, checks) if self._storage.workers == 1 else for_each(self._storage, _call, checks)
        return next(((number, reason) for number, reason in enumerate(found) if reason), None)

    def _unsure_names(self, changes: Changes) -> list[str]:
        """Return the new paths that another program may have created. No other program creates a unique name."""
        paths = [item.path for item in changes.publish if not item.replaces]
        return [path for path in paths if self._storage.has_folders or not is_unique(path)]

    def _message(self, reason: str) -> str:
        return f"{self._view.root}: {reason}. Nothing was changed. Run the operation again."

    def _find_lost_staging(self) -> str | None:
        if self._locations.refresh() != self._log.sidecar:
            return "its journal was moved"
        if not self._storage.staging_exists(self._staging):
            return "a recovery considered this writer dead and removed its staged files"
        return None

    def check_newer(self, changes: Changes, view: View) -> frozenset[str]:
        """Raise if an input changed between this view and a newer one, or if a new path is in use there.

        Return the data files of the newer view that are not those of this view: by size and stamp, and by the journal,
        because another file can have the size and stamp of the one before.
        """
        newer = {file.path: file for file in view.files}
        known = [path for path, file in newer.items() if path in self._files and self.identity(path).matches(file)]
        same = {*known}.difference(*(record.paths for record in self._commits_since(view.log)))
        names = {item.path for item in changes.publish if not item.replaces}
        if changed := (set(inputs_of(changes)) - same) | (names & newer.keys()):
            raise CommitConflictError(self._message(f"another writer changed {min(changed)}"))
        return frozenset(newer.keys() - same)

    def _find_foreign_commit(self, changes: Changes, state: LogState) -> str | None:
        """Return a conflict with a record after the view. Changes in pruned records are found by the file checks."""
        inputs = set(inputs_of(changes))
        names = {item.path for item in changes.publish}
        for record in self._commits_since(state):
            published = {item.path for item in record.publish}
            if inputs.intersection(record.paths) or published & names or (changes.complete_view and record.paths):
                return f"another writer committed {record.info.get('operation', 'a change')} (slot {record.seq})"
        return None

    def _commits_since(self, state: LogState) -> list[Record]:
        """Return the commits after the view that are in a listing of the slots."""
        since = [seq for seq in state.records if seq > self._view.head]
        records = for_each(self._storage, self._read, since)
        return [record for record in records if record is not None and record.kind == "commit"]

    def _read(self, seq: int) -> Record | None:
        """Return a record. On a local disk it never changes, so it is read once."""
        record = self._known.get(seq) or self._log.read_or_none(seq)
        if record is not None and self._storage.is_local:
            self._known[seq] = record
        return record

    def _find_change_in_tree(self, changes: Changes) -> str | None:
        """Return a change by a program that does not use the journal, found by listing the dataset again."""
        try:
            listed = self._storage.list_tree(self._view.root).files
        except FileNotFoundError:
            listed = ()
        data, _ = split_entries(self._storage, self._view.root, listed)
        current = {entry.path: entry for entry in data}
        needed = self._files if changes.complete_view else inputs_of(changes)
        for path in needed:
            if not self.identity(path).matches(current.get(path)):
                return f"{path} was changed by another program"
        added = current.keys() - self._files.keys() - {*self._view.put_back}
        if not changes.complete_view:
            added &= {item.path for item in changes.publish}
        return f"{min(added)} was added by another program" if added else None

    def _find_changed_file(self, path: str) -> str | None:
        current = self._storage.stat_file(join(self._view.root, path))
        return None if self.identity(path).matches(current) else f"{path} was changed by another program"

    def _find_taken_name(self, path: str) -> str | None:
        taken = self._storage.stat_file(join(self._view.root, path)) is not None
        return f"{path} was created by another program" if taken else None

    def refuse_links(self, changes: Changes) -> None:
        """Raise if another program replaced the staging folder or a folder of the change with a symbolic link."""
        folders = {*map(parent, inputs_of(changes)), *(parent(item.path) for item in changes.publish)}
        self._storage.refuse_links(self._view.root, folders)
        self._storage.refuse_links(self._staging)
