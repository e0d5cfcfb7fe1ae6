"""The pages of a Parquet column chunk as bytes: cut apart, checked, and given checksums, without decoding them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from fsspeckit.core.thrift import I32, Bytes, Struct, read_struct, write_struct


class PageField:
    """Fields of a page header."""

    kind, plain_size, size, checksum, data = range(1, 6)


@dataclass(frozen=True, slots=True)
class Page:
    """A page with a checksum; ``start`` is where it stood, ``plain`` its size before compression, with the header."""

    start: int
    header: bytes
    body: Bytes
    plain: int

    @property
    def size(self) -> int:
        """Bytes that it takes in a file."""
        return len(self.header) + len(self.body)


def read_pages(data: memoryview, start: int) -> Iterator[Page]:
    """The pages of a chunk that stands at ``start``: each matches its checksum, and has one now if it had none."""
    at = 0
    while at < len(data):
        header, begin = read_struct(data, at)
        end = begin + _size(header, PageField.size)
        if end > len(data):
            raise pa.ArrowInvalid("a page reaches beyond its column chunk")
        body, words = data[begin:end], bytes(data[at:begin])
        found = checksum(body)
        if PageField.checksum not in header:
            words = write_struct(header | {PageField.checksum: (I32, found)})
        elif header[PageField.checksum][1] != found:
            raise pa.ArrowInvalid("a page does not match its checksum")
        yield Page(start + at, words, body, len(words) + _size(header, PageField.plain_size))
        at = end


def checksum(body: Bytes) -> int:
    """The checksum of a page's bytes, with a sign, as Thrift's integers have one."""
    return (zlib.crc32(body) ^ 0x80000000) - 0x80000000


def _size(header: Struct, field: int) -> int:
    kind, size = header.get(field, (0, -1))
    if kind != I32 or size < 0:
        raise pa.ArrowInvalid("a page does not tell its size")
    return int(size)
