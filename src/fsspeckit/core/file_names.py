"""Names of files: which ones are data, and those that fsspeckit creates, which are always new in a dataset.

A dataset is read in the order of its files' names, so a new file's name begins with the moment it was made: rows that
were appended later come later, and where only their order decides which one of two rows stays, it is the newer.
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
_TOKEN = re.compile(r"-r[0-9a-f]{12}$")


def is_data_file(path: str) -> bool:
    """Whether a path below the dataset root is data: a Parquet name, and no hidden part except hive folders.

    Example:
        >>> is_data_file("day=1/part-0.parquet"), is_data_file("_tmp/part-0.parquet"), is_data_file("_day=1/a.pq")
        (True, False, True)
    """
    folder, _, name = path.rpartition("/")
    if name[:1] in ("_", ".") or not name.lower().endswith(_SUFFIXES):
        return False
    if "_" not in folder and "." not in folder:
        return True
    return all(part[:1] not in ("_", ".") or "=" in part for part in folder.split("/"))


def is_side_file(path: str) -> bool:
    """Whether a file describes data files and goes stale with them: summary files at the root, Hadoop checksums."""
    name = path.rpartition("/")[2]
    return path in _SUMMARY_FILES or (name.startswith(".") and name.endswith(".crc"))


def is_inside(path: str) -> bool:
    """Whether a path is relative and stays inside the folder that it is relative to.

    Example:
        >>> is_inside("day=1/a.parquet"), is_inside("../a.parquet"), is_inside("/a.parquet"), is_inside("a//b")
        (True, False, False, False)
    """
    return "\0" not in path and not {"", ".", ".."} & set(path.split("/"))


def new_file_name(folder: str, template: str | None = None, index: int = 0) -> str:
    """A file's path below the dataset; a template has ``{i}`` where the number goes."""
    if template is not None:
        return join(folder, template.replace("{i}", str(index)))
    return join(folder, f"part-{_moments.next():014x}-{uuid.uuid4().hex[:8]}.parquet")


class _Moments:
    """Microseconds since 1970, each given once and in rising order."""

    def __init__(self) -> None:
        self._last, self._lock = 0, threading.Lock()

    def next(self) -> int:
        with self._lock:
            self._last = max(self._last + 1, time.time_ns() // 1000)
            return self._last


_moments = _Moments()


def rewritten_name(path: str) -> str:
    """A new name beside the old one, for storages where a file is not replaced in place."""
    stem, dot, ending = basename(path).rpartition(".")
    stem = _TOKEN.sub("", stem if dot else ending)
    return join(dirname(path), f"{stem}-r{uuid.uuid4().hex[:12]}.parquet")


def compacted_name(folder: str, token: str, index: int) -> str:
    """The path of a file that a compaction writes; ``token`` stands for the run."""
    return join(folder, f"part-{index:05d}-{token}-compact.parquet")


def compact_token(target: str) -> str:
    """Something unique for the names of a compaction, which tells what size it aimed at."""
    return _fingerprint(target) + uuid.uuid4().hex[:8]


def is_compacted(path: str, target: str) -> bool:
    """Whether a compaction that aimed at this size wrote the file, by its name."""
    found = _COMPACTED.search(path)
    return found is not None and found[1] == _fingerprint(target)


def _fingerprint(text: str) -> str:
    return f"{zlib.crc32(text.encode()) & 0xFFFF:04x}"


def optimized_name(folder: str, token: str, index: int) -> str:
    """The path of a file that `optimize` writes; ``token`` stands for the run."""
    return join(folder, f"optimized-{token}-{index:05d}.parquet")


def new_token() -> str:
    """Something unique for the names of a run."""
    return uuid.uuid4().hex[:12]
