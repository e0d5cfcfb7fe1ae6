"""Find the row groups that may contain one of the source keys, from column statistics.

Source keys are a sorted set, not a range, so a row group whose bounds lie in a gap between keys is skipped too. A row
group is never skipped if its statistics are missing, truncated, NaN or not exactly convertible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.arrow_versions import search_sorted
from fsspeckit.common.bridge import binary_array, single, to_arrow, to_numpy
from fsspeckit.common.types import is_bytes, is_text, is_view
from fsspeckit.core.model import ColumnStats, DataFile
from fsspeckit.core.values.keys import is_increasing, key_type

Ordered: TypeAlias = Any  # a numpy array of numbers, or an Arrow array of binary; pyarrow has no types
Mask = npt.NDArray[np.bool_]
_MAX_SORTED_TEXTS = 250_000
_EXACT_DIGITS = 18
_ALL_DIGITS = Context(prec=80)


@dataclass(frozen=True, slots=True)
class KeySet:
    """One key column of the source: its distinct values, sorted, or the lowest and highest of very many strings."""

    type: pa.DataType
    values: Ordered | None
    bounds: Ordered | None
    has_null: bool
    has_nan: bool

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> KeySet:
        """Collect the values of a source column that has the key type."""
        type_ = key_type(column.type)
        column = column.cast(type_) if column.type != type_ else column
        has_null = column.null_count > 0
        if _is_bytewise(type_) and len(column) - column.null_count > _MAX_SORTED_TEXTS:
            return cls(type_, None, _bounds(column), has_null, False)
        values = ordered(single(column), type_)
        if values is None:
            return cls(type_, None, None, has_null, False)
        if isinstance(values, np.ndarray):
            has_nan = bool(values.dtype.kind == "f" and np.isnan(values).any())
            values = values[~np.isnan(values)] if has_nan else values
            return cls(type_, values if is_increasing(values) else np.unique(values), None, has_null, has_nan)
        distinct = values.unique()
        return cls(type_, distinct.take(pc.sort_indices(distinct)), None, has_null, False)

    def hits(self, lower: Ordered, upper: Ordered) -> Mask:
        """Return for each closed range whether it may contain a key."""
        if self.values is None:
            return (_search(self.bounds, lower, "left") < 2) & (_search(self.bounds, upper, "right") > 0)
        if len(self.values) == 0:
            return np.zeros(len(lower), dtype=bool)
        return _search(self.values, lower, "left") < _search(self.values, upper, "right")


def _bounds(column: pa.ChunkedArray) -> Ordered:
    """Return the lowest and highest of some strings. Chunks are not joined, because a copy of many strings is slow."""
    is_wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type) or is_view(column.type)
    bounds = pc.min_max(column.cast(pa.large_binary() if is_wide else pa.binary())).as_py()
    return binary_array([bounds["min"], bounds["max"]], pa.binary()).cast(pa.large_binary())


def _search(values: Ordered, targets: Ordered, side: Any) -> npt.NDArray[np.int64]:
    if isinstance(values, np.ndarray):
        return np.asarray(np.searchsorted(values, targets, side))
    return to_numpy(search_sorted(values, targets, side)).astype(np.int64)


def ordered(array: pa.Array, type_: pa.DataType) -> Ordered | None:
    """Return values without nulls in a form that sorts like the type, or ``None`` if there is no such form."""
    if is_view(type_):
        array = array.cast(pa.large_binary())
    if array.null_count:
        array = array.drop_null()
    if pa.types.is_boolean(type_) or (pa.types.is_integer(type_) and type_ != pa.uint64()):
        return to_numpy(array.cast(pa.int64()))
    if type_ == pa.uint64():
        return to_numpy(array)
    if pa.types.is_floating(type_):
        return to_numpy(array.cast(pa.float64()))
    if pa.types.is_temporal(type_):
        return to_numpy(array).astype(np.int64)
    if pa.types.is_decimal(type_) and type_.precision <= _EXACT_DIGITS:
        decimals = array.cast(pa.decimal128(type_.precision, type_.scale))
        low = np.frombuffer(decimals.buffers()[1], dtype=np.int64)[0::2]
        return low[decimals.offset : decimals.offset + len(decimals)]
    if pa.types.is_fixed_size_binary(type_):
        array = array.cast(pa.binary())
    return array.cast(pa.large_binary()) if _is_bytewise(type_) else None


def _is_bytewise(type_: pa.DataType) -> bool:
    """Return whether values are ordered byte by byte."""
    return is_text(type_) or is_bytes(type_) or bool(pa.types.is_fixed_size_binary(type_))


def candidate_row_groups(files: Sequence[DataFile], keys: Mapping[str, KeySet]) -> list[tuple[int, ...]]:
    """Return for each file the row groups that may contain a key. An empty tuple proves that the file contains none."""
    counts = [len(file.row_groups) for file in files]
    candidates = np.array([rows > 0 for file in files for rows in file.row_groups], dtype=bool)
    for name, key_set in keys.items():
        candidates &= _may_contain(files, counts, name, key_set)
    stops = np.cumsum(counts)
    by_file = [candidates[stop - count : stop] for stop, count in zip(stops, counts, strict=True)]
    return [tuple(np.flatnonzero(mask).tolist()) for mask in by_file]


def _may_contain(files: Sequence[DataFile], counts: Sequence[int], name: str, keys: KeySet) -> Mask:
    """Return for each row group of all files whether the statistics of one column allow a key in it."""
    maybe = np.ones(sum(counts), dtype=bool)
    if (keys.values is None and keys.bounds is None) or keys.has_nan:
        return maybe
    by_type: dict[pa.DataType, list[tuple[int, Any, Any]]] = {}
    at = 0
    for file, count in zip(files, counts, strict=True):
        stats = file.stats.get(name)
        if stats is not None and stats.native is not None:
            known = by_type.setdefault(stats.native, [])
            known.extend((at + i, lo, hi) for i, lo, hi in _usable(stats, keys.has_null))
        at += count
    for native, bounds in by_type.items():
        _apply(maybe, native, bounds, keys)
    return maybe


def _usable(stats: ColumnStats, null_wanted: bool) -> list[tuple[int, Any, Any]]:
    return [
        (i, lo, hi)
        for i, (lo, hi, nulls) in enumerate(zip(stats.lower, stats.upper, stats.nulls, strict=True))
        if lo is not None and hi is not None and not (null_wanted and nulls != 0) and lo == lo and hi == hi
    ]


def _apply(maybe: Mask, native: pa.DataType, bounds: Sequence[tuple[int, Any, Any]], keys: KeySet) -> None:
    if not bounds:
        return
    at, lower, upper = zip(*bounds, strict=True)
    low, high = bound_values(lower, native, keys.type), bound_values(upper, native, keys.type)
    if low is not None and high is not None:
        maybe[list(at)] = keys.hits(low, high) | contradict(low, high)


def contradict(lower: Ordered, upper: Ordered) -> Mask:
    """Return where the lower bound is above the upper bound. Such bounds are not used."""
    return lower > upper if isinstance(lower, np.ndarray) else to_numpy(pc.greater(lower, upper))


def bound_values(raw: Sequence[Any], native: pa.DataType, type_: pa.DataType) -> Ordered | None:
    """Return raw statistics in the ordered form of the key type, or ``None`` if the conversion is not exact."""
    return _ordered_bounds(lambda: native_array(raw, native), native, type_)


def stored_bounds(stored: pa.Array, native: pa.DataType, type_: pa.DataType) -> Ordered | None:
    """Return statistics of a table of footers, without nulls, like `bound_values`."""
    return _ordered_bounds(lambda: _stored_array(stored, native), native, type_)


def _ordered_bounds(load: Callable[[], pa.Array], native: pa.DataType, type_: pa.DataType) -> Ordered | None:
    try:
        array = load()
        if pa.types.is_binary(native):
            text = _is_bytewise(type_)
            return array.cast(pa.large_binary()) if text else None
        if pa.types.is_decimal(type_) and type_.precision > _EXACT_DIGITS:
            return None
        return ordered(array.cast(type_), type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError):
        return None


def _stored_array(stored: pa.Array, native: pa.DataType) -> pa.Array:
    """Return statistics of a table of footers as an array of the column's native type."""
    if pa.types.is_binary(native):
        return stored
    if pa.types.is_decimal(native):
        return native_array(stored.to_pylist(), native)
    if pa.types.is_floating(native) or pa.types.is_boolean(native):
        return stored.cast(pa.float64()).cast(native, safe=False)
    if pa.types.is_unsigned_integer(native):
        mask = np.uint64(2**native.bit_width - 1)
        return to_arrow(to_numpy(stored).view(np.uint64) & mask).cast(native)
    width = pa.int32() if native.bit_width == 32 else pa.int64()
    return stored.cast(width).view(native)


def native_array(raw: Sequence[Any], native: pa.DataType) -> pa.Array:
    """Return raw statistics as an array of the column's native type."""
    if pa.types.is_decimal(native):
        numbers = [int.from_bytes(v, "big", signed=True) if isinstance(v, bytes) else v for v in raw]
        return pa.array([Decimal(n).scaleb(-native.scale, _ALL_DIGITS) for n in numbers], native)
    if pa.types.is_unsigned_integer(native):
        mask = 2**native.bit_width - 1
        return to_arrow(np.array([v & mask for v in raw], dtype=np.uint64)).cast(native)
    if pa.types.is_binary(native):
        return binary_array(raw, native)
    if pa.types.is_floating(native) or pa.types.is_boolean(native):
        return to_arrow(np.array(raw, dtype=np.float64)).cast(native, safe=False)
    width = pa.int32() if native.bit_width == 32 else pa.int64()
    return to_arrow(np.array(raw, dtype=np.int64)).cast(width).view(native)
