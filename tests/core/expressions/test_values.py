"""Values at the limits of their types: zeros, NULL, divisions by zero, and numbers and moments out of range."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest

from fsspeckit.common.errors import ExpressionError
from fsspeckit.core.expressions.conditions import compile_condition
from fsspeckit.core.expressions.evaluate import evaluate
from fsspeckit.core.expressions.parse import parse_expression

TABLE = pa.table(
    {
        "f": [0.0, -0.0, 7.5],
        "small": pa.array([1.0, 0.1, 3e38], pa.float32()),
        "day": pa.array([0, 1, 2], pa.int32()).cast(pa.date32()),
        "us": pa.array([0, 1, 2], pa.int64()).cast(pa.timestamp("us")),
        "ns": pa.array([0, -(2**63), 2**63 - 1], pa.int64()).cast(pa.timestamp("ns")),
        "nothing": pa.nulls(3),
    }
)


def computed(text: str) -> list[Any]:
    return evaluate(parse_expression(text, TABLE.schema), TABLE).to_pylist()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("f IN (0.0)", [True, True, False]),
        ("f NOT IN (-0e0, 3)", [False, False, True]),
        ("f % 2", [0.0, 0.0, 1.5]),
        ("small < 1e300", [True, True, True]),
        ("small = 1e300", [False, False, False]),
        ("small > -1e300", [True, True, True]),
    ],
)
def test_numbers(text: str, values: list[Any]) -> None:
    assert computed(text) == values


@pytest.mark.parametrize("text", ["f % 0.0", "f % 0e0", "mod(f, 0)", "f / f", "mod(7, 0)"])
def test_a_division_by_zero_is_an_error(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"NULLIF\(divisor, 0\)"):
        computed(text)


@pytest.mark.parametrize(
    "text",
    [
        "day + INTERVAL 100000000 MONTH",
        "day - INTERVAL 10000000 YEAR",
        "us + INTERVAL 400000 YEAR",
        "ns + INTERVAL 1000 YEAR",
        "ns + INTERVAL 1 MONTH",
    ],
)
def test_a_moment_out_of_range_is_an_error(text: str) -> None:
    with pytest.raises(ExpressionError):
        computed(text)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("ns < '9999-12-31'", [True, True, True]),
        ("ns >= TIMESTAMP '9999-12-31 00:00:00'", [False, False, False]),
        ("DATE '0001-01-01' < ns", [True, True, True]),
        ("ns > '2262-04-11 23:47:16.854776'", [False, False, False]),
        ("ns <= '1677-09-21 00:12:43.145224'", [False, False, False]),
        ("ns IN ('9999-12-31', '1970-01-01')", [True, False, False]),
        ("ns NOT IN ('9999-12-31', NULL)", [None, None, None]),
        ("small IN (CAST(0.1 AS FLOAT), 1e300)", [False, True, False]),
    ],
)
def test_a_constant_beyond_the_type_of_a_column(text: str, values: list[Any]) -> None:
    assert computed(text) == values


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("f < " + "9" * 80, "at most 76 digits"),
        ("f < -0." + "9" * 80, "at most 76 digits"),
        ("f < " + "9" * 5000, "at most 76 digits"),
        ("f < 1e999", "at most 76 digits"),
        ("9007199254740993 + 1.5e0", "cast the other side"),
        ("day + INTERVAL 999999999999999 DAY", "use at most 106751991 DAY"),
        ("day + INTERVAL 999999999999999999 YEAR", "use at most"),
        ("day + INTERVAL 99999999999999999999999 MONTH", "use at most"),
        ("'\ud800' = 'a'", "UTF-8"),
        ("lpad('a', 2000000000)", "is above 1000000"),
        ("length(rpad('a', 10000000000, 'x')) > 1", "is above 1000000"),
    ],
)
def test_what_no_type_can_hold_is_an_error_with_advice(text: str, advice: str) -> None:
    with pytest.raises(ExpressionError, match=advice) as error:
        computed(text)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize("where", [b"true", bytearray(b"true"), [("s", "=", "\ud800")], 7, {}])
def test_what_is_not_a_condition(where: Any) -> None:
    with pytest.raises(ExpressionError, match="pass SQL text"):
        compile_condition(where, pa.schema([("s", pa.string())]))


@pytest.mark.parametrize(
    "text",
    [
        "NULL = NULL",
        "NULL < nothing",
        "nothing = nothing",
        "NULL IN (NULL)",
        "NULL BETWEEN NULL AND NULL",
        "CASE NULL WHEN NULL THEN 1 END",
        "abs(NULL)",
        "abs(nothing)",
        "round(NULL)",
        "nullif(NULL, NULL)",
        "greatest(NULL, NULL)",
    ],
)
def test_null_gives_null(text: str) -> None:
    assert computed(text) == [None, None, None]


@pytest.mark.parametrize("count", range(-5, 6))
@pytest.mark.parametrize(
    "text", ["left(s, {n})", "right(s, {n})", "substring(s, {n})", *(f"substring(s, {{n}}, {m})" for m in (0, 1, 2, 4))]
)
def test_characters_are_counted_as_in_duckdb(text: str, count: int) -> None:
    given = pa.table({"s": ["", "ä", "ab", "abcä", None]})
    sql = text.format(n=count)
    expected = [row[0] for row in duckdb.sql(f"SELECT {sql} FROM given").fetchall()]
    assert evaluate(parse_expression(sql, given.schema), given).to_pylist() == expected
