"""Read row groups in batches of bounded size: with a dictionary, a file of kilobytes can have gigabytes of values.

A row group whose footer shows that its values fit into `WHOLE_BYTES` is one batch. Others are read in small steps,
which are joined by the bytes that they really have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

WHOLE_BYTES = 128 * 1024 * 1024
BATCH_BYTES = 64 * 1024 * 1024
_STEP_BYTES = BATCH_BYTES // 8
_FEW_ROWS = 65_536
_SAMPLE_ROWS = 1024
_MOST_STEP_ROWS = 1_000_000
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
_CODED_BYTES = 3  # a text or binary value without a dictionary takes at least four bytes
_LONG_VALUE = 4096  # the bytes of a value that has no statistics because it is too long

Reader: TypeAlias = pq.ParquetFile | pq.ParquetReader


def read_batches(
    reader: Reader, group: int, names: Sequence[str] | None = None, most_rows: int | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of a row group, of some columns or of all, with at most ``most_rows`` in a batch."""
    rows = reader.metadata.row_group(group).num_rows
    if fits_in_memory(reader, [group], names) and (most_rows is None or rows <= most_rows):
        yield reader.read_row_group(group, names, use_threads=False)
        return
    held: list[pa.RecordBatch] = []
    size = count = 0
    for batch in reader.iter_batches(_step(reader, group, names, most_rows or rows), [group], names, use_threads=False):
        if held and (size + batch.nbytes > BATCH_BYTES or count + batch.num_rows > (most_rows or rows)):
            yield _joined(held)
            held, size, count = [], 0, 0
        held.append(batch)
        size, count = size + batch.nbytes, count + batch.num_rows
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches).unify_dictionaries()


def read_groups(reader: pq.ParquetFile, groups: Sequence[int], names: list[str]) -> Iterator[pa.Table]:
    """Yield some columns of some row groups: all rows at once, or in batches if they are large."""
    if not fits_in_memory(reader, groups, names):
        yield from (table for group in groups for table in read_batches(reader, group, names))
    elif len(groups) == reader.num_row_groups:
        yield reader.read(names, use_threads=False)
    else:
        yield reader.read_row_groups(list(groups), names, use_threads=False)


def fits_in_memory(reader: Reader, groups: Sequence[int], names: Sequence[str] | None = None) -> bool:
    """Return whether the decoded values of some row groups have few bytes, by what the footer tells about them."""
    metadata = reader.metadata
    found = [metadata.row_group(group) for group in groups]
    if sum(group.num_rows for group in found) <= _FEW_ROWS:
        return True
    schema = reader.schema_arrow
    columns = _leaves(metadata, schema, names)
    coded = {field.name for field in schema if pa.types.is_dictionary(field.type)}
    left = float(WHOLE_BYTES)
    for group in found:
        left -= sum(_decoded_bytes(group.column(number), coded) for number in columns)
    return left >= 0


def _leaves(metadata: pq.FileMetaData, schema: pa.Schema, names: Sequence[str] | None) -> Sequence[int]:
    """Return the numbers of the Parquet columns of some columns."""
    if names is None:
        return range(metadata.num_columns)
    if metadata.num_columns == len(schema):
        return [schema.get_field_index(name) for name in names if name in schema.names]
    paths = ((number, metadata.schema.column(number).path) for number in range(metadata.num_columns))
    return [number for number, path in paths if path in names or path.partition(".")[0] in names]


def _decoded_bytes(chunk: pq.ColumnChunkMetaData, coded: Collection[str]) -> float:
    """Estimate the bytes of the values of a column in a row group."""
    values = max(1, chunk.num_values)
    width: float | None = 4 if chunk.path_in_schema in coded else _WIDTHS.get(str(chunk.physical_type))
    if width is None:
        width = chunk.total_uncompressed_size / values
        if width < _CODED_BYTES:
            known = chunk.statistics
            width = _LONG_VALUE
            if known is not None and known.has_min_max:
                width = max(len(known.min_raw), len(known.max_raw))
        width += 4
    return float(values * width)


def _step(reader: Reader, group: int, names: Sequence[str] | None, most_rows: int) -> int:
    """Return the rows of a step, by the bytes of the first rows."""
    batch = next(iter(reader.iter_batches(_SAMPLE_ROWS, [group], names, use_threads=False)), None)
    width = batch.nbytes / batch.num_rows if batch is not None and batch.num_rows else 1
    return max(1, min(_MOST_STEP_ROWS, most_rows, max(_SAMPLE_ROWS, int(_STEP_BYTES / max(1, width)))))


def value_bytes(type_: pa.DataType, default: int) -> int:
    """Return the bytes of a value of a fixed-width type, else ``default``."""
    try:
        return max(1, int(type_.bit_width) // 8)
    except ValueError:
        return default
