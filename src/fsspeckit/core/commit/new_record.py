"""Build the record of a commit from a change, the view on which it was planned, and its staged files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from fsspeckit.core.commit.conflicts import Changes
from fsspeckit.core.commit.file_kinds import split_entries
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.log import Log, LogState
from fsspeckit.core.commit.partition_types import PartitionTypes
from fsspeckit.core.commit.record import (
    IDEMPOTENCY_KEY,
    POSITIONS,
    SEEN,
    FileList,
    Identity,
    Published,
    Record,
    Retired,
    digest_of,
)
from fsspeckit.core.commit.terms import Terms
from fsspeckit.core.commit.tombstones import TombstoneFile
from fsspeckit.core.model import ViewFile
from fsspeckit.core.storage import Entry, Storage, join, parent


@dataclass(frozen=True, slots=True)
class RecordBuilder:
    """Builds the records of one transaction."""

    storage: Storage
    owner: str
    operation: str
    terms: Terms
    log: Log

    def build(
        self,
        view: View,
        files: Mapping[str, ViewFile],
        changes: Changes,
        staged: Mapping[str, Entry],
        state: LogState,
        *,
        anew: bool = False,
    ) -> Record:
        """Return the record for the slot after those of ``state``, which lists the policy that applies to it.

        ``files`` are those of the view by path. ``anew``: rows of earlier commits are gone.
        """
        publish = []
        for item in changes.publish:
            name = item.staged.rpartition("/")[2]
            old = _identity(files[item.path]) if item.replaces else None
            publish.append(Published(name, item.path, item.rows, staged[name].size, staged[name].stamp, old))
        retire = [Retired(path, _identity(files[path])) for path in changes.retire]
        retire += [Retired(entry.path, _identity(entry)) for entry in _stale_side_files(view, changes)]
        keeps = bool(state.retain or changes.retain)
        files_left = None if publish else bool(self._current_files(view, files, state).keys() - set(changes.retire))
        info = {"operation": self.operation, "at": datetime.now(UTC).isoformat()} | dict(changes.info)
        return Record(
            state.newest + 1,
            "commit",
            self.owner,
            tuple(publish),
            tuple(retire),
            _missing_folders(self.storage, view.root, changes),
            info=info | _info_of(self.terms),
            keep=bool(state.retain),
            retain=changes.retain,
            listed=self._files_after(view, files, publish, changes.retire, state) if keeps else None,
            emptied=changes.emptied() or self.log.contents(state)[1] if files_left is False else None,
            files_left=files_left,
            anew=anew,
            tombstones=_tombstones(changes, staged, state.newest + 1),
            key=changes.key,
            partition_types=_new_types(changes, view, state, anew=anew),
        )

    def _current_files(
        self, view: View, files: Mapping[str, ViewFile], state: LogState
    ) -> Mapping[str, ViewFile | Entry]:
        """Return the data files before the commit. If others committed since the view, the dataset is listed again."""
        if state.newest == view.head:
            return files
        with suppress(FileNotFoundError):
            gone = self.log.gone(state)
            tree = [entry for entry in self.storage.list_tree(view.root).files if entry.path not in gone]
            return {entry.path: entry for entry in split_entries(self.storage, view.root, tree)[0]}
        return {}

    def _files_after(
        self,
        view: View,
        files: Mapping[str, ViewFile],
        publish: Iterable[Published],
        retire: Iterable[str],
        state: LogState,
    ) -> FileList:
        """Return the data files after the commit."""
        found: dict[str, ViewFile | Entry | Published] = {**self._current_files(view, files, state)}
        for path in retire:
            found.pop(path, None)
        found |= {item.path: item for item in publish}
        listed = FileList.of({path: file.size for path, file in found.items()})
        place = place_of(self.storage, self.log.lock_path)
        times = digest_of({path: self.storage.time_in(file.stamp) for path, file in found.items()}) if place else ""
        return replace(listed, times=times, place=place)


def _new_types(changes: Changes, view: View, state: LogState, *, anew: bool) -> PartitionTypes | None:
    """Return the types of the partition columns if the commit sets them.

    A writer that committed since the view may have set others. Those stay: the change is right for both.
    """
    known = None if anew else state.types_at(state.newest)
    is_newer = known is not None and state.newest != view.head and known != view.partition_types
    return None if is_newer or changes.partition_types == known else changes.partition_types


def _tombstones(changes: Changes, staged: Mapping[str, Entry], seq: int) -> tuple[TombstoneFile, ...] | None:
    """Return the files of tombstones after the commit of a slot, if it changes them."""
    if changes.tombstones is None:
        return None
    files = []
    for number, file in enumerate(changes.tombstones):
        name = file.staged.rpartition("/")[2]
        if name:
            size, since = staged[name].size, file.since or seq
            file = replace(file, slot=seq, number=number, size=size, since=since, staged=name)  # noqa: PLW2901
        files.append(file)
    return tuple(files)


def place_of(storage: Storage, lock: str) -> str:
    """Return the time of the lock of a journal, or "" if the storage does not keep the times of files.

    No commit changes it. A copy of the files that does not keep their times has another one.
    """
    entry = storage.stat_file(lock) if storage.is_local else None
    time = 0.0 if entry is None else storage.time_in(entry.stamp)
    return repr(time) if time else ""


def _identity(file: ViewFile | Entry) -> Identity:
    return Identity(file.size, file.stamp)


def _info_of(terms: Terms) -> dict[str, Any]:
    info: dict[str, Any] = {} if terms.key is None else {IDEMPOTENCY_KEY: terms.key}
    info |= {} if terms.note is None else {"note": terms.note}
    info |= {POSITIONS: dict(terms.positions)} if terms.positions else {}
    return info | ({SEEN: dict(terms.seen)} if terms.seen else {})


def _stale_side_files(view: View, changes: Changes) -> list[Entry]:
    """Return the side files that the change makes invalid: all summary files, and checksums of changed files."""
    changed = [*changes.retire, *(item.path for item in changes.publish if item.replaces)]
    checksums = {join(parent(path), f".{path.rpartition('/')[2]}.crc") for path in changed}
    return [entry for entry in view.side_files if not entry.path.endswith(".crc") or entry.path in checksums]


def _missing_folders(storage: Storage, root: str, changes: Changes) -> tuple[str, ...]:
    """Return the folders to create, including ``""``, the folder of the dataset."""
    if not storage.has_folders:
        return ()
    missing: dict[str, bool] = {}
    for item in changes.publish:
        folder = parent(item.path)
        while folder not in missing:
            missing[folder] = storage.stat(join(root, folder)) is None
            folder = parent(folder)
    return tuple(sorted(folder for folder, is_missing in missing.items() if is_missing))
