"""Source files that readers have processed into a dataset: their form in records, and their storage after pruning.

A file is stored as 24 bytes: a hash of its path and a hash of its size and stamp. A record has the files that its
commit processed. Pruning adds those of the records that it deletes to one file for each reader. What is known about a
reader is the union of all of them, so a file that is stored twice, as after a crash, changes nothing.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress

from fsspeckit.common.errors import StorageError
from fsspeckit.core.commit.record import Record
from fsspeckit.core.storage import Storage, join

_PATH_BYTES, _STATE_BYTES = 16, 8
_ENTRY = _PATH_BYTES + _STATE_BYTES
_NAME = re.compile(r"(\d{20})-([0-9a-f]{64})\.seen", re.ASCII)


class SeenFiles:
    """The files that a reader has processed, each in every state in which it was processed."""

    def __init__(self, entries: Iterable[bytes] = ()) -> None:
        self.entries = frozenset(entries)
        self._paths = frozenset(entry[:_PATH_BYTES] for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def has(self, entry: bytes) -> bool:
        """Return whether a file was processed in this state."""
        return entry in self.entries

    def has_path(self, entry: bytes) -> bool:
        """Return whether a file was processed, in this state or another one."""
        return entry[:_PATH_BYTES] in self._paths


def entry_of(path: str, size: int, stamp: str) -> bytes:
    """Return what is stored of a file.

    Example:
        >>> one, other = entry_of("in/a.csv", 10, "x"), entry_of("in/a.csv", 11, "x")
        >>> len(one), one == other, SeenFiles([one]).has_path(other)
        (24, False, True)
    """
    state = f"{size}\0{stamp}".encode("utf-8", "surrogateescape")
    return _hashed(path.encode("utf-8", "surrogateescape"), _PATH_BYTES) + _hashed(state, _STATE_BYTES)


def pack(entries: Iterable[bytes]) -> str:
    """Return files as a record has them."""
    return base64.b64encode(b"".join(sorted(entries))).decode()


def unpack(text: str) -> list[bytes]:
    """Return the files of a record, whose form was checked when it was read."""
    return _split(base64.b64decode(text, validate=True))


def save_seen(storage: Storage, folder: str, records: Sequence[Record], anew: int = 0) -> None:
    """Store the files that some records have, before the records are deleted.

    If a reader has read files again since the slot ``anew``, the earlier ones are left out.
    """
    last = {reader: record.seq for record in records for reader in record.seen}
    if not last:
        return
    storage.make_dirs(folder)
    storage.sync_dirs([folder.rpartition("/")[0]])
    for reader, seq in last.items():
        stored, first = _names_of(storage, folder, reader), anew if seq >= anew else 0
        found = {entry for name in stored if _slot(name) >= first for entry in _stored(storage, folder, name)}
        valid = [record for record in records if reader in record.seen and record.seq >= first]
        found |= {entry for record in valid for entry in unpack(record.seen[reader])}
        name = f"{seq:020d}-{_digest(reader)}.seen"
        with suppress(FileExistsError):
            storage.create_exclusive(join(folder, name), b"".join(sorted(found)))
        # Only what was read: another process may have stored a file meanwhile.
        storage.remove_many([join(folder, each) for each in stored if each != name])


def stored_files(storage: Storage, folder: str, reader: str) -> dict[int, set[bytes]]:
    """Return the files of a reader that were stored by `save_seen`, by the slots of its newest records."""
    for attempt in range(2):
        try:
            names = _names_of(storage, folder, reader)
            return {_slot(name): _stored(storage, folder, name) for name in names}
        except FileNotFoundError:  # replaced by a newer one after it was listed
            if attempt:
                raise
    raise AssertionError("the second attempt returns or raises")


def _names_of(storage: Storage, folder: str, reader: str) -> list[str]:
    found = map(_NAME.fullmatch, sorted(storage.list_names(folder)))
    return [name[0] for name in found if name is not None and name[2] == _digest(reader)]


def _slot(name: str) -> int:
    return int(name[:20])


def _stored(storage: Storage, folder: str, name: str) -> set[bytes]:
    try:
        return set(_split(storage.read_bytes(join(folder, name))))
    except ValueError as error:
        raise StorageError(
            f"{join(folder, name)} is damaged: {error}. Nothing was changed. Restore it from a backup, or remove "
            "it to process the files in it again."
        ) from error


def _split(data: bytes) -> list[bytes]:
    if len(data) % _ENTRY:
        raise ValueError(f"the list of files has {len(data):,} bytes, which is no multiple of {_ENTRY}")
    return [data[start : start + _ENTRY] for start in range(0, len(data), _ENTRY)]


def _hashed(data: bytes, size: int) -> bytes:
    return hashlib.sha256(data).digest()[:size]


def _digest(reader: str) -> str:
    return hashlib.sha256(reader.encode()).hexdigest()
