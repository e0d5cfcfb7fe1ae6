"""Rewrite a Parquet file and copy the bytes of column chunks that did not change.

Decoding and encoding are most of the cost of a rewrite, so only columns with new values are encoded.
`fsspeckit.core.parquet.bytes.assembler` writes the old and new chunks to a file.

`can_splice` returns whether a file can be spliced. Readers use the name of the writer in the footer to work around its
bugs, and a spliced file has one name for all chunks, so chunks are copied only from writers without known bugs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from fsspeckit.core.parquet.bytes.assembler import (
    AssembledFile,
    ChunkBytes,
    close_quietly,
    copied_chunks,
    new_chunks,
    span_of,
)
from fsspeckit.core.parquet.bytes.format_fields import (
    MAX_GROUP_ROWS,
    ChunkField,
    FileField,
    GroupField,
    MetaField,
    SchemaField,
    SortField,
    chunks_of,
    empty_footer,
    groups_of,
    leaf_ranges,
)
from fsspeckit.core.parquet.bytes.thrift import I64, Struct
from fsspeckit.core.parquet.damage import report_damage
from fsspeckit.core.parquet.footer import Footer
from fsspeckit.core.parquet.writer_options import WriterOptions
from fsspeckit.core.values.required_fields import fill_required
from fsspeckit.core.values.take import used_codes

_SUPPORTED_WRITER = re.compile(r"parquet-cpp-arrow version (\d+)\.")
_FIRST_SUPPORTED_VERSION = 12  # no reader has a workaround for files of this version or a later one
_SCHEMA_OPTIONS = (
    "version",
    "use_deprecated_int96_timestamps",
    "store_decimal_as_integer",
    "use_compliant_nested_type",
)


@dataclass(frozen=True, slots=True)
class SpliceSource:
    """A file to copy chunks from: its footer, and the leaf numbers of each column."""

    footer: Struct
    leaves: Mapping[str, range]


def may_splice(footer: Footer) -> bool:
    """Return whether chunks of the file's writer can be in one file with those of pyarrow."""
    writer = _SUPPORTED_WRITER.match(footer.writer)
    return writer is not None and int(writer[1]) >= _FIRST_SUPPORTED_VERSION and len(footer.groups) > 0


def can_splice(footer: Footer, schema: pa.Schema, options: WriterOptions) -> SpliceSource | None:
    """Return the file as a source of chunks, or None if they do not fit a writer with this schema and these options."""
    if not may_splice(footer):
        return None
    old, new = footer.tree, _empty_footer(schema, *(options[name] for name in _SCHEMA_OPTIONS))
    if _shape(old) != _shape(new):
        return None
    if len(set(schema.names)) < len(schema) or not all(map(_is_copyable, groups_of(old))):
        return None
    version = max(old[FileField.version], new[FileField.version])
    joined = old | {FileField.version: version, FileField.created_by: new[FileField.created_by]}
    return SpliceSource(joined, dict(zip(schema.names, leaf_ranges(old), strict=True)))


@lru_cache(maxsize=64)
def _empty_footer(schema: pa.Schema, *values: Any) -> Struct:
    return empty_footer(schema, dict(zip(_SCHEMA_OPTIONS, values, strict=True)))


def _shape(footer: Struct) -> tuple[Any, ...]:
    """Return what all chunks of a file have in common: the schema without the root's name, and the column orders."""
    root, *elements = footer[FileField.schema][1][1]
    return root[SchemaField.children], elements, footer.get(FileField.column_orders)


def _is_copyable(group: Struct) -> bool:
    """Return whether the footer has the offset and the size of every part of the row group."""
    for chunk in chunks_of(group):
        meta = chunk[ChunkField.meta][1]
        parts = (
            (chunk, ChunkField.offset_index_offset, ChunkField.offset_index_size),
            (chunk, ChunkField.column_index_offset, ChunkField.column_index_size),
            (meta, MetaField.bloom_offset, MetaField.bloom_size),
        )
        if any((offset in tree) != (size in tree) for tree, offset, size in parts):
            return False
        if MetaField.index_page_offset in meta or not span_of(chunk)[0]:
            return False
    return bool(group[GroupField.rows][1] <= MAX_GROUP_ROWS)


def can_copy_columns(
    footer: Footer, schema: pa.Schema, options: WriterOptions, new: pa.Schema
) -> tuple[SpliceSource, Struct, list[str]] | None:
    """Return a file as a source of chunks for another schema, the new footer, and the columns whose chunks are copied.

    ``schema`` is that of the file, ``new`` has the same columns, some with other types, and further ones. None if no
    column can be copied.
    """
    source = can_splice(footer, schema, options)
    if source is None or len(set(new.names)) < len(new):
        return None
    written = _empty_footer(new, *(options[name] for name in _SCHEMA_OPTIONS))
    old_columns = dict(zip(schema.names, _elements(source.footer), strict=True))
    new_columns = dict(zip(new.names, _elements(written), strict=True))
    kept = [name for name in new.names if name in old_columns and old_columns[name] == new_columns[name]]
    shared = {field: source.footer[field] for field in (FileField.version, FileField.created_by)}
    return (source, written | shared, kept) if kept else None


def _elements(footer: Struct) -> list[list[Struct]]:
    """Return the elements of the schema of each top-level column."""
    root, *elements = footer[FileField.schema][1][1]
    columns: list[list[Struct]] = []
    at = 0
    for _ in range(root[SchemaField.children][1]):
        first, pending = at, 1
        while pending:
            pending += elements[at].get(SchemaField.children, (0, 0))[1] - 1
            at += 1
        columns.append(elements[first:at])
    return columns


class SplicedFile:
    """Writes a spliced Parquet file to an open sink. It closes the sink and the source file."""

    def __init__(self, origin: SpliceSource, path: str, source: pa.NativeFile, sink: pa.NativeFile) -> None:
        self._origin, self._path, self._source, self._sink = origin, path, source, sink
        self._file = AssembledFile(sink)

    def copy_group(self, number: int) -> None:
        """Copy a row group."""
        group = groups_of(self._origin.footer)[number]
        self._file.add_group(group, self._copied(chunks_of(group)))

    def new_group(self, number: int, table: pa.Table, changed: Sequence[str], options: WriterOptions) -> None:
        """Encode all columns of a row group, of which some have new values. It may have more or fewer rows."""
        leaves = {leaf for name in changed for leaf in self._origin.leaves[name]}
        group = self._group(number, leaves) | {GroupField.rows: (I64, table.num_rows)}
        table = fill_required(used_codes(table))
        chunks = new_chunks(table, options)
        self._file.add_group(group, [chunk for name in table.column_names for chunk in chunks[name]])

    def mix_group(self, number: int, table: pa.Table, options: WriterOptions) -> None:
        """Copy a row group, except for the columns of the table, which are encoded."""
        old, table = chunks_of(groups_of(self._origin.footer)[number]), fill_required(used_codes(table))
        chunks: dict[int, ChunkBytes] = {}
        for name, encoded in new_chunks(table, options).items():
            chunks |= zip(self._origin.leaves[name], encoded, strict=True)
        kept = [leaf for leaf in range(len(old)) if leaf not in chunks]
        group = self._group(number, chunks.keys())
        chunks |= zip(kept, self._copied([old[leaf] for leaf in kept]), strict=True)
        self._file.add_group(group, [chunks[leaf] for leaf in range(len(old))])

    def group_of_columns(
        self, number: int, kept: Sequence[str], table: pa.Table, names: Sequence[str], options: WriterOptions
    ) -> None:
        """Write a row group with other columns: some are copied, those of the table are encoded."""
        old, leaves = chunks_of(groups_of(self._origin.footer)[number]), self._origin.leaves
        encoded = new_chunks(fill_required(used_codes(table)), options)
        wanted = [leaf for name in kept for leaf in leaves[name]]
        copied = dict(zip(wanted, self._copied([old[leaf] for leaf in wanted]), strict=True))
        chunks = [
            chunk
            for name in names
            for chunk in (encoded[name] if name in encoded else [copied[leaf] for leaf in leaves[name]])
        ]
        self._file.add_group({GroupField.rows: (I64, table.num_rows)}, chunks)

    def _group(self, number: int, changed: Collection[int]) -> Struct:
        """Return an old row group, without its order if a column of the order has new values."""
        group = groups_of(self._origin.footer)[number]
        order = group.get(GroupField.sorting, (0, (0, [])))[1][1]
        keeps_order = all(by[SortField.column][1] not in changed for by in order)
        return group if keeps_order else {field: value for field, value in group.items() if field != GroupField.sorting}

    def close(self, metadata: Mapping[bytes, bytes], footer: Struct | None = None) -> int:
        """Finish the file, with the schema of its source or of another footer, and return its size."""
        size = self._file.finish(self._origin.footer if footer is None else footer, metadata)
        self._source.close()
        self._sink.close()
        return size

    def abandon(self) -> None:
        """Close an unfinished file. The transaction or recovery deletes it."""
        close_quietly(self._source, self._sink)

    def _copied(self, chunks: list[Struct]) -> list[ChunkBytes]:
        with report_damage("rewriting", self._path):
            return copied_chunks(self._source, chunks)
