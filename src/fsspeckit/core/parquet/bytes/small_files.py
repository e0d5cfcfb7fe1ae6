"""Read several small files in one call: concatenate their bytes in memory, add one footer, and decode.

Opening a small file takes about as long as decoding it, and most of that time holds the interpreter lock. Files with
the same schema and writer become the row groups of one file in memory. Its footer has the metadata of each chunk with
the new offset; everything else is the same in every file, or is in the pages.

A damaged chunk must not change rows of the other files: a reader reads pages until it has all rows. So each chunk must
be inside its file, and its page headers must have as many values as the row group has rows. Nested columns could still
have more rows than that, so files with nested columns are not read together.
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
from fsspeckit.core.parquet.bytes.format_fields import (
    MAGIC,
    TRAILER,
    ChunkField,
    FileField,
    MetaField,
    chunks_of,
    groups_of,
)
from fsspeckit.core.parquet.bytes.pages import decoded_size
from fsspeckit.core.parquet.bytes.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Struct,
    list_header,
    put_varint,
    read_non_negative,
    read_struct,
    write_struct,
    write_value,
)
from fsspeckit.core.parquet.footer import open_reader
from fsspeckit.core.parquet.reader import read_into
from fsspeckit.core.storage import Storage, for_each

_logger = logging.getLogger(__name__)
_MAX_DECODED_BYTES = 64 * 1024 * 1024
_I64, _I64_AFTER_NEXT = bytes((1 << 4 | I64,)), bytes((2 << 4 | I64,))
_LIST, _END = bytes((1 << 4 | LIST,)), b"\0"
_NO_SIZE = _I64 + b"\0"
"""The uncompressed size of a row group, which readers do not use."""
_NO_FILE_OFFSET_AND_META = _I64_AFTER_NEXT + b"\0" + bytes((1 << 4 | STRUCT,))
_BYTE_PATTERNS = {b"n": rb"[\x80-\xff]*[\x00-\x7f]", b"e": rb"[\x00-\x7f]"}
_CHUNK = re.compile(
    rb"\x26%(n)b\x1c"  # file offset, which readers do not use, and the metadata:
    rb"(\x15%(n)b\x19(?:\x15%(e)b|\x25%(e)b{2}|\x35%(e)b{3}|\x45%(e)b{4}|\x55%(e)b{5})"  # type, encodings,
    rb"\x19\x18(.{2,300}?)\x15%(n)b\x16(%(n)b)\x16%(n)b\x16(%(n)b))"  # name, codec, values, size decoded, size,
    rb"\x26(%(n)b)(?:\x26(%(n)b))?(?!\x16)" % _BYTE_PATTERNS,  # first page of values, dictionary
    re.DOTALL,
)
"""A chunk in a footer, up to its statistics, with exactly the fields that writers use for flat columns."""


class SmallFilesReader:
    """Reads several files in one call, with some columns as dictionary codes. It stops after the first failure."""

    def __init__(self, storage: Storage, coded: Sequence[str]) -> None:
        self._storage, self._coded = storage, list(coded)
        self._template: _FooterTemplate | None = None
        self._is_enabled = True

    def read(self, files: Sequence[DataFile]) -> pa.Table | None:
        """Return all rows of the files in order, or None if the files must be read one by one."""
        if len(files) < 2 or any(file.schema is not files[0].schema or file.int96 for file in files):
            return None
        try:
            table = self._read(files) if self._is_enabled else None
        except Exception as error:  # noqa: BLE001 - reading the files one by one reports the error and the file
            _logger.debug("%s and %d more are read one by one: %s", files[0].path, len(files) - 1, error)
            table = None
        self._is_enabled = table is not None
        return table

    def _read(self, files: Sequence[DataFile]) -> pa.Table | None:
        *starts, end = accumulate((file.size for file in files), initial=0)
        whole = pa.allocate_buffer(end + 2 * sum(file.footer for file in files))
        buffer = memoryview(whole).cast("B")
        views = [(file, buffer[start : start + file.size]) for file, start in zip(files, starts, strict=True)]
        for_each(self._storage, lambda pair: read_into(self._storage, *pair), views)
        footers = [bytes(view[len(MAGIC) + file.data : -TRAILER]) for file, view in views]
        if self._template is None or not self._template.fits(footers[0]):
            self._template = _FooterTemplate.of(footers[0])
        chunks = map(self._template.chunks, files, footers)
        parts = [_Part(*part) for part in zip(files, starts, chunks, strict=True)]
        footer = self._template.footer(parts)
        buffer[end : end + len(footer)] = footer
        return self._decode(whole.slice(0, end + len(footer)), parts)

    def _decode(self, whole: pa.Buffer, parts: Sequence[_Part]) -> pa.Table | None:
        if not _has_expected_values(memoryview(whole).cast("B"), parts):
            return None
        reader = open_reader(
            pa.BufferReader(whole), read_dictionary=self._coded, pre_buffer=False, page_checksum_verification=True
        )
        table = reader.read_row_groups(list(range(reader.num_row_groups)), use_threads=False)
        rows = sum(part.file.rows for part in parts)
        return table if all(len(column) == rows for column in table.columns) else None


class _Chunk(NamedTuple):
    """A column chunk: the first fields of its metadata as bytes, its number of values, and its offsets in its file."""

    fields: bytes
    values: int
    start: int
    end: int
    data_offset: int

    @classmethod
    def of(cls, match: re.Match[bytes], name: bytes, rows: int, end: int) -> _Chunk:
        """Return a matched chunk. Raise if its name, its number of rows or its offsets are not as expected."""
        fields, own_name, *numbers, dictionary = match.groups()
        values, size, data_offset = map(read_non_negative, numbers)
        start = data_offset if dictionary is None else read_non_negative(dictionary)
        if own_name != name or values != rows or not len(MAGIC) <= start <= data_offset <= start + size <= end:
            raise pa.ArrowInvalid("a chunk has an unexpected column, number of values or offset")
        return cls(fields, values, start, start + size, data_offset)


@dataclass(frozen=True, slots=True)
class _Part:
    """One of the files: its offset in the buffer, and its chunks in the order of the row groups."""

    file: DataFile
    start: int
    chunks: Sequence[_Chunk]


def _has_expected_values(data: memoryview, parts: Sequence[_Part]) -> bool:
    """Return whether each chunk has one value per row, and the decoded size of all chunks is within the limit."""
    total = 0
    for part in parts:
        for chunk in part.chunks:
            size = decoded_size(data, part.start + chunk.start, part.start + chunk.end, chunk.values)
            if size is None:
                return False
            total += size
    return total <= _MAX_DECODED_BYTES


@dataclass(frozen=True, slots=True)
class _FooterTemplate:
    """The bytes before and after the row groups in the footers of all files, and the encoded column names."""

    prefix: bytes
    suffix: bytes
    names: tuple[bytes, ...]

    @classmethod
    def of(cls, data: bytes) -> _FooterTemplate:
        """Return the template of a footer. Raise if it has nested columns."""
        footer, _ = read_struct(data)
        before = {field: footer[field] for field in (FileField.version, FileField.schema)}
        # Thrift encodes the difference to the previous field number, so the suffix is written after a field.
        last: Struct = {FileField.groups: (I32, 0)}
        after = last | {field: value for field, value in footer.items() if field > FileField.groups}
        suffix = write_struct(after)[len(write_struct(last)) - 1 :]
        paths = [chunk[ChunkField.meta][1][MetaField.path][1][1] for chunk in chunks_of(groups_of(footer)[0])]
        if any(len(path) > 1 for path in paths):
            raise pa.ArrowInvalid("a nested column")
        return cls(write_struct(before)[:-1], suffix, tuple(write_value(BINARY, name) for (name,) in paths))

    def fits(self, footer: bytes) -> bool:
        """Return whether a footer differs only in its row groups."""
        return footer.startswith(self.prefix) and footer.endswith(self.suffix)

    def chunks(self, file: DataFile, footer: bytes) -> list[_Chunk]:
        """Return the chunks of a file. Raise if its footer does not fit."""
        if not self.fits(footer):
            raise pa.ArrowInvalid("a file has another schema or another writer")
        matches = _CHUNK.finditer(footer, len(self.prefix), len(footer) - len(self.suffix))
        expected = [(name, rows) for rows in file.row_groups for name in self.names]
        end = len(MAGIC) + file.data
        return [_Chunk.of(match, name, rows, end) for match, (name, rows) in zip(matches, expected, strict=True)]

    def footer(self, parts: Sequence[_Part]) -> bytes:
        """Return the footer and trailer of the file that contains all parts."""
        groups = [group for part in parts for group in self._groups(part)]
        rows = _number(sum(part.file.rows for part in parts))
        data = b"".join((self.prefix, _I64, rows, _LIST, list_header(len(groups), STRUCT), *groups, self.suffix))
        return data + len(data).to_bytes(4, "little") + MAGIC

    def _groups(self, part: _Part) -> Iterator[bytes]:
        chunks, count = iter(part.chunks), len(self.names)
        for rows in part.file.row_groups:
            fields = [_LIST, list_header(count, STRUCT)]
            for chunk in islice(chunks, count):
                fields += _encode_chunk(chunk, part.start)
            yield b"".join((*fields, _NO_SIZE, _I64, _number(rows), _END))


def _encode_chunk(chunk: _Chunk, start: int) -> tuple[bytes, ...]:
    """Encode the metadata of a chunk whose file starts at an offset."""
    fields = _NO_FILE_OFFSET_AND_META, chunk.fields, _I64_AFTER_NEXT, _number(chunk.data_offset + start)
    if chunk.start == chunk.data_offset:
        return *fields, _END, _END
    return *fields, _I64_AFTER_NEXT, _number(chunk.start + start), _END, _END


def _number(value: int) -> bytes:
    """Encode a non-negative number. Each chunk has three, so common sizes have their own fast branch."""
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
