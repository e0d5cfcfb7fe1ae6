"""Arithmetic, rounding and comparison of numbers. A result that its type cannot represent is an error."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from fsspeckit.common.bridge import scalar, to_arrow, to_numpy, valid_mask

Values = Any  # a pa.Array or a pa.Scalar; pyarrow has no types

_MOST_DIGITS = 38  # of decimals of 128 bits
_SPARE = 2  # more digits than a decimal has, for the largest value and the largest unit
_EXACT = Context(prec=160)  # digits of the largest value divided by the smallest
_EXPONENT = 308  # the largest power of ten that is a float
_WHOLE = 2.0**53  # floats from here on have no fraction


def any_true(values: Values) -> bool:
    """Tell whether a condition holds for a value."""
    return bool(values.as_py()) if isinstance(values, pa.Scalar) else bool(pc.any(values).as_py())


def checked(function: Callable[..., Values]) -> Callable[..., Values]:
    """Refuse an infinite float, and NaN, where all arguments are finite."""
    return lambda *values: finite(function(*values), *values)


def finite(found: Values, *given: Values) -> Values:
    """Return computed values; an infinite float, or NaN, of finite arguments is an error."""
    if not pat.is_floating(found.type):
        return found
    unbounded = pc.invert(_is_finite(found))
    if any_true(unbounded) and any_true(reduce(pc.and_, map(_is_finite, given), unbounded)):
        raise pa.ArrowInvalid(f"overflow: the result is beyond the range of {found.type}")
    return found


def _is_finite(values: Values) -> Values:
    return pc.is_finite(values.cast(pa.float32()) if pat.is_float16(values.type) else values)


def whole(function: Callable[..., Values], mode: str) -> Callable[..., Values]:
    """Round to a whole number of the same type; ``mode`` is that of Python's decimals."""

    def run(values: Values) -> Values:
        if pat.is_integer(values.type):
            return values
        return _round_decimals(function, values, 0, mode) if pat.is_decimal(values.type) else function(values)

    return run


def round_half_up(values: Values, digits: int = 0) -> Values:
    """Round half away from zero."""
    type_ = values.type
    if pat.is_floating(type_):
        return _round_floats(values, digits)
    if pat.is_integer(type_):
        if digits >= 0:
            return values
        return round_half_up(values.cast(pa.decimal128(20, 0)), digits).cast(type_)
    if digits >= type_.scale:
        return values
    digits = max(digits, type_.scale - type_.precision - 1)  # every value becomes zero
    most = max(digits, type_.scale - _MOST_DIGITS + 1)  # that Arrow rounds to
    return _round_decimals(lambda wide: _half_up(wide, most), values, digits, ROUND_HALF_UP)


def _half_up(values: Values, digits: int) -> Values:
    return pc.round(values, ndigits=digits, round_mode="half_towards_infinity")


def _round_decimals(function: Callable[..., Values], values: Values, digits: int, mode: str) -> Values:
    """Round with digits to spare: without them, Arrow can return zero for what does not fit."""
    type_ = values.type
    most = min(type_.precision, _MOST_DIGITS - _SPARE)
    if type_.scale <= most:
        try:
            small = values.cast(pa.decimal128(most, type_.scale))
        except pa.ArrowInvalid:  # numbers of more digits
            return _round_each(values, digits, mode)
        return function(small.cast(pa.decimal128(_MOST_DIGITS, type_.scale))).cast(type_)
    return _round_each(values, digits, mode)


def _round_each(values: Values, digits: int, mode: str) -> Values:
    """Round with Python's decimals; Arrow divides decimals of 256 bits wrongly."""
    if isinstance(values, pa.Scalar):
        return _round_each(pa.repeat(values, 1), digits, mode)[0]
    unit, last = Decimal(1).scaleb(-digits), Decimal(1).scaleb(-values.type.scale)
    decimals = (None if each is None else each.quantize(unit, mode, _EXACT) for each in values.to_pylist())
    return pa.array([None if each is None else each.quantize(last, context=_EXACT) for each in decimals], values.type)


def _round_floats(values: Values, digits: int) -> Values:
    if digits > _EXPONENT:
        raise pa.ArrowInvalid(f"a float cannot be rounded to more than {_EXPONENT} digits")
    wide = values.cast(pa.float64())
    zero = scalar(0.0)
    if digits < -_EXPONENT:
        return pc.if_else(pc.is_finite(wide), zero, wide).cast(values.type)
    if digits < 0:
        unit = scalar(10.0**-digits)
        found = pc.multiply(_half_up(pc.divide(wide, unit), 0), unit)
        return finite(found.cast(values.type), values)
    # A float whose last bit is above the unit has no digits to round, and the product of both can overflow.
    has_digits = pc.less(pc.abs(wide), scalar(_WHOLE / 10.0**digits))
    found = pc.if_else(has_digits, _half_up(pc.if_else(has_digits, wide, zero), digits), wide)
    return finite(found.cast(values.type), values)


def remainder(dividend: Values, divisor: Values) -> Values:
    """The remainder with the sign of the dividend."""
    if pat.is_floating(dividend.type):
        return _float_remainder(dividend, divisor)
    if pat.is_decimal(dividend.type):
        return _decimal_remainder(dividend, divisor)
    return pc.subtract_checked(dividend, pc.multiply_checked(pc.divide_checked(dividend, divisor), divisor))


def _float_remainder(dividend: Values, divisor: Values) -> Values:
    quotient = pc.divide_checked(dividend, divisor)
    sides = [pa.repeat(side, len(quotient)) if isinstance(side, pa.Scalar) else side for side in (dividend, divisor)]
    with np.errstate(invalid="ignore"):  # at nulls
        found = np.fmod(*map(to_numpy, sides))
    return to_arrow(found, valid_mask(quotient))


def _decimal_remainder(dividend: Values, divisor: Values) -> Values:
    """The remainder by Python's decimals: a quotient of Arrow can have too many digits."""
    rows = next(len(side) for side in (dividend, divisor) if isinstance(side, pa.Array))
    sides = [pa.repeat(side, rows) if isinstance(side, pa.Scalar) else side for side in (dividend, divisor)]
    if any_true(pc.and_(sides[0].is_valid(), pc.equal(sides[1], pa.scalar(Decimal(0), divisor.type)))):
        raise pa.ArrowInvalid("divide by zero")
    pairs = zip(*(side.to_pylist() for side in sides), strict=True)
    return pa.array([None if None in pair else _EXACT.remainder(*pair) for pair in pairs], dividend.type)


def one_zero(values: Values) -> Values:
    """Numbers without negative zero, which equals zero but has other bits."""
    return pc.add(values, pa.scalar(0.0, values.type)) if pat.is_floating(values.type) else values


def with_equal_order(floats: Values, integers: Values) -> tuple[Values, Values]:
    """Return numbers that compare as floats and integers do exactly, where a float cannot represent the integer."""
    near = pc.cast(integers, pa.float64(), safe=False)
    if not any_true(pc.greater_equal(pc.abs(near), scalar(_WHOLE))):
        return floats, near
    if isinstance(floats, pa.Scalar) and isinstance(integers, pa.Scalar):
        order, zero = with_equal_order(pa.repeat(floats, 1), pa.repeat(integers, 1))
        return order[0], zero[0]
    rows = len(integers) if isinstance(floats, pa.Scalar) else len(floats)
    one, other = (pa.repeat(side, rows) if isinstance(side, pa.Scalar) else side for side in (floats, integers))
    valid = valid_mask(one) & valid_mask(other)
    return to_arrow(_order(to_numpy(one), to_numpy(other)), valid), pa.repeat(scalar(0.0), rows)


def _order(floats: Any, integers: Any) -> Any:
    """Return -1, 0 or 1 where a float is below, equal to or above an integer; NaN is above."""
    near = integers.astype(np.float64)
    with np.errstate(invalid="ignore"):  # NaN
        order = (floats > near).astype(np.float64) - (floats < near) + np.isnan(floats)
        # Rounding to a float keeps the order, so only an equal float can differ, and it is a whole number.
        is_above = floats >= float(np.iinfo(integers.dtype).max)  # as a float, the maximum is one too large
        tied = np.where((order == 0) & ~is_above, floats, 0.0).astype(integers.dtype)
    exact = (tied > integers).astype(np.float64) - (tied < integers)
    return np.where(order != 0, order, np.where(is_above, 1.0, exact))
