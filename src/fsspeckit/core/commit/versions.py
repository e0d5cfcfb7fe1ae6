"""Versions of a dataset: list them, find the files of one, and find what a commit replaced and published.

A version is the state after a commit; its number is the slot of the commit. The files of an earlier version follow
from the current listing by undoing the records after it: published files leave the list, and removed files come back
from the folder of kept files. The result is compared with the digest in the record of the version, so a version is
complete or cannot be read. Nothing here writes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, overload

from fsspeckit.common.errors import VersionNotFoundError
from fsspeckit.core.commit.emptied import Emptied
from fsspeckit.core.commit.history import (
    UNKNOWN,
    Columns,
    all_versions,
    as_time,
    floor_at,
    list_segments,
    microseconds,
    read_records,
)
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.log import Log, LogState
from fsspeckit.core.commit.matching import Matcher
from fsspeckit.core.commit.new_record import place_of
from fsspeckit.core.commit.record import Identity, Kept, Published, Record, digest_of
from fsspeckit.core.model import ViewFile
from fsspeckit.core.result_view import ResultView, columns, quoted, readable_bytes
from fsspeckit.core.storage import Storage, for_each, join

_SHOWN = 20
_HEADS = ("version", "at", "operation", "inserted", "updated", "deleted", "files", "size", "readable")


@dataclass(frozen=True, slots=True, eq=False)
class Version(ResultView):
    """One version of a dataset.

    Attributes:
        version: The number of the version, that of its commit.
        at: The time of the commit.
        operation: The operation that committed it.
        inserted: Inserted rows, if the operation counts them; likewise ``updated`` and ``deleted``.
        files: Data files of the version, and their ``bytes``; None for commits before history was kept.
        added_files: New files of the commit; ``removed_files`` are those that it removed without replacing them.
        readable: Whether the version is kept. It can be read and restored if no other program has changed its files.
    """

    version: int
    at: str
    operation: str
    inserted: int | None
    updated: int | None
    deleted: int | None
    files: int | None
    bytes: int | None
    added_files: int
    removed_files: int
    idempotency_key: str | None
    note: str | None
    readable: bool

    def _lines(self) -> list[tuple[str, str]]:
        return [(name, str(value)) for name, value in self.items() if value is not None]


class History(Sequence[Version]):
    """The versions of a dataset, newest first. It is shown as a table, as text and in a notebook."""

    def __init__(self, columns_: Columns, floor: int = 0) -> None:
        self._columns = columns_
        kept = list(reversed(columns_["kept"]))
        barrier = columns_["version"][-1 - kept.index(False)] if False in kept else 0
        self._floor = max(floor, barrier)

    def __len__(self) -> int:
        return len(self._columns["version"])

    @overload
    def __getitem__(self, index: int) -> Version: ...
    @overload
    def __getitem__(self, index: slice) -> list[Version]: ...
    def __getitem__(self, index: int | slice) -> Version | list[Version]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"There are {len(self)} versions.")
        return self._version(len(self) - 1 - index % len(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self._columns == other._columns and self._floor == other._floor

    __hash__ = None  # type: ignore[assignment]

    def _version(self, row: int) -> Version:
        values = {name: column[row] for name, column in self._columns.items() if name != "kept"}
        known = {name: None if value == UNKNOWN else value for name, value in values.items()}
        readable = known["files"] is not None and values["version"] >= self._floor
        return Version(**known | {"at": as_time(values["at"]), "readable": readable})

    @property
    def oldest_readable(self) -> int | None:
        """Return the oldest version that can be read, or None."""
        start = bisect_left(self._columns["version"], self._floor)
        found = (row for row in range(start, len(self)) if self._columns["files"][row] != UNKNOWN)
        row = next(found, None)
        return None if row is None else int(self._columns["version"][row])

    def at_time(self, as_of: int) -> int | None:
        """Return the newest version at a time in microseconds since 1970, or None."""
        times = self._columns["at"]
        row = next((row for row in range(len(self) - 1, -1, -1) if times[row] <= as_of), None)
        return None if row is None else int(self._columns["version"][row])

    def commit_time(self, version: int) -> int | None:
        """Return the time of a version, or of the newest one before it, in microseconds since 1970; None if unknown.

        A dataset that was deleted and created again, or another dataset, has another time for the same number.
        """
        row = bisect_right(self._columns["version"], version) - 1
        return int(self._columns["at"][row]) if row >= 0 else None

    def expired_at(self, cutoff: int) -> int:
        """Return the version before which all versions were replaced before a time in microseconds since 1970."""
        return floor_at(self._columns, cutoff)

    def _rows(self, limit: int) -> list[tuple[str, ...]]:
        def number(value: int | None) -> str:
            return "-" if value is None else f"{value:,}"

        rows: list[tuple[str, ...]] = [_HEADS]
        for place, each in enumerate(self[:limit]):
            counts = map(number, (each.inserted, each.updated, each.deleted, each.files))
            size = "-" if each.bytes is None else readable_bytes(each.bytes)
            readable = "yes" if each.readable else "no" if place else "current"
            rows.append((str(each.version), f"{each.at[:19]}Z", each.operation, *counts, size, readable))
        return rows

    def shown(self, limit: int) -> str:
        """Return the newest versions as a table."""
        rest = len(self) - limit
        return columns(self._rows(limit)) + (f"\n... {rest:,} older versions" if rest > 0 else "")

    def __repr__(self) -> str:
        return self.shown(_SHOWN)

    def _repr_html_(self) -> str:
        def line(tag: str, cells: Sequence[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{quoted(cell)}</{tag}>" for cell in cells) + "</tr>"

        head, *body = self._rows(_SHOWN)
        return f"<table>{line('th', head)}{''.join(line('td', row) for row in body)}</table>"


def check_version(name: str, version: Any) -> int:
    """Return the number of a version that a caller passed. Raise if it cannot be one."""
    if type(version) is not int or version < 0:
        raise ValueError(f"{name}={version!r} is not the number of a version. Call history() to list them.")
    return version


def time_of(as_of: Any) -> int:
    """Return a time that a caller passed as microseconds since 1970. Without a time zone it is in UTC."""
    try:
        moment = as_of if isinstance(as_of, datetime) else datetime.fromisoformat(as_of)
    except (TypeError, ValueError) as error:
        raise ValueError(f'as_of={as_of!r} is not a time. Pass text such as "2026-11-02T10:00Z".') from error
    return microseconds((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat())


@dataclass(frozen=True, slots=True)
class FileChanges:
    """What one commit did to the files: those that it removed and those that it published, where they are now.

    Files that another program added before the commit count as published by it. It is not complete if another program
    has removed or changed a file that the commit published, or one of the version.
    """

    version: int
    at: str
    operation: str
    removed: tuple[ViewFile, ...]
    published: tuple[ViewFile, ...]
    is_complete: bool = True


@dataclass(slots=True)
class _Undo:
    """The files of a version, found by undoing later records, newest first."""

    files: dict[str, ViewFile]
    kept: Callable[[Record, Kept], ViewFile]
    is_same: Callable[[Record, Published, ViewFile | None], bool]
    size: int
    commits: list[FileChanges] = field(default_factory=list)
    is_known: bool = True
    emptied: Emptied | None = None

    def keep_only(self, found: dict[str, ViewFile]) -> None:
        """Continue with the files of a version. The others were added before the commit that was undone last."""
        added = [file for path, file in self.files.items() if path not in found]
        self.files = found
        self.size -= sum(file.size for file in added)
        if added and self.commits:
            commit, paths = self.commits[-1], {file.path for file in added}
            removed = tuple(file for file in commit.removed if file.path not in paths)
            replaced = {file.path for file in commit.removed} & paths
            published = (*commit.published, *(file for file in added if file.path not in replaced))
            self.commits[-1] = replace(commit, removed=removed, published=published)

    def undo(self, record: Record) -> None:
        paths = [item.path if item.path in self.files else item.other_path for item in record.publish]
        found = [self.files.pop(path, None) for path in paths]
        published = [file for file in found if file is not None]
        is_same = [self.is_same(record, item, file) for item, file in zip(record.publish, found, strict=True)]
        removed = [self.kept(record, item) for item in record.kept]
        before = [self.files[file.path] for file in removed if file.path in self.files]
        self.files |= {file.path: file for file in removed}
        self.size += sum(file.size for file in removed) - sum(file.size for file in (*published, *before))
        info = record.info
        at, operation = as_time(microseconds(info.get("at"))), str(info.get("operation", ""))
        is_complete = self.is_known and all(is_same)
        self.commits.append(FileChanges(record.seq, at, operation, tuple(removed), tuple(published), is_complete))
        self.is_known = True


def _leave_out_additions(record: Record, undo: _Undo, matcher: Matcher) -> None:
    """Leave out the files that other programs have added since the commit, if the others match its record."""
    assert record.listed is not None
    at, own = microseconds(record.info.get("at")) / 1e6, {item.path for item in record.publish}
    found = matcher.find(record.listed, undo.files, own, at)
    undo.is_known = found is not None
    if found is not None:
        undo.keep_only(found)


class Versions:
    """The versions of one dataset as of a view."""

    def __init__(self, storage: Storage, log: Log | None, view: View, path: str) -> None:
        self._storage, self._log, self.view, self._path = storage, log, view, path
        self._found: dict[str, ViewFile] = {}

    @property
    def _state(self) -> LogState:
        return self.view.log

    @cached_property
    def history(self) -> History:
        """All versions, newest first."""
        if self._log is None:
            return History({name: [] for name in ("version", "at", "files", "kept")})
        found = all_versions(self._storage, self._log.history_folder, self._records_of_log)
        return History(found, self._state.floor)

    def number(self, version: int | None, as_of: Any) -> int:
        """Return the number of the version that a caller wants."""
        if (version is None) == (as_of is None):
            raise ValueError('No version is named, or two are. Pass version=12 or as_of="2026-11-02T10:00Z".')
        if as_of is not None:
            found = self.history.at_time(time_of(as_of))
            if found is None:
                raise VersionNotFoundError(f"{self._path} has no version at {as_of}. {self._advice()}")
            return found
        return check_version("version", version)

    def view_of(self, version: int) -> View:
        """Return the files of a version, where they are now.

        Raises:
            VersionNotFoundError: There is no such version, or it is not kept.
        """
        undo = self._undo(version)
        files = self._located(undo.files.values(), version)
        ordered = tuple(sorted(files, key=lambda file: file.path))
        # The footer index describes current files by their paths, and a kept file may have the path of one of them.
        emptied = None if ordered else undo.emptied
        types = self.view.partition_types if version == self.view.head else self._state.types_at(version)
        view = replace(self.view, exists=True, head=version, files=ordered, side_files=(), index=None)
        return replace(view, emptied=emptied, partition_types=types)

    def commits_between(self, since: int, until: int) -> list[FileChanges]:
        """Return the changes of files of the commits after ``since`` up to ``until``, oldest first."""
        undo = self._undo(since)
        return [commit for commit in reversed(undo.commits) if commit.version <= until]

    def locate(self, commit: FileChanges) -> FileChanges:
        """Return the changes of a commit with the stamps that the files have now. Raise if a file is missing."""
        if not commit.is_complete:
            raise VersionNotFoundError(
                f"The changes of version {commit.version} of {self._path} cannot be read: another program has changed "
                "or removed a file of it. Choose a later version for since; call history() to list them."
            )
        files = self._located([*commit.removed, *commit.published], commit.version)
        cut = len(commit.removed)
        return replace(commit, removed=tuple(files[:cut]), published=tuple(files[cut:]))

    def _undo(self, version: int) -> _Undo:
        """Undo all records after a version, and check the result against the record of the version."""
        if version > self.view.head:
            raise VersionNotFoundError(f"{self._path} has no version {version}. {self._advice()}")
        if self._log is None or version < self._state.floor:
            raise self._expired(version)
        files = {file.path: file for file in self.view.files}
        undo = _Undo(files, self._kept, self._is_same, sum(file.size for file in files.values()))
        matcher = Matcher()
        for record in self._records_down_to(version):
            if record.seq == version:
                self._check(record, undo)
                undo.emptied = record.emptied
                return undo
            if record.removed and not record.keep:
                raise self._expired(version)
            if record.listed is not None and (len(undo.files), undo.size) != (record.listed.files, record.listed.size):
                _leave_out_additions(record, undo, matcher)
            undo.undo(record)
        raise self._expired(version)

    def _check(self, record: Record, undo: _Undo) -> None:
        """Leave only the files that the record of the wanted version lists, or raise."""
        if record.listed is None:
            raise self._expired(record.seq)
        _leave_out_additions(record, undo, Matcher())
        times = {path: self._storage.time_in(file.stamp) for path, file in undo.files.items()}
        is_same = not self._has_times(record) or digest_of(times) == record.listed.times
        if not undo.is_known or not is_same:
            raise self._changed(record.seq)

    def _has_times(self, record: Record) -> bool:
        """Return whether the times in a record are those of the files here."""
        return record.listed is not None and bool(record.listed.times) and record.listed.place == self._place

    @cached_property
    def _place(self) -> str:
        return "" if self._log is None else place_of(self._storage, self._log.lock_path)

    def _kept(self, record: Record, item: Kept) -> ViewFile:
        """Return a kept file. Its time is 0.0 if it is not known."""
        assert self._log is not None
        modified = self._storage.time_in(item.identity.stamp) if self._has_times(record) else 0.0
        location = join(self._log.kept_folder, item.name)
        return ViewFile(item.path, location, item.identity.size, item.identity.stamp, modified=modified)

    def _is_same(self, record: Record, item: Published, file: ViewFile | None) -> bool:
        if file is None or file.size != item.size:
            return False
        return not self._has_times(record) or self._storage.time_in(file.stamp) == self._storage.time_in(item.stamp)

    def _located(self, files: Any, version: int) -> list[ViewFile]:
        """Return files with the size and stamp that kept files have now. Raise if one is missing."""
        assert self._log is not None
        folder = f"{self._log.kept_folder}/"
        self._storage.refuse_links(self._log.kept_folder)

        def locate(file: ViewFile) -> ViewFile:
            if not file.location.startswith(folder):
                return file
            found = self._found.get(file.location) or self._kept_file(file, version) or self._file_to_keep(file)
            found = found or self._kept_file(file, version)  # a commit has just moved it
            if found is None:
                raise self._without_file(version)
            return self._found.setdefault(file.location, found)

        return for_each(self._storage, locate, files)

    def _kept_file(self, file: ViewFile, version: int) -> ViewFile | None:
        """Return a kept file as it is now, None if there is none. Raise if another program has changed it."""
        self._storage.refuse_links(file.location)
        entry = self._storage.stat_file(file.location)
        if entry is None or entry.size != file.size:
            return None
        if file.modified and self._storage.time_in(entry.stamp) != file.modified:
            raise self._changed(version)
        return replace(file, stamp=entry.stamp)

    def _file_to_keep(self, file: ViewFile) -> ViewFile | None:
        """Return the file where it was before a commit that is not finished, if that commit has not kept it yet."""
        if not self.view.pending:
            return None
        location = join(self.view.root, file.path)
        is_same = Identity(file.size, file.stamp).matches(self._storage.stat_file(location))
        return replace(file, location=location) if is_same else None

    def _records_down_to(self, version: int) -> Iterator[Record]:
        """Yield the records of commits, newest first, down to that of a version. Stop at a gap."""
        assert self._log is not None
        segments = [s for s in list_segments(self._storage, self._log.history_folder) if s.kind == "records"]
        folded = max((segment.last for segment in segments), default=0)
        yield from reversed(self._records_of_log(max(folded, version - 1)))
        if min(self._state.records, default=0) > folded + 1:
            return  # records between the history folder and the journal were removed while no version was kept
        next_slot = folded
        for segment in sorted(segments, key=lambda segment: segment.last, reverse=True):
            if segment.last < next_slot or next_slot < version:
                return
            records = read_records(self._storage, self._log.history_folder, segment)
            yield from (record for record in reversed(records) if version <= record.seq <= next_slot)
            next_slot = min(next_slot, segment.first - 1)

    def _records_of_log(self, after: int) -> list[Record]:
        """Return the effective records of commits in the journal after a slot, up to the view, oldest first.

        Raises:
            FileNotFoundError: A record was moved to the history folder since the view. Take a new view.
        """
        assert self._log is not None
        wanted = [seq for seq in self._log.effective(self._state) if seq > after]
        return [record for record in for_each(self._storage, self._log.read, wanted) if record.kind == "commit"]

    def _expired(self, version: int) -> VersionNotFoundError:
        return VersionNotFoundError(f"Version {version} of {self._path} is not kept. {self._advice()}")

    def _without_file(self, version: int) -> VersionNotFoundError:
        """Return the error for a version with a missing file: it expired since the view, or was kept and changed."""
        assert self._log is not None
        is_expired = version < self._log.state().floor
        return self._expired(version) if is_expired else self._changed(version)

    def _changed(self, version: int) -> VersionNotFoundError:
        return VersionNotFoundError(
            f"Version {version} of {self._path} cannot be read: another program has added, changed or removed files of "
            "the dataset. Choose another version; call history() to list them."
        )

    def _advice(self) -> str:
        oldest = self.history.oldest_readable
        if oldest is None:
            return "Keep later versions with keep_history()."
        return f"Versions from {oldest} to {self.history[0].version} can be read; call history() to list them."
