"""Every computation gives the value that Python's decimals give, or an error that names the expression and the value.

A batch has at most one value near the limit of its type, at its start, in its middle or at its end, in one chunk or
in several.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from fsspeckit.common.errors import ExpressionError
from fsspeckit.core.expressions.evaluate import evaluate
from fsspeckit.core.expressions.parse import parse_expression

EXACT = Context(prec=500)
MOST = {"TINYINT": 2**7, "SMALLINT": 2**15, "INT": 2**31, "BIGINT": 2**63}


class Refused(Exception):
    """The result is not a value of its type."""


class Function(NamedTuple):
    """The SQL text of a function of ``x`` and ``y``, and what it means for a row."""

    sql: str
    of: Callable[..., Any]


class Batch(NamedTuple):
    """A table with the columns x and y."""

    table: pa.Table
    rows: list[tuple[Any, ...]]


@st.composite
def batches(draw: st.DrawFn, type_: pa.DataType, plain: st.SearchStrategy, edge: st.SearchStrategy) -> Batch:
    columns = []
    size = draw(st.integers(1, 6))
    at = draw(st.sampled_from(["first", "middle", "last", "nowhere"]))
    for _ in "xy":
        values = draw(st.lists(st.none() | plain, min_size=size, max_size=size))
        if at != "nowhere":
            values[{"first": 0, "middle": size // 2, "last": size - 1}[at]] = draw(edge)
        columns.append(values)
    cut = draw(st.integers(0, size))
    chunks = [pa.chunked_array([pa.array(c[:cut], type_), pa.array(c[cut:], type_)]) for c in columns]
    return Batch(pa.table(chunks, names=["x", "y"]), list(zip(*columns, strict=True)))


def check(batch: Batch, function: Function, same: Callable[[Any, Any], bool] = lambda a, b: a == b) -> None:
    expression = parse_expression(function.sql, batch.table.schema)
    uses = ["x" in function.sql.replace("EXTRACT", ""), "y" in function.sql]
    expected, refused = [], []
    for row in batch.rows:
        if any(value is None for value, used in zip(row, uses, strict=True) if used):
            expected.append(None)
            continue
        try:
            expected.append(function.of(*row))
        except Refused:
            refused.append(row)
    if refused:
        with pytest.raises(ExpressionError) as error:
            evaluate(expression, batch.table)
        used = [value for row in refused for value, is_used in zip(row, uses, strict=True) if is_used]
        assert any(str(value)[:20] in str(error.value) for value in used), (error.value, used)
        return
    found = evaluate(expression, batch.table).to_pylist()
    pairs = list(zip(found, expected, strict=True))
    assert all(a is b if None in (a, b) else same(a, b) for a, b in pairs), (pairs, batch.rows)


def fits(value: Decimal, type_: pa.DataType) -> Decimal:
    """The value if a decimal type can represent it."""
    unit = Decimal(1).scaleb(-type_.scale)
    limit = Decimal(10) ** (type_.precision - type_.scale)
    if value != value.quantize(unit, context=EXACT) or value.copy_abs() >= limit:
        raise Refused
    return value


def whole(value: Any, limit: int = 2**63) -> int:
    if value != math.floor(value) or not -limit <= value < limit:
        raise Refused
    return int(value)


def _half_up(value: Decimal, digits: int) -> Decimal:
    scaled = value.scaleb(digits, EXACT).to_integral_value(ROUND_HALF_UP, EXACT)
    return scaled.scaleb(-digits, EXACT)


def decimal_functions(type_: pa.DataType, wide: pa.DataType) -> list[Function]:
    """``wide`` is a decimal type to cast to."""
    name = f"DECIMAL({wide.precision}, {wide.scale})"
    return [
        *(
            Function(f"round(x, {digits})", lambda x, _y, n=digits: fits(_half_up(x, min(n, type_.scale)), type_))
            for digits in (-80, -20, -3, -1, 0, 1, 3, 50)
        ),
        Function("round(x)", lambda x, _y: fits(_half_up(x, 0), type_)),
        Function("ceil(x)", lambda x, _y: fits(x.to_integral_value(ROUND_CEILING, EXACT), type_)),
        Function("floor(x)", lambda x, _y: fits(x.to_integral_value(ROUND_FLOOR, EXACT), type_)),
        Function("trunc(x)", lambda x, _y: fits(x.to_integral_value(ROUND_DOWN, EXACT), type_)),
        Function("abs(x)", lambda x, _y: x.copy_abs()),
        Function("(- x)", lambda x, _y: x.copy_negate() if x else x),
        Function("sign(x)", lambda x, _y: (x > 0) - (x < 0)),
        Function("x < y", lambda x, y: x < y),
        Function(f"CAST(x AS {name})", lambda x, _y: fits(x, wide)),
        Function("CAST(x AS DOUBLE)", lambda x, _y: float(x)),
        *(Function(f"CAST(x AS {kind})", lambda x, _y, n=MOST[kind]: whole(x, n)) for kind in MOST),
    ]


def _number(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda n: Decimal(n).scaleb(-scale, EXACT))


@given(st.data())
def test_decimals(data: st.DataObject) -> None:
    precision = data.draw(st.sampled_from([1, 5, 9, 18, 19, 36, 37, 38]))
    scale = data.draw(st.sampled_from(sorted({0, 1, min(2, precision), precision - 1, precision})))
    type_ = pa.decimal128(precision, scale)
    to = data.draw(st.sampled_from([pa.decimal128(n, m) for n, m in ((3, 1), (9, 2), (38, 20), (38, 37))]))
    limit = Decimal(10**precision - 1).scaleb(-scale, EXACT)
    edge = st.sampled_from([limit, EXACT.minus(limit)])
    batch = data.draw(batches(type_, _number(min(2, precision), scale) | _number(precision, scale), edge))
    functions = decimal_functions(type_, to)
    if precision < 38:
        functions += [
            Function("x + y", EXACT.add),
            Function("x - y", EXACT.subtract),
            Function("x * y", EXACT.multiply),
            Function("x % nullif(y, 0)", lambda x, y: EXACT.remainder(x, y) if y else None),
        ]
    check(batch, data.draw(st.sampled_from(functions)))


INTEGERS = [
    Function("x + y", lambda x, y: whole(x + y)),
    Function("x - y", lambda x, y: whole(x - y)),
    Function("x * y", lambda x, y: whole(x * y)),
    Function("x % nullif(y, 0)", lambda x, y: int(math.fmod(x, y)) if abs(x) < 2**53 > abs(y) and y else _mod(x, y)),
    Function("(- x)", lambda x, _y: whole(-x)),
    Function("abs(x)", lambda x, _y: whole(abs(x))),
    Function("sign(x)", lambda x, _y: (x > 0) - (x < 0)),
    Function("ceil(x)", lambda x, _y: x),
    *(
        Function(f"round(x, {n})", lambda x, _y, n=n: whole(_half_up(Decimal(x), n)))
        for n in (-30, -20, -19, -18, -2, 0, 3)
    ),
    *(Function(f"CAST(x AS {kind})", lambda x, _y, n=MOST[kind]: whole(x, n)) for kind in MOST),
    Function("CAST(x AS DECIMAL(9, 2))", lambda x, _y: fits(Decimal(x), pa.decimal128(9, 2))),
    Function("CAST(x AS DECIMAL(38, 30))", lambda x, _y: fits(Decimal(x), pa.decimal128(38, 30))),
    Function("CAST(x AS DOUBLE)", lambda x, _y: float(whole(x, 2**53 + 1))),
    Function("CAST(x AS VARCHAR)", lambda x, _y: str(x)),
]


def _mod(x: int, y: int) -> int | None:
    return None if y == 0 else abs(x) % abs(y) * (-1 if x < 0 else 1)


@given(
    batches(
        pa.int64(),
        st.integers(-9, 9) | st.integers(-(2**63), 2**63 - 1),
        st.sampled_from([-(2**63), 2**63 - 1, 2**53 + 1, 5 * 10**18]),
    ),
    st.sampled_from(INTEGERS),
)
def test_integers(batch: Batch, function: Function) -> None:
    if function.sql.startswith("x %") and (-(2**63), -1) in batch.rows:
        return  # the quotient overflows, which is an error
    check(batch, function)


def _float(compute: Callable[..., float]) -> Callable[..., float]:
    def of(*row: float) -> float:
        try:
            found = compute(*row)
        except (OverflowError, ValueError, ZeroDivisionError):
            raise Refused from None
        if isinstance(found, complex) or (not math.isfinite(found) and all(map(math.isfinite, row))):
            raise Refused
        return found

    return of


def _of_x(compute: Callable[[float], float]) -> Callable[..., float]:
    of = _float(compute)
    return lambda x, _y: of(x)


def _near(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-300)
    return bool(a == b)


def _rounded(digits: int) -> Callable[..., float]:
    def of(x: float) -> float:
        if not math.isfinite(x):
            return x
        return float(np.copysign(float(_half_up(Decimal(x), digits)), x))

    return _of_x(of)


def _narrow(x: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(x))


def _whole_float(x: float, _y: float) -> int:
    if not math.isfinite(x):
        raise Refused
    return whole(x)


def _near_decimal(x: float, _y: float) -> Decimal:
    if not math.isfinite(x) or abs(x) > 10**8:
        raise Refused
    return fits(Decimal(x).quantize(Decimal("0.01"), context=EXACT), pa.decimal128(9, 2))


FLOATS = [
    Function("x + y", _float(lambda x, y: x + y)),
    Function("x - y", _float(lambda x, y: x - y)),
    Function("x * y", _float(lambda x, y: x * y)),
    Function("x / y", _float(lambda x, y: x / y)),
    Function("power(x, y)", _float(lambda x, y: x**y if math.isfinite(x) and math.isfinite(y) else math.pow(x, y))),
    Function("exp(x)", _of_x(math.exp)),
    Function("(- x)", lambda x, _y: -x),
    Function("abs(x)", lambda x, _y: abs(x)),
    Function("sign(x)", lambda x, _y: x if math.isnan(x) else float((x > 0) - (x < 0))),
    *(Function(f"round(x, {n})", _rounded(n)) for n in (-310, -308, -300, -2, 0)),
    Function("round(x, 300)", lambda x, _y: x),
    Function("CAST(x AS FLOAT)", _of_x(_narrow)),
    Function("CAST(x AS BIGINT)", _whole_float),
    Function("CAST(x AS DECIMAL(9, 2))", _near_decimal),
]


@given(
    batches(
        pa.float64(),
        st.sampled_from([0.0, -0.0, 1.0, -2.0, 0.25, 3.0, -1000.75]),
        st.sampled_from([1.7e308, -1.7e308, 1e300, 9.3e18, 2.0**63, 9999999.996, math.inf, -math.inf, math.nan]),
    ),
    st.sampled_from(FLOATS),
)
def test_floats(batch: Batch, function: Function) -> None:
    check(batch, function, _near)


EPOCH = dt.date(1970, 1, 1)


def _day(number: int) -> dt.date:
    try:
        return EPOCH + dt.timedelta(number)
    except OverflowError:
        raise Refused from None


def _months_later(day: dt.date, months: int) -> dt.date:
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    for last in (day.day, 30, 29, 28):
        try:
            return dt.date(year, month + 1, last)
        except ValueError:
            continue
    raise Refused


MOMENTS = [
    ("year({x})", lambda d: d.year),
    ("quarter({x})", lambda d: (d.month + 2) // 3),
    ("month({x})", lambda d: d.month),
    ("day({x})", lambda d: d.day),
    ("week({x})", lambda d: d.isocalendar()[1]),
    ("isodow({x})", lambda d: d.isoweekday()),
    ("dayofyear({x})", lambda d: d.timetuple().tm_yday),
    ("date_diff('month', DATE '1970-01-01', {x})", lambda d: (d.year - 1970) * 12 + d.month - 1),
    ("date_diff('day', {x}, DATE '1970-01-01')", lambda d: (EPOCH - d).days),
    ("CAST(date_trunc('year', {x}) AS DATE)", lambda d: dt.date(d.year, 1, 1)),
    ("CAST(date_trunc('month', {x}) AS DATE)", lambda d: dt.date(d.year, d.month, 1)),
    ("CAST({x} + INTERVAL 7 MONTH AS DATE)", lambda d: _months_later(d, 7)),
    ("CAST({x} - INTERVAL 3 DAY AS DATE)", lambda d: d - dt.timedelta(3)),
    ("CAST({x} AS VARCHAR) LIKE '____-%'", lambda d: True),
]
PER_DAY = {"s": 86_400, "us": 86_400_000_000, "ns": 86_400_000_000_000}


@given(
    st.sampled_from([None, *PER_DAY]),
    st.lists(st.none() | st.integers(-100_000, 100_000), min_size=1, max_size=5),
    st.sampled_from([0, 2**31 - 1, -(2**31), 11_000_000, 2**63 - 1, -(2**63)]),
    st.integers(0, 5),
    st.sampled_from(MOMENTS),
)
def test_moments(
    unit: str | None, days: list[int | None], edge: int, at: int, function: tuple[str, Callable[[dt.date], Any]]
) -> None:
    """A moment beyond the years of Python has the right parts or is refused; no part is wrong."""
    if unit is None:
        edge = max(-(2**31), min(2**31 - 1, edge))
    numbers = [None if day is None else day * PER_DAY.get(unit or "", 1) for day in days]
    numbers.insert(min(at, len(numbers)), edge)
    type_ = pa.date32() if unit is None else pa.timestamp(unit)
    raw = pa.array(numbers, pa.int32() if unit is None else pa.int64())
    table = pa.table({"x": raw.cast(type_)})
    sql, of = function
    expression = parse_expression(sql.format(x="x"), table.schema)
    known = [None if n is None else math.floor(Fraction(n, PER_DAY.get(unit or "", 1))) for n in numbers]
    try:
        result = evaluate(expression, table)
    except ExpressionError:
        event("refused")
        return
    is_date = pa.types.is_date(result.type)
    found = (result.cast(pa.int32()) if is_date else result).to_pylist()
    for value, day in zip(found, known, strict=True):
        if day is None:
            assert value is None
        elif -719_162 + 31 < day < 2_932_896 - 310:  # the years that Python knows
            expected = of(_day(day))
            assert value == ((expected - EPOCH).days if is_date else expected)
