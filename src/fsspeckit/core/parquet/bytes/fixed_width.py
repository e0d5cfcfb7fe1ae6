"""Column chunks encoded here instead of by pyarrow: plain values of one width, none of them null.

pyarrow's writer handles each value on its own; values of one width can be written as they lie in memory. Numbers and
times are, and texts of one length, as identifiers and hashes have. What a footer says of a chunk is still pyarrow's
word: it writes the smallest and the largest value, whose statistics are those of all, and only counts and sizes are
set. So nothing here knows how a type is ordered or stored.

Snappy looks in vain for repetition in random texts, and looks for long, as the length before each of them repeats.
Where a sample of a page shows that, its stream is laid out directly: each text a literal, each length a copy of the one
before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import from_blocks, text_blocks, to_numpy
from fsspeckit.core.parquet.bytes.format_fields import (
    ChunkField,
    MetaField,
    chunks_of,
    encode_file,
    groups_of,
    read_footer_struct,
)
from fsspeckit.core.parquet.bytes.pages import Page, PageField, checksum
from fsspeckit.core.parquet.bytes.thrift import (
    I32,
    I64,
    LIST,
    STRUCT,
    Struct,
    put_varint,
    read_struct,
    read_varint,
    write_struct,
)

Values = npt.NDArray[Any]

_PAGE_ROWS, _PAGE_BYTES = 20_000, 1 << 20  # as pyarrow's writer cuts them
_MOST_BYTES = 1 << 30
_CODECS = ("snappy", "zstd", "none")
_SAMPLE_BYTES = 1 << 15
_WORTH_IT = 0.92
_TEXT_LENGTHS = range(8, 1025)
_TEXTS = {pa.string(), pa.binary(), pa.large_string(), pa.large_binary()}
_NUMBERS = {pa.int32(), pa.int64(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64(), pa.date32()}
_ASKED_FOR = ("use_dictionary", "column_encoding", "bloom_filter_options")
_PAGE_VALUES, _PAGE_STATISTICS, _COUNTED, _SIZE_BYTES = 1, 5, 3, 1


@dataclass(frozen=True, slots=True)
class FixedWidthColumn:
    """A column whose values have one width, as the arrays that they come in."""

    field: pa.Field
    parts: tuple[Values, ...]
    codec: str
    is_text: bool
    """Whether pages have the length before each value."""

    @property
    def rows(self) -> int:
        """How many values there are."""
        return sum(map(len, self.parts))

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return sum(part.nbytes for part in self.parts)

    @property
    def width(self) -> int:
        """Bytes of a value in a page."""
        return int(self.parts[0].dtype.itemsize) + 4 * self.is_text

    @property
    def page_rows(self) -> int:
        """Rows of a page."""
        return max(1, min(_PAGE_ROWS, _PAGE_BYTES // self.width))


def find_fixed_width(table: pa.Table, options: Mapping[str, Any]) -> dict[str, FixedWidthColumn]:
    """Columns that need not be encoded by a Parquet writer with these options."""
    if options.get("write_page_index") or not table.num_rows:
        return {}
    codecs, found = options["compression"], {}
    asked = {name for key in _ASKED_FOR for name in options.get(key) or ()}
    for field, column in zip(table.schema, table.columns, strict=True):
        codec = codecs if isinstance(codecs, str) else codecs.get(field.name, "")
        if field.name in asked or codec not in _CODECS or column.null_count or column.nbytes > _MOST_BYTES:
            continue
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        is_text = field.type in _TEXTS
        parts = _text_parts(chunks) if is_text else _number_parts(chunks, field.type, options)
        if parts:
            found[field.name] = FixedWidthColumn(field, tuple(parts), codec, is_text)
    return found


def _text_parts(chunks: Sequence[pa.Array]) -> list[Values]:
    """Texts of one length; nothing for others."""
    found: list[Values] = []
    for chunk in chunks:
        blocks = text_blocks(chunk)
        if blocks is None or blocks.dtype.itemsize not in _TEXT_LENGTHS or (found and found[0].dtype != blocks.dtype):
            return []
        found.append(blocks)
    return found


def _number_parts(chunks: Sequence[pa.Array], type_: pa.DataType, options: Mapping[str, Any]) -> list[Values]:
    """Numbers and times that Parquet stores as Arrow holds them; NaN has no place in statistics, so it is left out."""
    is_time = pa.types.is_time(type_) or pa.types.is_timestamp(type_)
    if type_ not in _NUMBERS and not (is_time and type_.unit != "s"):
        return []
    if pa.types.is_timestamp(type_) and options.get("use_deprecated_int96_timestamps"):
        return []
    parts = [to_numpy(chunk) for chunk in chunks]
    return [] if pa.types.is_floating(type_) and any(np.isnan(part.min()) for part in parts) else parts


def fixed_width_chunks(
    columns: Sequence[FixedWidthColumn], options: Mapping[str, Any]
) -> list[tuple[Struct, Iterator[Page]]]:
    """What a footer says of the chunk of each column, except for its place and sizes, and the pages, as they are made.

    A page that is written before the next one is made is still in the processor's cache.
    """
    schema = pa.schema([column.field for column in columns])
    example = encode_file(pa.Table.from_arrays([_ends(column) for column in columns], schema=schema), dict(options))
    words = memoryview(example).cast("B")
    found = []
    for column, chunk in zip(columns, chunks_of(groups_of(read_footer_struct(example))[0]), strict=True):
        meta = chunk[ChunkField.meta][1]
        header, _ = read_struct(words, meta[MetaField.data_at][1])
        found.append((_described(column, meta), _pages(column, header)))
    return found


def _ends(column: FixedWidthColumn) -> pa.Array:
    """The smallest and the largest value."""
    type_, dtype = column.field.type, column.parts[0].dtype
    if column.is_text:
        ends = [_text_ends(part) for part in column.parts]
        both = min(low for low, _ in ends) + max(high for _, high in ends)
        return from_blocks(np.frombuffer(both, dtype), type_)
    found = min(part.min() for part in column.parts), max(part.max() for part in column.parts)
    return pa.Array.from_buffers(type_, 2, [None, pa.py_buffer(np.array(found, dtype))])


def _text_ends(texts: Values) -> tuple[bytes, bytes]:
    width = texts.dtype.itemsize
    heads = texts.view([("head", ">u8"), ("rest", f"V{width - 8}")])["head"].astype(np.uint64)
    low, high = (from_blocks(texts[heads == end], pa.binary(width)) for end in (heads.min(), heads.max()))
    return pc.min_max(low)["min"].as_buffer().to_pybytes(), pc.min_max(high)["max"].as_buffer().to_pybytes()


def _described(column: FixedWidthColumn, example: Struct) -> Struct:
    """The description of a chunk, from that of its two ends."""
    kind, counts = example[MetaField.page_counts][1]
    pages = -(-column.rows // column.page_rows)
    meta = example | {
        MetaField.values: (I64, column.rows),
        MetaField.data_at: (I64, 0),
        MetaField.page_counts: (LIST, (kind, [count | {_COUNTED: (I32, pages)} for count in counts])),
    }
    if MetaField.sizes in example:
        meta[MetaField.sizes] = STRUCT, _sizes(example[MetaField.sizes][1], column)
    return meta


def _sizes(example: Struct, column: FixedWidthColumn) -> Struct:
    """How many values are defined, and how many bytes texts have."""
    rows, found = column.rows, dict(example)
    for field, (kind, value) in example.items():
        if kind == LIST and value[1]:
            found[field] = LIST, (value[0], [*value[1][:-1], rows])
    if _SIZE_BYTES in found:
        found[_SIZE_BYTES] = I64, column.nbytes
    return found


def _pages(column: FixedWidthColumn, header: Struct) -> Iterator[Page]:
    codec = None if column.codec == "none" else pa.Codec(column.codec)
    data = {field: value for field, value in header[PageField.data][1].items() if field != _PAGE_STATISTICS}
    for values in _cut(column.parts, column.page_rows):
        levels = _levels(len(values)) if column.field.nullable else b""
        head, body = _body(column, codec, levels, values)
        size = len(levels) + column.width * len(values)
        words = write_struct(
            header
            | {
                PageField.plain_size: (I32, size),
                PageField.size: (I32, len(head) + len(body)),
                PageField.checksum: (I32, checksum(head, body)),
                PageField.data: (STRUCT, data | {_PAGE_VALUES: (I32, len(values))}),
            }
        )
        yield Page(0, words + head, body, len(words) + size)


def _body(column: FixedWidthColumn, codec: pa.Codec | None, levels: bytes, values: Values) -> tuple[bytes, memoryview]:
    """What follows the header of a page, in two parts: most of it is not copied again to stand behind the levels."""
    is_snappy = column.codec == "snappy"
    if codec is not None and is_snappy and column.is_text and not _gains(codec, values):
        return b"", _as_literals(levels, values)
    plain = _with_lengths(values) if column.is_text else values
    if codec is None:
        return levels, plain.view(np.uint8).data
    if not is_snappy:
        return b"", _compressed(codec, _joined(levels, plain))
    stream = _compressed(codec, plain.view(np.uint8).data)
    length, start = read_varint(stream, 0)
    head = bytearray()
    put_varint(head, len(levels) + length)
    return bytes(head) + (_literal(len(levels)) + levels if levels else b""), stream[start:]


def _cut(parts: Sequence[Values], rows: int) -> Iterator[Values]:
    """The values in stretches of so many rows, whatever parts they come in."""
    held: list[Values] = []
    room = rows
    for part in parts:
        start = 0
        while start < len(part):
            held.append(part[start : start + room])
            start += len(held[-1])
            room -= len(held[-1])
            if not room:
                yield np.concatenate(held) if len(held) > 1 else held[0]
                held, room = [], rows
    if held:
        yield np.concatenate(held) if len(held) > 1 else held[0]


def _levels(rows: int) -> bytes:
    """That each of so many values is there: one run of ones."""
    run = bytearray()
    put_varint(run, rows << 1)
    run.append(1)
    return len(run).to_bytes(4, "little") + bytes(run)


def _with_lengths(texts: Values) -> Values:
    """Texts as a plain page holds them."""
    laid = np.empty(len(texts), [("length", "<u4"), ("text", texts.dtype)])
    laid["length"], laid["text"] = texts.dtype.itemsize, texts
    return laid


def _joined(levels: bytes, values: Values) -> memoryview:
    out = _room(len(levels) + values.nbytes)
    out[: len(levels)] = np.frombuffer(levels, np.uint8)
    out[len(levels) :] = values.view(np.uint8)
    return out.data


def _room(size: int) -> npt.NDArray[np.uint8]:
    """Memory of Arrow's pool, which is at hand again at once; numpy would ask the system for it each time."""
    return np.frombuffer(pa.allocate_buffer(size), np.uint8)


def _compressed(codec: pa.Codec, plain: memoryview) -> memoryview:
    found = codec.compress(plain)
    return memoryview(found).cast("B")[: found.size]  # its view still has the length of the room made for it


def _gains(codec: pa.Codec, texts: Values) -> bool:
    """Whether compression makes some texts of a page smaller, from both halves of it."""
    count = min(len(texts), _SAMPLE_BYTES // texts.dtype.itemsize) // 2 + 1
    starts = len(texts) // 4, 3 * len(texts) // 4
    sample = _with_lengths(np.concatenate([texts[start : start + count] for start in starts]))
    return len(_compressed(codec, sample.view(np.uint8).data)) < _WORTH_IT * sample.nbytes


def _as_literals(levels: bytes, texts: Values) -> memoryview:
    """A page of texts as a Snappy stream: the first as it is, each other one after a copy of the length before."""
    length = texts.dtype.itemsize
    step = length + 4
    first = levels + length.to_bytes(4, "little") + texts[0].tobytes()
    head = bytearray()
    put_varint(head, len(levels) + step * len(texts))
    head += _literal(len(first)) + first
    tag = bytes([1 | step >> 8 << 5, step & 255]) + _literal(length)
    rest = np.dtype([("tag", f"V{len(tag)}"), ("text", texts.dtype)])
    out = _room(len(head) + rest.itemsize * (len(texts) - 1))
    out[: len(head)] = head
    body = out[len(head) :].view(rest)
    body["tag"], body["text"] = np.void(tag), texts[1:]
    return out.data


def _literal(length: int) -> bytes:
    """Snappy's word for so many bytes as they are."""
    if length <= 60:
        return bytes([length - 1 << 2])
    return bytes([60 << 2, length - 1]) if length <= 256 else bytes([61 << 2]) + (length - 1).to_bytes(2, "little")
