"""Write a Parquet file from column chunks of other files and of tables, with a footer that has their new offsets.

Chunks of an old file are copied page by page: checksums are verified, and missing ones are added. Chunks of a table
are encoded by pyarrow in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pyarrow as pa

from fsspeckit.core.parquet.bytes.format_fields import (
    MAGIC,
    ChunkField,
    FileField,
    GroupField,
    KeyValueField,
    MetaField,
    chunks_of,
    encode_file,
    groups_of,
    leaf_ranges,
    read_footer_struct,
)
from fsspeckit.core.parquet.bytes.pages import Page, read_pages
from fsspeckit.core.parquet.bytes.thrift import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Bytes,
    Struct,
    read_struct,
    write_struct,
)
from fsspeckit.core.parquet.writer_options import WriterOptions

_MAX_ORDINALS = 1 << 15
_LOCATIONS, _PAGE_OFFSET, _PAGE_SIZE = 1, 1, 2


@dataclass(frozen=True, slots=True)
class ChunkBytes:
    """A chunk to write: its metadata with offsets relative to its first byte, and its pages.

    Either ``pages`` has single pages, or ``data`` has all of them and the metadata has their sizes.
    """

    meta: Struct
    pages: Iterable[Page] = ()
    data: memoryview | None = None
    index: bytes | None = None
    offsets: Struct | None = None
    bloom: bytes | None = None


def copied_chunks(source: pa.NativeFile, chunks: Sequence[Struct]) -> list[ChunkBytes]:
    """Read chunks of another file. Raise `pa.ArrowInvalid` if they do not match their footer or their checksums."""
    copied = []
    for chunk, data in zip(chunks, _read_chunks(source, chunks), strict=True):
        pages, values = list(read_pages(data, span_of(chunk)[0])), chunk[ChunkField.meta][1][MetaField.values][1]
        if sum(page.values for page in pages) != values:
            raise pa.ArrowInvalid(f"the pages of a column chunk do not have its {values} values")
        try:
            copied.append(_chunk_bytes(source, chunk, pages, None))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise pa.ArrowInvalid("the page index is damaged") from error
    return copied


def new_chunks(table: pa.Table, options: WriterOptions) -> dict[str, list[ChunkBytes]]:
    """Encode the chunks of each column of a table. ``options`` are writer options for the whole file."""
    footer, new = _encoded(table, _for_columns(options, list(table.schema)))
    ranges = leaf_ranges(footer)
    return {name: [new[leaf] for leaf in leaves] for name, leaves in zip(table.column_names, ranges, strict=True)}


def encoded_chunks(table: pa.Table, options: WriterOptions) -> tuple[Struct, list[ChunkBytes]]:
    """Encode a table as one row group, and return it with its chunks."""
    footer, new = _encoded(table, options)
    return groups_of(footer)[0], new


def _encoded(table: pa.Table, options: WriterOptions) -> tuple[Struct, list[ChunkBytes]]:
    encoded = pa.BufferReader(encode_file(table, options))
    footer = read_footer_struct(encoded.read_buffer())
    chunks = chunks_of(groups_of(footer)[0])
    data = _read_chunks(encoded, chunks)
    return footer, [_chunk_bytes(encoded, chunk, None, view) for chunk, view in zip(chunks, data, strict=True)]


def _for_columns(options: WriterOptions, fields: Sequence[pa.Field]) -> WriterOptions:
    """Return the writer options for some top-level columns only."""
    names = {field.name for field in fields}
    prefixes = tuple(f"{field.name}." for field in fields if pa.types.is_nested(field.type))

    def is_selected(path: str) -> bool:
        return path in names or path.startswith(prefixes)

    def select(key: str) -> Any:
        value = options.get(key)
        if not isinstance(value, dict):
            return value
        return {path: option for path, option in value.items() if is_selected(path)} or None

    return options | {
        "compression": select("compression"),
        "use_dictionary": [path for path in options["use_dictionary"] or () if is_selected(path)] or False,
        "column_encoding": select("column_encoding"),
        "bloom_filter_options": select("bloom_filter_options"),
        "sorting_columns": None,
    }


def _chunk_bytes(
    source: pa.NativeFile, chunk: Struct, pages: Sequence[Page] | None, data: memoryview | None
) -> ChunkBytes:
    page_offsets, meta = _PageOffsets(*span_of(chunk), pages), dict(chunk[ChunkField.meta][1])
    for field in (MetaField.data_offset, MetaField.dictionary_offset):
        if field in meta:
            meta[field] = I64, page_offsets.new(meta[field][1], 0)[0]
    index = _read_part(source, chunk, ChunkField.column_index_offset, ChunkField.column_index_size)
    offsets = _read_part(source, chunk, ChunkField.offset_index_offset, ChunkField.offset_index_size)
    moved = None if offsets is None else page_offsets.moved(read_struct(offsets)[0])
    return ChunkBytes(
        meta, pages or (), data, index, moved, _read_part(source, meta, MetaField.bloom_offset, MetaField.bloom_size)
    )


def span_of(chunk: Struct) -> tuple[int, int]:
    """Return the start and end offset of a chunk's pages."""
    meta = chunk[ChunkField.meta][1]
    start = min(meta[field][1] for field in (MetaField.data_offset, MetaField.dictionary_offset) if field in meta)
    return start, start + meta[MetaField.compressed_size][1]


def _read_chunks(source: pa.NativeFile, chunks: Sequence[Struct]) -> list[memoryview]:
    """Read the pages of some chunks. Adjacent chunks are read with one request."""
    spans, views, first = [span_of(chunk) for chunk in chunks], [], 0
    for after in range(1, len(spans) + 1):
        if after < len(spans) and spans[after][0] == spans[after - 1][1]:
            continue
        base = spans[first][0]
        data = _read(source, base, spans[after - 1][1] - base)
        views += [data[start - base : end - base] for start, end in spans[first:after]]
        first = after
    return views


def _read_part(source: pa.NativeFile, tree: Struct, offset: int, size: int) -> bytes | None:
    return bytes(_read(source, tree[offset][1], tree[size][1])) if offset in tree else None


def _read(source: pa.NativeFile, start: int, size: int) -> memoryview:
    if start < 0 or size < 0:
        raise pa.ArrowInvalid("its footer has a negative offset or size")
    source.seek(start)
    data = source.read_buffer(size)
    if len(data) != size:
        raise pa.ArrowInvalid("it ends before its last column chunk")
    return memoryview(data).cast("B")


class _PageOffsets:
    """Maps old page offsets to offsets in the chunk: one shift for all pages, or each its own if pages have grown."""

    def __init__(self, start: int, end: int, pages: Sequence[Page] | None) -> None:
        self._old = range(start, end)
        self._by_start: dict[int, tuple[int, int]] | None = None
        if pages is not None:
            offsets = accumulate((page.size for page in pages), initial=0)
            self._by_start = {page.start: (offset, page.size) for page, offset in zip(pages, offsets, strict=False)}

    def new(self, old: int, size: int) -> tuple[int, int]:
        """Return the new offset and size of a page."""
        if self._by_start is None and old in self._old:
            return old - self._old.start, size
        if self._by_start is None or old not in self._by_start:
            raise pa.ArrowInvalid("its footer has the offset of a page that does not exist")
        return self._by_start[old]

    def moved(self, offset_index: Struct) -> Struct:
        """Return an offset index with the new page offsets."""
        kind, locations = offset_index[_LOCATIONS][1]
        moved = []
        for location in locations:
            offset, size = self.new(location[_PAGE_OFFSET][1], location[_PAGE_SIZE][1])
            moved.append(location | {_PAGE_OFFSET: (I64, offset), _PAGE_SIZE: (I32, size)})
        return offset_index | {_LOCATIONS: (LIST, (kind, moved))}


class AssembledFile:
    """Writes a Parquet file to an open sink."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self._groups: list[Struct] = []
        self._indexes: list[tuple[Struct, ChunkBytes, int]] = []
        self._position = 0
        self._write(MAGIC)

    def add_group(self, group: Struct, new: Sequence[ChunkBytes]) -> None:
        """Write a row group. ``group`` has its number of rows and, optionally, its sort order."""
        start = self._position
        chunks = [self._add_chunk(chunk) for chunk in new]
        metas = [chunk[ChunkField.meta][1] for chunk in chunks]
        for chunk, meta in zip(new, metas, strict=True):
            if chunk.bloom is not None:
                meta[MetaField.bloom_offset] = I64, self._position
                self._write(chunk.bloom)
        described = group | {
            GroupField.columns: (LIST, (STRUCT, chunks)),
            GroupField.uncompressed_size: (I64, sum(meta[MetaField.uncompressed_size][1] for meta in metas)),
            GroupField.compressed_size: (I64, sum(meta[MetaField.compressed_size][1] for meta in metas)),
            GroupField.file_offset: (I64, start),
            GroupField.ordinal: (I16, len(self._groups)),
        }
        if len(self._groups) >= _MAX_ORDINALS:
            del described[GroupField.ordinal]
        self._groups.append(described)

    def _add_chunk(self, new: ChunkBytes) -> Struct:
        meta, start = dict(new.meta), self._position
        for field in (MetaField.data_offset, MetaField.dictionary_offset):
            if field in meta:
                meta[field] = I64, meta[field][1] + start
        uncompressed = meta[MetaField.uncompressed_size][1] if new.data else 0
        for page in new.pages:
            self._write(page.header)
            self._write(page.body)
            uncompressed += page.uncompressed
        if new.data:
            self._write(new.data)
        meta[MetaField.uncompressed_size] = I64, uncompressed
        meta[MetaField.compressed_size] = I64, self._position - start
        chunk: Struct = {ChunkField.file_offset: (I64, 0), ChunkField.meta: (STRUCT, meta)}
        if new.index is not None or new.offsets is not None:
            self._indexes.append((chunk, replace(new, pages=(), data=None), start))
        return chunk

    def finish(self, footer: Struct, metadata: Mapping[bytes, bytes]) -> int:
        """Write the page indexes, and the footer with all row groups and the key-value metadata. Return the size."""
        self._write_indexes()
        pairs: list[Struct] = [
            {KeyValueField.key: (BINARY, key), KeyValueField.value: (BINARY, value)} for key, value in metadata.items()
        ]
        fields = footer | {
            FileField.rows: (I64, sum(group[GroupField.rows][1] for group in self._groups)),
            FileField.groups: (LIST, (STRUCT, self._groups)),
            FileField.key_values: (LIST, (STRUCT, pairs)),
        }
        if not pairs:
            del fields[FileField.key_values]
        data = write_struct(fields)
        self._write(data + len(data).to_bytes(4, "little") + MAGIC)
        return self._position

    def _write_indexes(self) -> None:
        for chunk, new, _ in self._indexes:
            if new.index is not None:
                chunk[ChunkField.column_index_offset] = I64, self._position
                chunk[ChunkField.column_index_size] = I32, len(new.index)
                self._write(new.index)
        for chunk, new, start in self._indexes:
            if new.offsets is not None:
                data = write_struct(_shifted(new.offsets, start))
                chunk[ChunkField.offset_index_offset] = I64, self._position
                chunk[ChunkField.offset_index_size] = I32, len(data)
                self._write(data)

    def _write(self, data: Bytes) -> None:
        self._sink.write(data)
        self._position += len(data)


def close_quietly(*resources: AbstractContextManager[object]) -> None:
    """Close the resources of an unfinished file, and ignore errors."""
    for resource in resources:
        try:
            resource.__exit__(None, None, None)
        except (OSError, pa.ArrowException):
            continue


def _shifted(offsets: Struct, by: int) -> Struct:
    kind, locations = offsets[_LOCATIONS][1]
    moved = [location | {_PAGE_OFFSET: (I64, location[_PAGE_OFFSET][1] + by)} for location in locations]
    return offsets | {_LOCATIONS: (LIST, (kind, moved))}
