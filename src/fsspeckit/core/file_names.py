"""Names of files: which files are data files, and the names of new files, which are unique.

A dataset is read in the order of file names, so the name of a new file starts with its time. Rows that are appended
later come later, and if only the order decides which of two rows is kept, the newer one is kept.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
import zlib
from posixpath import basename, dirname, join

_SUFFIXES = (".parquet", ".parq", ".pq")
_SUMMARY_FILES = frozenset({"_metadata", "_common_metadata"})
_COMPACTED = re.compile(r"part-\d+-([0-9a-f]{4})[0-9a-f]{8}-compact\.parquet$")
_UNIQUE = re.compile(
    r"^part-[0-9a-f]{14}-[0-9a-f]{8}\.parquet$|-r[0-9a-f]{12}\.parquet$|^part-\d+-[0-9a-f]{12}-compact\.parquet$"
    r"|^optimized-[0-9a-f]{12}-\d+\.parquet$"
)
_TOKEN = re.compile(r"-r[0-9a-f]{12}$")


def is_visible(path: str) -> bool:
    """Return whether a path in a dataset has no hidden part, except hive folders.

    Such a file is a data file if its name or its content says so (`fsspeckit.core.commit.file_kinds`).

    Examples:
        >>> is_visible("day=1/000000_0"), is_visible("_SUCCESS"), is_visible(".hive-staging/a"), is_visible("_day=1/a")
        (True, False, False, True)
    """
    folder, _, name = path.rpartition("/")
    if name[:1] in ("_", "."):
        return False
    if "_" not in folder and "." not in folder:
        return True
    return all(part[:1] not in ("_", ".") or "=" in part for part in folder.split("/"))


def is_data_file(path: str) -> bool:
    """Return whether a path in a dataset is a data file by its name alone.

    Examples:
        >>> is_data_file("day=1/part-0.parquet"), is_data_file("_tmp/part-0.parquet"), is_data_file("_day=1/a.pq")
        (True, False, True)
    """
    return path.lower().endswith(_SUFFIXES) and is_visible(path)


def is_side_file(path: str) -> bool:
    """Return whether a file describes data files, so that a change invalidates it: summary files, Hadoop checksums."""
    name = path.rpartition("/")[2]
    return path in _SUMMARY_FILES or (name.startswith(".") and name.endswith(".crc"))


def is_inside(path: str) -> bool:
    """Return whether a path is relative and inside its folder.

    Examples:
        >>> is_inside("day=1/a.parquet"), is_inside("../a.parquet"), is_inside("/a.parquet"), is_inside("a//b")
        (True, False, False, False)
    """
    return "\0" not in path and not {"", ".", ".."} & set(path.split("/"))


def new_file_name(folder: str, template: str | None = None, index: int = 0) -> str:
    """Return the path of a new file in a dataset; ``{i}`` in a template is replaced with the index."""
    if template is not None:
        return join(folder, template.replace("{i}", str(index)))
    return join(folder, f"part-{_timestamps.next():014x}-{uuid.uuid4().hex[:8]}.parquet")


class _Timestamps:
    """Microseconds since 1970 that are unique and increasing in this process."""

    def __init__(self) -> None:
        self._last, self._lock = 0, threading.Lock()

    def next(self) -> int:
        with self._lock:
            self._last = max(self._last + 1, time.time_ns() // 1000)
            return self._last


_timestamps = _Timestamps()


def rewritten_name(path: str) -> str:
    """Return a new name in the same folder, for storages that do not replace files in place."""
    return join(dirname(path), f"{name_stem(path)}-r{uuid.uuid4().hex[:12]}.parquet")


def name_stem(path: str) -> str:
    """Return what the names of a file and of its rewritten versions have in common.

    Examples:
        >>> name_stem("day=1/a-r0123456789ab.parquet"), name_stem("day=1/a.parquet")
        ('a', 'a')
    """
    stem, dot, ending = basename(path).rpartition(".")
    return _TOKEN.sub("", stem if dot else ending)


def is_unique(path: str) -> bool:
    """Return whether the name was made here for one new file: its random part is not chosen a second time.

    Examples:
        >>> is_unique("day=1/part-06607ff79465ba-dd1cff4f.parquet"), is_unique("day=1/part-0.parquet")
        (True, False)
    """
    return _UNIQUE.search(basename(path)) is not None


def compacted_name(folder: str, token: str, index: int) -> str:
    """Return the path of a file that a compaction writes; ``token`` identifies the run."""
    return join(folder, f"part-{index:05d}-{token}-compact.parquet")


def compact_token(target: str) -> str:
    """Return a unique token of a compaction. It contains a fingerprint of the target size."""
    return _fingerprint(target) + uuid.uuid4().hex[:8]


def is_compacted(path: str, target: str) -> bool:
    """Return whether a compaction with this target size wrote the file, by its name."""
    match = _COMPACTED.search(path)
    return match is not None and match[1] == _fingerprint(target)


def _fingerprint(text: str) -> str:
    return f"{zlib.crc32(text.encode()) & 0xFFFF:04x}"


def optimized_name(folder: str, token: str, index: int) -> str:
    """Return the path of a file that `optimize` writes; ``token`` identifies the run."""
    return join(folder, f"optimized-{token}-{index:05d}.parquet")


def new_token() -> str:
    """Return a unique token for the file names of a run."""
    return uuid.uuid4().hex[:12]
