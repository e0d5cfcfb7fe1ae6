"""A new Parquet file put together from an old one: column chunks that did not change are copied as bytes.

Decoding and encoding are the cost of a rewrite, so only columns with new values are encoded; see
`fsspeckit.core.parquet.bytes.assembler` for how chunks old and new become a file.

Not every file can be spliced: `can_splice` says which. Readers look at the name of a file's writer to work around its
faults, and a spliced file has one name for all chunks, so chunks are taken only from writers without known faults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    MOST_ROWS,
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
from fsspeckit.core.parquet.footer import Footer
from fsspeckit.core.parquet.reader import report_damage
from fsspeckit.core.parquet.writer_options import WriterOptions
from fsspeckit.core.values.required_fields import fill_required
from fsspeckit.core.values.take import used_codes

_SOUND_WRITER = re.compile(r"parquet-cpp-arrow version (\d+)\.")
_SOUND_SINCE = 12  # no reader has a workaround for files of this version or a later one
_SHAPING = ("version", "use_deprecated_int96_timestamps", "store_decimal_as_integer", "use_compliant_nested_type")


@dataclass(frozen=True, slots=True)
class SpliceSource:
    """A file that chunks are copied from: its footer, and which leaves each column has."""

    footer: Struct
    leaves: Mapping[str, range]


def may_splice(footer: Footer) -> bool:
    """Whether chunks of a file's writer can stand beside those of pyarrow."""
    writer = _SOUND_WRITER.match(footer.writer)
    return writer is not None and int(writer[1]) >= _SOUND_SINCE and len(footer.groups) > 0


def can_splice(footer: Footer, schema: pa.Schema, options: WriterOptions) -> SpliceSource | None:
    """The file as an origin of chunks, if they fit beside those that a writer with this schema and options makes."""
    if not may_splice(footer):
        return None
    old, new = footer.tree, _empty_footer(schema, *(options[name] for name in _SHAPING))
    if _shape(old) != _shape(new):
        return None
    if len(set(schema.names)) < len(schema) or not all(map(_is_plain, groups_of(old))):
        return None
    version = max(old[FileField.version], new[FileField.version])
    joined = old | {FileField.version: version, FileField.writer: new[FileField.writer]}
    return SpliceSource(joined, dict(zip(schema.names, leaf_ranges(old), strict=True)))


@lru_cache(maxsize=64)
def _empty_footer(schema: pa.Schema, *shaping: Any) -> Struct:
    return empty_footer(schema, dict(zip(_SHAPING, shaping, strict=True)))


def _shape(footer: Struct) -> tuple[Any, ...]:
    """What chunks of one file must agree on: the schema, except for the name of its root, and the order of values."""
    root, *elements = footer[FileField.schema][1][1]
    return root[SchemaField.children], elements, footer.get(FileField.orders)


def _is_plain(group: Struct) -> bool:
    """Whether chunks have all lengths told."""
    for chunk in chunks_of(group):
        meta = chunk[ChunkField.meta][1]
        lengths = (
            (chunk, ChunkField.offsets_at, ChunkField.offsets_size),
            (chunk, ChunkField.index_at, ChunkField.index_size),
            (meta, MetaField.bloom_at, MetaField.bloom_size),
        )
        if MetaField.index_at in meta or any((at in tree) != (size in tree) for tree, at, size in lengths):
            return False
        if not span_of(chunk)[0]:
            return False
    return bool(group[GroupField.rows][1] <= MOST_ROWS)


class SplicedFile:
    """A Parquet file being put together in an open sink, which it closes, as it closes the source."""

    def __init__(self, origin: SpliceSource, path: str, source: pa.NativeFile, sink: pa.NativeFile) -> None:
        self._origin, self._path, self._source, self._sink = origin, path, source, sink
        self._file = AssembledFile(sink)

    def copy_group(self, number: int) -> None:
        """Take a row group over as it is."""
        group = groups_of(self._origin.footer)[number]
        self._file.put_group(group, self._copied(chunks_of(group)))

    def new_group(self, number: int, table: pa.Table, options: WriterOptions) -> None:
        """Write all columns of a row group that has other rows now."""
        group = groups_of(self._origin.footer)[number] | {GroupField.rows: (I64, table.num_rows)}
        table = fill_required(used_codes(table))
        made = new_chunks(table, options)
        self._file.put_group(group, [chunk for name in table.column_names for chunk in made[name]])

    def mix_group(self, number: int, table: pa.Table, options: WriterOptions) -> None:
        """Take a row group over, except for the columns of the table."""
        group = groups_of(self._origin.footer)[number]
        old, table = chunks_of(group), fill_required(used_codes(table))
        new = new_chunks(table, options)
        pieces: dict[int, ChunkBytes] = {}
        for name, made in new.items():
            pieces |= zip(self._origin.leaves[name], made, strict=True)
        kept = [leaf for leaf in range(len(old)) if leaf not in pieces]
        if any(by[SortField.column][1] in pieces for by in group.get(GroupField.sorting, (0, (0, [])))[1][1]):
            group = {field: value for field, value in group.items() if field != GroupField.sorting}
        pieces |= zip(kept, self._copied([old[leaf] for leaf in kept]), strict=True)
        self._file.put_group(group, [pieces[leaf] for leaf in range(len(old))])

    def close(self, notes: Mapping[bytes, bytes]) -> int:
        """Finish the file and tell its size."""
        size = self._file.finish(self._origin.footer, notes)
        self._source.close()
        self._sink.close()
        return size

    def abandon(self) -> None:
        """Close a file that will not be finished; recovery or abort removes it."""
        close_quietly(self._source, self._sink)

    def _copied(self, chunks: list[Struct]) -> list[ChunkBytes]:
        with report_damage("rewriting", self._path):
            return copied_chunks(self._source, chunks)
