"""A Parquet file put together from column chunks, wherever they come from, and the footer that knows their places.

Chunks of an old file are copied page by page: pages without a checksum get one, the others are checked. New chunks
are encoded by pyarrow into memory.
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
    MetaField,
    NoteField,
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

_MOST_ORDINALS = 1 << 15
_LOCATIONS, _PAGE_AT, _PAGE_SIZE = 1, 1, 2


@dataclass(frozen=True, slots=True)
class ChunkBytes:
    """A chunk to be written: its description and page offsets, counted from its first byte, and its pages.

    Pages that are not cut apart stand in ``data``, and their sizes in the description.
    """

    meta: Struct
    pages: Iterable[Page] = ()
    data: memoryview | None = None
    index: bytes | None = None
    offsets: Struct | None = None
    bloom: bytes | None = None


def copied_chunks(source: pa.NativeFile, chunks: Sequence[Struct]) -> list[ChunkBytes]:
    """Chunks of another file; raises `pa.ArrowInvalid` where they are not what their footer and checksums say."""
    found = []
    for chunk, data in zip(chunks, _read_chunks(source, chunks), strict=True):
        pages, told = list(read_pages(data, span_of(chunk)[0])), chunk[ChunkField.meta][1][MetaField.values][1]
        if sum(page.values for page in pages) != told:
            raise pa.ArrowInvalid(f"the pages of a column chunk do not hold its {told} values")
        try:
            found.append(_piece(source, chunk, pages, None))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise pa.ArrowInvalid("the index of its pages is damaged") from error
    return found


def new_chunks(table: pa.Table, options: WriterOptions) -> dict[str, list[ChunkBytes]]:
    """The chunks of each column of a table; ``options`` are those of a writer for the whole file."""
    encoded = pa.BufferReader(encode_file(table, _for_columns(options, list(table.schema))))
    footer = read_footer_struct(encoded.read_buffer())
    chunks = chunks_of(groups_of(footer)[0])
    data = _read_chunks(encoded, chunks)
    pieces = [_piece(encoded, chunk, None, view) for chunk, view in zip(chunks, data, strict=True)]
    ranges = leaf_ranges(footer)
    return {name: [pieces[leaf] for leaf in leaves] for name, leaves in zip(table.column_names, ranges, strict=True)}


def _for_columns(options: WriterOptions, fields: Sequence[pa.Field]) -> WriterOptions:
    """The options of a writer for some top-level columns only."""
    names = {field.name for field in fields}
    inside = tuple(f"{field.name}." for field in fields if pa.types.is_nested(field.type))

    def of_them(path: str) -> bool:
        return path in names or path.startswith(inside)

    def narrowed(key: str) -> Any:
        value = options.get(key)
        return {path: it for path, it in value.items() if of_them(path)} or None if isinstance(value, dict) else value

    return options | {
        "compression": narrowed("compression"),
        "use_dictionary": [path for path in options["use_dictionary"] or () if of_them(path)] or False,
        "column_encoding": narrowed("column_encoding"),
        "bloom_filter_options": narrowed("bloom_filter_options"),
        "sorting_columns": None,
    }


def _piece(source: pa.NativeFile, chunk: Struct, pages: Sequence[Page] | None, data: memoryview | None) -> ChunkBytes:
    places, meta = _Places(*span_of(chunk), pages), dict(chunk[ChunkField.meta][1])
    for field in (MetaField.data_at, MetaField.dictionary_at):
        if field in meta:
            meta[field] = I64, places.new(meta[field][1], 0)[0]
    index = _read_part(source, chunk, ChunkField.index_at, ChunkField.index_size)
    offsets = _read_part(source, chunk, ChunkField.offsets_at, ChunkField.offsets_size)
    moved = None if offsets is None else places.moved(read_struct(offsets)[0])
    return ChunkBytes(
        meta, pages or (), data, index, moved, _read_part(source, meta, MetaField.bloom_at, MetaField.bloom_size)
    )


def span_of(chunk: Struct) -> tuple[int, int]:
    """Where the pages of a chunk begin and end."""
    meta = chunk[ChunkField.meta][1]
    start = min(meta[field][1] for field in (MetaField.data_at, MetaField.dictionary_at) if field in meta)
    return start, start + meta[MetaField.size][1]


def _read_chunks(source: pa.NativeFile, chunks: Sequence[Struct]) -> list[memoryview]:
    """The pages of some chunks; chunks that stand side by side are read at once."""
    spans, found, first = [span_of(chunk) for chunk in chunks], [], 0
    for after in range(1, len(spans) + 1):
        if after < len(spans) and spans[after][0] == spans[after - 1][1]:
            continue
        base = spans[first][0]
        data = _read(source, base, spans[after - 1][1] - base)
        found += [data[start - base : end - base] for start, end in spans[first:after]]
        first = after
    return found


def _read_part(source: pa.NativeFile, tree: Struct, at: int, size: int) -> bytes | None:
    return bytes(_read(source, tree[at][1], tree[size][1])) if at in tree else None


def _read(source: pa.NativeFile, start: int, size: int) -> memoryview:
    source.seek(start)
    data = source.read_buffer(size)
    if len(data) != size:
        raise pa.ArrowInvalid("it ends before its last column chunk")
    return memoryview(data).cast("B")


class _Places:
    """Where the pages of a chunk come to stand: all moved alike, or each by its own way where some have grown."""

    def __init__(self, start: int, end: int, pages: Sequence[Page] | None) -> None:
        self._old = range(start, end)
        self._each: dict[int, tuple[int, int]] | None = None
        if pages is not None:
            ends = accumulate((page.size for page in pages), initial=0)
            self._each = {page.start: (place, page.size) for page, place in zip(pages, ends, strict=False)}

    def new(self, old: int, size: int) -> tuple[int, int]:
        """The new place and size of a page."""
        if self._each is None and old in self._old:
            return old - self._old.start, size
        if self._each is None or old not in self._each:
            raise pa.ArrowInvalid("its footer names a page that is not there")
        return self._each[old]

    def moved(self, offsets: Struct) -> Struct:
        """An offset index with pages at their new places."""
        kind, locations = offsets[_LOCATIONS][1]
        moved = []
        for location in locations:
            at, size = self.new(location[_PAGE_AT][1], location[_PAGE_SIZE][1])
            moved.append(location | {_PAGE_AT: (I64, at), _PAGE_SIZE: (I32, size)})
        return offsets | {_LOCATIONS: (LIST, (kind, moved))}


class AssembledFile:
    """A Parquet file being put together in an open sink."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self._groups: list[Struct] = []
        self._indexes: list[tuple[Struct, ChunkBytes, int]] = []
        self._at = 0
        self._write(MAGIC)

    def put_group(self, group: Struct, pieces: Sequence[ChunkBytes]) -> None:
        """Write a row group; ``group`` says how many rows it has, and maybe how they are sorted."""
        start = self._at
        chunks = [self._put_chunk(piece) for piece in pieces]
        metas = [chunk[ChunkField.meta][1] for chunk in chunks]
        for piece, meta in zip(pieces, metas, strict=True):
            if piece.bloom is not None:
                meta[MetaField.bloom_at] = I64, self._at
                self._write(piece.bloom)
        found = group | {
            GroupField.columns: (LIST, (STRUCT, chunks)),
            GroupField.plain_size: (I64, sum(meta[MetaField.plain_size][1] for meta in metas)),
            GroupField.size: (I64, sum(meta[MetaField.size][1] for meta in metas)),
            GroupField.start: (I64, start),
            GroupField.ordinal: (I16, len(self._groups)),
        }
        if len(self._groups) >= _MOST_ORDINALS:
            del found[GroupField.ordinal]
        self._groups.append(found)

    def _put_chunk(self, piece: ChunkBytes) -> Struct:
        meta, start = dict(piece.meta), self._at
        for field in (MetaField.data_at, MetaField.dictionary_at):
            if field in meta:
                meta[field] = I64, meta[field][1] + start
        plain = meta[MetaField.plain_size][1] if piece.data else 0
        for page in piece.pages:
            self._write(page.head)
            self._write(page.body)
            plain += page.plain
        if piece.data:
            self._write(piece.data)
        meta |= {MetaField.plain_size: (I64, plain), MetaField.size: (I64, self._at - start)}
        chunk: Struct = {ChunkField.start: (I64, 0), ChunkField.meta: (STRUCT, meta)}
        if piece.index is not None or piece.offsets is not None:
            self._indexes.append((chunk, replace(piece, pages=(), data=None), start))
        return chunk

    def finish(self, footer: Struct, notes: Mapping[bytes, bytes]) -> int:
        """Write indexes, and the footer with all row groups; tells the file's size."""
        self._put_indexes()
        pairs: list[Struct] = [
            {NoteField.key: (BINARY, key), NoteField.value: (BINARY, value)} for key, value in notes.items()
        ]
        found = footer | {
            FileField.rows: (I64, sum(group[GroupField.rows][1] for group in self._groups)),
            FileField.groups: (LIST, (STRUCT, self._groups)),
            FileField.notes: (LIST, (STRUCT, pairs)),
        }
        words = write_struct({field: value for field, value in found.items() if field != FileField.notes or pairs})
        self._write(words + len(words).to_bytes(4, "little") + MAGIC)
        return self._at

    def _put_indexes(self) -> None:
        for chunk, piece, _ in self._indexes:
            if piece.index is not None:
                chunk |= {ChunkField.index_at: (I64, self._at), ChunkField.index_size: (I32, len(piece.index))}
                self._write(piece.index)
        for chunk, piece, start in self._indexes:
            if piece.offsets is not None:
                words = write_struct(_shifted(piece.offsets, start))
                chunk |= {ChunkField.offsets_at: (I64, self._at), ChunkField.offsets_size: (I32, len(words))}
                self._write(words)

    def _write(self, data: Bytes) -> None:
        self._sink.write(data)
        self._at += len(data)


def close_quietly(*resources: AbstractContextManager[object]) -> None:
    """Close what will not be finished, whatever it says."""
    for resource in resources:
        try:
            resource.__exit__(None, None, None)
        except (OSError, pa.ArrowException):
            continue


def _shifted(offsets: Struct, by: int) -> Struct:
    kind, locations = offsets[_LOCATIONS][1]
    moved = [location | {_PAGE_AT: (I64, location[_PAGE_AT][1] + by)} for location in locations]
    return offsets | {_LOCATIONS: (LIST, (kind, moved))}
