"""Opening data files: as they were listed, with errors that name them, and with no value changed on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.bridge import to_numpy, valid_mask
from fsspeckit.common.errors import DamagedFileError, FsspeckitError, SchemaMismatchError
from fsspeckit.core.model import DataFile, ViewFile
from fsspeckit.core.parquet.footer import INT96_UNIT, Footer, open_footer, open_reader, read_footer_bytes
from fsspeckit.core.storage import Entry, Storage


def open_file(storage: Storage, file: ViewFile | DataFile) -> pa.NativeFile:
    """Open a file of a view for reading; FileNotFoundError where it is gone or replaced since: take a fresh view then.

    Where files are replaced in place, a name alone does not say which commit one reads.
    """
    opened = storage.open_input(file.location)
    if storage.in_place:
        try:
            _check_is(storage.stat(file.location), file)
        except FileNotFoundError:
            opened.close()
            raise
    return opened


def read_into(storage: Storage, file: DataFile, room: memoryview) -> None:
    """Read the first bytes of a file like `open_file` opens it."""
    found = storage.read_into(file.location, room)
    if storage.in_place:
        _check_is(found, file)


def _check_is(found: Entry | None, file: ViewFile | DataFile) -> None:
    if found is None or (found.size, found.stamp) != (file.size, file.stamp):
        raise FileNotFoundError(f"{file.location} was replaced since it was listed. List the dataset again.")


@contextmanager
def report_damage(operation: str, path: str) -> Iterator[None]:
    """Turn what pyarrow raises on a broken file into an error that names it."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException, UnicodeDecodeError, MemoryError) as error:
        if isinstance(error, FsspeckitError):
            raise
        raise DamagedFileError(
            f"{operation}: {path} cannot be read as Parquet ({error}); restore or move the file, then run again"
        ) from error


def read_footer(storage: Storage, file: DataFile) -> Footer:
    """The footer of a data file, read and checked."""
    with report_damage("reading the footer", file.path):
        data = file.raw_footer or read_footer_bytes(storage, file.location, file.size)
        return Footer(data, file.data + 4)


def open_parquet(
    storage: Storage,
    file: ViewFile | DataFile,
    *,
    verify: bool = False,
    partial: bool = False,
    coded: Sequence[str] = (),
    footer: Footer | None = None,
) -> pq.ParquetFile:
    """Open a data file as it was listed; one replaced since is a FileNotFoundError.

    With ``verify`` every page read is checked against its checksum, where it has one. ``partial`` says that few columns
    are wanted: their ranges are read as such, or the disk's read-ahead would fetch their neighbours too. Columns in
    ``coded`` are read as dictionary codes. A footer that is given or kept is not read again.
    """
    return pq.ParquetFile(
        open_file(storage, file),
        metadata=footer.for_pyarrow() if footer is not None else _kept_footer(file),
        read_dictionary=list(coded),
        coerce_int96_timestamp_unit=INT96_UNIT,
        pre_buffer=partial or not storage.is_local,
        page_checksum_verification=verify,
    )


def open_rows(storage: Storage, file: DataFile, coded: Sequence[str]) -> pq.ParquetReader:
    """Open a data file like `open_parquet`, to read and verify whole row groups of it."""
    return open_reader(
        open_file(storage, file),
        metadata=_kept_footer(file),
        read_dictionary=list(coded),
        pre_buffer=not storage.is_local,
        page_checksum_verification=True,
    )


def _kept_footer(file: ViewFile | DataFile) -> pq.FileMetaData | None:
    if isinstance(file, ViewFile) or file.raw_footer is None:
        return None
    return open_footer(file.raw_footer).metadata


def check_rows(found: int, file: DataFile, row_groups: Sequence[int]) -> None:
    """Raise where decoded row groups have not the rows that their footer says."""
    expected = sum(file.row_groups[group] for group in row_groups)
    if found != expected:
        raise DamagedFileError(
            f"{file.path} has {found} rows in row groups of {expected} rows; restore or move the file, then run again"
        )


def check_int96(
    storage: Storage, file: DataFile, row_groups: Iterable[int], columns: Iterable[str] | None = None
) -> None:
    """Raise where INT96 timestamps, in all columns or in some, are not whole microseconds of 64 bits.

    They are read as microseconds, so digits below would be lost, and years beyond 290,000 would be others. Read as
    nanoseconds they may wrap round, and so do microseconds that are made nanoseconds: the difference is exact.
    """
    names = [name for name in file.int96 if columns is None or name in columns]
    for group in row_groups if names else ():
        with report_damage("reading", file.path):
            micros, nanos, seconds = (_read_int96(storage, file, group, names, unit) for unit in ("us", "ns", "s"))
        for name in names:
            leaves = (_leaves(table[name].combine_chunks()) for table in (micros, nanos, seconds))
            if not all(map(_are_exact, *leaves)):
                raise SchemaMismatchError(
                    f"column {name!r} of {file.path} holds INT96 timestamps with nanoseconds, or beyond the year "
                    "290000, and fsspeckit has only microseconds for them; rewrite it with 64-bit timestamps first"
                )


def _read_int96(storage: Storage, file: DataFile, group: int, names: Sequence[str], unit: str) -> pa.Table:
    with pq.ParquetFile(open_file(storage, file), coerce_int96_timestamp_unit=unit) as reader:
        return reader.read_row_group(group, names)


def _are_exact(micros: pa.Array, nanos: pa.Array, seconds: pa.Array) -> bool:
    if not pa.types.is_timestamp(micros.type) or micros.type == seconds.type:
        return True  # a column that is stored in another way
    low, exact, high = map(to_numpy, (micros, nanos, seconds))
    wrong = (low * 1000 != exact) | (low // 1_000_000 != high)
    return not bool((wrong & valid_mask(micros)).any())


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    """The values inside a column, however deep, in one order for equal types."""
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
