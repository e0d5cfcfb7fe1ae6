"""Values of expressions: guards, casts, NULL, limits of types, and errors with advice that works."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from fsspeckit.common.errors import ExpressionError
from fsspeckit.core.expressions.conditions import compile_condition, compile_values
from fsspeckit.core.expressions.evaluate import evaluate
from fsspeckit.core.expressions.functions import FUNCTIONS
from fsspeckit.core.expressions.parse import SHARED_TYPE, parse_expression

TABLE = pa.table(
    {
        "a": [6, 6, None, 6],
        "b": [0, 3, 0, None],
        "s": ["12", "x", None, "7"],
        "f": [0.0, -0.0, 7.5, None],
        "small": pa.array([1.0, 0.1, 3e38, None], pa.float32()),
        "dec": pa.array([Decimal("1.25")] * 4, pa.decimal128(9, 2)),
        "t": pa.array([dt.time(1, 30)] * 4, pa.time64("us")),
        "day": pa.array([0, 1, 2, 3], pa.int32()).cast(pa.date32()),
        "us": pa.array([0, 1, 2, 3], pa.int64()).cast(pa.timestamp("us")),
        "ns": pa.array([0, -(2**63), 2**63 - 1, None], pa.int64()).cast(pa.timestamp("ns")),
        "nothing": pa.nulls(4),
    }
)
PAGE = (Path(__file__).parents[3] / "docs" / "expressions.md").read_text("utf-8")
ROWS = re.findall(r"^\| .*? \| `(.+)` \| `(.*)` \|$", PAGE, re.MULTILINE)


def computed(text: str) -> list[Any]:
    return evaluate(parse_expression(text, TABLE.schema), TABLE).to_pylist()


def test_the_examples_of_the_page_give_their_results() -> None:
    for example, result in ROWS:
        expression = parse_expression(example.replace("\\|", "|"), pa.schema([]))
        (value,) = evaluate(expression, pa.table({"": pa.nulls(1)})).to_pylist()
        shown = "NULL" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        assert shown == result, example
    documented = set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE))
    assert documented == {*FUNCTIONS, *SHARED_TYPE, "mod"}
    assert len(ROWS) > len(documented)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("b <> 0 AND a / b > 1", [False, True, False, None]),
        ("NOT (b = 0 OR a / b > 1)", [False, False, False, None]),
        ("b <> 0 AND a / b > 1 AND a % b = 0", [False, True, False, None]),
        ("b <> 0 AND 6 / b IN (2.0)", [False, True, False, None]),
        ("CASE WHEN regexp_matches(s, '^[0-9]+$') THEN CAST(s AS BIGINT) = 12 END", [True, None, None, False]),
        ("CASE WHEN b = 0 THEN -1 WHEN a / b = 2 THEN a % b END", [-1, 0, -1, None]),
        ("CASE b WHEN 0 THEN s ELSE lpad(s, CAST(2 AS BIGINT), '0') END", ["12", "0x", None, "07"]),
        ("if(b = 0, NULL, a / b) * 2", [None, 4.0, None, None]),
        ("coalesce(nullif(b, 0), CASE WHEN b = 0 THEN 1 ELSE 1 % b END)", [1, 3, 1, None]),
        ("coalesce(b, 5, 1 % 0)", [0, 3, 0, 5]),
        ("CASE WHEN b = 7 THEN 1 / 0 END", [None] * 4),
        ("f IN (0.0)", [True, True, False, None]),
        ("f NOT IN (-0e0, 3)", [False, False, True, None]),
        ("small < 1e300", [True, True, True, None]),
        ("small IN (CAST(0.1 AS FLOAT), 1e300)", [False, True, False, None]),
        ("ns < '9999-12-31'", [True, True, True, None]),
        ("ns > '2262-04-11 23:47:16.854776'", [False, False, False, None]),
        ("ns <= '1677-09-21 00:12:43.145224'", [False, False, False, None]),
        ("ns NOT IN ('9999-12-31', NULL)", [None] * 4),
        ("CAST(7 AS DECIMAL(9, 2))", [Decimal("7.00")] * 4),
        ("CAST('10:00' AS TIME)", [dt.time(10)] * 4),
        ("t < '02:00:00'", [True] * 4),
        ("99999999999999999999", [Decimal(99999999999999999999)] * 4),
    ],
)
def test_values(text: str, values: list[Any]) -> None:
    assert computed(text) == values


def test_null_gives_null() -> None:
    texts = ["NULL = NULL", "NULL < nothing", "nothing = nothing", "NULL IN (NULL)", "NULL BETWEEN NULL AND NULL"]
    texts += [
        "CASE NULL WHEN NULL THEN 1 END",
        "abs(NULL)",
        "abs(nothing)",
        "nullif(NULL, NULL)",
        "greatest(NULL, NULL)",
    ]
    assert [computed(text) for text in texts] == [[None] * 4] * len(texts)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        *((text, r"NULLIF\(divisor, 0\)") for text in ("f % 0.0", "f % 0e0", "mod(a, b)", "f / f", "a / b > 1")),
        *((text, "divide by zero") for text in ("a / b > 1 AND b <> 0", "coalesce(b, 1 / 0)")),
        ("f < " + "9" * 80, "at most 76 digits"),
        ("f < " + "9" * 5000, "at most 76 digits"),
        ("9007199254740993 + 1.5e0", "cast the other side"),
        ("day + INTERVAL 999999999999999 DAY", "use at most 106751991 DAY"),
        ("day + INTERVAL 99999999999999999999999 MONTH", "use at most"),
        *((f"{text} MONTH", ".") for text in ("day + INTERVAL 100000000", "us + INTERVAL 4800000", "ns + INTERVAL 1")),
        ("'\ud800' = 'a'", "UTF-8"),
        ("lpad('a', 2000000000)", "is above 1000000"),
        *((f"CAST({text})", ".") for text in ("'x' AS TIME", "1 AS DECIMAL(50, 2)", "1 AS FOO", "1 AS VARCHAR(3)")),
        *((text, ".") for text in ("t < 'x'", "a < '5'")),
    ],
)
def test_what_no_type_can_hold_is_an_error_with_advice(text: str, advice: str) -> None:
    with pytest.raises(ExpressionError, match=advice) as error:
        computed(text)
    assert len(str(error.value)) < 600


def test_levels_of_guards_take_linear_time() -> None:
    text = "1 / 0 = 1"
    for level in range(25):
        text = f"CASE WHEN a = {level} THEN true ELSE {text} END"
    with pytest.raises(ExpressionError, match="divide by zero"):
        computed(text)


@pytest.mark.parametrize("where", [b"true", bytearray(b"true"), [("s", "=", "\ud800")], 7, {}])
def test_what_is_not_a_condition(where: Any) -> None:
    with pytest.raises(ExpressionError, match="pass SQL text"):
        compile_condition(where, pa.schema([("s", pa.string())]))


@pytest.mark.parametrize("text", ["left(s, {n})", "right(s, {n})", "substring(s, {n})", "substring(s, {n}, {m})"])
def test_characters_are_counted_as_in_duckdb(text: str) -> None:
    given = pa.table({"s": ["", "ä", "ab", "abcä", None]})
    for sql in {text.format(n=n, m=m) for n in range(-5, 6) for m in (0, 1, 2, 4)}:
        expected = [row[0] for row in duckdb.sql(f"SELECT {sql} FROM given").fetchall()]
        assert evaluate(parse_expression(sql, given.schema), given).to_pylist() == expected, sql


def test_a_decimal_is_rounded_to_its_column() -> None:
    found = compile_values({"dec": "dec * 1.1"}, TABLE.schema)
    assert evaluate(found["dec"], TABLE).to_pylist() == [Decimal("1.38")] * 4


WIDE = pa.schema(
    [
        *(("a", pa.int8()), ("u", pa.uint32()), ("i", pa.int64()), ("f", pa.float64()), ("dec", pa.decimal128(9, 2))),
        *(("ns", pa.timestamp("ns")), ("day", pa.date32()), ("s", pa.string()), ("raw", pa.binary())),
        *(("l", pa.list_(pa.int64())), ("t", pa.time64("us"))),
    ]
)


@pytest.mark.parametrize(
    ("column", "text", "advice"),
    [
        ("a", "300", "pass a value that the type can represent exactly"),
        ("f", "9007199254740993", "pass a value that the type can represent exactly"),
        ("ns", "TIMESTAMP '3000-01-01'", "pass a value that the type can represent exactly"),
        ("ns", "'3000-01-01'", "pass a date or timestamp that the type can represent"),
        ("a", "'x'", "pass a number"),
        ("i", "t", "pass a number|cast it"),
        ("i", "f", r"round it, as in CAST\(ROUND\(f\) AS BIGINT\)"),
        ("dec", "f", r"cast it, as in CAST\(f AS DECIMAL\(9, 2\)\)"),
        ("u", "s", r"cast it, as in CAST\(s AS BIGINT\)"),
        ("day", "ns", r"cut off the time of day, as in CAST\(ns AS DATE\)"),
        ("ns", "s", r"cast it, as in CAST\(s AS TIMESTAMP\)"),
        ("s", "raw", r"cast it, as in CAST\(raw AS VARCHAR\)"),
        ("l", "i", r"pass a list<"),
    ],
)
def test_a_column_is_not_set_to_a_value_that_would_change(column: str, text: str, advice: str) -> None:
    with pytest.raises(ExpressionError, match=advice):
        compile_values({column: text}, WIDE)
    if advice.startswith("cast it"):
        compile_values({column: advice.partition("as in ")[2].replace("\\", "")}, WIDE)
