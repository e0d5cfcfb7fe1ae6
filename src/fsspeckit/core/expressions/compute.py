"""Computations on Arrow arrays that pyarrow has no single function for, with the meaning that SQL gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from fsspeckit.common.arrow_versions import cast_text
from fsspeckit.common.bridge import null_scalar, scalar, to_arrow, to_numpy
from fsspeckit.common.casting import parse_decimals
from fsspeckit.common.types import is_text
from fsspeckit.core.expressions.numbers import any_true, finite, with_equal_order

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


def part(function: Callable[..., Values]) -> Callable[..., Values]:
    """A part of a date or timestamp."""
    return lambda values: function(_in_known_years(values)).cast(pa.int64())


def clock(function: Callable[..., Values]) -> Callable[..., Values]:
    """A part of the time of day; that of a date is midnight."""
    return part(lambda values: function(values.cast(pa.timestamp("s")) if pat.is_date(values.type) else values))


def _in_known_years(values: Values) -> Values:
    """Return dates or timestamps; Arrow has 16 bits for a year, and computes other years wrongly."""
    per_day = 1 if pat.is_date(values.type) else _PER_DAY.get(values.type.unit)
    if per_day is not None:
        numbers = values.cast(pa.int32() if per_day == 1 else pa.int64())
        first, end = (scalar(day * per_day) for day in _KNOWN_DAYS)
        if any_true(pc.or_(pc.less(numbers, first), pc.greater_equal(numbers, end))):
            raise pa.ArrowInvalid("a date or timestamp is beyond the years -32767 to 32767")
    return values


_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}  # all nanoseconds are in known years
_KNOWN_DAYS = np.array(["-32767-01-01", "32768-01-01"], "datetime64[D]").astype(np.int64).tolist()


def date_trunc(unit: str, values: Values) -> Values:
    """The start of the unit in which a moment lies."""
    type_ = values.type
    if pat.is_date(type_) and unit in ("hour", "minute", "second", "millisecond", "microsecond"):
        return values
    found = pc.floor_temporal(_in_known_years(values), unit=unit).cast(type_)
    if any_true(pc.greater(found, values)):
        raise pa.ArrowInvalid(f"the start of the {unit} is not in the range of {type_}")
    return found


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
    return _BETWEEN[unit](_in_known_years(start), _in_known_years(end)).cast(pa.int64())


def add_months(values: Values, months: int) -> Values:
    """Move by months; a day that the month lacks becomes its last day."""
    if isinstance(values, pa.Scalar):
        return add_months(pa.repeat(values, 1), months)[0]
    type_ = _in_known_years(values).type
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


def compare(name: str, left_side: Values, right_side: Values) -> Values:
    """Compare values; NaN equals NaN and is greater than every other number."""
    if pat.is_null(left_side.type):
        left_side, right_side = left_side.cast(pa.bool_()), right_side.cast(pa.bool_())
    if pat.is_floating(left_side.type) and pat.is_integer(right_side.type):
        left_side, right_side = with_equal_order(left_side, right_side)
    elif pat.is_integer(left_side.type) and pat.is_floating(right_side.type):
        right_side, left_side = with_equal_order(right_side, left_side)
    result = getattr(pc, name)(left_side, right_side)
    if not pat.is_floating(left_side.type):
        return result
    one, other = pc.is_nan(left_side), pc.is_nan(right_side)
    if not any_true(one) and not any_true(other):
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


def extreme(name: str, values: tuple[Values, ...]) -> Values:
    """The greatest or the least of some values; NULL is skipped."""
    found = values[0]
    for other in values[1:]:
        wins = compare("greater" if name == "greatest" else "less", other, found)
        chosen = pc.if_else(pc.fill_null(wins, scalar(False)), other, found)
        found = pc.coalesce(chosen, found, other)
    return found


def cast_values(values: Values, type_: pa.DataType) -> Values:
    """Cast values so that none of them changes, except that a timestamp as a date loses its time of day.

    A number of which a float or decimal type has no equal becomes the nearest one.
    """
    given = values.type
    if pat.is_timestamp(given) and pat.is_date(type_):
        return date_trunc("day", values).cast(pa.timestamp(given.unit)).cast(type_)
    if (pat.is_date(given) or pat.is_timestamp(given)) and (is_text(type_) or pat.is_time(type_)):
        values = _in_known_years(values)
    if pat.is_decimal(type_) and pat.is_integer(given):  # Arrow wants room for every value of the integer type
        return _cast_decimal(values.cast(pa.decimal128(20, 0)), type_)
    if pat.is_decimal(type_) and pat.is_decimal(given):
        return _cast_decimal(values, type_)
    if is_text(given):
        return _cast_text(values, type_)
    if not pat.is_floating(type_):
        return values.cast(type_)
    exact = values.cast(pa.string()) if pat.is_decimal(given) else values  # Arrow does not find the nearest float
    return finite(exact.cast(type_), values)


def _cast_decimal(values: Values, type_: pa.DataType) -> Values:
    """Cast decimals; Arrow lets one of too many digits before the decimal point wrap around."""
    given = values.type
    found = values.cast(type_)
    has_room = type_.precision - type_.scale >= given.precision - given.scale
    if not has_room and any_true(pc.not_equal(found.cast(given), values)):
        raise pa.ArrowInvalid(f"a number does not fit in {type_}")
    return found


def _cast_text(texts: Values, type_: pa.DataType) -> Values:
    if pat.is_timestamp(type_) and type_.tz is not None:
        try:
            return cast_text(texts, type_)
        except pa.ArrowInvalid:
            return cast_text(texts, pa.timestamp(type_.unit)).cast(type_)
    if pat.is_decimal(type_):
        return parse_decimals(texts, type_)
    found = cast_text(texts, type_)
    if pat.is_floating(type_):
        named = pc.match_substring(texts, "inf", ignore_case=True)
        if any_true(pc.and_not(pc.is_inf(found), named)):
            raise pa.ArrowInvalid(f"a text is not in the range of {type_}")
    return found
