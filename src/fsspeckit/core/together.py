"""Small files read together: their bytes side by side in memory under one footer, and decoded in one call.

Opening a small file and making a table of it costs about what decoding it does, and much of that happens in the
interpreter, where one thread waits for another. So files that are written alike become the row groups of one file in
memory. Its footer says where each chunk is and how long; all else that a reader needs is the same in every file, or
stands in the pages.

In one file, damage to a chunk could reach the rows of its neighbours: a reader takes whatever pages promise until it
has the rows of all. So chunks must lie inside their file, and their pages must promise as many values as there are
rows. Nested values could still begin more rows than that, so only flat columns are read together.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.fileparts import MAGIC, ChunkField, FileField, MetaField, chunks_of, groups_of, read_footer_struct
from fsspeckit.core.footer import open_reader
from fsspeckit.core.model import DataFile
from fsspeckit.core.pages import decoded_size
from fsspeckit.core.storage import Storage, for_each
from fsspeckit.core.thrift import I32, I64, LIST, STRUCT, Struct, put_varint, write_struct
from fsspeckit.core.view import read_into

_CODECS = {
    name: bytes((1 << 4 | I32, number << 1))
    for name, number in {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6}.items()
}
"""Codecs as the field of a footer; pyarrow has one name for two kinds of LZ4."""
_logger = logging.getLogger(__name__)
_MOST_DECODED = 64 * 1024 * 1024
_SAME_IN_ALL = (MetaField.type, MetaField.encodings, MetaField.path)
_I64, _I64_AFTER_NEXT = bytes((1 << 4 | I64,)), bytes((2 << 4 | I64,))
_LIST, _END = bytes((1 << 4 | LIST,)), b"\0"
_NO_SIZE = _I64 + b"\0"
"""The size before compression, which readers do without."""


class Together:
    """Reads files together, with some columns as dictionary codes."""

    def __init__(self, storage: Storage, coded: Sequence[str]) -> None:
        self._storage, self._coded = storage, list(coded)
        self._molds: dict[tuple[int, str], _Mold] = {}

    def read(self, files: Sequence[DataFile]) -> pa.Table | None:
        """All rows of files in order; nothing where footers are not kept, differ too much, or say anything unusual."""
        if len(files) < 2 or any(file.schema is not files[0].schema or file.int96 for file in files):
            return None
        try:
            return self._read(files)
        except Exception as error:  # noqa: BLE001 - whoever reads one by one finds out what is wrong, and where
            _logger.debug("%s and %d more are read one by one: %s", files[0].path, len(files) - 1, error)
            return None

    def _read(self, files: Sequence[DataFile]) -> pa.Table | None:
        footers = [file.parsed for file in files if file.parsed is not None]
        if len(footers) < len(files) or any(footer.created_by != footers[0].created_by for footer in footers):
            return None
        mold = self._mold(files[0], footers[0])
        if not mold.is_flat:
            return None
        parts = [_Part.of(file, footer, mold) for file, footer in zip(files, footers, strict=True)]
        whole = self._joined(parts, mold)
        if not _is_as_promised(whole, parts):
            return None
        reader = open_reader(
            pa.BufferReader(whole), read_dictionary=self._coded, pre_buffer=False, page_checksum_verification=True
        )
        table = reader.read_row_groups(list(range(reader.num_row_groups)), use_threads=False)
        rows = sum(file.rows for file in files)
        return table if all(len(column) == rows for column in table.columns) else None

    def _mold(self, file: DataFile, footer: pq.FileMetaData) -> _Mold:
        key = id(file.schema), footer.created_by
        if key not in self._molds:
            tail = self._storage.read_tail(file.location, file.footer - len(MAGIC))
            self._molds[key] = _Mold.of(read_footer_struct(pa.py_buffer(tail)), footer.schema)
        return self._molds[key]

    def _joined(self, parts: Sequence[_Part], mold: _Mold) -> pa.Buffer:
        """The file in memory."""
        *starts, end = accumulate((part.size for part in parts), initial=0)
        footer = mold.footer(parts, starts)
        whole = pa.allocate_buffer(end + len(footer))
        room = memoryview(whole).cast("B")
        room[end:] = footer
        places = [(part.file, room[at : at + part.size]) for part, at in zip(parts, starts, strict=True)]
        for_each(self._storage, lambda place: read_into(self._storage, *place), places)
        return whole


def _is_as_promised(whole: pa.Buffer, parts: Sequence[_Part]) -> bool:
    """Whether each chunk has the values of its rows and no more, and all of them fit into memory once decoded."""
    data, start, total = memoryview(whole).cast("B"), 0, 0
    for part in parts:
        for chunk in part.chunks:
            size = decoded_size(data, start + chunk.start, start + chunk.end, chunk.values)
            if size is None:
                return False
            total += size
        start += part.size
    return total <= _MOST_DECODED


class _Chunk(NamedTuple):
    """What differs from file to file: the codec of a chunk, how many values it has, and where it is in its file."""

    codec: bytes
    values: int
    start: int
    end: int
    data_at: int

    @classmethod
    def of(cls, meta: pq.ColumnChunkMetaData, column: tuple[str, str], rows: int, end: int) -> _Chunk:
        """From a footer; raises where it says anything unusual, or names bytes that are not in front of it."""
        codec, data_at, size = _CODECS[meta.compression], meta.data_page_offset, meta.total_compressed_size
        start = meta.dictionary_page_offset or data_at
        found = cls(codec, meta.num_values, start, start + size, data_at)
        if (meta.path_in_schema, meta.physical_type) != column or meta.file_path or found.values != rows:
            raise pa.ArrowInvalid("a chunk of another column, in another file, or not of these rows")
        if not len(MAGIC) <= start <= data_at <= found.end <= end:
            raise pa.ArrowInvalid("a chunk is not where it can be")
        return found


@dataclass(frozen=True, slots=True)
class _Part:
    """A file among others: its bytes up to the footer, and its chunks, row group by row group."""

    file: DataFile
    size: int
    rows: tuple[int, ...]
    chunks: tuple[_Chunk, ...]

    @classmethod
    def of(cls, file: DataFile, footer: pq.FileMetaData, mold: _Mold) -> _Part:
        size, chunks = len(MAGIC) + file.data, []
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        for group in groups:
            rows = group.num_rows
            chunks += [_Chunk.of(group.column(i), column, rows, size) for i, column in enumerate(mold.columns)]
        return cls(file, size, tuple(group.num_rows for group in groups), tuple(chunks))


@dataclass(frozen=True, slots=True)
class _Mold:
    """A footer without its row groups: what comes before and after them, and how each of their chunks begins."""

    head: bytes
    tail: bytes
    chunks: tuple[bytes, ...]
    columns: tuple[tuple[str, str], ...]
    is_flat: bool

    @classmethod
    def of(cls, footer: Struct, schema: pq.ParquetSchema) -> _Mold:
        before = {field: footer[field] for field in (FileField.version, FileField.schema)}
        # Fields are told by their distance from the one before, so the tail is written after something.
        last: Struct = {FileField.groups: (I32, 0)}
        after = last | {field: value for field, value in footer.items() if field > FileField.groups}
        tail = write_struct(after)[len(write_struct(last)) - 1 :]
        chunks = tuple(map(_beginning, chunks_of(groups_of(footer)[0])))
        leaves = [schema.column(leaf) for leaf in range(len(schema))]
        columns = tuple((leaf.path, leaf.physical_type) for leaf in leaves)
        is_flat = len(footer[FileField.schema][1][1]) == len(chunks) + 1 == len(columns) + 1
        return cls(write_struct(before)[:-1], tail, chunks, columns, is_flat)

    def footer(self, parts: Sequence[_Part], starts: Sequence[int]) -> bytes:
        """The end of a file in which others begin at these places."""
        groups = [group for part, start in zip(parts, starts, strict=True) for group in self._groups(part, start)]
        rows = _number(sum(sum(part.rows) for part in parts))
        words = b"".join((self.head, _I64, rows, _LIST, _structs(len(groups)), *groups, self.tail))
        return words + len(words).to_bytes(4, "little") + MAGIC

    def _groups(self, part: _Part, start: int) -> Iterator[bytes]:
        chunks = iter(part.chunks)
        for rows in part.rows:
            count = _I64 + _number(rows)
            words = [_LIST, _structs(len(self.chunks))]
            for beginning in self.chunks:
                words += _chunk(beginning, next(chunks), count, start)
            yield b"".join((*words, _NO_SIZE, count, _END))


def _beginning(chunk: Struct) -> bytes:
    """A chunk up to what differs from file to file, without the ends of two structs."""
    meta = chunk[ChunkField.meta][1]
    words: Struct = {
        ChunkField.start: (I64, 0),
        ChunkField.meta: (STRUCT, {field: meta[field] for field in _SAME_IN_ALL}),
    }
    return write_struct(words)[:-2]


def _chunk(beginning: bytes, chunk: _Chunk, count: bytes, start: int) -> tuple[bytes, ...]:
    """A chunk in a file that begins at ``start``; ``count`` is how many values it has."""
    codec, _, at, end, data_at = chunk
    size, data = _number(end - at), _number(data_at + start)
    if at == data_at:
        return beginning, codec, count, _NO_SIZE, _I64, size, _I64_AFTER_NEXT, data, _END, _END
    dictionary = _number(at + start)
    return beginning, codec, count, _NO_SIZE, _I64, size, _I64_AFTER_NEXT, data, _I64_AFTER_NEXT, dictionary, _END, _END


def _structs(count: int) -> bytes:
    """How a list of so many structs begins."""
    if count < 15:
        return bytes((count << 4 | STRUCT,))
    out = bytearray((0xF0 | STRUCT,))
    put_varint(out, count)
    return bytes(out)


def _number(value: int) -> bytes:
    """A number that is not negative; there are three of them for each chunk, so the usual sizes are spelled out."""
    value <<= 1
    if value < 1 << 7:
        return bytes((value,))
    if value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    if value < 1 << 21:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    out = bytearray()
    put_varint(out, value)
    return bytes(out)
