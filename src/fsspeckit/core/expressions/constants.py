"""Constants of expressions: numbers as they are written, names of types, and constants cast to a type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
from pyarrow import types as pat

from fsspeckit.common.bridge import scalar
from fsspeckit.common.types import is_number, is_text
from fsspeckit.core.expressions.compute import cast_values
from fsspeckit.core.expressions.tree import Literal, null_of
from fsspeckit.core.expressions.types import is_datetime, kind_of, parse_text

_TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "TIME": pa.time64("us"),
}
TYPE_NAMES = ("DECIMAL", *_TYPES)
_MOST_DIGITS = 38


def number_of(text: str) -> pa.Scalar:
    """A number exactly as it is written: whole, decimal, or with an exponent a float.

    Raises:
        ValueError: No type has so many digits or so large numbers.
    """
    if "e" in text.lower():
        if math.isinf(float(text)):
            raise ValueError(f"{text} is beyond the range of floats")
        return scalar(float(text))
    if "." not in text:
        number = int(text)
        return scalar(number) if -(2**63) <= number < 2**63 else _decimal(text)
    return _decimal(text)


def _decimal(text: str) -> pa.Scalar:
    _, digits, exponent = Decimal(text).as_tuple()
    precision = max(len(digits), -int(exponent))
    if precision > _MOST_DIGITS:
        return pa.scalar(Decimal(text))
    return scalar(text).cast(pa.decimal128(precision, -int(exponent)))


def named_type(name: str, sizes: Sequence[int]) -> pa.DataType | None:
    """Return the type of an SQL name, or None; only DECIMAL has sizes."""
    if name != "DECIMAL":
        return None if sizes else _TYPES.get(name)
    precision, scale = (*sizes, 0)[:2] if sizes else (18, 3)
    is_valid = 0 < precision <= _MOST_DIGITS and 0 <= scale <= precision
    return pa.decimal128(precision, scale) if is_valid else None


def sql_name(type_: pa.DataType) -> str:
    """Return the name of the type to which a value is cast to become a value of a type."""
    if pat.is_decimal(type_):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    if pat.is_timestamp(type_):
        return "TIMESTAMP" if type_.tz is None else "TIMESTAMPTZ"
    names = [name for name, known in _TYPES.items() if known.equals(type_)]
    if is_number(type_):
        return names[0] if names else "BIGINT"
    return (names or [name for name, known in _TYPES.items() if kind_of(known) == kind_of(type_)])[-1]


def cast_constant(value: Literal, target: pa.DataType) -> Literal | None:
    """Return a constant as another type, or None if it is not a value of the type."""
    if not value.value.is_valid:
        return null_of(target)
    if is_text(value.type) and (is_datetime(target) or pat.is_time(target)):
        units = (target, pa.timestamp("ns", target.tz)) if pat.is_timestamp(target) else (target,)
        parsed = (parse_text(value.value.as_py(), unit) for unit in units)
        return next((each for each in parsed if each is not None), None)
    try:
        return Literal(cast_values(value.value, target))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
