"""Open data files, and report damage with the path of the file, and files that were replaced since they were listed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.causes import outer_cause
from fsspeckit.common.errors import DamagedFileError, FsspeckitError, UnsupportedDataError
from fsspeckit.core.model import DataFile, ViewFile
from fsspeckit.core.storage import Entry, Storage

_GAPS = ("Expected all lists to be of size", "DictAccumulator")
"""Errors of pyarrow about data that other readers read: nulls in lists of a fixed size, categories as plain values."""


def open_file(storage: Storage, file: ViewFile | DataFile) -> pa.NativeFile:
    """Open a file of a view for reading.

    Raises:
        FileNotFoundError: The file was deleted or replaced since the view. Take a new view.
    """
    if isinstance(file, DataFile) and file.content is not None:
        return pa.BufferReader(file.content)
    opened = storage.open_input(file.location, file.size, file.stamp)
    if storage.in_place:
        try:
            check_unchanged(storage.stat(file.location), file)
        except FileNotFoundError:
            opened.close()
            raise
    return opened


def unreadable_columns(storage: Storage, file: DataFile) -> list[str]:
    """Return the columns of a file that pyarrow cannot read."""
    with open_file(storage, file) as opened:
        return failing_columns(pq.ParquetFile(opened))


def failing_columns(parquet: pq.ParquetFile) -> list[str]:
    """Return the columns of an open file that pyarrow cannot read; each is tried alone."""
    found = []
    for name in parquet.schema_arrow.names:
        try:
            for _ in parquet.iter_batches(columns=[name]):
                pass
        except (OSError, pa.ArrowException):
            found.append(name)
    return found


@contextmanager
def report_damage(operation: str, path: str, unreadable: Callable[[], list[str]] | None = None) -> Iterator[None]:
    """Raise errors of a read with the path: `DamagedFileError`, `UnsupportedDataError`, or those of `outer_cause`.

    ``unreadable`` finds the columns of a healthy file that pyarrow cannot read.
    """
    try:
        yield
    except (FileNotFoundError, FsspeckitError):
        raise
    except (OSError, pa.ArrowException, UnicodeDecodeError, MemoryError) as error:
        if cause := outer_cause(f"{operation}: cannot read {path}", error):
            raise cause from error
        if isinstance(error, pa.ArrowNotImplementedError) or any(text in str(error) for text in _GAPS):
            named = f" in column(s) {found}" if unreadable is not None and (found := unreadable()) else ""
            raise UnsupportedDataError(
                f"{operation}: {path} is not damaged, but pyarrow cannot read its data{named} ({error}); write the "
                "file again with smaller row groups or with other types, then run again"
            ) from error
        raise DamagedFileError(
            f"{operation}: {path} cannot be read as Parquet ({error}); restore or move the file, then run again"
        ) from error


def check_listed(storage: Storage, file: ViewFile | DataFile) -> None:
    """Raise FileNotFoundError if a file is not the one that was listed."""
    check_unchanged(storage.stat_file(file.location), file)


def check_unchanged(entry: Entry | None, file: ViewFile | DataFile) -> None:
    """Raise FileNotFoundError if an entry is not the file that was listed."""
    if entry is None or (entry.size, entry.stamp) != (file.size, file.stamp):
        raise FileNotFoundError(f"{file.location} was replaced since it was listed. List the dataset again.")
