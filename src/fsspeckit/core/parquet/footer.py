"""Read and check the footer of a Parquet file without pyarrow. No data is decoded.

pyarrow crashes the process on some damaged footers when it is asked for a column chunk. So pyarrow gets only footers
that were checked here, to build an Arrow schema and to decode pages, and is never asked for a column chunk. The check
covers numbers of rows and values, sizes and offsets. Damage raises `pa.ArrowInvalid`; the caller adds the path.
Statistics are read in `fsspeckit.core.parquet.column_stats`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.arrow_versions import reader_options
from fsspeckit.common.errors import DamagedFileError
from fsspeckit.core.parquet.bytes.format_fields import (
    MAGIC,
    TRAILER,
    ChunkField,
    FileField,
    GroupField,
    MetaField,
    SchemaField,
    SortField,
    chunks_of,
    groups_of,
    key_values_of,
)
from fsspeckit.core.parquet.bytes.thrift import BINARY, FALSE, I32, I64, LIST, STRUCT, TRUE, Struct, read_struct
from fsspeckit.core.storage import Entry, Storage

PHYSICAL = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
"""Names of physical types, by their numbers in footers."""
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4_LEGACY", "ZSTD", "LZ4")
"""Names of codecs, by their numbers in footers. LZ4_LEGACY can be read but not written."""
INT96_UNIT = "us"
"""Unit of INT96 timestamps of old writers. As nanoseconds, years after 2262 would overflow."""
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
ENCRYPTED_MAGIC = b"PARE"
"""First and last bytes of a file with an encrypted footer."""
_FIRST_READ, _FIRST_LOCAL_READ = 64 * 1024, 4 * 1024  # a second read costs a round trip only on remote storage
_MAX_DEPTH = 100
_MAX_FOOTER = 256 * 1024 * 1024  # bytes; as a tree of fields, a footer takes up to a hundred times its size in memory
_MAX_PAGE_VALUES, _MIN_PAGE_BYTES = 1 << 31, 8  # every page has fewer values and more bytes
_REPEATED = 2
_DECIMAL_CONVERTED, _DECIMAL_LOGICAL = 5, 5
_ENCRYPTED = "it is encrypted, which fsspeckit cannot read"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column of a file's schema. ``top`` is the number of its top-level column.

    ``width`` is the length of fixed-length values, else zero.
    """

    path: str
    physical: int
    width: int
    is_repeated: bool
    is_decimal: bool
    top: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """The metadata of one column chunk."""

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
    """A checked footer. ``data_end`` is the offset of the footer in the file."""

    def __init__(self, data: bytes, data_end: int) -> None:
        self.data, self.data_end = data, data_end
        self.tree, end = read_struct(data)
        _check_fields(self.tree)
        if end != len(data):
            raise pa.ArrowInvalid("its footer has extra bytes at the end")
        self.leaves = _leaves(self.tree)
        self.groups = groups_of(self.tree)
        for group in self.groups:
            _check_group(group, self.leaves, data_end)
        self.rows = check_row_sum(self.tree[FileField.rows][1], sum(map(self.group_rows, range(len(self.groups)))))

    def __reduce__(self) -> tuple[Callable[[bytes, int], Footer], tuple[bytes, int]]:
        return Footer, (self.data, self.data_end)

    @cached_property
    def key_values(self) -> dict[bytes, bytes]:
        """Return the key-value metadata."""
        return key_values_of(self.tree)

    @property
    def writer(self) -> str:
        """Return the name of the program that wrote the file, or an empty string."""
        return writer_of(self.tree)

    def group_rows(self, group: int) -> int:
        """Return the number of rows of a row group."""
        return int(self.groups[group][GroupField.rows][1])

    def chunks(self, group: int) -> list[Chunk]:
        """Return the column chunks of a row group, one per leaf."""
        chunks = chunks_of(self.groups[group])
        return [_chunk(chunk, leaf) for chunk, leaf in zip(chunks, self.leaves, strict=True)]

    def sorting(self, group: int) -> list[pq.SortingColumn]:
        """Return the sort order of a row group as its writer declared it."""
        return [
            pq.SortingColumn(
                by[SortField.column][1],
                descending=by[SortField.descending][0] == TRUE,
                nulls_first=by[SortField.nulls_first][0] == TRUE,
            )
            for by in sorting_of(self.groups[group])
        ]

    def for_pyarrow(self) -> pq.FileMetaData:
        """Return the footer as pyarrow metadata, to open the file with. Do not ask it for a column chunk."""
        return open_footer(self.data).metadata


def read_footer(storage: Storage, path: str, size: int) -> Footer:
    """Read and check the footer of a file. Raise `pa.ArrowInvalid` on damage."""
    data = read_footer_bytes(storage, path, size)
    return Footer(data, size - len(data) - TRAILER)


def read_footer_bytes(storage: Storage, path: str, size: int) -> bytes:
    """Read the bytes of a file's footer. Only the length is checked."""
    return read_end(storage, path, size)[0]


def read_end(storage: Storage, path: str, size: int, at_least: int = 0) -> tuple[bytes, bytes]:
    """Return the bytes of a file's footer, and the end of the file that was read for it."""
    first = _FIRST_LOCAL_READ if storage.is_local else _FIRST_READ
    tail = storage.read_tail(path, max(first, at_least))
    length = footer_length(tail, size)
    if length > len(tail):
        tail = storage.read_tail(path, length)
    return tail[-length:-TRAILER], tail


def footer_length(tail: bytes, size: int) -> int:
    """Return the length of the footer at the end of a file of this size, with its trailer."""
    if tail[-4:] == ENCRYPTED_MAGIC:
        raise pa.ArrowInvalid(_ENCRYPTED)
    if len(tail) < TRAILER + len(MAGIC) or tail[-4:] != MAGIC:
        raise pa.ArrowInvalid("it does not end with the Parquet magic" if tail else "it is empty")
    length = int.from_bytes(tail[-8:-4], "little") + TRAILER
    if length + len(MAGIC) > size:
        raise pa.ArrowInvalid("its footer is longer than the file")
    if length > _MAX_FOOTER:
        raise pa.ArrowInvalid(f"its footer has {length} bytes, more than fsspeckit reads ({_MAX_FOOTER})")
    return length


def open_footer(data: bytes) -> pq.ParquetReader:
    """Return a pyarrow reader of a file that consists of only the footer."""
    file = b"".join((MAGIC, data, len(data).to_bytes(4, "little"), MAGIC))
    return open_reader(pa.BufferReader(file), pre_buffer=False)


def open_reader(source: pa.NativeFile, **options: Any) -> pq.ParquetReader:
    """Open a low-level pyarrow reader. `pq.ParquetFile` also builds an index of column names, which costs more."""
    reader = pq.ParquetReader()
    reader.open(source, coerce_int96_timestamp_unit=INT96_UNIT, **reader_options(), **options)
    return reader


def writer_of(tree: Struct) -> str:
    """Return the name of the program that wrote a file."""
    kind, writer = tree.get(FileField.created_by, (BINARY, b""))
    return str(writer, "utf-8", "replace") if kind == BINARY else ""


def check_not_encrypted(tree: Struct) -> None:
    """Raise if the footer, or its part after the row groups, has encryption fields."""
    if tree.keys() & {FileField.encryption, FileField.signing}:
        raise pa.ArrowInvalid(_ENCRYPTED)


def check_row_sum(total: int, rows: int) -> int:
    """Return the sum of the row groups' rows. Raise if the total in the footer differs; some writers always write 0."""
    if total not in (rows, 0):
        raise pa.ArrowInvalid(f"its footer has {total} rows, but its row groups have {rows}")
    return rows


def check_values(values: int, rows: int, is_repeated: bool) -> None:
    """Raise if a chunk has a wrong number of values: one per row, or at least one for a repeated column."""
    if values < rows or (values > rows and not is_repeated):
        raise pa.ArrowInvalid(f"a row group of {rows} rows has a column of {values} values")


def check_offsets(
    rows: int, data_offset: int, dictionary_offset: int, uncompressed: int, size: int, data_end: int
) -> None:
    """Raise if the pages of a chunk are not inside the file. Offsets of an empty chunk are not checked."""
    start = first_page(data_offset, dictionary_offset)
    if rows and not len(MAGIC) <= start <= data_offset <= start + size <= data_end:
        raise pa.ArrowInvalid("a column chunk is not inside the file")
    if size < 0 or uncompressed < 0:
        raise pa.ArrowInvalid("a column chunk has a negative size")
    if rows > _MAX_PAGE_VALUES * (size // _MIN_PAGE_BYTES + 1):
        raise pa.ArrowInvalid(f"a column chunk of {size} bytes cannot have {rows} values")


def first_page(data_offset: int, dictionary_offset: int) -> int:
    """Return the offset of a chunk's first page: the dictionary page, if there is one, is before the data pages."""
    return dictionary_offset if 0 < dictionary_offset < data_offset else data_offset


def check_count(value: int) -> int:
    """Return a number of rows, values or bytes. Raise if it is negative."""
    if value < 0:
        raise pa.ArrowInvalid("its footer has a negative count or size")
    return int(value)


def _check_fields(tree: Struct) -> None:
    check_not_encrypted(tree)
    _get(tree, FileField.version, I32)
    _get(tree, FileField.rows, I64)
    _get_structs(tree, FileField.groups)


def _check_group(group: Struct, leaves: Sequence[Leaf], data_end: int) -> None:
    rows = _get_count(group, GroupField.rows, I64)
    _get_count(group, GroupField.uncompressed_size, I64)
    chunks = _get_structs(group, GroupField.columns)
    if len(chunks) != len(leaves):
        raise pa.ArrowInvalid(f"a row group has {len(chunks)} columns, but the schema has {len(leaves)}")
    for chunk, leaf in zip(chunks, leaves, strict=True):
        _check_chunk(chunk, leaf, rows, data_end)
    for by in sorting_of(group):
        flags = (by.get(field, (0, None))[0] for field in (SortField.descending, SortField.nulls_first))
        if not 0 <= _get(by, SortField.column, I32) < len(leaves) or not {*flags} <= {TRUE, FALSE}:
            raise _invalid_field()


def sorting_of(group: Struct) -> list[Struct]:
    """Return the sorting columns of a row group."""
    return _get_structs(group, GroupField.sorting) if GroupField.sorting in group else []


def _check_chunk(chunk: Struct, leaf: Leaf, rows: int, data_end: int) -> None:
    if chunk.keys() & {ChunkField.crypto, ChunkField.encrypted}:
        raise pa.ArrowInvalid(_ENCRYPTED)
    if ChunkField.file_path in chunk:
        raise pa.ArrowInvalid("its data is in another file")
    meta: Struct = _get(chunk, ChunkField.meta, STRUCT)
    if _get(meta, MetaField.kind, I32) != leaf.physical or _path(meta) != leaf.path:
        raise pa.ArrowInvalid("a column chunk does not match the schema")
    if not 0 <= _get(meta, MetaField.codec, I32) < len(CODECS):
        raise pa.ArrowInvalid("a column chunk has an unknown codec")
    check_values(_get_count(meta, MetaField.values, I64), rows, leaf.is_repeated)
    dictionary_offset = _get(meta, MetaField.dictionary_offset, I64) if MetaField.dictionary_offset in meta else 0
    sizes = _get(meta, MetaField.uncompressed_size, I64), _get(meta, MetaField.compressed_size, I64)
    check_offsets(rows, _get(meta, MetaField.data_offset, I64), dictionary_offset, *sizes, data_end)
    _get_list(meta, MetaField.encodings, I32)
    check_bloom(bloom_of(meta), data_end)


def bloom_of(meta: Struct) -> tuple[int, int] | None:
    """Return the offset and size of a chunk's Bloom filter, or None. Some writers do not write the size."""
    if MetaField.bloom_offset not in meta or MetaField.bloom_size not in meta:
        return None
    return _get(meta, MetaField.bloom_offset, I64), _get(meta, MetaField.bloom_size, I32)


def check_bloom(bloom: tuple[int, int] | None, data_end: int) -> None:
    """Raise if a Bloom filter is not inside the file."""
    if bloom is not None and not (bloom[0] >= len(MAGIC) and bloom[1] >= 0 and sum(bloom) <= data_end):
        raise pa.ArrowInvalid("a Bloom filter is not inside the file")


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
        uncompressed=meta[MetaField.uncompressed_size][1],
        compressed=meta[MetaField.compressed_size][1],
        start=first_page(meta[MetaField.data_offset][1], meta.get(MetaField.dictionary_offset, (0, 0))[1]),
        has_dictionary=MetaField.dictionary_offset in meta,
        has_index=ChunkField.column_index_offset in chunk,
        has_bloom=MetaField.bloom_offset in meta,
    )


def _leaves(tree: Struct) -> tuple[Leaf, ...]:
    elements = _get_structs(tree, FileField.schema)
    if not elements:
        raise pa.ArrowInvalid("its footer has no schema")
    rest = iter(elements[1:])
    leaves = [leaf for top in range(_children(elements[0])) for leaf in _leaves_below(rest, (), False, top)]
    if next(rest, None) is not None:
        raise pa.ArrowInvalid("its schema has too many elements")
    return tuple(leaves)


def _leaves_below(elements: Iterator[Struct], above: tuple[str, ...], repeated: bool, top: int) -> list[Leaf]:
    """Return the leaves of the next schema element. A group is listed before its members."""
    element = next(elements, None)
    if element is None:
        raise pa.ArrowInvalid("its schema has too few elements")
    if len(above) >= _MAX_DEPTH:
        raise pa.ArrowInvalid("its schema is nested too deeply")
    path = (*above, _name(_get(element, SchemaField.name, BINARY)))
    repeated = repeated or element.get(SchemaField.repetition) == (I32, _REPEATED)
    children = _children(element)
    if children or SchemaField.kind not in element:
        return [leaf for _ in range(children) for leaf in _leaves_below(elements, path, repeated, top)]
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
    actual, value = tree.get(field, (0, None))
    if actual != kind:
        raise _invalid_field()
    return value


def _get_count(tree: Struct, field: int, kind: int) -> int:
    return check_count(_get(tree, field, kind))


def _get_list(tree: Struct, field: int, kind: int) -> list[Any]:
    actual, values = _get(tree, field, LIST)
    if values and actual != kind:
        raise _invalid_field()
    return list(values)


def _get_structs(tree: Struct, field: int) -> list[Struct]:
    return _get_list(tree, field, STRUCT)


def _invalid_field() -> pa.ArrowInvalid:
    return pa.ArrowInvalid("a field of its footer is missing or has the wrong type")


def check_staged(storage: Storage, path: str, entry: Entry | None, rows: int) -> tuple[Entry, bytes]:
    """Return the entry and the footer of a staged file. Raise if it is not a whole Parquet file with ``rows`` rows."""
    try:
        if entry is None:
            tail, entry = storage.read_tail_and_stat(path, _FIRST_READ)
            if entry is None:
                raise FileNotFoundError(path)
            length = footer_length(tail, entry.size)
            data = (tail if length <= len(tail) else storage.read_tail(path, length))[-length:-TRAILER]
            footer = Footer(data, entry.size - length)
        else:
            footer = read_footer(storage, path, entry.size)
    except pa.ArrowException as error:
        raise _damaged(path, str(error)) from error
    if footer.rows != rows:
        raise _damaged(path, f"it has {footer.rows} rows instead of {rows}")
    return entry, footer.data


def _damaged(path: str, reason: str) -> DamagedFileError:
    return DamagedFileError(
        f"The staged file {path} is damaged: {reason}. Nothing was changed. Run the operation again."
    )
