"""Types of expressions: which types can be compared or combined, and constants in the type of the other side."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
from pyarrow import types as pat

from fsspeckit.common.arrow_versions import cast_text
from fsspeckit.common.bridge import scalar, scalars_array
from fsspeckit.common.errors import ExpressionError
from fsspeckit.common.types import is_bytes, is_narrow_decimal, is_number, is_text, unwrapped
from fsspeckit.core.expressions.compute import cast_values
from fsspeckit.core.expressions.tree import Call, Expression, InList, Literal, null_of

_UNITS = ("s", "ms", "us", "ns")
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_MOST_DIGITS = 76


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the type in which values are evaluated.

    It has no dictionaries, extensions, views, zones, half floats or narrow decimals.
    """
    type_ = unwrapped(type_)
    if isinstance(type_, pa.BaseExtensionType):
        return plain_type(type_.storage_type)
    if pat.is_string_view(type_) or pat.is_large_string(type_):
        return pa.large_string()
    if pat.is_binary_view(type_) or pat.is_large_binary(type_) or pat.is_fixed_size_binary(type_):
        return pa.large_binary()
    if pat.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp(type_.unit, "UTC")
    if pat.is_float16(type_):
        return pa.float32()
    if is_narrow_decimal(type_):
        return pa.decimal128(type_.precision, type_.scale)
    return pa.date32() if pat.is_date64(type_) else type_


def kind_of(type_: pa.DataType) -> str:
    """Return the kind of a type in words, as error messages name it; a nested type is its own kind."""
    kinds = (
        ("NULL", pat.is_null),
        ("boolean", pat.is_boolean),
        ("number", is_number),
        ("text", is_text),
        ("binary", is_bytes),
        ("date or timestamp", is_datetime),
        ("time", pat.is_time),
        ("interval", pat.is_duration),
    )
    return next((name for name, test in kinds if test(type_)), str(type_))


def is_datetime(type_: pa.DataType) -> bool:
    """Tell whether a type is a date or a timestamp."""
    return bool(pat.is_date(type_) or pat.is_timestamp(type_))


def is_comparable(type_: pa.DataType) -> bool:
    """Tell whether values of a type have an order in this language."""
    return not pat.is_nested(type_)


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type in which two values are compared or combined, or None where there is none."""
    if left.equals(right):
        return left
    if pat.is_null(left) or pat.is_null(right):
        return right if pat.is_null(left) else left
    if kind_of(left) != kind_of(right) or not is_comparable(left):
        return None
    if is_number(left):
        return _common_number(left, right)
    if is_datetime(left):
        return _common_datetime(left, right)
    if is_text(left):
        return pa.large_string()
    if is_bytes(left):
        return pa.large_binary()
    unit = max(left.unit, right.unit, key=_UNITS.index)
    return pa.time64(unit) if pat.is_time(left) else pa.duration(unit)


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if pat.is_floating(left) or pat.is_floating(right):
        return pa.float64()
    if pat.is_integer(left) and pat.is_integer(right):
        signed = pat.is_signed_integer(left) or pat.is_signed_integer(right)
        if not signed:
            return pa.uint64()
        return pa.decimal128(20, 0) if pa.uint64() in (left, right) else pa.int64()
    (whole, scale), (other_whole, other_scale) = _digits(left), _digits(right)
    scale = max(scale, other_scale)
    return decimal_type(max(whole, other_whole) + scale, scale)


def _digits(type_: pa.DataType) -> tuple[int, int]:
    """Digits before and after the decimal point."""
    if pat.is_integer(type_):
        return _INTEGER_DIGITS[type_.bit_width] + (type_ == pa.uint64()), 0
    return type_.precision - type_.scale, type_.scale


def decimal_type(precision: int, scale: int) -> pa.DataType | None:
    """Return the smallest decimal type, or None where there is none with so many digits."""
    if precision > _MOST_DIGITS:
        return None
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _common_datetime(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    stamps = [type_ for type_ in (left, right) if pat.is_timestamp(type_)]
    if not stamps:
        return pa.date32()
    unit = max((type_.unit for type_ in stamps), key=_UNITS.index)
    return pa.timestamp(unit, "UTC" if any(type_.tz for type_ in stamps) else None)


def cast_to(expression: Expression, type_: pa.DataType) -> Expression:
    """Return an expression in another type of its kind; constants are converted at once."""
    if expression.type.equals(type_):
        return expression
    if isinstance(expression, Literal):
        if not expression.value.is_valid:
            return null_of(type_)
        return Literal(cast_values(expression.value, type_))
    return Call("cast", (expression,), type_)


def same_type(left: Expression, right: Expression, *, compared: bool = False) -> tuple[Expression, Expression] | None:
    """Return two expressions in one type, or None where they cannot be compared.

    A text constant is parsed as the date, timestamp or time of the other side, and a number constant takes the type of
    the other side where that changes nothing. A float and a whole number that are only ``compared`` keep their types.
    """
    if isinstance(left, Literal) and not isinstance(right, Literal):
        found = same_type(right, left, compared=compared)
        return None if found is None else (found[1], found[0])
    if isinstance(right, Literal) and right.value.is_valid:
        constant = _as_constant(right, left.type)
        if constant is not None:
            return left, constant
        right = _parsed_text(right, left.type) or right
    type_ = common_type(left.type, right.type)
    if type_ is None:
        return None
    if compared and {pat.is_floating(side.type) + 2 * pat.is_integer(side.type) for side in (left, right)} == {1, 2}:
        return _widest(left), _widest(right)
    try:
        return cast_to(left, type_), cast_to(right, type_)
    except pa.ArrowInvalid as error:
        if pat.is_timestamp(type_):
            return _in_microseconds(left, type_.tz), _in_microseconds(right, type_.tz)
        reason = str(error).rstrip(".")
        raise ExpressionError(f"a constant cannot be compared as {type_} ({reason}); cast the other side") from error


def _widest(side: Expression) -> Expression:
    """A float or whole number in 64 bits."""
    if pat.is_floating(side.type):
        return cast_to(side, pa.float64())
    return side if side.type == pa.uint64() else cast_to(side, pa.int64())


def _in_microseconds(side: Expression, zone: str | None) -> Expression:
    """A moment to compare with a constant beyond the range of nanoseconds, so that its last digits decide nothing."""
    if pat.is_timestamp(side.type) and side.type.unit == "ns":
        side = Call("to_microseconds", (side,), pa.timestamp("us", side.type.tz))
    return cast_to(side, pa.timestamp("us", zone))


def membership(value: Expression, pairs: Sequence[tuple[Expression, Expression]], *, has_null: bool) -> InList | Call:
    """Return whether a value is one of some constants; each pair is the value and a constant as they are compared."""
    values = {side.type: side for side, constant in pairs if side.type == constant.type} or {value.type: value}
    options: dict[pa.DataType, list[pa.Scalar]] = {type_: [] for type_ in values}
    parts: list[InList | Call] = []
    for side, constant in pairs:
        if side.type != constant.type:
            parts.append(Call("=", (side, constant), pa.bool_()))
        elif isinstance(constant, Literal):
            options[constant.type].append(constant.value)
    parts += [InList(side, scalars_array(options[type_], type_).unique(), has_null) for type_, side in values.items()]
    return parts[0] if len(parts) == 1 else Call("or", tuple(parts), pa.bool_())


def _as_constant(constant: Literal, type_: pa.DataType) -> Literal | None:
    """A constant exactly as another type; a decimal as the nearest float of 64 bits."""
    if constant.type.equals(type_):
        return constant
    if is_text(constant.type) and (is_datetime(type_) or pat.is_time(type_)):
        return parse_text(constant.value.as_py(), type_)
    if not is_number(constant.type) or not is_number(type_):
        return None
    try:
        if pat.is_floating(type_):
            return _as_float(constant.value.as_py(), type_)
        return Literal(constant.value.cast(type_))
    except (pa.ArrowInvalid, OverflowError):
        return None


def _as_float(number: float | Decimal, type_: pa.DataType) -> Literal | None:
    """An equal number of a float type, or None; a decimal is first the nearest float of 64 bits."""
    wide = float(number)
    found = scalar(wide).cast(type_)
    is_equal = found.as_py() == wide and (isinstance(number, Decimal) or wide == number)
    return Literal(found) if is_equal or math.isnan(wide) else None


def _parsed_text(constant: Literal, type_: pa.DataType) -> Literal | None:
    """A text constant as a timestamp that the unit of the other side cannot represent."""
    if not is_text(constant.type) or not is_datetime(type_):
        return None
    zone = type_.tz if pat.is_timestamp(type_) else None
    found = (parse_text(constant.value.as_py(), pa.timestamp(unit, zone)) for unit in ("us", "ns"))
    return next((literal for literal in found if literal is not None), None)


def parse_text(text: str, type_: pa.DataType) -> Literal | None:
    """Parse a text exactly as a type, or return None; a timestamp without a zone is UTC."""
    if pat.is_time(type_):
        return _parse_time(text.strip(), type_)
    found = scalar(text.strip())
    targets = [type_]
    if pat.is_timestamp(type_) and type_.tz is not None:
        targets.append(pa.timestamp(type_.unit))
    for target in targets:
        try:
            return Literal(cast_text(found, target).cast(type_))
        except pa.ArrowInvalid:
            continue
    return None


def _parse_time(text: str, type_: pa.DataType) -> Literal | None:
    """Parse a time of day, for which Arrow has no cast from text."""
    try:
        time = dt.time.fromisoformat(text)
        return None if time.tzinfo is not None else Literal(pa.scalar(time, pa.time64("us")).cast(type_))
    except (ValueError, pa.ArrowInvalid):
        return None
