"""The scalar functions of the expression language: what they take, what they return, how they are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from fsspeckit.common.types import is_number, is_text
from fsspeckit.core.expressions import compute, numbers
from fsspeckit.core.expressions.types import is_datetime

Values = Any  # a pa.Array or a pa.Scalar; pyarrow has no types
Types = Sequence[pa.DataType]
TEXT, NUMBER, WHOLE, FLOAT, DATETIME, CONSTANT, COUNT, UNIT = (
    "text",
    "number",
    "whole number",
    "float",
    "date or timestamp",
    "constant text",
    "constant whole number",
    "constant unit",
)
NULL_TYPES = {
    TEXT: pa.string(),
    NUMBER: pa.int64(),
    WHOLE: pa.int64(),
    FLOAT: pa.float64(),
    DATETIME: pa.timestamp("us"),
}
"""The type of NULL as an argument of a kind."""
UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")


@dataclass(frozen=True, slots=True)
class Function:
    """A function: kinds of its arguments, how many are required, the result's type, and the implementation.

    Constants reach the implementation as Python values, all other arguments as arrays or scalars.
    """

    takes: tuple[str, ...]
    result: Callable[[Types], pa.DataType]
    run: Callable[..., Values]
    required: int = -1

    @property
    def fewest(self) -> int:
        """How many arguments it must get."""
        return len(self.takes) if self.required < 0 else self.required


def _same(types: Types) -> pa.DataType:
    return types[0]


def _is(type_: pa.DataType) -> Callable[[Types], pa.DataType]:
    return lambda _types: type_


def _sign_type(types: Types) -> pa.DataType:
    """A float has the sign NaN too."""
    return pa.float64() if pat.is_floating(types[0]) else pa.int64()


def _text(run: Callable[..., Values], *more: str, required: int = -1) -> Function:
    return Function((TEXT, *more), _same, run, required)


def _float(run: Callable[..., Values]) -> Function:
    return Function((FLOAT,), _is(pa.float64()), run)


def _part(run: Callable[..., Values]) -> Function:
    return Function((DATETIME,), _is(pa.int64()), run)


FUNCTIONS: Mapping[str, Function] = {
    "lower": _text(pc.utf8_lower),
    "upper": _text(pc.utf8_upper),
    "reverse": _text(pc.utf8_reverse),
    "trim": _text(compute.trim(pc.utf8_trim), CONSTANT, required=1),
    "ltrim": _text(compute.trim(pc.utf8_ltrim), CONSTANT, required=1),
    "rtrim": _text(compute.trim(pc.utf8_rtrim), CONSTANT, required=1),
    "substring": _text(compute.substring, COUNT, COUNT, required=2),
    "left": _text(compute.left, COUNT),
    "right": _text(compute.right, COUNT),
    "lpad": _text(compute.pad(pc.utf8_lpad), COUNT, CONSTANT, required=2),
    "rpad": _text(compute.pad(pc.utf8_rpad), COUNT, CONSTANT, required=2),
    "replace": _text(compute.replace, CONSTANT, CONSTANT),
    "regexp_replace": _text(compute.regexp_replace, CONSTANT, CONSTANT),
    "length": Function((TEXT,), _is(pa.int64()), lambda values: pc.utf8_length(values).cast(pa.int64())),
    "starts_with": Function((TEXT, CONSTANT), _is(pa.bool_()), lambda v, text: pc.starts_with(v, pattern=text)),
    "ends_with": Function((TEXT, CONSTANT), _is(pa.bool_()), lambda v, text: pc.ends_with(v, pattern=text)),
    "contains": Function((TEXT, CONSTANT), _is(pa.bool_()), lambda v, text: pc.match_substring(v, pattern=text)),
    "regexp_matches": Function((TEXT, CONSTANT), _is(pa.bool_()), compute.regexp_matches),
    "abs": Function((NUMBER,), _same, pc.abs_checked),
    "sign": Function((NUMBER,), _sign_type, pc.sign),
    "ceil": Function((NUMBER,), _same, numbers.whole(pc.ceil, ROUND_CEILING)),
    "floor": Function((NUMBER,), _same, numbers.whole(pc.floor, ROUND_FLOOR)),
    "trunc": Function((NUMBER,), _same, numbers.whole(pc.trunc, ROUND_DOWN)),
    "round": Function((NUMBER, COUNT), _same, numbers.round_half_up, 1),
    "sqrt": _float(pc.sqrt_checked),
    "exp": _float(numbers.checked(pc.exp)),
    "ln": _float(pc.ln_checked),
    "log10": _float(pc.log10_checked),
    "log2": _float(pc.log2_checked),
    "power": Function((FLOAT, FLOAT), _is(pa.float64()), numbers.checked(pc.power_checked)),
    "is_nan": Function((FLOAT,), _is(pa.bool_()), pc.is_nan),
    "year": _part(compute.part(pc.year)),
    "quarter": _part(compute.part(pc.quarter)),
    "month": _part(compute.part(pc.month)),
    "day": _part(compute.part(pc.day)),
    "hour": _part(compute.clock(pc.hour)),
    "minute": _part(compute.clock(pc.minute)),
    "second": _part(compute.clock(pc.second)),
    "week": _part(compute.part(pc.iso_week)),
    "isodow": _part(compute.part(lambda values: pc.day_of_week(values, count_from_zero=False, week_start=1))),
    "dayofyear": _part(compute.part(pc.day_of_year)),
    "date_trunc": Function((UNIT, DATETIME), lambda types: types[-1], compute.date_trunc),
    "date_diff": Function((UNIT, DATETIME, DATETIME), _is(pa.int64()), compute.date_diff),
}
"""Functions whose arguments have fixed kinds. `parse.py` has those whose arguments share one type."""


def fits(kind: str, type_: pa.DataType) -> bool:
    """Tell whether an argument of a type can be passed where a kind is expected."""
    if pat.is_null(type_):
        return True
    if kind == TEXT:
        return is_text(type_)
    if kind == DATETIME:
        return is_datetime(type_)
    return is_number(type_) and (kind != WHOLE or bool(pat.is_integer(type_)))
