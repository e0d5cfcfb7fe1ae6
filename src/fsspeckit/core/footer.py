"""The end of a Parquet file: one read of its tail, nothing decoded.

`read_footer` serves planning and the check that a staged file is whole and holds the rows it should.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.errors import DamagedFileError
from fsspeckit.core.storage import Storage

_MAGIC = b"PAR1"
_TRAILER = 8
_FIRST_READ, _FIRST_LOCAL_READ = 64 * 1024, 4 * 1024  # a second read is a round trip, or next to nothing
INT96_UNIT = "us"
"""Old writers store timestamps as INT96; read as nanoseconds, years beyond 2262 would wrap round."""


def read_footer(storage: Storage, path: str, size: int) -> tuple[pq.ParquetReader, int]:
    """A reader that knows only the file's footer, and the footer's length; raises `pa.ArrowInvalid` on damage."""
    tail = storage.read_tail(path, _FIRST_LOCAL_READ if storage.is_local else _FIRST_READ)
    if len(tail) < _TRAILER + len(_MAGIC) or tail[-4:] != _MAGIC:
        raise pa.ArrowInvalid("it does not end like a Parquet file" if tail else "it is empty")
    length = int.from_bytes(tail[-8:-4], "little") + _TRAILER
    if length + len(_MAGIC) > size:
        raise pa.ArrowInvalid("its footer is longer than the file")
    if length > len(tail):
        tail = storage.read_tail(path, length)
    return open_reader(pa.BufferReader(_MAGIC + tail[-length:]), pre_buffer=False), length


def open_reader(source: pa.NativeFile, **options: Any) -> pq.ParquetReader:
    """What a `pq.ParquetFile` has inside; that also makes an index of column names, which costs more than a footer."""
    reader = pq.ParquetReader()
    reader.open(source, coerce_int96_timestamp_unit=INT96_UNIT, arrow_extensions_enabled=True, **options)
    return reader


def check_staged(storage: Storage, path: str, size: int, rows: int) -> None:
    """Raise where a file just written is not a whole Parquet file of ``rows`` rows."""
    try:
        reader, length = read_footer(storage, path, size)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from error
    metadata = reader.metadata
    if metadata.num_rows != rows:
        raise _damaged(path, f"it holds {metadata.num_rows} rows instead of {rows}")
    if _data_end(metadata) > size - length:
        raise _damaged(path, "its last column chunk reaches into the footer")


def _data_end(metadata: pq.FileMetaData) -> int:
    """Where the last column chunk ends according to the footer."""
    if not metadata.num_row_groups or not metadata.num_columns:
        return 0
    last = metadata.row_group(metadata.num_row_groups - 1).column(metadata.num_columns - 1)
    start = last.data_page_offset
    if last.has_dictionary_page and last.dictionary_page_offset is not None:
        start = min(start, last.dictionary_page_offset)
    return int(start + last.total_compressed_size)


def _damaged(path: str, reason: str) -> DamagedFileError:
    return DamagedFileError(
        f"the staged file {path} is damaged: {reason}. Nothing was changed; run the operation again."
    )
