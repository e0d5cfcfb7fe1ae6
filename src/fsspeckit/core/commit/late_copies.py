"""Copies that a server ends late: they put a file back that a later commit has removed.

On an object store, publishing is a copy that the server makes. If its writer dies, or asks for it twice, another
process finishes the commit while the first copy may still be running; later commits replace the file, and then the copy
ends. No request can prevent that, so such a file must not count as data. A process that cannot know whether a copy of a
commit is still running stores the names of its files, before the commit is marked as applied. Later commits that remove
one of these files store its name, before they are marked. No name is used twice, so a file with such a name is not
data: readers leave it out, and the next writer removes it.

Two objects in the folder of the records hold the names, each under the slot of the commit that wrote it: `late-` those
that a copy may put back, `gone-` those of them that are removed. They are listed with the records, so a dataset without
them, which is nearly every one, needs no request for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fsspeckit.common.documents import parse_json
from fsspeckit.common.errors import StorageError
from fsspeckit.core.commit.record import Record

MOST_COMMITS = 10_000
"""After this number of commits, a name is forgotten. No server takes so long for a copy."""
MOST_NAMES = 100_000
"""The newest names are kept. It bounds what a reader loads."""

Names = Mapping[str, tuple[int, int]]
"""Slot and size of files by path."""


def may_come(record: Record, known: Names, paths: Iterable[str]) -> Names:
    """Return the names that a copy may put back, with those of a record and more paths for its files."""
    sizes = {item.path: item.size for item in record.publish}
    more = [path for path in paths if path not in sizes]
    return _newest({**known, **{path: (record.seq, size) for path, size in sizes.items()}, **_at(record, more)}, record)


def _at(record: Record, paths: Iterable[str]) -> dict[str, tuple[int, int]]:
    others = {item.other_path: item.size for item in record.publish}
    return {path: (record.seq, others[path]) for path in paths if path in others}


def are_gone(record: Record, late: Names, known: Names) -> Names:
    """Return the names of removed files after a commit. A name that it publishes is in use again."""
    removed = {item.path: (record.seq, item.identity.size) for item in record.retire if item.path in late}
    published = {item.path for item in record.publish}
    return _newest({path: at for path, at in {**known, **removed}.items() if path not in published}, record)


def _newest(names: dict[str, tuple[int, int]], record: Record) -> Names:
    kept = [(path, at) for path, at in names.items() if at[0] > record.seq - MOST_COMMITS]
    return dict(sorted(kept, key=lambda pair: pair[1])[-MOST_NAMES:])


def to_bytes(names: Names) -> bytes:
    """Return names as they are stored."""
    return json.dumps([[path, *at] for path, at in names.items()], separators=(",", ":")).encode()


def from_bytes(data: bytes, path: str) -> Names:
    """Parse stored names.

    Raises:
        StorageError: The content is invalid.
    """
    try:
        return {str(name): (_number(seq), _number(size)) for name, seq, size in parse_json(data)}
    except (ValueError, TypeError, RecursionError) as error:
        raise StorageError(
            f"{path} is not a list of removed files: {error}. Nothing was changed. Restore it from a backup, or delete "
            "it if fsspeckit did not write it."
        ) from error


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a slot or size is not a number")
    return value
