"""A new Parquet file put together from an old one: column chunks that did not change are copied as bytes.

Decoding and encoding are the cost of a rewrite, so only columns with new values are encoded, by pyarrow, into a file in
memory. Its chunks and those of the old file are written one after the other, and a footer that knows their new places
follows. Pages are copied as they are; those without a checksum get one, the others are checked.

Not every file can be spliced: `can_splice` says which. Readers look at the name of a file's writer to work around its
faults, and a spliced file has one name for all chunks, so chunks are taken only from writers without known faults.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.layout import WriterOptions
from fsspeckit.core.pages import Page, read_pages
from fsspeckit.core.snapshot import leaf_count, naming_damage
from fsspeckit.core.thrift import BINARY, I16, I32, I64, LIST, STRUCT, Struct, read_struct, write_struct

_MAGIC = b"PAR1"
_TRAILER = 8
_SOUND_WRITER = re.compile(r"parquet-cpp-arrow version (\d+)\.")
_SOUND_SINCE = 12  # no reader has a workaround for files of this version or a later one
_MOST_ROWS = 1 << 26  # pyarrow makes no larger row groups
_MOST_ORDINALS = 1 << 15


class _File:
    """Fields of a footer."""

    version, schema, rows, groups, notes, writer, orders, encryption, signing = range(1, 10)


class _Group:
    """Fields of a row group."""

    columns, plain_size, rows, sorting, start, size, ordinal = range(1, 8)


class _Chunk:
    """Fields of a column chunk; of its page index, ``offsets`` say where pages are and ``index`` what they hold."""

    path, start, meta, offsets_at, offsets_size, index_at, index_size, crypto, encrypted = range(1, 10)


class _Meta:
    """Fields of a chunk's metadata that say where something is, or how large."""

    plain_size, size, data_at, index_at, dictionary_at, bloom_at, bloom_size = 6, 7, 9, 10, 11, 14, 15


_LOCATIONS, _PAGE_AT, _PAGE_SIZE = 1, 1, 2
_CHILDREN = 5
_SORTED_BY = 1


@dataclass(frozen=True, slots=True)
class Origin:
    """A file that chunks are copied from: its footer, the paths of its leaves, and which of them each column has."""

    footer: Struct
    paths: tuple[str, ...]
    leaves: Mapping[str, range]

    @property
    def groups(self) -> list[Struct]:
        """Row groups as the footer describes them."""
        found: list[Struct] = self.footer[_File.groups][1][1]
        return found


def copied_share(meta: pq.FileMetaData, schema: pa.Schema, touched: Collection[int], changed: Collection[str]) -> float:
    """The share of a file's bytes that need not be written anew when some columns of some row groups change."""
    leaves = [field.name in changed for field in schema for _ in range(leaf_count(field.type))]
    if len(leaves) != meta.num_columns:
        return 0.0
    copied = total = 0
    for number in range(meta.num_row_groups):
        group = meta.row_group(number)
        sizes = [group.column(i).total_compressed_size for i in range(group.num_columns)]
        total += sum(sizes)
        if number in touched:
            copied += sum(size for size, new in zip(sizes, leaves, strict=True) if not new)
        else:
            copied += sum(sizes)
    return copied / max(1, total)


def can_splice(meta: pq.FileMetaData, schema: pa.Schema, options: WriterOptions) -> Origin | None:
    """The file as an origin of chunks, if they fit beside those that a writer with this schema and options makes."""
    writer = _SOUND_WRITER.match(meta.created_by or "")
    if writer is None or int(writer[1]) < _SOUND_SINCE or not meta.num_row_groups:
        return None
    old, new = _footer_of(meta), _read_footer(_encode(schema.empty_table(), options))
    if _shape(old) != _shape(new) or old.keys() & {_File.encryption, _File.signing}:
        return None
    if len(set(schema.names)) < len(schema) or not all(map(_is_plain, old[_File.groups][1][1])):
        return None
    footer = old | {_File.version: max(old[_File.version], new[_File.version]), _File.writer: new[_File.writer]}
    paths = tuple(meta.schema.column(i).path for i in range(len(meta.schema)))
    return Origin(footer, paths, dict(zip(schema.names, _leaf_ranges(old), strict=True)))


def _footer_of(meta: pq.FileMetaData) -> Struct:
    sink = pa.BufferOutputStream()
    meta.write_metadata_file(sink)
    return _read_footer(sink.getvalue())


def _read_footer(file: pa.Buffer) -> Struct:
    view = memoryview(file).cast("B")
    length = int.from_bytes(view[-_TRAILER : -len(_MAGIC)], "little") + _TRAILER
    return read_struct(view[-length:])[0]


def _shape(footer: Struct) -> tuple[Any, ...]:
    """What chunks of one file must agree on: the schema, except for the name of its root, and the order of values."""
    root, *elements = footer[_File.schema][1][1]
    return root[_CHILDREN], elements, footer.get(_File.orders)


def _leaf_ranges(footer: Struct) -> list[range]:
    """Which leaves belong to each top-level column."""
    root, *elements = footer[_File.schema][1][1]
    ranges, at, leaf = [], 0, 0
    for _ in range(root[_CHILDREN][1]):
        first, pending = leaf, 1
        while pending:
            children = elements[at].get(_CHILDREN, (I32, 0))[1]
            leaf += not children
            pending += children - 1
            at += 1
        ranges.append(range(first, leaf))
    return ranges


def _is_plain(group: Struct) -> bool:
    """Whether chunks are in this file, open to read, with all lengths told."""
    for chunk in _columns(group):
        if _Chunk.meta not in chunk or chunk.keys() & {_Chunk.path, _Chunk.crypto, _Chunk.encrypted}:
            return False
        meta = chunk[_Chunk.meta][1]
        lengths = (
            (chunk, _Chunk.offsets_at, _Chunk.offsets_size),
            (chunk, _Chunk.index_at, _Chunk.index_size),
            (meta, _Meta.bloom_at, _Meta.bloom_size),
        )
        if _Meta.index_at in meta or any((at in tree) != (size in tree) for tree, at, size in lengths):
            return False
        if not _span(chunk)[0]:
            return False
    return bool(group[_Group.rows][1] <= _MOST_ROWS)


def _columns(group: Struct) -> list[Struct]:
    found: list[Struct] = group[_Group.columns][1][1]
    return found


def _encode(table: pa.Table, options: WriterOptions) -> pa.Buffer:
    """A Parquet file in memory; its rows, if there are any, in one row group."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        if table.num_rows:
            writer.write_table(table, table.num_rows)
    return sink.getvalue()


def _span(chunk: Struct) -> tuple[int, int]:
    """Where the pages of a chunk begin and end."""
    meta = chunk[_Chunk.meta][1]
    start = min(meta[field][1] for field in (_Meta.data_at, _Meta.dictionary_at) if field in meta)
    return start, start + meta[_Meta.size][1]


def _read(source: pa.NativeFile, start: int, size: int) -> memoryview:
    source.seek(start)
    data = source.read_buffer(size)
    if len(data) != size:
        raise pa.ArrowInvalid("it ends before its last column chunk")
    return memoryview(data).cast("B")


def _read_chunks(source: pa.NativeFile, chunks: Sequence[Struct]) -> list[memoryview]:
    """The pages of some chunks; chunks that stand side by side are read at once."""
    spans, found, first = [_span(chunk) for chunk in chunks], [], 0
    for after in range(1, len(spans) + 1):
        if after < len(spans) and spans[after][0] == spans[after - 1][1]:
            continue
        base = spans[first][0]
        data = _read(source, base, spans[after - 1][1] - base)
        found += [data[start - base : end - base] for start, end in spans[first:after]]
        first = after
    return found


@dataclass(frozen=True, slots=True)
class _Piece:
    """A chunk to be written: its description and pages as they are, where the rest of it is, and whether it is new."""

    chunk: Struct
    data: memoryview
    source: pa.NativeFile
    new: bool = False


class SplicedFile:
    """A Parquet file being put together in an open sink, which it closes, as it closes the source."""

    def __init__(self, origin: Origin, path: str, source: pa.NativeFile, sink: pa.NativeFile) -> None:
        self._origin, self._path, self._source, self._sink = origin, path, source, sink
        self._groups: list[Struct] = []
        self._indexes: list[tuple[Struct, bytes | None, Struct | None]] = []
        self._at = 0
        self._write(_MAGIC)

    def copy_group(self, number: int) -> None:
        """Take a row group over as it is."""
        chunks = _columns(self._origin.groups[number])
        with self._naming_damage():
            data = _read_chunks(self._source, chunks)
        self._put(number, [_Piece(*pair, self._source) for pair in zip(chunks, data, strict=True)], ())

    def mix_group(self, number: int, table: pa.Table, options: WriterOptions) -> None:
        """Take a row group over, except for the columns of the table."""
        old = _columns(self._origin.groups[number])
        changed = [leaf for name in table.column_names for leaf in self._origin.leaves[name]]
        kept = [leaf for leaf in range(len(old)) if leaf not in changed]
        paths = [self._origin.paths[leaf] for leaf in changed]
        encoded = pa.BufferReader(_encode(table, _for_columns(options, paths)))
        new = _columns(_read_footer(encoded.read_buffer())[_File.groups][1][1][0])
        with self._naming_damage():
            data = _read_chunks(self._source, [old[leaf] for leaf in kept])
        pieces = {leaf: _Piece(old[leaf], view, self._source) for leaf, view in zip(kept, data, strict=True)}
        for leaf, chunk, view in zip(changed, new, _read_chunks(encoded, new), strict=True):
            pieces[leaf] = _Piece(chunk, view, encoded, new=True)
        self._put(number, [pieces[leaf] for leaf in range(len(old))], changed)

    def close(self, notes: Mapping[bytes, bytes]) -> int:
        """Finish the file and tell its size."""
        for chunk, index, _ in self._indexes:
            if index is not None:
                chunk |= {_Chunk.index_at: (I64, self._at), _Chunk.index_size: (I32, len(index))}
                self._write(index)
        for chunk, _, offsets in self._indexes:
            if offsets is not None:
                words = write_struct(offsets)
                chunk |= {_Chunk.offsets_at: (I64, self._at), _Chunk.offsets_size: (I32, len(words))}
                self._write(words)
        pairs: list[Struct] = [{1: (BINARY, key), 2: (BINARY, value)} for key, value in notes.items()]
        footer = self._origin.footer | {
            _File.rows: (I64, sum(group[_Group.rows][1] for group in self._groups)),
            _File.groups: (LIST, (STRUCT, self._groups)),
            _File.notes: (LIST, (STRUCT, pairs)),
        }
        words = write_struct({field: value for field, value in footer.items() if field != _File.notes or pairs})
        self._write(words + len(words).to_bytes(4, "little") + _MAGIC)
        self._source.close()
        self._sink.close()
        return self._at

    def abandon(self) -> None:
        """Let go of a file that will not be finished; recovery or abort removes it."""
        for resource in (self._source, self._sink):
            closing: AbstractContextManager[object] = resource
            try:
                closing.__exit__(None, None, None)
            except (OSError, pa.ArrowException):
                continue

    def _put(self, number: int, pieces: Sequence[_Piece], changed: Collection[int]) -> None:
        start, old = self._at, self._origin.groups[number]
        chunks = [self._put_chunk(piece) for piece in pieces]
        for piece, chunk in zip(pieces, chunks, strict=True):
            self._put_bloom(piece, chunk[_Chunk.meta][1])
        metas = [chunk[_Chunk.meta][1] for chunk in chunks]
        group = old | {
            _Group.columns: (LIST, (STRUCT, chunks)),
            _Group.plain_size: (I64, sum(meta[_Meta.plain_size][1] for meta in metas)),
            _Group.size: (I64, sum(meta[_Meta.size][1] for meta in metas)),
            _Group.start: (I64, start),
            _Group.ordinal: (I16, len(self._groups)),
        }
        if len(self._groups) >= _MOST_ORDINALS:
            del group[_Group.ordinal]
        if _Group.sorting in group and any(by[_SORTED_BY][1] in changed for by in group[_Group.sorting][1][1]):
            del group[_Group.sorting]
        self._groups.append(group)

    def _put_chunk(self, piece: _Piece) -> Struct:
        meta = dict(piece.chunk[_Chunk.meta][1])
        start, end = _span(piece.chunk)
        with self._naming_damage():
            pages = None if piece.new else list(read_pages(piece.data, start))
            places = _Places(self._at, start, end, pages)
            for field in (_Meta.data_at, _Meta.dictionary_at):
                if field in meta:
                    meta[field] = I64, places.new(meta[field][1], 0)[0]
            index = _read_part(piece.source, piece.chunk, _Chunk.index_at, _Chunk.index_size)
            offsets = _read_part(piece.source, piece.chunk, _Chunk.offsets_at, _Chunk.offsets_size)
            moved = None if offsets is None else _moved(read_struct(offsets)[0], places)
        for part in [piece.data] if pages is None else [part for page in pages for part in (page.header, page.body)]:
            self._write(part)
        if pages is not None:
            meta[_Meta.plain_size] = I64, sum(page.plain for page in pages)
            meta[_Meta.size] = I64, sum(page.size for page in pages)
        chunk: Struct = {_Chunk.start: (I64, 0), _Chunk.meta: (STRUCT, meta)}
        self._indexes.append((chunk, index, moved))
        return chunk

    def _put_bloom(self, piece: _Piece, meta: Struct) -> None:
        with self._naming_damage():
            bloom = _read_part(piece.source, meta, _Meta.bloom_at, _Meta.bloom_size)
        if bloom is not None:
            meta[_Meta.bloom_at] = I64, self._at
            self._write(bloom)

    def _write(self, data: bytes | memoryview) -> None:
        self._sink.write(data)
        self._at += len(data)

    def _naming_damage(self) -> AbstractContextManager[None]:
        return naming_damage("rewriting", self._path)


class _Places:
    """Where the pages of a chunk come to stand: all moved alike, or each by its own way where some have grown."""

    def __init__(self, at: int, start: int, end: int, pages: Sequence[Page] | None) -> None:
        self._shift, self._old = at - start, range(start, end)
        self._each: dict[int, tuple[int, int]] | None = None
        if pages is not None:
            ends = accumulate((page.size for page in pages), initial=at)
            self._each = {page.start: (place, page.size) for page, place in zip(pages, ends, strict=False)}

    def new(self, old: int, size: int) -> tuple[int, int]:
        """The new place and size of a page."""
        if self._each is None and old in self._old:
            return old + self._shift, size
        if self._each is None or old not in self._each:
            raise pa.ArrowInvalid("its footer names a page that is not there")
        return self._each[old]


def _for_columns(options: WriterOptions, paths: Sequence[str]) -> WriterOptions:
    """The options of a writer for some leaves only."""

    def narrowed(name: str) -> dict[str, Any] | None:
        return {path: value for path, value in (options[name] or {}).items() if path in paths} or None

    return options | {
        "compression": narrowed("compression"),
        "use_dictionary": [path for path in options["use_dictionary"] or () if path in paths] or False,
        "column_encoding": narrowed("column_encoding"),
        "bloom_filter_options": narrowed("bloom_filter_options"),
        "sorting_columns": None,
    }


def _read_part(source: pa.NativeFile, tree: Struct, at: int, size: int) -> bytes | None:
    return bytes(_read(source, tree[at][1], tree[size][1])) if at in tree else None


def _moved(offsets: Struct, places: _Places) -> Struct:
    """An offset index with pages at their new places."""
    kind, locations = offsets[_LOCATIONS][1]
    moved = []
    for location in locations:
        at, size = places.new(location[_PAGE_AT][1], location[_PAGE_SIZE][1])
        moved.append(location | {_PAGE_AT: (I64, at), _PAGE_SIZE: (I32, size)})
    return offsets | {_LOCATIONS: (LIST, (kind, moved))}
