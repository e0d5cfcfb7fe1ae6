"""The parts of a Parquet file as its footer describes them: field numbers, and small files made in memory."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.thrift import I32, Struct, read_struct

MAGIC = b"PAR1"
_TRAILER = 8
CHILDREN = 5
"""Field of a schema element."""
MOST_ROWS = 1 << 26
"""Rows of a row group; pyarrow cuts larger ones."""


class FileField:
    """Fields of a footer."""

    version, schema, rows, groups, notes, writer, orders, encryption, signing = range(1, 10)


class GroupField:
    """Fields of a row group."""

    columns, plain_size, rows, sorting, start, size, ordinal = range(1, 8)


class SortField:
    """Fields of a column that a row group is sorted by."""

    column, descending, nulls_first = range(1, 4)


class NoteField:
    """Fields of a footer's note."""

    key, value = 1, 2


class ChunkField:
    """Fields of a column chunk; of its page index, ``offsets`` say where pages are and ``index`` what they hold."""

    path, start, meta, offsets_at, offsets_size, index_at, index_size, crypto, encrypted = range(1, 10)


class MetaField:
    """Fields of a chunk's metadata."""

    path, codec, values, plain_size, size = range(3, 8)
    data_at, index_at, dictionary_at = 9, 10, 11
    page_counts, bloom_at, bloom_size, sizes = 13, 14, 15, 16


def read_footer_struct(file: pa.Buffer) -> Struct:
    """The footer of a Parquet file in memory, or of one that has nothing but a footer."""
    view = memoryview(file).cast("B")
    length = int.from_bytes(view[-_TRAILER : -len(MAGIC)], "little") + _TRAILER
    return read_struct(view[-length:])[0]


def groups_of(footer: Struct) -> list[Struct]:
    """Row groups as a footer describes them."""
    found: list[Struct] = footer[FileField.groups][1][1]
    return found


def notes_of(footer: Struct) -> dict[bytes, bytes]:
    """What a footer notes besides its own fields."""
    pairs = footer[FileField.notes][1][1] if FileField.notes in footer else []
    return {pair[NoteField.key][1]: pair[NoteField.value][1] for pair in pairs}


def chunks_of(group: Struct) -> list[Struct]:
    """Column chunks of a row group."""
    found: list[Struct] = group[GroupField.columns][1][1]
    return found


def encode_file(table: pa.Table, options: dict[str, Any]) -> pa.Buffer:
    """A Parquet file in memory; its rows, if there are any and not more than `MOST_ROWS`, in one row group."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        if table.num_rows:
            writer.write_table(table, table.num_rows)
    return sink.getvalue()


def empty_footer(schema: pa.Schema, options: dict[str, Any]) -> Struct:
    """The footer of a file without rows."""
    return read_footer_struct(encode_file(pa.Table.from_batches([], schema), options))


def leaf_ranges(footer: Struct) -> list[range]:
    """Which leaves belong to each top-level column."""
    root, *elements = footer[FileField.schema][1][1]
    ranges, at, leaf = [], 0, 0
    for _ in range(root[CHILDREN][1]):
        first, pending = leaf, 1
        while pending:
            children = elements[at].get(CHILDREN, (I32, 0))[1]
            leaf += not children
            pending += children - 1
            at += 1
        ranges.append(range(first, leaf))
    return ranges
