"""Split a Parquet column chunk into pages, verify their checksums and add missing ones, without decoding values."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa

from fsspeckit.core.parquet.bytes.thrift import I32, STRUCT, Bytes, Struct, read_struct, write_struct


class PageField:
    """Fields of a page header."""

    kind, uncompressed_size, compressed_size, checksum, data_page = range(1, 6)
    data_page_v2 = 8


_VALUES = 1


@dataclass(frozen=True, slots=True)
class Page:
    """A page with a checksum. ``start`` is its offset in the old file.

    ``uncompressed`` is its size before compression, including the header. ``values`` counts nulls too.
    """

    start: int
    header: bytes
    body: Bytes
    uncompressed: int
    values: int = 0

    @property
    def size(self) -> int:
        """Return the size of the page in a file."""
        return len(self.header) + len(self.body)


def read_pages(data: memoryview, start: int) -> Iterator[Page]:
    """Yield the pages of a chunk at offset ``start``. Verify checksums, and add those that are missing."""
    at = 0
    while at < len(data):
        header, begin = read_struct(data, at)
        end = begin + _size(header, PageField.compressed_size)
        if end > len(data):
            raise pa.ArrowInvalid("a page ends after its column chunk")
        body, raw = data[begin:end], bytes(data[at:begin])
        actual = checksum(body)
        if PageField.checksum not in header:
            raw = write_struct(header | {PageField.checksum: (I32, actual)})
        elif header[PageField.checksum][1] != actual:
            raise pa.ArrowInvalid("a page does not match its checksum")
        yield Page(start + at, raw, body, len(raw) + _size(header, PageField.uncompressed_size), _values(header))
        at = end


def _values(header: Struct) -> int:
    """Return the number of column values in a page; a dictionary page has none."""
    kinds = [field for field in (PageField.data_page, PageField.data_page_v2) if field in header]
    if any(header[field][0] != STRUCT for field in kinds):
        raise pa.ArrowInvalid("a page header is damaged")
    return sum(_size(header[field][1], _VALUES) for field in kinds)


def checksum(*parts: Bytes) -> int:
    """Return the CRC-32 of a page as a signed integer, as Thrift stores it."""
    return (reduce(lambda before, part: zlib.crc32(part, before), parts, 0) ^ 0x80000000) - 0x80000000


def _size(header: Struct, field: int) -> int:
    kind, size = header.get(field, (0, -1))
    if kind != I32 or size < 0:
        raise pa.ArrowInvalid("a page header has no valid size")
    return int(size)
