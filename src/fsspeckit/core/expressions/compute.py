"""Computations on Arrow arrays that pyarrow has no single function for, with the meaning that SQL gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from fsspeckit.common.arrow_versions import cast_text
from fsspeckit.common.bridge import null_scalar, scalar, to_arrow, to_numpy, valid_mask
from fsspeckit.common.types import is_text

Values = Any  # a pa.Array or a pa.Scalar; pyarrow has no types

_MOST_WIDTH = 1_000_000


def trim(function: Callable[..., Values]) -> Callable[..., Values]:
    """Trim spaces or the given characters."""
    return lambda values, characters=" ": function(values, characters=characters)


def substring(values: Values, start: int, length: int | None = None) -> Values:
    """Characters from a position, which counts from one; a negative one counts from the end."""
    if length is not None and length < 0:
        raise pa.ArrowInvalid("the length of a substring is negative")
    if start < 0:
        stop = start + length if length is not None and start + length < 0 else None
        return pc.utf8_slice_codeunits(values, start=start, stop=stop)
    first = start - 1
    stop = None if length is None else max(0, first + length)
    return pc.utf8_slice_codeunits(values, start=max(0, first), stop=stop)


def left(values: Values, count: int) -> Values:
    """The first characters; with a negative count, all but so many last ones."""
    return pc.utf8_slice_codeunits(values, start=0, stop=count)


def right(values: Values, count: int) -> Values:
    """The last characters; with a negative count, all but so many first ones."""
    if count == 0:
        return pc.utf8_slice_codeunits(values, start=0, stop=0)
    return pc.utf8_slice_codeunits(values, start=-count)


def pad(function: Callable[..., Values]) -> Callable[..., Values]:
    """Pad to a width; a longer text is cut to it."""

    def run(values: Values, width: int, padding: str = " ") -> Values:
        if len(padding) != 1:
            raise pa.ArrowInvalid("padding must be one character")
        if width > _MOST_WIDTH:
            raise pa.ArrowInvalid(f"the width {width} is above {_MOST_WIDTH}")
        return left(function(values, width=max(0, width), padding=padding), max(0, width))

    return run


def replace(values: Values, old: str, new: str) -> Values:
    """Replace every occurrence of a text."""
    return values if not old else pc.replace_substring(values, pattern=old, replacement=new)


def regexp_replace(values: Values, pattern: str, new: str) -> Values:
    """Replace every match of a regular expression."""
    return pc.replace_substring_regex(values, pattern=pattern, replacement=new)


def regexp_matches(values: Values, pattern: str) -> Values:
    """Tell whether a regular expression matches anywhere in the text."""
    return pc.match_substring_regex(values, pattern=pattern)


def whole(function: Callable[..., Values]) -> Callable[..., Values]:
    """Round to a whole number of the same type."""
    return lambda values: values if pat.is_integer(values.type) else function(values).cast(values.type)


def round_half_up(values: Values, digits: int = 0) -> Values:
    """Round half away from zero."""
    rounded = pc.round(values, ndigits=digits, round_mode="half_towards_infinity")
    return rounded.cast(values.type)


def clock(function: Callable[..., Values]) -> Callable[..., Values]:
    """A part of the time of day; that of a date is midnight."""
    return lambda values: function(values.cast(pa.timestamp("s")) if pat.is_date(values.type) else values)


def date_trunc(unit: str, values: Values) -> Values:
    """The start of the unit in which a moment lies."""
    type_ = values.type
    if pat.is_date(type_) and unit in ("hour", "minute", "second", "millisecond", "microsecond"):
        return values
    return pc.floor_temporal(values, unit=unit).cast(type_)


_BETWEEN = {
    "year": pc.years_between,
    "quarter": pc.quarters_between,
    "month": lambda start, end: pc.subtract(_month_number(end), _month_number(start)),
    "week": pc.weeks_between,
    "day": pc.days_between,
    "hour": pc.hours_between,
    "minute": pc.minutes_between,
    "second": pc.seconds_between,
    "millisecond": pc.milliseconds_between,
    "microsecond": pc.microseconds_between,
}


def _month_number(values: Values) -> Values:
    return pc.add(pc.multiply(pc.year(values), 12), pc.month(values))


def date_diff(unit: str, start: Values, end: Values) -> Values:
    """How many boundaries of a unit lie between two moments."""
    if not start.type.equals(end.type):
        type_ = pa.timestamp("us", "UTC")
        start, end = start.cast(type_), end.cast(type_)
    return _BETWEEN[unit](start, end).cast(pa.int64())


def add_months(values: Values, months: int) -> Values:
    """Move by months; a day that the month lacks becomes its last day."""
    if isinstance(values, pa.Scalar):
        return add_months(pa.repeat(values, 1), months)[0]
    type_ = values.type
    stamps = values.cast(pa.timestamp("s") if pat.is_date(type_) else pa.timestamp(type_.unit))
    days = pc.floor_temporal(stamps, unit="day")
    time_of_day = pc.subtract(stamps, days)
    found = to_numpy(days.cast(pa.date32(), safe=False).cast(pa.int32()).fill_null(0)).astype("datetime64[D]")
    first = found.astype("datetime64[M]")
    day = (found - first.astype("datetime64[D]")).astype(np.int64)
    moved = first + np.timedelta64(months, "M")
    last = ((moved + np.timedelta64(1, "M")).astype("datetime64[D]") - moved.astype("datetime64[D]")).astype(np.int64)
    result = moved.astype("datetime64[D]") + np.minimum(day, last - 1).astype("timedelta64[D]")
    whole_days = to_arrow(result.astype(np.int64)).cast(pa.int32()).cast(pa.date32())
    dates = pc.if_else(values.is_valid(), whole_days, null_scalar(pa.date32()))
    if pat.is_date(type_):
        return dates.cast(type_)
    return pc.add_checked(dates.cast(stamps.type), time_of_day).cast(type_)


def add_duration(values: Values, duration: pa.Scalar) -> Values:
    """Move by a duration; a date by whole days."""
    if not pat.is_date(values.type):
        unit = values.type.unit if values.type.unit == "ns" else "us"
        stamps = values.cast(pa.timestamp(unit, values.type.tz))
        return pc.add_checked(stamps, duration.cast(pa.duration(unit))).cast(values.type)
    return pc.add_checked(values.cast(pa.timestamp("us")), duration).cast(pa.date32())


def remainder(dividend: Values, divisor: Values) -> Values:
    """The remainder with the sign of the dividend."""
    if pat.is_floating(dividend.type):
        return _float_remainder(dividend, divisor)
    return pc.subtract_checked(dividend, pc.multiply_checked(pc.divide_checked(dividend, divisor), divisor))


def _float_remainder(dividend: Values, divisor: Values) -> Values:
    quotient = pc.divide_checked(dividend, divisor)
    sides = [pa.repeat(side, len(quotient)) if isinstance(side, pa.Scalar) else side for side in (dividend, divisor)]
    with np.errstate(invalid="ignore"):  # at nulls
        found = np.fmod(*map(to_numpy, sides))
    return to_arrow(found, valid_mask(quotient))


def compare(name: str, left_side: Values, right_side: Values) -> Values:
    """Compare values; NaN equals NaN and is greater than every other number."""
    if pat.is_null(left_side.type):
        left_side, right_side = left_side.cast(pa.bool_()), right_side.cast(pa.bool_())
    result = getattr(pc, name)(left_side, right_side)
    if not pat.is_floating(left_side.type):
        return result
    one, other = pc.is_nan(left_side), pc.is_nan(right_side)
    if not _any(one) and not _any(other):
        return result
    both, first, second = pc.and_(one, other), pc.and_not(one, other), pc.and_not(other, one)
    truths = {
        "equal": (both,),
        "not_equal": (first, second),
        "less": (second,),
        "less_equal": (both, second),
        "greater": (first,),
        "greater_equal": (both, first),
    }[name]
    answer = truths[0] if len(truths) == 1 else pc.or_(*truths)
    return pc.if_else(pc.or_(one, other), answer, result)


def one_zero(values: Values) -> Values:
    """Numbers without negative zero, which equals zero but has other bits."""
    return pc.add(values, pa.scalar(0.0, values.type)) if pat.is_floating(values.type) else values


def _any(values: Values) -> bool:
    return bool(values.as_py()) if isinstance(values, pa.Scalar) else bool(pc.any(values).as_py())


def extreme(name: str, values: tuple[Values, ...]) -> Values:
    """The greatest or the least of some values; NULL is skipped."""
    found = values[0]
    for other in values[1:]:
        wins = compare("greater" if name == "greatest" else "less", other, found)
        chosen = pc.if_else(pc.fill_null(wins, scalar(False)), other, found)
        found = pc.coalesce(chosen, found, other)
    return found


def cast_values(values: Values, type_: pa.DataType) -> Values:
    """Cast values so that none of them changes, except that a timestamp as a date loses its time of day."""
    if pat.is_date(type_) and pat.is_timestamp(values.type):
        return pc.floor_temporal(values, unit="day").cast(pa.timestamp(values.type.unit)).cast(type_)
    if pat.is_decimal(type_) and pat.is_integer(values.type):  # Arrow wants room for every value of the integer type
        return values.cast(pa.decimal128(20, 0)).cast(type_)
    if is_text(values.type) and pat.is_timestamp(type_) and type_.tz is not None:
        try:
            return cast_text(values, type_)
        except pa.ArrowInvalid:
            return cast_text(values, pa.timestamp(type_.unit)).cast(type_)
    return cast_text(values, type_) if is_text(values.type) else values.cast(type_)
