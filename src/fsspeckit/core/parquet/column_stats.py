"""Read the statistics of column chunks, and discard those that cannot be trusted for pruning.

Bounds are used only if the format defines their order, the writer did not truncate them, and their length matches the
type. An impossible null count is discarded. The code that compares bounds checks that the lower bound is not above the
upper one, because only that code knows the order of the type.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.model import ColumnStats
from fsspeckit.core.parquet.bytes.format_fields import MetaField, StatisticsField
from fsspeckit.core.parquet.bytes.thrift import BINARY, FALSE, I64, LIST, STRUCT, TRUE, Struct
from fsspeckit.core.parquet.footer import PHYSICAL, Leaf, bloom_of

_EXACT_TEXT_WRITERS = ("parquet-cpp", "DuckDB")
_MIN_TRUNCATED_LENGTH = 16
_MAX_DECIMAL128_DIGITS = 38
_TYPE_DEFINED_ORDER = 1
_NUMBERS = {"BOOLEAN": "?", "INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d"}


@dataclass(frozen=True, slots=True)
class RawStats:
    """Statistics of one chunk as bytes.

    ``exact`` is the writer's flag that bounds are not truncated, if it has one. ``old`` bounds come from the deprecated
    fields, whose order is not defined for all types. ``differ`` is whether the deprecated bounds are not the
    newer ones.
    """

    nulls: int | None
    lower: bytes | None
    upper: bytes | None
    exact: bool | None
    old: bool
    differ: bool
    bloom: tuple[int, int] | None


def raw_stats(meta: Struct) -> RawStats:
    """Return the statistics in the metadata of a chunk."""
    stats = _get(meta, MetaField.statistics, STRUCT) or {}
    nulls, values = _get(stats, StatisticsField.nulls, I64), meta[MetaField.values][1]
    new, old = (
        tuple(_get(stats, field, BINARY) for field in fields)
        for fields in (
            (StatisticsField.min, StatisticsField.max),
            (StatisticsField.min_old, StatisticsField.max_old),
        )
    )
    is_old = None in new
    lower, upper = old if is_old else new
    return RawStats(
        nulls if nulls is not None and 0 <= nulls <= values else None,
        lower,
        upper,
        _is_exact(stats),
        is_old,
        not is_old and bounds_differ(new, old),
        bloom_of(meta),
    )


def bounds_differ(new: Sequence[bytes | None], old: Sequence[bytes | None]) -> bool:
    """Return whether deprecated bounds exist and differ from the newer ones."""
    return any(other is not None and own != other for own, other in zip(new, old, strict=True))


def _is_exact(statistics: Struct) -> bool | None:
    """Return the writer's flag that bounds are not truncated, or None."""
    fields = StatisticsField.min_is_exact, StatisticsField.max_is_exact
    flags = [statistics.get(field, (0, None))[0] for field in fields]
    if FALSE in flags:
        return False
    return True if flags == [TRUE, TRUE] else None


def _get(tree: Struct, field: int, kind: int) -> Any:
    actual, value = tree.get(field, (0, None))
    return value if actual == kind else None


def has_defined_order(orders: tuple[int, Any], leaf: int) -> bool:
    """Return whether the bounds of a leaf have the order of its type. ``orders`` is the column orders of the footer."""
    kind, value = orders
    if kind != LIST or value[0] != STRUCT or leaf >= len(value[1]):
        return False
    return _TYPE_DEFINED_ORDER in value[1][leaf]


def column_stats(
    chunks: Sequence[RawStats], leaf: Leaf, native: pa.DataType | None, writer: str, *, ordered: bool
) -> ColumnStats:
    """Return the statistics of a column, one entry per chunk. Bounds that cannot be trusted are ``None``."""
    bounds = [_bounds(chunk, leaf, native, writer, ordered) for chunk in chunks]
    lower, upper = zip(*bounds, strict=True) if bounds else ((), ())
    return ColumnStats(lower, upper, tuple(chunk.nulls for chunk in chunks), native)


def _bounds(chunk: RawStats, leaf: Leaf, native: pa.DataType | None, writer: str, ordered: bool) -> tuple[Any, Any]:
    if native is None or chunk.lower is None or chunk.upper is None:
        return None, None
    same_order = _has_defined_old_order(native)
    if not (same_order if chunk.old else ordered) or (same_order and chunk.differ):
        return None, None
    lower, upper = (_value(raw, leaf, native) for raw in (chunk.lower, chunk.upper))
    if lower is None or upper is None:
        return None, None
    if PHYSICAL[leaf.physical] == "BYTE_ARRAY" and not _is_untruncated(chunk, writer):
        return None, None
    return lower, upper


def _has_defined_old_order(native: pa.DataType) -> bool:
    """Return whether all writers use the same order in the deprecated fields: for signed numbers and times."""
    return bool(pa.types.is_signed_integer(native) or pa.types.is_floating(native) or pa.types.is_temporal(native))


def _value(raw: bytes, leaf: Leaf, native: pa.DataType) -> Any:
    """Return a bound as a Python value, or ``None`` if its length does not match its type."""
    physical = PHYSICAL[leaf.physical]
    form = _NUMBERS.get(physical)
    if form is not None:
        return struct.unpack(form, raw)[0] if len(raw) == struct.calcsize(form) else None
    if physical == "BYTE_ARRAY":
        return raw
    if physical != "FIXED_LEN_BYTE_ARRAY" or len(raw) != leaf.width:
        return None
    return float(np.frombuffer(raw, "<f2")[0]) if native == pa.float32() else raw


def _is_untruncated(chunk: RawStats, writer: str) -> bool:
    """Return whether bounds are not truncated. Some writers truncate long values without setting the flag."""
    if chunk.exact is not None:
        return chunk.exact
    longest = max(len(chunk.lower or b""), len(chunk.upper or b""))
    return writer.startswith(_EXACT_TEXT_WRITERS) or longest < _MIN_TRUNCATED_LENGTH


def native_type(physical: str, logical: str, arrow: pa.DataType) -> pa.DataType | None:
    """Return the Arrow type of raw statistics, or ``None`` if they cannot be used for pruning."""
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    if isinstance(arrow, pa.BaseExtensionType):
        arrow = arrow.storage_type
    if physical in ("INT32", "INT64"):
        return _native_integer(physical, logical, arrow)
    if physical in ("FLOAT", "DOUBLE") and pa.types.is_floating(arrow):
        return pa.float32() if physical == "FLOAT" else pa.float64()
    if physical == "BOOLEAN":
        return pa.bool_()
    if physical == "BYTE_ARRAY" and not pa.types.is_decimal(arrow):
        return pa.binary()
    if physical == "FIXED_LEN_BYTE_ARRAY" and pa.types.is_fixed_size_binary(arrow):
        return pa.binary()
    if physical == "FIXED_LEN_BYTE_ARRAY" and pa.types.is_decimal(arrow):
        wide = pa.decimal256 if arrow.precision > _MAX_DECIMAL128_DIGITS else pa.decimal128
        return wide(arrow.precision, arrow.scale)
    return pa.float32() if physical == "FIXED_LEN_BYTE_ARRAY" and pa.types.is_float16(arrow) else None


_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}


def _native_integer(physical: str, logical: str, arrow: pa.DataType) -> pa.DataType | None:
    unit = next((short for long, short in _UNITS.items() if f"timeUnit={long}" in logical), None)
    if pa.types.is_timestamp(arrow):
        return None if unit is None else pa.timestamp(unit, arrow.tz)
    if pa.types.is_time(arrow):
        return None if unit is None else (pa.time32(unit) if unit == "ms" else pa.time64(unit))
    if pa.types.is_date(arrow):
        return pa.date32() if physical == "INT32" else None
    if pa.types.is_integer(arrow):
        unsigned = pa.types.is_unsigned_integer(arrow)
        if physical == "INT32":
            return pa.uint32() if unsigned else pa.int32()
        return pa.uint64() if unsigned else pa.int64()
    if pa.types.is_decimal(arrow) and arrow.precision <= 18:
        return pa.decimal128(arrow.precision, arrow.scale)
    return arrow if pa.types.is_duration(arrow) else None
