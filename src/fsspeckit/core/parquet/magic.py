"""Tell by its first and last bytes whether a file is Parquet."""

from __future__ import annotations

from fsspeckit.core.parquet.bytes.format_fields import MAGIC
from fsspeckit.core.parquet.footer import ENCRYPTED_MAGIC
from fsspeckit.core.storage import Entry, Storage

SMALLEST = 13
"""Bytes of the smallest file that can be Parquet."""
_WHOLE = 64 * 1024  # bytes of a file that is read with one request


def is_parquet(storage: Storage, path: str, entry: Entry) -> bool | None:
    """Return whether a listed file begins and ends like Parquet; ``None`` if it vanished."""
    if entry.size < SMALLEST:
        return False
    try:
        end = storage.read_tail(path, entry.size if entry.size <= _WHOLE else len(MAGIC))
        if end[-len(MAGIC) :] not in (MAGIC, ENCRYPTED_MAGIC):
            return False
        if entry.size <= _WHOLE:
            return end[: len(MAGIC)] == end[-len(MAGIC) :]
        with storage.open_input(path, entry.size, entry.stamp) as file:
            return bool(file.read(len(MAGIC)) == end)
    except FileNotFoundError:
        return None
