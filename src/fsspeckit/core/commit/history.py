"""The folder ``history/`` of a sidecar: records and versions of commits that are no longer in the journal.

``prune`` moves records out of the journal, so that the journal stays short. A file ``<first>-<last>.records`` has the
records of the commits in a range of slots, one per line. A file ``<first>-<last>.versions`` has what `history` shows of
them, column by column; small ones are joined, so that the versions of 100,000 commits are in a few dozen files. Files
may overlap after a crash: they are read by slot number. Every value that is read is checked.
"""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from operator import lt
from typing import Any

from fsspeckit.common.documents import parse_json
from fsspeckit.common.errors import StorageError
from fsspeckit.core.commit.record import MAX_RECORDS, Record
from fsspeckit.core.storage import FOLDER, Storage, for_each, join, parent

_NAME = re.compile(r"(\d{20})-(\d{20})\.(records|versions)", re.ASCII)
_FORMAT = 1
_JOINED = 32
"""Number of files of about the same size from which they are joined."""
_RECORD_BYTES = 16 * 2**20
_READ_ATTEMPTS = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_TIME = 253_402_300_800 * 10**6 - 1
"""The last microsecond of the year 9999."""
UNKNOWN = -1
"""A count that a commit does not have. A number is checked faster than null."""
_TEXT: frozenset[type] = frozenset({str, type(None)})
_LOWEST = {"version": 1, "at": 0, "added_files": 0, "removed_files": 0}
_MAINTENANCE = ("alter", "compact", "deduplicate", "optimize")
_NUMBERS = _LOWEST | dict.fromkeys(("inserted", "updated", "deleted", "files", "bytes"), UNKNOWN)
"""Columns of numbers, and the lowest number of each."""
_COLUMNS: dict[str, frozenset[type]] = {
    **dict.fromkeys(_NUMBERS, frozenset({int})),
    "operation": frozenset({str}),
    "idempotency_key": _TEXT,
    "note": _TEXT,
    "kept": frozenset({bool}),
}
Columns = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of the folder ``history/``: the range of its slots, and its kind."""

    first: int
    last: int
    kind: str

    @property
    def name(self) -> str:
        """Return the name of the file."""
        return f"{self.first:020d}-{self.last:020d}.{self.kind}"


def list_segments(storage: Storage, folder: str) -> list[Segment]:
    """List the files of the folder, by range. Other files are ignored."""
    found = map(_NAME.fullmatch, storage.list_names(folder))
    segments = [Segment(int(name[1]), int(name[2]), name[3]) for name in found if name is not None]
    return sorted((each for each in segments if 0 < each.first <= each.last < MAX_RECORDS), key=lambda s: s.first)


def folded_until(storage: Storage, folder: str) -> int:
    """Return the last slot whose record is saved. The versions of a range are saved after its records."""
    return max((each.last for each in list_segments(storage, folder) if each.kind == "versions"), default=0)


def fold(storage: Storage, folder: str, records: Sequence[Record], slots: tuple[int, int]) -> None:
    """Save records that leave the journal, and the versions that they make. ``slots`` is the range that they cover."""
    storage.make_dirs(folder)
    storage.sync_dirs([parent(folder)])  # also if the folder exists: its creator may have died before this step
    commits = [record for record in records if record.kind == "commit"]
    parts = _parts([(record.seq, record.to_bytes()) for record in commits], slots)
    for first, last, data in parts:
        _create(storage, folder, Segment(first, last, "records"), data)
    _create(storage, folder, Segment(*slots, "versions"), _to_bytes(columns_of(commits)))
    join_versions(storage, folder)


def _parts(records: Sequence[tuple[int, bytes]], slots: tuple[int, int]) -> list[tuple[int, int, bytes]]:
    """Divide records into files of a bounded size, whose ranges cover all slots."""
    parts: list[list[tuple[int, bytes]]] = [[]]
    size = 0
    for seq, data in records:
        if parts[-1] and size + len(data) > _RECORD_BYTES:
            parts.append([])
            size = 0
        parts[-1].append((seq, data))
        size += len(data)
    starts = [slots[0], *(part[0][0] for part in parts[1:])]
    ends = [*(start - 1 for start in starts[1:]), slots[1]]
    return [
        (first, last, b"\n".join(data for _, data in part))
        for first, last, part in zip(starts, ends, parts, strict=True)
    ]


def _create(storage: Storage, folder: str, segment: Segment, data: bytes) -> None:
    with suppress(FileExistsError):  # a crashed prune has created it, with the same content
        storage.create_exclusive(join(folder, segment.name), data)


def join_versions(storage: Storage, folder: str) -> None:
    """Join files of versions of about the same number of slots, if there are many of them."""
    by_level: dict[int, list[Segment]] = {}
    for segment in list_segments(storage, folder):
        if segment.kind == "versions":
            slots, level = segment.last - segment.first + 1, 0
            while slots >= _JOINED**2:
                slots, level = slots // _JOINED, level + 1
            by_level.setdefault(level, []).append(segment)
    full = [segments for _, segments in sorted(by_level.items()) if len(segments) >= _JOINED]
    for segments in full[:1]:
        columns = _joined([read_versions(storage, folder, segment) for segment in segments])
        joined = Segment(segments[0].first, max(segment.last for segment in segments), "versions")
        _create(storage, folder, joined, _to_bytes(columns))
        storage.remove_many([join(folder, segment.name) for segment in segments if segment != joined])
        join_versions(storage, folder)


def columns_of(records: Iterable[Record]) -> Columns:
    """Return what `history` shows of records, column by column."""
    rows = [_version(record) for record in records]
    return {name: [row[name] for row in rows] for name in _COLUMNS}


def _version(record: Record) -> dict[str, Any]:
    info, listed = record.info, record.listed
    inserted, deleted = info.get("rows"), info.get("replaced")
    if info.get("operation") in _MAINTENANCE:  # these rows are duplicates
        inserted, deleted = None, inserted
    return {
        "version": record.seq,
        "at": microseconds(info.get("at")),
        "operation": _as_text(info.get("operation")) or "",
        "inserted": _as_count(info.get("inserted", inserted)),
        "updated": _as_count(info.get("updated")),
        "deleted": _as_count(info.get("deleted", deleted)),
        "files": UNKNOWN if listed is None else listed.files,
        "bytes": UNKNOWN if listed is None else listed.size,
        "added_files": sum(item.replaces is None for item in record.publish),
        "removed_files": len(record.removed) - sum(item.replaces is not None for item in record.publish),
        "idempotency_key": record.idempotency_key,
        "note": _as_text(info.get("note")),
        "kept": record.keep or not record.removed,
    }


def microseconds(at: Any) -> int:
    """Return the time in a record as microseconds since 1970, or 0 if the record has no valid time.

    A time that is after the year 9999 in UTC cannot be shown, so it is not valid.
    """
    try:
        found = (datetime.fromisoformat(at) - _EPOCH) // timedelta(microseconds=1)
    except (TypeError, ValueError, OverflowError):
        return 0
    return found if 0 <= found <= _MAX_TIME else 0


def as_time(at: int) -> str:
    """Return microseconds since 1970 as ISO text in UTC."""
    return (_EPOCH + timedelta(microseconds=at)).isoformat()


def _as_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _as_count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 2**63 else UNKNOWN


def _to_bytes(columns: Columns) -> bytes:
    return json.dumps({"format": _FORMAT, **columns}, separators=(",", ":")).encode()


def read_versions(storage: Storage, folder: str, segment: Segment) -> Columns:
    """Read and check a file of versions."""
    path = join(folder, segment.name)
    data = storage.read_bytes(path)
    try:
        return _checked(parse_json(data), segment)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StorageError(
            f"The history file {path} cannot be used: {error}. Nothing was changed. Restore it "
            "from a backup, or delete it; versions in it are then no longer listed."
        ) from error


def _checked(body: Any, segment: Segment) -> Columns:
    if not isinstance(body, dict) or body.get("format") != _FORMAT:
        raise ValueError(f"it is not in the format {_FORMAT}")
    columns = {name: body[name] for name in _COLUMNS}
    for name, kinds in _COLUMNS.items():
        if not isinstance(columns[name], list) or not set(map(type, columns[name])) <= kinds:
            raise ValueError(f"{name} has a value of another type")
    for name, lowest in _NUMBERS.items():
        if min(columns[name], default=lowest) < lowest:
            raise ValueError(f"{name} has a number that is too low")
    versions = columns["version"]
    if {len(column) for column in columns.values()} != {len(versions)}:
        raise ValueError("its columns have different lengths")
    if max(columns["at"], default=0) > _MAX_TIME:
        raise ValueError("at has a time after the year 9999")
    inside = not versions or (segment.first <= versions[0] and versions[-1] <= segment.last)
    if not inside or not all(map(lt, versions, versions[1:])):
        raise ValueError("its versions are not in order")
    return columns


def _joined(parts: Sequence[Columns]) -> Columns:
    """Return columns in the order of versions, each version once."""
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for part in sorted((part for part in parts if part["version"]), key=lambda part: part["version"][0]):
        start = bisect_right(part["version"], columns["version"][-1]) if columns["version"] else 0
        for name in _COLUMNS:
            columns[name] += part[name][start:]
    return columns


def all_versions(storage: Storage, folder: str, newer: Callable[[int], Iterable[Record]]) -> Columns:
    """Return the columns of all commits, oldest first.

    Args:
        storage: The storage of the sidecar.
        folder: The folder ``history/``.
        newer: Returns the records of the journal after a slot.
    """
    for attempt in range(_READ_ATTEMPTS):
        segments = [segment for segment in list_segments(storage, folder) if segment.kind == "versions"]
        try:
            parts = for_each(storage, lambda segment: read_versions(storage, folder, segment), segments)
        except FileNotFoundError:  # another process has joined the files
            if attempt == _READ_ATTEMPTS - 1:
                raise
            continue
        last = max((segment.last for segment in segments), default=0)
        return _joined([*parts, columns_of(newer(last))])
    raise AssertionError("unreachable")


def read_records(storage: Storage, folder: str, segment: Segment) -> list[Record]:
    """Read and check the records of a file, oldest first."""
    path = join(folder, segment.name)
    records = []
    for line in storage.read_bytes(path).splitlines():
        record = Record.from_bytes(line, _slot_of(line), path)
        if not segment.first <= record.seq <= segment.last or record.kind != "commit":
            raise StorageError(f"The history file {path} has a record of another slot. Restore it from a backup.")
        records.append(record)
    return records


def _slot_of(line: bytes) -> int:
    """Return the slot that a record names, or 0: the record is then rejected."""
    try:
        seq = json.loads(line)["seq"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0
    return seq if type(seq) is int else 0


@dataclass(frozen=True, slots=True)
class Expired:
    """What a vacuum removes: versions before ``floor``, with the names of their kept files and history files.

    ``folders`` have names of kept files, but fsspeckit has not created them. They stay.
    """

    floor: int
    kept: tuple[tuple[str, int], ...] = ()
    segments: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


def floor_at(columns: Columns, cutoff: int) -> int:
    """Return the newest version that, like all before it, was committed before a time, or 0: those before it expired.

    A commit by a writer whose clock is behind looks old, but the versions that it follows are not.
    """
    pairs = zip(columns["version"], columns["at"], strict=True)
    found = [version for version, _ in takewhile(lambda pair: pair[1] <= cutoff, pairs)]
    return int(found[-1]) if found else 0


def oldest_expired(storage: Storage, folder: str, retain: int) -> int:
    """Return the newest version in the history folder that is older than a number of seconds, or 0."""
    cutoff, floor = int((time.time() - retain) * 1e6), 0
    for segment in list_segments(storage, folder):
        if segment.kind == "versions":
            columns = read_versions(storage, folder, segment)
            floor = max(floor, floor_at(columns, cutoff))
            if any(at > cutoff for at in columns["at"]):
                break
    return floor


_KEPT_NAME = re.compile(r"(\d{20})-\d{1,9}\.kept", re.ASCII)


def expired_files(storage: Storage, kept_folder: str, folder: str, floor: int) -> Expired:
    """Return what is not needed to read the versions from ``floor`` on."""
    entries = [(entry, _KEPT_NAME.fullmatch(entry.path)) for entry in storage.list_dir(kept_folder)]
    named = [(entry.path, entry.size) for entry, found in entries if found is not None and int(found[1]) <= floor]
    kept, folders = ([item for item in named if (item[1] == FOLDER) == wanted] for wanted in (False, True))
    old = [segment.name for segment in list_segments(storage, folder) if segment.last < floor]
    return Expired(floor, tuple(kept), tuple(old), tuple(join(kept_folder, name) for name, _ in folders))


def remove_expired(storage: Storage, kept_folder: str, folder: str, expired: Expired) -> None:
    """Remove kept files and history files. The floor is stored before, so that no reader expects them.

    A file that cannot be removed is an error after all others are removed.
    """
    paths = [join(kept_folder, name) for name, _ in expired.kept] + [join(folder, name) for name in expired.segments]
    try:
        storage.remove_many(paths)
    except OSError:
        errors = [error for error in for_each(storage, lambda path: _removal_error(storage, path), paths) if error]
        if errors:
            raise errors[0] from None


def _removal_error(storage: Storage, path: str) -> OSError | None:
    try:
        storage.remove(path)
    except OSError as error:
        return error
    return None
