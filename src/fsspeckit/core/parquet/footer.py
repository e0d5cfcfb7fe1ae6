"""The footer of a Parquet file, read and checked here rather than by pyarrow. Nothing of the data is decoded.

pyarrow ends the whole process over some damaged footers when it is asked for a column chunk, so it never is: it only
gets to see footers that were checked here, to make an Arrow schema of them and to decode pages. A footer is an enemy's
until its numbers fit each other: rows, values, sizes and places. Damage raises `pa.ArrowInvalid`; the caller names the
file. Statistics are read in `fsspeckit.core.parquet.column_stats`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.errors import DamagedFileError
from fsspeckit.core.parquet.bytes.format_fields import (
    MAGIC,
    ChunkField,
    FileField,
    GroupField,
    MetaField,
    SchemaField,
    SortField,
    chunks_of,
    groups_of,
    notes_of,
)
from fsspeckit.core.parquet.bytes.thrift import BINARY, I32, I64, LIST, STRUCT, TRUE, Struct, read_struct
from fsspeckit.core.storage import Storage

PHYSICAL = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
"""Names of physical types, by their numbers in footers."""
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4_LEGACY", "ZSTD", "LZ4")
"""Names of codecs, by their numbers in footers. The older LZ4 has a frame that can be read and not written."""
INT96_UNIT = "us"
"""Old writers store timestamps as INT96; read as nanoseconds, years beyond 2262 would wrap round."""
_ENCODINGS = {
    0: "PLAIN",
    2: "PLAIN_DICTIONARY",
    3: "RLE",
    4: "BIT_PACKED",
    5: "DELTA_BINARY_PACKED",
    6: "DELTA_LENGTH_BYTE_ARRAY",
    7: "DELTA_BYTE_ARRAY",
    8: "RLE_DICTIONARY",
    9: "BYTE_STREAM_SPLIT",
}
_ENCRYPTED_MAGIC = b"PARE"
_TRAILER = 8
_FIRST_READ, _FIRST_LOCAL_READ = 64 * 1024, 4 * 1024  # a second read is a round trip, or next to nothing
_DEEPEST = 100
_PAGE_VALUES, _PAGE_BYTES = 1 << 31, 8  # a page has fewer values than that, and takes more bytes
_REPEATED = 2
_DECIMAL_CONVERTED, _DECIMAL_LOGICAL = 5, 5
_ENCRYPTED = "it is encrypted, which fsspeckit cannot read"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of values in a file's schema; ``top`` is the number of the top-level column that it belongs to.

    ``width`` is the length of values that all have one, else zero.
    """

    path: str
    physical: int
    width: int
    is_repeated: bool
    is_decimal: bool
    top: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """What a footer says of one column chunk."""

    leaf: Leaf
    codec: str
    encodings: tuple[str, ...]
    values: int
    uncompressed: int
    compressed: int
    start: int
    has_dictionary: bool
    has_index: bool
    has_bloom: bool


class Footer:
    """A footer whose numbers fit each other and its file; ``data_end`` is where the footer begins in the file."""

    def __init__(self, data: bytes, data_end: int) -> None:
        self.data, self.data_end = data, data_end
        self.tree, end = read_struct(data)
        _check_fields(self.tree)
        if end != len(data):
            raise pa.ArrowInvalid("its footer is followed by something else")
        self.leaves = _leaves(self.tree)
        self.groups = groups_of(self.tree)
        for group in self.groups:
            _check_group(group, self.leaves, data_end)
        self.rows = _checked_rows(self.tree, self.groups)

    def __reduce__(self) -> tuple[Callable[[bytes, int], Footer], tuple[bytes, int]]:
        return Footer, (self.data, self.data_end)

    @cached_property
    def notes(self) -> dict[bytes, bytes]:
        """What the writer noted, by name."""
        return notes_of(self.tree)

    @property
    def writer(self) -> str:
        """The program that wrote the file, as far as it tells."""
        return writer_of(self.tree)

    def group_rows(self, group: int) -> int:
        """Rows of a row group."""
        return int(self.groups[group][GroupField.rows][1])

    def chunks(self, group: int) -> list[Chunk]:
        """The column chunks of a row group, one for each leaf."""
        found = chunks_of(self.groups[group])
        return [_chunk(chunk, leaf) for chunk, leaf in zip(found, self.leaves, strict=True)]

    def sorting(self, group: int) -> list[pq.SortingColumn]:
        """The order that the writer says the rows of a row group have."""
        return [
            pq.SortingColumn(
                by[SortField.column][1],
                descending=by[SortField.descending][0] == TRUE,
                nulls_first=by[SortField.nulls_first][0] == TRUE,
            )
            for by in sorting_of(self.groups[group])
        ]

    def for_pyarrow(self) -> pq.FileMetaData:
        """The same footer as pyarrow knows it, to open the file with. Never ask it for a column chunk."""
        return open_footer(self.data).metadata


def read_footer(storage: Storage, path: str, size: int) -> Footer:
    """Read the footer of a file; raises `pa.ArrowInvalid` on damage."""
    data = read_footer_bytes(storage, path, size)
    return Footer(data, size - len(data) - _TRAILER)


def read_footer_bytes(storage: Storage, path: str, size: int) -> bytes:
    """The bytes of a file's footer, unchecked but for their length."""
    tail = storage.read_tail(path, _FIRST_LOCAL_READ if storage.is_local else _FIRST_READ)
    if tail[-4:] == _ENCRYPTED_MAGIC:
        raise pa.ArrowInvalid(_ENCRYPTED)
    if len(tail) < _TRAILER + len(MAGIC) or tail[-4:] != MAGIC:
        raise pa.ArrowInvalid("it does not end like a Parquet file" if tail else "it is empty")
    length = int.from_bytes(tail[-8:-4], "little") + _TRAILER
    if length + len(MAGIC) > size:
        raise pa.ArrowInvalid("its footer is longer than the file")
    if length > len(tail):
        tail = storage.read_tail(path, length)
    return tail[-length:-_TRAILER]


def open_footer(data: bytes) -> pq.ParquetReader:
    """A reader of pyarrow that knows nothing but a footer."""
    file = b"".join((MAGIC, data, len(data).to_bytes(4, "little"), MAGIC))
    return open_reader(pa.BufferReader(file), pre_buffer=False)


def open_reader(source: pa.NativeFile, **options: Any) -> pq.ParquetReader:
    """What a `pq.ParquetFile` has inside; that also makes an index of column names, which costs more than a footer."""
    reader = pq.ParquetReader()
    reader.open(source, coerce_int96_timestamp_unit=INT96_UNIT, arrow_extensions_enabled=True, **options)
    return reader


def writer_of(tree: Struct) -> str:
    """The program that wrote a file."""
    kind, writer = tree.get(FileField.writer, (BINARY, b""))
    return str(writer, "utf-8", "replace") if kind == BINARY else ""


def check_not_encrypted(tree: Struct) -> None:
    """Raise for a footer, or the part of one behind the row groups, that tells of encryption."""
    if tree.keys() & {FileField.encryption, FileField.signing}:
        raise pa.ArrowInvalid(_ENCRYPTED)


def check_sum(told: int, rows: int) -> int:
    """The rows of all row groups, which count; a file that tells of none is one of a writer that never told."""
    if told not in (rows, 0):
        raise pa.ArrowInvalid(f"its footer tells of {told} rows, and its row groups of {rows}")
    return rows


def check_values(values: int, rows: int, is_repeated: bool) -> None:
    """Raise where a chunk cannot have so many values: a row has one, or one at least where values repeat."""
    if values < rows or (values > rows and not is_repeated):
        raise pa.ArrowInvalid(f"a row group of {rows} rows has a column of {values} values")


def check_place(rows: int, data_at: int, dictionary_at: int, uncompressed: int, size: int, data_end: int) -> None:
    """Raise where the pages of a chunk are not inside the file; those of no rows may be anywhere."""
    start = first_page(data_at, dictionary_at)
    if rows and not len(MAGIC) <= start <= data_at <= start + size <= data_end:
        raise pa.ArrowInvalid("a column chunk is not inside the file")
    if size < 0 or uncompressed < 0:
        raise pa.ArrowInvalid("a column chunk has a negative size")
    if rows > _PAGE_VALUES * (size // _PAGE_BYTES + 1):
        raise pa.ArrowInvalid(f"a column chunk of {size} bytes cannot have {rows} values")


def first_page(data_at: int, dictionary_at: int) -> int:
    """Where the first page of a chunk is; a dictionary page comes before the others, or there is none at all."""
    return dictionary_at if 0 < dictionary_at < data_at else data_at


def check_count(value: int) -> int:
    """A number of rows, values or bytes, which is not below zero."""
    if value < 0:
        raise pa.ArrowInvalid("its footer has a negative number where none can be")
    return int(value)


def _check_fields(tree: Struct) -> None:
    check_not_encrypted(tree)
    _get(tree, FileField.rows, I64)
    _get_structs(tree, FileField.groups)


def _checked_rows(tree: Struct, groups: Sequence[Struct]) -> int:
    return check_sum(tree[FileField.rows][1], sum(group[GroupField.rows][1] for group in groups))


def _check_group(group: Struct, leaves: Sequence[Leaf], data_end: int) -> None:
    rows = _get_count(group, GroupField.rows, I64)
    _get_count(group, GroupField.plain_size, I64)
    chunks = _get_structs(group, GroupField.columns)
    if len(chunks) != len(leaves):
        raise pa.ArrowInvalid(f"a row group has {len(chunks)} columns, and the schema {len(leaves)}")
    for chunk, leaf in zip(chunks, leaves, strict=True):
        _check_chunk(chunk, leaf, rows, data_end)
    for by in sorting_of(group):
        if not 0 <= _get(by, SortField.column, I32) < len(leaves) or len(by) < 3:
            raise _odd()


def sorting_of(group: Struct) -> list[Struct]:
    """What a row group says of its order."""
    return _get_structs(group, GroupField.sorting) if GroupField.sorting in group else []


def _check_chunk(chunk: Struct, leaf: Leaf, rows: int, data_end: int) -> None:
    if chunk.keys() & {ChunkField.crypto, ChunkField.encrypted}:
        raise pa.ArrowInvalid(_ENCRYPTED)
    if ChunkField.path in chunk:
        raise pa.ArrowInvalid("its data is in another file")
    meta: Struct = _get(chunk, ChunkField.meta, STRUCT)
    if _get(meta, MetaField.kind, I32) != leaf.physical or _path(meta) != leaf.path:
        raise pa.ArrowInvalid("a column chunk is of another column than the schema says")
    if not 0 <= _get(meta, MetaField.codec, I32) < len(CODECS):
        raise pa.ArrowInvalid("a column chunk has an unknown codec")
    check_values(_get_count(meta, MetaField.values, I64), rows, leaf.is_repeated)
    dictionary_at = _get(meta, MetaField.dictionary_at, I64) if MetaField.dictionary_at in meta else 0
    sizes = _get(meta, MetaField.plain_size, I64), _get(meta, MetaField.size, I64)
    check_place(rows, _get(meta, MetaField.data_at, I64), dictionary_at, *sizes, data_end)
    _get_list(meta, MetaField.encodings, I32)


def _path(meta: Struct) -> str:
    names: list[bytes] = _get_list(meta, MetaField.path, BINARY)
    return ".".join(map(_name, names))


def _chunk(chunk: Struct, leaf: Leaf) -> Chunk:
    meta = chunk[ChunkField.meta][1]
    return Chunk(
        leaf=leaf,
        codec=CODECS[meta[MetaField.codec][1]],
        encodings=tuple(_ENCODINGS.get(number, "") for number in meta[MetaField.encodings][1][1]),
        values=meta[MetaField.values][1],
        uncompressed=meta[MetaField.plain_size][1],
        compressed=meta[MetaField.size][1],
        start=first_page(meta[MetaField.data_at][1], meta.get(MetaField.dictionary_at, (0, 0))[1]),
        has_dictionary=MetaField.dictionary_at in meta,
        has_index=ChunkField.index_at in chunk,
        has_bloom=MetaField.bloom_at in meta,
    )


def _leaves(tree: Struct) -> tuple[Leaf, ...]:
    elements = _get_structs(tree, FileField.schema)
    if not elements:
        raise pa.ArrowInvalid("its footer has no schema")
    rest = iter(elements[1:])
    found = [leaf for top in range(_children(elements[0])) for leaf in _below(rest, (), False, top)]
    if next(rest, None) is not None:
        raise pa.ArrowInvalid("its schema is longer than it says")
    return tuple(found)


def _below(elements: Iterator[Struct], above: tuple[str, ...], repeated: bool, top: int) -> list[Leaf]:
    """The leaves of the next element of a schema, which lists a group before its members."""
    element = next(elements, None)
    if element is None:
        raise pa.ArrowInvalid("its schema is shorter than it says")
    if len(above) >= _DEEPEST:
        raise pa.ArrowInvalid("its schema is nested too deeply")
    path = (*above, _name(_get(element, SchemaField.name, BINARY)))
    repeated = repeated or element.get(SchemaField.repetition) == (I32, _REPEATED)
    children = _children(element)
    if children or SchemaField.kind not in element:
        return [leaf for _ in range(children) for leaf in _below(elements, path, repeated, top)]
    physical = _get(element, SchemaField.kind, I32)
    if not 0 <= physical < len(PHYSICAL):
        raise pa.ArrowInvalid("a column has an unknown type")
    width = _get_count(element, SchemaField.width, I32) if SchemaField.width in element else 0
    return [Leaf(".".join(path), physical, width, repeated, _is_decimal(element), top)]


def _children(element: Struct) -> int:
    return _get_count(element, SchemaField.children, I32) if SchemaField.children in element else 0


def _is_decimal(element: Struct) -> bool:
    if element.get(SchemaField.converted) == (I32, _DECIMAL_CONVERTED):
        return True
    kind, logical = element.get(SchemaField.logical, (STRUCT, {}))
    return kind == STRUCT and _DECIMAL_LOGICAL in logical


def _name(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise pa.ArrowInvalid(f"a column has the name {raw[:40]!r}, which is not UTF-8") from None


def _get(tree: Struct, field: int, kind: int) -> Any:
    found, value = tree.get(field, (0, None))
    if found != kind:
        raise _odd()
    return value


def _get_count(tree: Struct, field: int, kind: int) -> int:
    return check_count(_get(tree, field, kind))


def _get_list(tree: Struct, field: int, kind: int) -> list[Any]:
    found, values = _get(tree, field, LIST)
    if values and found != kind:
        raise _odd()
    return list(values)


def _get_structs(tree: Struct, field: int) -> list[Struct]:
    return _get_list(tree, field, STRUCT)


def _odd() -> pa.ArrowInvalid:
    return pa.ArrowInvalid("its footer lacks a field, or has one of another type")


def check_staged(storage: Storage, path: str, size: int, rows: int) -> None:
    """Raise where a file just written is not a whole Parquet file of ``rows`` rows."""
    try:
        footer = read_footer(storage, path, size)
    except pa.ArrowException as error:
        raise _damaged(path, str(error)) from error
    if footer.rows != rows:
        raise _damaged(path, f"it holds {footer.rows} rows instead of {rows}")


def _damaged(path: str, reason: str) -> DamagedFileError:
    return DamagedFileError(
        f"the staged file {path} is damaged: {reason}. Nothing was changed; run the operation again."
    )
