"""Field numbers of the Parquet metadata structs, and helpers that read their values or encode a file in memory."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.arrow_versions import writer_options
from fsspeckit.core.parquet.bytes.thrift import BINARY, I32, LIST, STRUCT, Struct, read_struct

MAGIC = b"PAR1"
TRAILER = 8
"""Size of the footer length and the magic at the end of a file."""
MAX_GROUP_ROWS = 1 << 26
"""Maximum number of rows in a row group; pyarrow splits larger ones."""


class FileField:
    """Fields of a footer."""

    version, schema, rows, groups, key_values, created_by, column_orders, encryption, signing = range(1, 10)


class SchemaField:
    """Fields of an element of the schema."""

    kind, width, repetition, name, children, converted = range(1, 7)
    logical = 10


class GroupField:
    """Fields of a row group."""

    columns, uncompressed_size, rows, sorting, file_offset, compressed_size, ordinal = range(1, 8)


class SortField:
    """Fields of a column that a row group is sorted by."""

    column, descending, nulls_first = range(1, 4)


class KeyValueField:
    """Fields of a key-value pair."""

    key, value = 1, 2


class ChunkField:
    """Fields of a column chunk."""

    file_path, file_offset, meta, offset_index_offset, offset_index_size = range(1, 6)
    column_index_offset, column_index_size, crypto, encrypted = range(6, 10)


class StatisticsField:
    """Fields of a chunk's statistics. The order of ``max_old`` and ``min_old`` differs between writers."""

    max_old, min_old, nulls, distinct, max, min, max_is_exact, min_is_exact = range(1, 9)


class MetaField:
    """Fields of a chunk's metadata."""

    kind, encodings, path, codec, values, uncompressed_size, compressed_size = range(1, 8)
    data_offset, index_page_offset, dictionary_offset, statistics, encoding_stats = range(9, 14)
    bloom_offset, bloom_size, size_statistics = range(14, 17)


def read_footer_struct(file: pa.Buffer) -> Struct:
    """Parse the footer at the end of a Parquet file in memory."""
    view = memoryview(file).cast("B")
    length = int.from_bytes(view[-TRAILER : -len(MAGIC)], "little") + TRAILER
    return read_struct(view[-length:])[0]


def groups_of(footer: Struct) -> list[Struct]:
    """Return the row groups of a footer."""
    groups: list[Struct] = footer[FileField.groups][1][1]
    return groups


def key_values_of(footer: Struct) -> dict[bytes, bytes]:
    """Return the key-value metadata of a footer."""
    kind, value = footer.get(FileField.key_values, (LIST, (STRUCT, [])))
    if kind != LIST or (value[1] and value[0] != STRUCT):
        raise pa.ArrowInvalid("its key-value metadata is not a list of pairs")
    return dict(map(_key_value, value[1]))


def _key_value(pair: Struct) -> tuple[bytes, bytes]:
    """Return a key and its value, which is optional."""
    (kind, key), (other, value) = pair.get(KeyValueField.key, (0, b"")), pair.get(KeyValueField.value, (BINARY, b""))
    if (kind, other) != (BINARY, BINARY):
        raise pa.ArrowInvalid("a key or value of its metadata is not binary")
    return key, value


def chunks_of(group: Struct) -> list[Struct]:
    """Return the column chunks of a row group."""
    chunks: list[Struct] = group[GroupField.columns][1][1]
    return chunks


def encode_file(table: pa.Table, options: dict[str, Any]) -> pa.Buffer:
    """Return a table as a Parquet file in memory. Up to `MAX_GROUP_ROWS` rows become one row group, no rows none."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **writer_options(options)) as writer:
        if table.num_rows:
            writer.write_table(table, table.num_rows)
    return sink.getvalue()


def empty_footer(schema: pa.Schema, options: dict[str, Any]) -> Struct:
    """Return the footer of a file without rows."""
    return read_footer_struct(encode_file(pa.Table.from_batches([], schema), options))


def leaf_ranges(footer: Struct) -> list[range]:
    """Return the leaf numbers of each top-level column."""
    root, *elements = footer[FileField.schema][1][1]
    ranges, at, leaf = [], 0, 0
    for _ in range(root[SchemaField.children][1]):
        first, pending = leaf, 1
        while pending:
            children = elements[at].get(SchemaField.children, (I32, 0))[1]
            leaf += not children
            pending += children - 1
            at += 1
        ranges.append(range(first, leaf))
    return ranges
