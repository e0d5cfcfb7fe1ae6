"""Small files read together: their bytes side by side in memory under one footer, and decoded in one call.

Opening a small file and making a table of it costs about what decoding it does, and much of that happens in the
interpreter, where one thread waits for another. So files that are written alike become the row groups of one file in
memory. Its footer repeats what theirs say of each chunk, and where it is now; all else that a reader needs is the same
in every file, or stands in the pages.

In one file, damage to a chunk could reach the rows of its neighbours: a reader takes whatever pages promise until it
has the rows of all. So chunks must lie inside their file, and their pages must promise as many values as there are
rows. Nested values could still begin more rows than that, so only flat columns are read together.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import NamedTuple

import pyarrow as pa

from fsspeckit.core.model import DataFile
from fsspeckit.core.parquet.bytes.format_fields import MAGIC, ChunkField, FileField, MetaField, chunks_of, groups_of
from fsspeckit.core.parquet.bytes.pages import decoded_size
from fsspeckit.core.parquet.bytes.thrift import (
    I32,
    I64,
    LIST,
    STRUCT,
    Struct,
    natural,
    put_varint,
    read_struct,
    write_struct,
)
from fsspeckit.core.parquet.footer import open_reader
from fsspeckit.core.parquet.reader import read_into
from fsspeckit.core.storage import Storage, for_each

_logger = logging.getLogger(__name__)
_MOST_DECODED = 64 * 1024 * 1024
_TRAILER = 8
_I64, _I64_AFTER_NEXT = bytes((1 << 4 | I64,)), bytes((2 << 4 | I64,))
_LIST, _END = bytes((1 << 4 | LIST,)), b"\0"
_NO_SIZE = _I64 + b"\0"
"""The size before compression, which readers do without."""
_NO_PLACE_AND_META = _I64_AFTER_NEXT + b"\0" + bytes((1 << 4 | STRUCT,))
_WORDS = {b"n": rb"[\x80-\xff]*[\x00-\x7f]", b"e": rb"[\x00-\x7f]"}
_CHUNK = re.compile(
    rb"\x26%(n)b\x1c"  # a place that readers do without, and the metadata:
    rb"(\x15%(n)b\x19(?:\x15%(e)b|\x25%(e)b{2}|\x35%(e)b{3}|\x45%(e)b{4}|\x55%(e)b{5})"  # type, encodings,
    rb"\x19\x18(.{2,300}?)\x15%(n)b\x16(%(n)b)\x16%(n)b\x16(%(n)b))"  # name, codec, values, size decoded, size,
    rb"\x26(%(n)b)(?:\x26(%(n)b))?(?!\x16)" % _WORDS,  # first page of values, dictionary
    re.DOTALL,
)
"""A chunk in a footer, up to its statistics, with those fields that flat columns usually have and no others."""


class SmallFilesReader:
    """Reads files together, with some columns as dictionary codes, as long as that works."""

    def __init__(self, storage: Storage, coded: Sequence[str]) -> None:
        self._storage, self._coded = storage, list(coded)
        self._mold: _FooterTemplate | None = None
        self._works = True

    def read(self, files: Sequence[DataFile]) -> pa.Table | None:
        """All rows of files in order; nothing where footers differ too much, or anything unusual was met before."""
        if len(files) < 2 or any(file.schema is not files[0].schema or file.int96 for file in files):
            return None
        try:
            table = self._read(files) if self._works else None
        except Exception as error:  # noqa: BLE001 - whoever reads one by one finds out what is wrong, and where
            _logger.debug("%s and %d more are read one by one: %s", files[0].path, len(files) - 1, error)
            table = None
        self._works = table is not None
        return table

    def _read(self, files: Sequence[DataFile]) -> pa.Table | None:
        """What is read in vain has to be read again, which is why a failure ends all trying."""
        *starts, end = accumulate((file.size for file in files), initial=0)
        whole = pa.allocate_buffer(end + 2 * sum(file.footer for file in files))
        room = memoryview(whole).cast("B")
        places = [(file, room[at : at + file.size]) for file, at in zip(files, starts, strict=True)]
        for_each(self._storage, lambda place: read_into(self._storage, *place), places)
        footers = [bytes(own[len(MAGIC) + file.data : -_TRAILER]) for file, own in places]
        if self._mold is None or not self._mold.fits(footers[0]):
            self._mold = _FooterTemplate.of(footers[0])
        chunks = map(self._mold.chunks, files, footers)
        parts = [_Part(*part) for part in zip(files, starts, chunks, strict=True)]
        footer = self._mold.footer(parts)
        room[end : end + len(footer)] = footer
        return self._decoded(whole.slice(0, end + len(footer)), parts)

    def _decoded(self, whole: pa.Buffer, parts: Sequence[_Part]) -> pa.Table | None:
        if not _is_as_promised(memoryview(whole).cast("B"), parts):
            return None
        reader = open_reader(
            pa.BufferReader(whole), read_dictionary=self._coded, pre_buffer=False, page_checksum_verification=True
        )
        table = reader.read_row_groups(list(range(reader.num_row_groups)), use_threads=False)
        rows = sum(part.file.rows for part in parts)
        return table if all(len(column) == rows for column in table.columns) else None


class _Chunk(NamedTuple):
    """A column chunk: how its metadata begins, how many values it has, and where in its file it is."""

    words: bytes
    values: int
    start: int
    end: int
    data_at: int

    @classmethod
    def of(cls, found: re.Match[bytes], name: bytes, rows: int, end: int) -> _Chunk:
        """From a footer; raises where it is not the one that is expected, or not before the end."""
        words, own, *numbers, dictionary = found.groups()
        values, size, data_at = map(natural, numbers)
        start = data_at if dictionary is None else natural(dictionary)
        if own != name or values != rows or not len(MAGIC) <= start <= data_at <= start + size <= end:
            raise pa.ArrowInvalid("a chunk of another column, not of these rows, or not where it can be")
        return cls(words, values, start, start + size, data_at)


@dataclass(frozen=True, slots=True)
class _Part:
    """A file among others: where it starts, and its chunks, row group by row group."""

    file: DataFile
    start: int
    chunks: Sequence[_Chunk]


def _is_as_promised(data: memoryview, parts: Sequence[_Part]) -> bool:
    """Whether each chunk has the values of its rows and no more, and all of them fit into memory once decoded."""
    total = 0
    for part in parts:
        for chunk in part.chunks:
            size = decoded_size(data, part.start + chunk.start, part.start + chunk.end, chunk.values)
            if size is None:
                return False
            total += size
    return total <= _MOST_DECODED


@dataclass(frozen=True, slots=True)
class _FooterTemplate:
    """What stands before and after the row groups in the footers of all files, and the names of their columns."""

    head: bytes
    tail: bytes
    names: tuple[bytes, ...]

    @classmethod
    def of(cls, words: bytes) -> _FooterTemplate:
        """From a footer; raises where there are nested columns."""
        footer, _ = read_struct(words)
        before = {field: footer[field] for field in (FileField.version, FileField.schema)}
        # Fields are told by their distance from the one before, so the tail is written after something.
        last: Struct = {FileField.groups: (I32, 0)}
        after = last | {field: value for field, value in footer.items() if field > FileField.groups}
        tail = write_struct(after)[len(write_struct(last)) - 1 :]
        paths = [chunk[ChunkField.meta][1][MetaField.path][1][1] for chunk in chunks_of(groups_of(footer)[0])]
        if any(len(path) > 1 for path in paths):
            raise pa.ArrowInvalid("a nested column")
        return cls(write_struct(before)[:-1], tail, tuple(_text(name) for (name,) in paths))

    def fits(self, footer: bytes) -> bool:
        """Whether a footer differs from others in its row groups only."""
        return footer.startswith(self.head) and footer.endswith(self.tail)

    def chunks(self, file: DataFile, footer: bytes) -> list[_Chunk]:
        """The chunks of a file; raises where its footer is not like that of the others."""
        if not self.fits(footer):
            raise pa.ArrowInvalid("another schema, or another writer")
        found = _CHUNK.finditer(footer, len(self.head), len(footer) - len(self.tail))
        wanted = [(name, rows) for rows in file.row_groups for name in self.names]
        end = len(MAGIC) + file.data
        return [_Chunk.of(one, name, rows, end) for one, (name, rows) in zip(found, wanted, strict=True)]

    def footer(self, parts: Sequence[_Part]) -> bytes:
        """The end of a file in which all of them stand."""
        groups = [group for part in parts for group in self._groups(part)]
        rows = _number(sum(part.file.rows for part in parts))
        words = b"".join((self.head, _I64, rows, _LIST, _structs(len(groups)), *groups, self.tail))
        return words + len(words).to_bytes(4, "little") + MAGIC

    def _groups(self, part: _Part) -> Iterator[bytes]:
        chunks, count = iter(part.chunks), len(self.names)
        for rows in part.file.row_groups:
            words = [_LIST, _structs(count)]
            for chunk in islice(chunks, count):
                words += _placed(chunk, part.start)
            yield b"".join((*words, _NO_SIZE, _I64, _number(rows), _END))


def _placed(chunk: _Chunk, start: int) -> tuple[bytes, ...]:
    """A chunk in a file that starts elsewhere."""
    words, data = (_NO_PLACE_AND_META, chunk.words), (_I64_AFTER_NEXT, _number(chunk.data_at + start))
    if chunk.start == chunk.data_at:
        return *words, *data, _END, _END
    return *words, *data, _I64_AFTER_NEXT, _number(chunk.start + start), _END, _END


def _text(value: bytes) -> bytes:
    out = bytearray()
    put_varint(out, len(value))
    return bytes(out) + value


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
