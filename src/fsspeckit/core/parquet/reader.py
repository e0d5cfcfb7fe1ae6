"""Open data files: check that they are unchanged since the listing, and report damage with the path of the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.bridge import to_numpy, valid_mask
from fsspeckit.common.errors import DamagedFileError, SchemaMismatchError
from fsspeckit.core.model import DataFile, KeptBytes, ViewFile
from fsspeckit.core.parquet.bytes.format_fields import TRAILER
from fsspeckit.core.parquet.damage import check_unchanged, report_damage
from fsspeckit.core.parquet.data_files import confirm_facts
from fsspeckit.core.parquet.footer import INT96_UNIT, Footer, footer_length, open_footer, open_reader, read_footer_bytes
from fsspeckit.core.storage import Storage

_SMALL_FILE = 4 * 1024 * 1024


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
        data = confirm_facts(file, listed)
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
    return pq.ParquetFile(
        open_file(storage, file),
        metadata=footer.for_pyarrow() if footer is not None else _cached_footer(file),
        read_dictionary=list(coded),
        coerce_int96_timestamp_unit=INT96_UNIT,
        pre_buffer=partial or not storage.is_local,
        page_checksum_verification=verify,
    )


def open_rows(storage: Storage, file: DataFile, coded: Sequence[str]) -> pq.ParquetReader:
    """Open a data file like `open_parquet`, to read and verify whole row groups."""
    file = confirmed(storage, file)
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


def check_int96(
    storage: Storage, file: DataFile, row_groups: Iterable[int], columns: Iterable[str] | None = None
) -> None:
    """Raise if INT96 timestamps, in all columns or in some, are not exact as 64-bit microseconds.

    They are read as microseconds, so nanoseconds would be lost, and years after 290,000 would overflow. The values as
    nanoseconds and the microseconds times 1000 overflow alike, so their difference is exact.
    """
    names = [name for name in file.int96 if columns is None or name in columns]
    for group in row_groups if names else ():
        with report_damage("reading", file.path):
            micros, nanos, seconds = (_read_int96(storage, file, group, names, unit) for unit in ("us", "ns", "s"))
        for name in names:
            leaves = (_leaves(table[name].combine_chunks()) for table in (micros, nanos, seconds))
            if not all(map(_are_exact, *leaves)):
                raise SchemaMismatchError(
                    f"column {name!r} of {file.path} has INT96 timestamps with nanoseconds, or after the year 290000, "
                    "which do not fit into 64-bit microseconds; rewrite it with 64-bit timestamps first"
                )


def _read_int96(storage: Storage, file: DataFile, group: int, names: Sequence[str], unit: str) -> pa.Table:
    with pq.ParquetFile(open_file(storage, file), coerce_int96_timestamp_unit=unit) as reader:
        return reader.read_row_group(group, names)


def _are_exact(micros: pa.Array, nanos: pa.Array, seconds: pa.Array) -> bool:
    if not pa.types.is_timestamp(micros.type) or micros.type == seconds.type:
        return True  # the column is not stored as INT96
    us, ns, s = map(to_numpy, (micros, nanos, seconds))
    wrong = (us * 1000 != ns) | (us // 1_000_000 != s)
    return not bool((wrong & valid_mask(micros)).any())


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the leaf arrays of a column. The order depends only on the type."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_map(array.type):
        inner = [array.keys, array.items]
    elif pa.types.is_struct(array.type):
        inner = array.flatten()
    elif pa.types.is_nested(array.type):
        inner = [array.flatten()]
    else:
        yield array
        return
    for child in inner:
        yield from _leaves(child)
