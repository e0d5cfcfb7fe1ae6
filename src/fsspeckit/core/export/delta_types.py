"""Types and statistics of Delta Lake: what a column is called in its schema, and how bounds are written."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from fsspeckit.common.errors import UnsupportedDataError
from fsspeckit.core.export.simple_types import TITLES, no_type, simple_type

TITLE = TITLES["delta"]
TIMESTAMP_NTZ = "timestamp_ntz"
_INVALID_IN_NAMES = frozenset(" ,;{}()\n\t=")
_LONGEST_TEXT = 64
_MOST_DIGITS = 15
"""A number of so many digits is the same after a conversion to a double and back."""
_MOST_DECIMALS = 4
"""A number with more decimals can be written with an exponent, which not all readers of decimals accept."""
_WITH_BOUNDS = {"byte", "short", "integer", "long", "date", "timestamp", TIMESTAMP_NTZ, "string"}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - times without a zone are added to it
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6}


def check_names(names: list[str]) -> None:
    """Raise if a column cannot have its name in a Delta table."""
    bad = [name for name in names if not name or _INVALID_IN_NAMES & set(name)]
    if bad:
        raise UnsupportedDataError(
            f"Delta Lake does not allow spaces, tabs, line ends or one of ,;{{}}()= in the name of a column: {bad}. "
            "Nothing was changed. Rename the columns, or export the dataset as Iceberg."
        )
    lower = [name.lower() for name in names]
    twice = sorted({name for name in names if lower.count(name.lower()) > 1})
    if twice:
        raise UnsupportedDataError(
            f"Delta Lake does not distinguish upper and lower case in the names of columns: {twice}. "
            "Nothing was changed. Rename all but one of them."
        )


def delta_type(name: str, kind: pa.DataType) -> Any:
    """Return the type of a column in the schema of a Delta table.

    Example:
        >>> delta_type("a", pa.int64()), delta_type("a", pa.list_(pa.string()))["elementType"]
        ('long', 'string')
    """
    return simple_type("delta", name, kind) or _nested_type(name, kind)


def _nested_type(name: str, kind: pa.DataType) -> Any:
    if pat.is_list(kind) or pat.is_large_list(kind):
        return {"type": "array", "elementType": delta_type(f"{name}[]", kind.value_type), "containsNull": True}
    if pat.is_map(kind):
        return {
            "type": "map",
            "keyType": delta_type(f"{name}.key", kind.key_type),
            "valueType": delta_type(f"{name}.value", kind.item_type),
            "valueContainsNull": True,
        }
    if pat.is_struct(kind):
        check_names([field.name for field in kind])
        return {"type": "struct", "fields": [delta_field(f.name, delta_type(f"{name}.{f.name}", f.type)) for f in kind]}
    raise no_type("delta", name, kind)


def delta_field(name: str, kind: Any) -> dict[str, Any]:
    """Return a field of a Delta schema. All fields may be null: a file can lack a column."""
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def has_bounds(kind: Any) -> bool:
    """Return whether bounds of a type can be written exactly. Statistics leave out NaN, so floats have none."""
    if isinstance(kind, str) and kind.startswith("decimal"):
        precision, scale = map(int, kind[len("decimal(") : -1].split(","))
        return precision <= _MOST_DIGITS and scale <= _MOST_DECIMALS
    return isinstance(kind, str) and kind in _WITH_BOUNDS


def has_type(kind: Any, wanted: str) -> bool:
    """Return whether a Delta type is or contains a type."""
    if isinstance(kind, dict):
        return any(has_type(part, wanted) for part in kind.values())
    return any(has_type(part, wanted) for part in kind) if isinstance(kind, list) else kind == wanted


def partition_text(value: Any) -> str | None:
    """Return a partition value as the log has it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat(" ", "microseconds")
        # Without the Z, Spark reads the text in the time zone of its session.
        return value.astimezone(UTC).replace(tzinfo=None).isoformat("T", "microseconds") + "Z"
    return value.isoformat() if isinstance(value, date) else str(value)


def bound_json(kind: Any, native: pa.DataType | None, raw: Any) -> Any:
    """Return a bound as the log has it, or None if it cannot be written exactly."""
    if raw is None or native is None:
        return None
    if kind in ("byte", "short", "integer", "long"):
        return int(raw)
    if kind == "date":
        return _day(raw)
    if kind in ("timestamp", TIMESTAMP_NTZ):
        return _time(native, raw, "Z" if kind == "timestamp" else "")
    if kind == "string":
        return _text(raw)
    return float(Decimal(raw).scaleb(-native.scale)) if pat.is_decimal(native) and has_bounds(kind) else None


def _day(raw: int) -> str | None:
    try:
        return (_EPOCH + timedelta(days=raw)).date().isoformat()
    except OverflowError:
        return None


def _time(native: pa.DataType, raw: int, zone: str) -> str | None:
    if native.unit not in _PER_SECOND:
        return None
    try:
        found = _EPOCH + timedelta(microseconds=raw * (10**6 // _PER_SECOND[native.unit]))
    except OverflowError:
        return None
    return found.isoformat(timespec="microseconds" if found.microsecond % 1000 else "milliseconds") + zone


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode() if len(raw) <= _LONGEST_TEXT else None
    except UnicodeDecodeError:
        return None
