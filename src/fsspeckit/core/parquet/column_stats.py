"""Statistics of column chunks: which of them are proof, and of what. No proof, no statistics.

Bounds count only where the format defines their order, the writer did not cut them, and they have the length that the
type says. A count of nulls that cannot be is as good as none. That the lower bound is not above the upper one is
checked where bounds are compared, since only there their order is known.
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
from fsspeckit.core.parquet.bytes.thrift import BINARY, FALSE, I32, I64, LIST, STRUCT, TRUE, Struct
from fsspeckit.core.parquet.footer import PHYSICAL, Leaf

_EXACT_TEXT_WRITERS = ("parquet-cpp", "DuckDB")
_SURELY_WHOLE = 16
_DIGITS_128 = 38
_TYPE_DEFINED_ORDER = 1
_NUMBERS = {"BOOLEAN": "?", "INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d"}


@dataclass(frozen=True, slots=True)
class RawStats:
    """Statistics of one chunk as bytes; ``exact`` is what the writer says of texts, if anything.

    ``old`` bounds are those of the older fields, whose order is not defined for all types.
    """

    nulls: int | None
    lower: bytes | None
    upper: bytes | None
    exact: bool | None
    old: bool
    bloom: tuple[int, int] | None


def raw_stats(meta: Struct) -> RawStats:
    """What the metadata of a chunk say."""
    found = _of_kind(meta, MetaField.statistics, STRUCT) or {}
    nulls, values = _of_kind(found, StatisticsField.nulls, I64), meta[MetaField.values][1]
    lower, upper = (_of_kind(found, field, BINARY) for field in (StatisticsField.min, StatisticsField.max))
    old = lower is None or upper is None
    if old:
        lower, upper = (_of_kind(found, field, BINARY) for field in (StatisticsField.min_old, StatisticsField.max_old))
    at = _of_kind(meta, MetaField.bloom_at, I64)
    size = _of_kind(meta, MetaField.bloom_size, I32)
    return RawStats(
        nulls if nulls is not None and 0 <= nulls <= values else None,
        lower,
        upper,
        is_exact(found),
        old,
        None if at is None or size is None else (at, size),
    )


def is_exact(statistics: Struct) -> bool | None:
    """Whether the writer says that bounds were not cut."""
    fields = StatisticsField.min_is_exact, StatisticsField.max_is_exact
    told = [statistics.get(field, (0, None))[0] for field in fields]
    if FALSE in told:
        return False
    return True if told == [TRUE, TRUE] else None


def _of_kind(tree: Struct, field: int, kind: int) -> Any:
    found, value = tree.get(field, (0, None))
    return value if found == kind else None


def has_defined_order(orders: tuple[int, Any], leaf: int) -> bool:
    """Whether a footer says that bounds of a column are in the order of its type; ``orders`` is the footer's field."""
    kind, value = orders
    if kind != LIST or value[0] != STRUCT or leaf >= len(value[1]):
        return False
    return _TYPE_DEFINED_ORDER in value[1][leaf]


def column_stats(
    chunks: Sequence[RawStats], leaf: Leaf, native: pa.DataType | None, writer: str, *, ordered: bool
) -> ColumnStats:
    """Statistics of a column, one entry for each chunk; bounds that are not proof are ``None``."""
    bounds = [_bounds(chunk, leaf, native, writer, ordered) for chunk in chunks]
    lower, upper = zip(*bounds, strict=True) if bounds else ((), ())
    return ColumnStats(lower, upper, tuple(chunk.nulls for chunk in chunks), native)


def _bounds(chunk: RawStats, leaf: Leaf, native: pa.DataType | None, writer: str, ordered: bool) -> tuple[Any, Any]:
    if native is None or chunk.lower is None or chunk.upper is None:
        return None, None
    if not (_old_is_defined(native) if chunk.old else ordered):
        return None, None
    lower, upper = (_value(raw, leaf, native) for raw in (chunk.lower, chunk.upper))
    if lower is None or upper is None:
        return None, None
    if PHYSICAL[leaf.physical] == "BYTE_ARRAY" and not _is_whole(chunk, writer):
        return None, None
    return lower, upper


def _old_is_defined(native: pa.DataType) -> bool:
    """Writers always agreed on the order of signed numbers and times."""
    return bool(pa.types.is_signed_integer(native) or pa.types.is_floating(native) or pa.types.is_temporal(native))


def _value(raw: bytes, leaf: Leaf, native: pa.DataType) -> Any:
    """A bound as a Python value; ``None`` where its length is not that of its type."""
    physical = PHYSICAL[leaf.physical]
    form = _NUMBERS.get(physical)
    if form is not None:
        return struct.unpack(form, raw)[0] if len(raw) == struct.calcsize(form) else None
    if physical == "BYTE_ARRAY":
        return raw
    if physical != "FIXED_LEN_BYTE_ARRAY" or len(raw) != leaf.width:
        return None
    return float(np.frombuffer(raw, "<f2")[0]) if native == pa.float32() else raw


def _is_whole(chunk: RawStats, writer: str) -> bool:
    """Some writers cut long texts without saying so."""
    if chunk.exact is not None:
        return chunk.exact
    longest = max(len(chunk.lower or b""), len(chunk.upper or b""))
    return writer.startswith(_EXACT_TEXT_WRITERS) or longest < _SURELY_WHOLE


def native_type(physical: str, logical: str, arrow: pa.DataType) -> pa.DataType | None:
    """The Arrow type of raw statistics, or ``None`` where they cannot be used as proof."""
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
        wide = pa.decimal256 if arrow.precision > _DIGITS_128 else pa.decimal128
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
