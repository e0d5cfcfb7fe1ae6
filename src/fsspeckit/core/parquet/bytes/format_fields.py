"""The parts of a Parquet file as its footer describes them: field numbers, and small files made in memory."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.parquet.bytes.thrift import BINARY, I32, LIST, STRUCT, Struct, read_struct

MAGIC = b"PAR1"
_TRAILER = 8
MOST_ROWS = 1 << 26
"""Rows of a row group; pyarrow cuts larger ones."""


class FileField:
    """Fields of a footer."""

    version, schema, rows, groups, notes, writer, orders, encryption, signing = range(1, 10)


class SchemaField:
    """Fields of an element of the schema."""

    kind, width, repetition, name, children, converted = range(1, 7)
    logical = 10


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


class StatisticsField:
    """Fields of a chunk's statistics; ``max_old`` and ``min_old`` are in an order that not all writers agree on."""

    max_old, min_old, nulls, distinct, max, min, max_is_exact, min_is_exact = range(1, 9)


class MetaField:
    """Fields of a chunk's metadata."""

    kind, encodings, path, codec, values, plain_size, size = range(1, 8)
    data_at, index_at, dictionary_at, statistics, page_counts, bloom_at, bloom_size, sizes = range(9, 17)


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
    kind, value = footer.get(FileField.notes, (LIST, (STRUCT, [])))
    if kind != LIST or (value[1] and value[0] != STRUCT):
        raise pa.ArrowInvalid("its notes are no list")
    return dict(map(_note, value[1]))


def _note(pair: Struct) -> tuple[bytes, bytes]:
    """A name and what is noted under it; a note may be a name alone."""
    (kind, key), (other, value) = pair.get(NoteField.key, (0, b"")), pair.get(NoteField.value, (BINARY, b""))
    if (kind, other) != (BINARY, BINARY):
        raise pa.ArrowInvalid("a note in it is not a text")
    return key, value


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
    for _ in range(root[SchemaField.children][1]):
        first, pending = leaf, 1
        while pending:
            children = elements[at].get(SchemaField.children, (I32, 0))[1]
            leaf += not children
            pending += children - 1
            at += 1
        ranges.append(range(first, leaf))
    return ranges
