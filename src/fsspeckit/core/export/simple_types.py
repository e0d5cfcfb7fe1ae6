"""The names of types that are not nested, in Delta Lake, Apache Iceberg and catalogs of the Hive family."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
import pyarrow.types as pat

from fsspeckit.common.types import extension_name
from fsspeckit.core.export.table import unsupported

TypeSystem = Literal["delta", "iceberg", "hive"]
TITLES = {"delta": "Delta Lake", "iceberg": "Apache Iceberg", "hive": "A Hive catalog"}
_PLACES: dict[TypeSystem, int] = {"delta": 0, "iceberg": 1, "hive": 2}
_NAMES = {
    pa.bool_(): ("boolean", "boolean", "boolean"),
    pa.int8(): ("byte", "int", "tinyint"),
    pa.int16(): ("short", "int", "smallint"),
    pa.int32(): ("integer", "int", "int"),
    pa.int64(): ("long", "long", "bigint"),
    pa.float32(): ("float", "float", "float"),
    pa.float64(): ("double", "double", "double"),
    pa.date32(): ("date", "date", "date"),
    pa.time64("us"): (None, "time", None),
}
_INSTANT = ("timestamp", "timestamptz", "timestamp")
_LOCAL_TIME = ("timestamp_ntz", "timestamp", "timestamp")
_DECIMAL = ("decimal({},{})", "decimal({}, {})", "decimal({},{})")


def simple_type(system: TypeSystem, name: str, kind: pa.DataType) -> str | None:
    """Return the name of the type of a column, or None if it has none that is not nested.

    Raises:
        UnsupportedDataError: The column has nanoseconds, which no system has.

    Example:
        >>> [simple_type(system, "a", pa.int16()) for system in ("delta", "iceberg", "hive")]
        ['short', 'int', 'smallint']
    """
    place = _PLACES[system]
    if pat.is_dictionary(kind):
        kind = kind.value_type
    if pat.is_timestamp(kind):
        if kind.unit == "ns":
            raise unsupported(TITLES[system], name, kind, "Write the column with microseconds.")
        return (_LOCAL_TIME if kind.tz is None else _INSTANT)[place]
    if pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind):
        return "string"
    if pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_binary_view(kind):
        return "binary"
    if pat.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return _DECIMAL[place].format(kind.precision, kind.scale)
    if extension_name(kind) == "arrow.uuid" and system == "iceberg":
        return "uuid"
    return _NAMES[kind][place] if kind in _NAMES else None


def no_type(system: TypeSystem, name: str, kind: pa.DataType) -> Exception:
    """Return the error for a column that has no type in a system."""
    return unsupported(TITLES[system], name, kind, "Write the column with another type, or leave it out.")
