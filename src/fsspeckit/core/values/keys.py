"""Compare keys: this module defines when two keys are equal, and how values are ordered.

Every key column is converted to a comparable form in which equal keys have equal bits, independent of time zone, unit,
string type and dictionary, with one NaN and one zero. A `KeyEncoder` maps the key tuples of the source to integer
codes. A `KeyIndex` finds the source row with the same key as a target row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import to_arrow, to_numpy, valid_mask
from fsspeckit.common.casting import UUID_STORAGE, uuid_bytes
from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.common.types import is_text, unwrapped
from fsspeckit.core.model import RowNumbers
from fsspeckit.core.values.text_prefilter import TextFilter
from fsspeckit.core.values.text_table import TextTable, codes_of, positions_in

Codes = npt.NDArray[np.int64]
_NO_ROWS: RowNumbers = np.empty(0, dtype=np.int64)
_MAX_CODE = 2**62
FEW_TEXTS = 100_000  # with more keys, the bitmap of a TextFilter is large and filters few rows
_SIGN = 2**63
_SMALL_DECIMAL = 18
_SEARCH_FACTOR = 4  # with this many more keys than rows, a binary search is faster than the hash table of index_in


def key_type(type_: pa.DataType, name: str = "") -> pa.DataType:
    """Return the type in which keys of ``type_`` are compared. Raise for nested types, with the column's name."""
    if pa.types.is_dictionary(type_):
        return key_type(type_.value_type, name)
    if isinstance(type_, pa.BaseExtensionType):
        return key_type(type_.storage_type, name)
    if pa.types.is_nested(type_):
        what = f"the column {name!r}" if name else "a column"
        raise SchemaMismatchError(f"{what} of type {type_} cannot be a key; use flat columns as key_columns")
    return type_


def check_sortable(field: pa.Field, parameter: str) -> None:
    """Raise if the type of a column has no order. The message contains the parameter that names the column."""
    type_ = unwrapped(field.type)
    if pa.types.is_nested(type_) or pa.types.is_interval(type_):
        raise SchemaMismatchError(
            f"{parameter} names {field.name!r} of type {field.type}, which has no order; use flat columns"
        )


def in_key_type(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Convert a key column to the type in which keys are compared, without dictionaries and extension types."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_text(column.type) and type_.equals(UUID_STORAGE):
        return _uuids(column)
    return column if column.type == type_ else column.cast(type_)


def _uuids(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts as the bytes of UUIDs: the only keys of 16 bytes that texts are compared with."""
    try:
        return pa.chunked_array([uuid_bytes(chunk.cast(pa.string())) for chunk in texts.chunks], UUID_STORAGE)
    except pa.ArrowInvalid as error:
        raise SchemaMismatchError(f"a key cannot be compared with UUIDs: {error}. Correct the row.") from error


def comparable(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Convert a key column to the form in which equal keys have equal bits."""
    column = in_key_type(column, type_)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return column.cast(pa.large_binary() if pa.types.is_large_string(type_) else pa.binary())
    if pa.types.is_binary_view(type_) or pa.types.is_large_binary(type_):
        return column.cast(pa.large_binary())
    if pa.types.is_floating(type_):
        return canonical_floats(column.cast(pa.float64()))
    if pa.types.is_decimal(type_):
        return _decimal_bytes(column)
    if pa.types.is_boolean(type_) or pa.types.is_null(type_):
        return column.cast(pa.int64())
    if pa.types.is_integer(type_):
        return _view(column, pa.int64()) if type_ == pa.uint64() else column.cast(pa.int64())
    if pa.types.is_temporal(type_):
        return _view(column, pa.int32() if type_.bit_width == 32 else pa.int64()).cast(pa.int64())
    return column


def canonical_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the 64-bit patterns of floats, with one NaN and one zero."""
    return pa.chunked_array([_canonical_chunk(chunk) for chunk in column.chunks], pa.int64())


def _canonical_chunk(chunk: pa.Array) -> pa.Array:
    values = np.array(to_numpy(chunk), dtype=np.float64)
    values[np.isnan(values)] = np.nan
    values += 0.0
    return to_arrow(values.view(np.int64), valid_mask(chunk) if chunk.null_count else None)


def _decimal_bytes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    wide = column.type
    if wide.bit_width < 128:
        wide = pa.decimal128(wide.precision, wide.scale)
    return _view(column.cast(wide), pa.binary(wide.byte_width))


def _view(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([chunk.view(type_) for chunk in column.chunks], type_)


def _dictionary(column: pa.ChunkedArray, nulls: Literal["mask", "encode"] = "mask") -> tuple[pa.Array, Codes]:
    """Return the distinct values of a column and the code of each row (-1 for null, unless nulls are encoded)."""
    # All chunks share one dictionary; unify_dictionaries would hash it once per chunk.
    encoded = column.dictionary_encode()
    if encoded.num_chunks == 0:
        return pa.nulls(0, column.type), np.empty(0, dtype=np.int64)
    values = encoded.chunk(0).dictionary
    codes = np.concatenate([codes_of(chunk.indices) for chunk in encoded.chunks])
    if nulls == "encode" and column.null_count:
        codes[codes < 0] = len(values)
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
    return values, codes


@dataclass(frozen=True)
class _KeyColumnCodes:
    """The known values of one key column, to combine its codes with those of the columns before it."""

    values: pa.Array | pa.ChunkedArray
    compressed: Codes | None

    @cached_property
    def _table(self) -> TextTable | None:
        texts = self.values.slice(0, len(self.values) - self.values.null_count)  # a null is the last value
        return TextTable(texts) if TextTable.supports(texts) else None

    def _find(self, column: pa.ChunkedArray) -> Codes:
        if self._table is None:
            return positions_in(column, self.values)
        if column.null_count == 0:
            return self._table.find(column)
        found = np.full(len(column), len(self.values) - 1 if self.values.null_count else -1, dtype=np.int64)
        found[valid_mask(column)] = self._table.find(column.drop_null())
        return found

    def apply(self, codes: Codes | None, column: pa.ChunkedArray) -> Codes | None:
        """Return the codes with one more column, or ``None`` if no value is known, as in most files of a merge."""
        own = self._find(column)
        if bool((own < 0).all()):
            return None
        if codes is None:
            return own
        combined = np.where((codes < 0) | (own < 0), -1, codes * len(self.values) + own)
        return combined if self.compressed is None else _locate(self.compressed, combined)


def _locate(sorted_codes: Codes, wanted: Codes) -> Codes:
    """Return the position of each wanted code in the sorted codes, or -1."""
    if len(sorted_codes) == 0:
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(sorted_codes, wanted), len(sorted_codes) - 1)
    return np.where(sorted_codes[at] == wanted, at, -1)


class KeyEncoder:
    """Maps key tuples to integer codes. ``codes`` are those of the given rows; other keys are unknown.

    A single integer column without nulls is its own code, and a single column that is ``unique`` is its own
    dictionary. All other keys are encoded with dictionaries.
    """

    def __init__(self, columns: Sequence[pa.ChunkedArray], *, unique: bool = False) -> None:
        self._columns: list[_KeyColumnCodes] = []
        self.dense = False
        self.identity = len(columns) == 1 and pa.types.is_int64(columns[0].type) and columns[0].null_count == 0
        if self.identity:
            self.codes: Codes = to_numpy(columns[0])
            return
        if unique and len(columns) == 1 and columns[0].null_count == 0:
            self._columns.append(_KeyColumnCodes(columns[0], None))
            self.codes, self.dense = np.arange(len(columns[0])), True
            return
        codes: Codes | None = None
        for column in columns:
            codes = self._learn(codes, column)
        self.codes = codes if codes is not None else np.empty(0, dtype=np.int64)

    def _learn(self, codes: Codes | None, column: pa.ChunkedArray) -> Codes:
        values, own = _dictionary(column, nulls="encode")
        if codes is None:
            self._columns.append(_KeyColumnCodes(values, None))
            return own
        combined = codes * max(1, len(values)) + own
        compressed = None
        if len(combined) and int(combined.max()) > _MAX_CODE // max(1, len(combined)):
            compressed, combined = np.unique(combined, return_inverse=True)
        self._columns.append(_KeyColumnCodes(values, compressed))
        return combined

    def transform(self, columns: Sequence[pa.ChunkedArray]) -> tuple[Codes, npt.NDArray[np.bool_] | None]:
        """Return the codes of other rows, and which rows have a known code (``None``: all)."""
        if self.identity:
            column = columns[0]
            if column.null_count == 0:
                return to_numpy(column), None
            return codes_of(column), valid_mask(column)
        codes: Codes | None = None
        for known, column in zip(self._columns, columns, strict=True):
            codes = known.apply(codes, column)
            if codes is None:
                return np.full(len(column), -1), np.zeros(len(column), dtype=bool)
        assert codes is not None
        return codes, codes >= 0


class KeyIndex:
    """Finds source rows by key. Source keys must be unique. ``rows`` are their row numbers (default 0, 1, 2 ...)."""

    def __init__(self, columns: Sequence[pa.ChunkedArray], rows: RowNumbers | None = None) -> None:
        self._encoder = KeyEncoder(columns, unique=True)
        codes = self._encoder.codes
        self._order: RowNumbers | None = None if _is_sorted(codes) else np.argsort(codes, kind="stable")
        self._keys = codes if self._order is None else codes[self._order]
        self._rows = rows
        self._filter = TextFilter(columns[0]) if _is_few_texts(columns) else None

    def __len__(self) -> int:
        return len(self._keys)

    def lookup(self, columns: Sequence[pa.ChunkedArray]) -> tuple[RowNumbers, RowNumbers]:
        """Return the positions of the rows that match, ascending, and the source row of each."""
        if len(self) == 0 or len(columns[0]) == 0:
            return _NO_ROWS, _NO_ROWS
        if self._filter is not None:
            return self._lookup_texts(columns[0])
        return self._lookup(columns)

    def _lookup_texts(self, column: pa.ChunkedArray) -> tuple[RowNumbers, RowNumbers]:
        assert self._filter is not None
        candidates = self._filter.candidates(column)
        if len(candidates) == 0:
            return _NO_ROWS, _NO_ROWS
        positions, found = self._lookup([column.take(to_arrow(candidates))])
        return candidates[positions], found

    def _lookup(self, columns: Sequence[pa.ChunkedArray]) -> tuple[RowNumbers, RowNumbers]:
        codes, known = self._encoder.transform(columns)
        if known is None and _is_sorted(codes):
            positions, found = self._merge_sorted(codes)
        else:
            positions, found = self._probe(codes, known)
        if self._order is not None:
            found = self._order[found]
        return positions, found if self._rows is None else self._rows[found]

    def _merge_sorted(self, codes: Codes) -> tuple[RowNumbers, RowNumbers]:
        start = int(np.searchsorted(self._keys, codes[0], "left"))
        stop = int(np.searchsorted(self._keys, codes[-1], "right"))
        keys = self._keys[start:stop]
        if len(keys) == 0:
            return _NO_ROWS, _NO_ROWS
        if len(keys) > len(codes):
            at = np.searchsorted(keys, codes)
            positions = np.flatnonzero(keys[np.minimum(at, len(keys) - 1)] == codes)
            return positions, at[positions] + start
        left = np.searchsorted(codes, keys, "left")
        if is_increasing(codes):
            hit = np.flatnonzero(codes[np.minimum(left, len(codes) - 1)] == keys)
            return left[hit], hit + start
        counts = np.searchsorted(codes, keys, "right") - left
        found = np.repeat(np.arange(start, stop), counts)
        within = np.arange(len(found)) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(left, counts) + within, found

    def _probe(self, codes: Codes, known: npt.NDArray[np.bool_] | None) -> tuple[RowNumbers, RowNumbers]:
        positions = np.arange(len(codes)) if known is None else np.flatnonzero(known)
        wanted = codes if known is None else codes[positions]
        if len(wanted) == 0:
            return _NO_ROWS, _NO_ROWS
        if self._encoder.dense:
            return positions, wanted
        start = int(np.searchsorted(self._keys, wanted.min(), "left"))
        keys = self._keys[start : int(np.searchsorted(self._keys, wanted.max(), "right"))]
        if len(keys) > _SEARCH_FACTOR * len(wanted):
            at = _locate(keys, wanted)
        else:
            at = positions_in(to_arrow(wanted), to_arrow(keys))
        hit = at >= 0
        return positions[hit], at[hit] + start


def _is_few_texts(columns: Sequence[pa.ChunkedArray]) -> bool:
    text = len(columns) == 1 and columns[0].type in (pa.binary(), pa.large_binary())
    return bool(text and len(columns[0]) <= FEW_TEXTS and columns[0].null_count == 0)


def is_increasing(codes: npt.NDArray[Any]) -> bool:
    """Return whether every value is above the previous one."""
    return bool(np.all(codes[1:] > codes[:-1]))


def _is_sorted(codes: Codes) -> bool:
    return bool(np.all(codes[1:] >= codes[:-1]))


def duplicate_codes(codes: Codes) -> tuple[Codes, Codes]:
    """Return the codes that occur more than once, and how often."""
    ordered = codes if _is_sorted(codes) else np.sort(codes)
    if not np.any(ordered[1:] == ordered[:-1]):
        return _NO_ROWS, _NO_ROWS
    unique, counts = np.unique(ordered, return_counts=True)
    return unique[counts > 1], counts[counts > 1]


def order_rank(column: pa.ChunkedArray) -> Codes:
    """Return numbers in the order of the values, nulls lowest, NaN highest. Equal values have equal numbers."""
    column = sortable(column)
    if pa.types.is_int64(column.type) and column.null_count == 0:
        return to_numpy(column)
    values, codes = _dictionary(column)
    ranks = np.empty(len(values) + 1, dtype=np.int64)
    ranks[to_numpy(pc.sort_indices(values))] = np.arange(len(values))
    ranks[-1] = -1
    return ranks[codes]


def sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as ``int64`` or ``large_binary`` with the order of its values. Nulls stay, NaN is highest."""
    type_ = key_type(column.type)
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    column = column.cast(type_) if column.type != type_ else column
    if pa.types.is_floating(type_):
        return _sortable_floats(column)
    if pa.types.is_decimal(type_):
        return pa.chunked_array([_sortable_decimals(chunk) for chunk in column.chunks], _decimal_form(type_))
    if type_ == pa.uint64():
        chunks = [(to_numpy(chunk) ^ np.uint64(_SIGN)).view(np.int64) for chunk in column.chunks]
        valid = [valid_mask(chunk) if chunk.null_count else None for chunk in column.chunks]
        return pa.chunked_array([to_arrow(c, v) for c, v in zip(chunks, valid, strict=True)], pa.int64())
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_null(type_):
        return column.cast(pa.int64())
    if pa.types.is_temporal(type_) and not pa.types.is_interval(type_):
        return _view(column, pa.int32() if type_.bit_width == 32 else pa.int64()).cast(pa.int64())
    if pa.types.is_interval(type_):
        raise SchemaMismatchError(f"a column of type {type_} has no order; use other columns to order by")
    large = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
    return column.cast(pa.large_binary()) if large else column.cast(pa.binary()).cast(pa.large_binary())


def is_bytewise(type_: pa.DataType) -> bool:
    """Return whether the sortable form of a type is bytes and not numbers."""
    return bool(sortable(pa.chunked_array([], key_type(type_))).type == pa.large_binary())


def _decimal_form(type_: pa.DataType) -> pa.DataType:
    return pa.int64() if type_.precision <= _SMALL_DECIMAL else pa.large_binary()


def _sortable_decimals(chunk: pa.Array) -> pa.Array:
    """Return small decimals as numbers, and others as big-endian bytes with the sign bit flipped."""
    if chunk.type.bit_width < 128:
        chunk = chunk.cast(pa.decimal128(chunk.type.precision, chunk.type.scale))
    width, data, valid = chunk.type.byte_width, chunk.buffers()[1], valid_mask(chunk) if chunk.null_count else None
    if _decimal_form(chunk.type) == pa.int64():
        words = np.frombuffer(data, np.int64) if len(chunk) else np.empty(0, np.int64)
        step = width // 8
        return to_arrow(words[0::step][chunk.offset : chunk.offset + len(chunk)], valid)
    count = chunk.offset + len(chunk)
    digits = np.frombuffer(data, np.uint8, count * width).reshape(count, width)[chunk.offset :, ::-1].copy()
    digits[:, 0] ^= 0x80
    offsets = np.arange(len(chunk) + 1, dtype=np.int64) * width
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        pa.large_binary(), len(chunk), [bits, pa.py_buffer(offsets), pa.py_buffer(digits.tobytes())]
    )


def _sortable_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return signed integers in the order of the floats."""
    chunks = []
    for chunk in canonical_floats(column.cast(pa.float64())).chunks:
        bits = to_numpy(chunk)
        chunks.append(
            to_arrow(bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF), valid_mask(chunk) if chunk.null_count else None)
        )
    return pa.chunked_array(chunks, pa.int64())


def last_of_each(codes: Codes, ranks: Sequence[Codes]) -> RowNumbers:
    """Return the ascending row numbers of the row to keep for each code: highest ranks, then the later row."""
    order = np.argsort(codes)
    ordered = codes[order]
    same = ordered[1:] == ordered[:-1]
    if not same.any():
        return np.arange(len(codes))
    repeated = order[np.append(same, False) | np.append(False, same)]
    repeated = repeated[np.lexsort((repeated, *(rank[repeated] for rank in reversed(ranks)), codes[repeated]))]
    keep = np.ones(len(codes), dtype=bool)
    keep[repeated[:-1][codes[repeated[1:]] == codes[repeated[:-1]]]] = False
    return np.flatnonzero(keep)


def missing_sequence(column: pa.ChunkedArray) -> tuple[int, bool]:
    """Return how many values of a column that orders changes are NULL, and whether one is NaN."""
    type_ = unwrapped(column.type)
    has_nan = pa.types.is_floating(type_) and pc.any(pc.is_nan(column.cast(type_).cast(pa.float64()))).as_py()
    return column.null_count, bool(has_nan)
