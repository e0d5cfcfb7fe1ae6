"""Tombstones: files in the sidecar with the keys that change feeds have deleted, and the sequence of each delete.

A commit that changes them has the complete list of these files in its record, so that rows and tombstones change
together. When the record is applied, its new files move to the folder ``tombstones/``, the list becomes a file of the
journal, and files that it does not name are removed. Anyone with access may have written the list, so every value is
validated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fsspeckit.common.documents import parse_json
from fsspeckit.common.errors import StorageError
from fsspeckit.core.model import ViewFile

FOLDER = "tombstones"
MARK = re.compile(r"tombstones-(\d{20})-(\d{1,9})", re.ASCII)
"""Name of a list: the slot of its commit, and the number of its files."""
NAME = re.compile(r"(\d{20})-\d{1,9}\.tombstones", re.ASCII)
_FORMAT = 1
_FIELDS = ("slot", "number", "rows", "size", "until", "since")
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TombstoneFile:
    """A file of tombstones: the slot of the commit that added it, and its number among those of this commit.

    ``until`` is the time in seconds since 1970 at which it expires. ``since`` is the slot of the newest delete that it
    has, which is an earlier one for joined files. ``staged`` is its name in the staging folder, in the record of its
    commit.
    """

    slot: int
    number: int
    rows: int
    size: int
    until: int
    since: int = 0
    staged: str = ""

    @property
    def name(self) -> str:
        """The name in the folder. No reader takes it for a data file."""
        return f"{self.slot:020d}-{self.number}.tombstones"


@dataclass(frozen=True, slots=True)
class TombstoneList:
    """A list of files of tombstones: the slot of its commit, the files, oldest first, and where they are."""

    slot: int = 0
    files: tuple[TombstoneFile, ...] = ()
    located: tuple[ViewFile, ...] = ()


def mark_of(seq: int, count: int) -> str:
    """Return the name of the list of a commit, which has so many files."""
    return f"tombstones-{seq:020d}-{count}"


def newest_list(names: Iterable[str]) -> tuple[int, int]:
    """Return the slot of the newest list among names in the journal, and the number of its files."""
    found = (MARK.fullmatch(name) for name in names)
    return max(((int(name[1]), int(name[2])) for name in found if name is not None), default=(0, 0))


def to_bytes(files: Sequence[TombstoneFile]) -> bytes:
    """Return a list as it is stored."""
    rows = [{name: getattr(file, name) for name in _FIELDS} for file in files]
    return json.dumps({"format": _FORMAT, "files": rows}, separators=(",", ":")).encode()


def from_bytes(data: bytes, seq: int, path: str) -> tuple[TombstoneFile, ...]:
    """Parse and validate the list of a commit.

    Raises:
        StorageError: The list is invalid.
    """
    try:
        body = parse_json(data)
        if not isinstance(body, dict) or body.get("format") != _FORMAT:
            raise ValueError(f"it is not in the format {_FORMAT}")
        return from_fields(body["files"], seq)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StorageError(
            f"The list of deleted keys {path} cannot be used: {error!r}. Nothing was changed. Restore it from a "
            "backup, or pass tombstones=None once to remove the deleted keys."
        ) from error


def from_fields(items: Any, seq: int) -> tuple[TombstoneFile, ...]:
    """Validate the list in a record or in a file of the journal, as of the commit of a slot."""
    if not isinstance(items, list):
        raise ValueError("its files of deleted keys are not a list")
    files = tuple(
        TombstoneFile(**{name: item[name] for name in _FIELDS}, staged=item.get("staged", "")) for item in items
    )
    for file in files:
        numbers = [getattr(file, name) for name in _FIELDS]
        if any(type(number) is not int or not 0 <= number <= _LARGEST for number in numbers):
            raise ValueError("a number of a file of deleted keys is not valid")
        if not 0 < file.since <= file.slot <= seq or not isinstance(file.staged, str):
            raise ValueError("a file of deleted keys is not one of this commit or an earlier one")
    if len({file.name for file in files}) < len(files) or not all(NAME.fullmatch(file.name) for file in files):
        raise ValueError("a file of deleted keys is named twice, or its name is not valid")
    return files
