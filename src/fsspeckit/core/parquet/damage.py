"""Open data files, and report damage with the path of the file, and files that were replaced since they were listed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from fsspeckit.common.causes import outer_cause
from fsspeckit.common.errors import DamagedFileError, FsspeckitError, UnsupportedDataError
from fsspeckit.core.model import DataFile, ViewFile
from fsspeckit.core.storage import Entry, Storage


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


@contextmanager
def report_damage(operation: str, path: str) -> Iterator[None]:
    """Raise errors of a read with the path: `DamagedFileError`, `UnsupportedDataError`, or those of `outer_cause`."""
    try:
        yield
    except (FileNotFoundError, FsspeckitError):
        raise
    except (OSError, pa.ArrowException, UnicodeDecodeError, MemoryError) as error:
        if cause := outer_cause(f"{operation}: cannot read {path}", error):
            raise cause from error
        if isinstance(error, pa.ArrowNotImplementedError):
            raise UnsupportedDataError(
                f"{operation}: {path} has data that pyarrow cannot read ({error}); write the file again with smaller "
                "row groups or with other types, then run again"
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
