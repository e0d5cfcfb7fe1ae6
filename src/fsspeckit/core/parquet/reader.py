"""Open data files: check that they are unchanged since the listing, and report damage with the path of the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow.parquet as pq

from fsspeckit.common.errors import DamagedFileError
from fsspeckit.common.stored_types import decoded_columns
from fsspeckit.core.model import DataFile, KeptBytes, ViewFile
from fsspeckit.core.parquet.bytes.format_fields import TRAILER
from fsspeckit.core.parquet.damage import check_unchanged, open_file, report_damage
from fsspeckit.core.parquet.data_files import confirm_facts
from fsspeckit.core.parquet.footer import Footer, footer_length, open_footer, open_reader, read_footer_bytes
from fsspeckit.core.parquet.timestamps import CheckedParquet, old_columns
from fsspeckit.core.storage import Storage

_SMALL_FILE = 4 * 1024 * 1024


def with_content(storage: Storage, file: DataFile) -> DataFile:
    """Return a small file on remote storage with its bytes, so that it can be opened several times with one request."""
    if file.content is not None or storage.workers == 1 or file.size > _SMALL_FILE:
        return file
    with report_damage("reading", file.path), open_file(storage, file) as opened:
        return replace(file, content=KeptBytes(opened.read()))


def read_footer(storage: Storage, file: DataFile) -> Footer:
    """Read and check the footer of a data file. A file that was replaced since the listing raises FileNotFoundError."""
    file = confirmed(storage, file)
    with report_damage("reading the footer", file.path):
        return Footer(file.raw_footer or _listed_footer(storage, file), file.data + 4)


def confirmed(storage: Storage, file: DataFile, *, reads_rows: bool = True) -> DataFile:
    """Return a file whose facts are those of its footer; one that the index describes is opened and compared.

    Args:
        storage: Storage of the file.
        file: The file.
        reads_rows: Whether the rows are read next. Then the footer is kept, and a small file on remote storage is read
            whole.

    Raises:
        StorageError: The index has other facts than the footer.
    """
    if not file.from_index:
        return file
    file = with_content(storage, file) if reads_rows else file
    with report_damage("reading the footer", file.path):
        listed = _listed_footer(storage, file)
        data = confirm_facts(storage, file, listed)
    keeps = reads_rows or data is not listed
    return replace(file, raw_footer=data if keeps else None, from_index=False)


def _listed_footer(storage: Storage, file: DataFile) -> bytes:
    if file.content is not None:
        return file.content[-footer_length(file.content, file.size) : -TRAILER]
    try:
        return read_footer_bytes(storage, file.location, file.size)
    finally:
        if storage.in_place:
            check_unchanged(storage.stat(file.location), file)


def open_parquet(
    storage: Storage,
    file: ViewFile | DataFile,
    *,
    verify: bool = False,
    partial: bool = False,
    coded: Sequence[str] = (),
    footer: Footer | None = None,
) -> pq.ParquetFile:
    """Open a data file. A file that was replaced since the listing raises FileNotFoundError.

    Args:
        storage: Storage of the file.
        file: The file as listed.
        verify: Check every page against its checksum, if it has one.
        partial: Only a few columns are read. Their ranges are read separately, because the read-ahead of a local disk
            would also fetch the columns between them.
        coded: Columns to read as dictionary codes.
        footer: The footer, if it was read already.
    """
    file = file if isinstance(file, ViewFile) or footer is not None else confirmed(storage, file)
    options = {
        "metadata": footer.for_pyarrow() if footer is not None else _cached_footer(file),
        "read_dictionary": list(coded),
        "pre_buffer": partial or not storage.is_local,
        "page_checksum_verification": verify,
    }
    if isinstance(file, DataFile) and _has_checks(file):
        return CheckedParquet(storage, file, open_file(storage, file), **options)
    return pq.ParquetFile(open_file(storage, file), **options)


def _has_checks(file: DataFile) -> bool:
    return bool(file.int96 or old_columns(file.schema) or decoded_columns(file.schema))


def open_rows(storage: Storage, file: DataFile, coded: Sequence[str]) -> pq.ParquetReader | pq.ParquetFile:
    """Open a data file like `open_parquet`, to read and verify whole row groups."""
    file = confirmed(storage, file)
    if _has_checks(file):
        return open_parquet(storage, file, verify=True, coded=coded)
    return open_reader(
        open_file(storage, file),
        metadata=_cached_footer(file),
        read_dictionary=list(coded),
        pre_buffer=not storage.is_local,
        page_checksum_verification=True,
    )


def _cached_footer(file: ViewFile | DataFile) -> pq.FileMetaData | None:
    if isinstance(file, ViewFile) or file.raw_footer is None:
        return None
    return open_footer(file.raw_footer).metadata


def check_rows(rows: int, file: DataFile, row_groups: Sequence[int]) -> None:
    """Raise if the number of decoded rows differs from that in the footer."""
    expected = sum(file.row_groups[group] for group in row_groups)
    if rows != expected:
        raise DamagedFileError(
            f"{file.path} has {rows} rows in row groups of {expected} rows; restore or move the file, then run again"
        )
