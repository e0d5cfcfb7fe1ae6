"""The pages of a Parquet column chunk as bytes: cut apart, checked, and given checksums, without decoding them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa

from fsspeckit.core.parquet.bytes.thrift import I32, STRUCT, Bytes, Struct, natural, read_struct, write_struct


class PageField:
    """Fields of a page header."""

    kind, plain_size, size, checksum, data = range(1, 6)
    dictionary, data_v2 = 7, 8


_VALUES = 1
_I32 = rb"\x15([\x80-\xff]*[\x00-\x7f])"
_SKIPPED = rb"\x15[\x80-\xff]*[\x00-\x7f]"
_USUAL_DICTIONARY = re.compile(
    rb"\x15\x04" + _I32 + _I32 + rb"(?:\x4c|" + _SKIPPED + rb"\x3c)" + _I32 + _SKIPPED + rb"[\x11\x12]?\x00\x00"
)
_USUAL_DATA = re.compile(
    rb"\x15(?:\x00%(s)b%(s)b(?:\x2c|%(s)b\x1c)|\x06%(s)b%(s)b(?:\x5c|%(s)b\x4c))" % {b"s": _SKIPPED} + _I32
)


@dataclass(frozen=True, slots=True)
class Page:
    """A page with a checksum; ``start`` is where it stood, ``plain`` its size before compression, with the header.

    ``head`` is the header, and what else stands before ``body``; ``values`` are those of the column, nulls included.
    """

    start: int
    head: bytes
    body: Bytes
    plain: int
    values: int = 0

    @property
    def size(self) -> int:
        """Bytes that it takes in a file."""
        return len(self.head) + len(self.body)


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
        yield Page(start + at, words, body, len(words) + _size(header, PageField.plain_size), _values(header))
        at = end


def decoded_size(data: memoryview, at: int, end: int, values: int) -> int | None:
    """About how many bytes the values of a chunk take once decoded; nothing where its pages hold more or fewer values.

    It stands between two places of the data. Parsing headers takes ten times as long as looking whether they are as
    they usually are: one dictionary, one page.
    """
    size, next_at = 0, at
    if usual := _USUAL_DICTIONARY.match(data, at, end):
        plain, body, entries = map(natural, usual.groups())
        next_at, size = usual.end() + body, plain * values // max(1, entries)
    usual = _USUAL_DATA.match(data, next_at, end)
    if usual and natural(usual[1]) == values:
        return size + 8 * values
    return _walked_size(data[at:end], values)


def _walked_size(data: memoryview, values: int) -> int | None:
    """The same from all pages: a reader looks at them until their headers have promised all values."""
    at = seen = size = 0
    while at < len(data) and seen < values:
        header, at = read_struct(data, at)
        at += _size(header, PageField.size)
        seen += _values(header)
        if PageField.dictionary in header:
            entries = _size(header[PageField.dictionary][1], _VALUES)
            size = _size(header, PageField.plain_size) * values // max(1, entries)
    return size + 8 * values if seen == values and at <= len(data) else None


def _values(header: Struct) -> int:
    """How many values of the column a page has; a dictionary has none."""
    kinds = [field for field in (PageField.data, PageField.data_v2) if field in header]
    if any(header[field][0] != STRUCT for field in kinds):
        raise pa.ArrowInvalid("a page does not tell what it is")
    return sum(_size(header[field][1], _VALUES) for field in kinds)


def checksum(*parts: Bytes) -> int:
    """The checksum of a page's bytes, with a sign, as Thrift's integers have one."""
    return (reduce(lambda before, part: zlib.crc32(part, before), parts, 0) ^ 0x80000000) - 0x80000000


def _size(header: Struct, field: int) -> int:
    kind, size = header.get(field, (0, -1))
    if kind != I32 or size < 0:
        raise pa.ArrowInvalid("a page does not tell its size")
    return int(size)
