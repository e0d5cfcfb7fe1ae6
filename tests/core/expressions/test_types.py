"""Casts, constants and the types that columns can be set to."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.common.errors import ExpressionError
from fsspeckit.core.expressions.conditions import compile_values
from fsspeckit.core.expressions.evaluate import evaluate
from fsspeckit.core.expressions.parse import parse_expression

TABLE = pa.table(
    {
        "i": pa.array([7], pa.int64()),
        "f": [1.5],
        "dec": pa.array([Decimal("1.25")], pa.decimal128(9, 2)),
        "t": pa.array([dt.time(1, 30)], pa.time64("us")),
        "ts": pa.array(["2026-01-02T03:00:00"]).cast(pa.timestamp("us")),
    }
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("CAST(i AS DECIMAL(9, 2))", Decimal("7.00")),
        ("CAST(7 AS DECIMAL(9, 2))", Decimal("7.00")),
        ("CAST(7 AS DECIMAL)", Decimal("7.000")),
        ("CAST('10:00' AS TIME)", dt.time(10)),
        ("t < '02:00:00'", True),
        ("CAST(ts AS DATE)", dt.date(2026, 1, 2)),
        ("99999999999999999999", Decimal(99999999999999999999)),
        ("1e3", 1000.0),
    ],
)
def test_casts_and_constants(text: str, value: Any) -> None:
    assert evaluate(parse_expression(text, TABLE.schema), TABLE).to_pylist() == [value]


@pytest.mark.parametrize(
    "text",
    ["CAST('x' AS TIME)", "CAST(1 AS DECIMAL(50, 2))", "CAST(1 AS FOO)", "CAST(1 AS VARCHAR(3))", "t < 'x'", "i < '5'"],
)
def test_what_is_no_value_of_a_type(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse_expression(text, TABLE.schema)


def test_a_decimal_is_rounded_to_its_column() -> None:
    found = compile_values({"dec": "dec * 1.1"}, TABLE.schema)
    assert evaluate(found["dec"], TABLE).to_pylist() == [Decimal("1.38")]


@pytest.mark.parametrize("values", [{"dec": "f"}, {"i": "f"}, {"i": "dec"}, {"i": "t"}, {"t": "ts"}])
def test_a_column_is_not_set_to_a_value_that_would_change(values: dict[str, str]) -> None:
    with pytest.raises(ExpressionError, match="cast it"):
        compile_values(values, TABLE.schema)


WIDE = pa.schema(
    [
        ("a", pa.int8()),
        ("u", pa.uint32()),
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("dec", pa.decimal128(9, 2)),
        ("ns", pa.timestamp("ns")),
        ("day", pa.date32()),
        ("s", pa.string()),
        ("raw", pa.binary()),
        ("l", pa.list_(pa.int64())),
    ]
)


@pytest.mark.parametrize(
    ("column", "text", "advice"),
    [
        ("a", "300", "pass a value that the type can represent exactly"),
        ("f", "9007199254740993", "pass a value that the type can represent exactly"),
        ("ns", "TIMESTAMP '3000-01-01'", "pass a value that the type can represent exactly"),
        ("ns", "'3000-01-01'", "pass a date or timestamp that the type can represent"),
        ("ns", "'yesterday'", "pass a date or timestamp that the type can represent"),
        ("a", "'x'", "pass a number"),
        ("i", "f", r"cast it, as in CAST\(ROUND\(f\) AS BIGINT\)"),
        ("dec", "f", r"cast it, as in CAST\(f AS DECIMAL\(9, 2\)\)"),
        ("a", "s", r"cast it, as in CAST\(s AS TINYINT\)"),
        ("u", "s", r"cast it, as in CAST\(s AS BIGINT\)"),
        ("day", "s", r"cast it, as in CAST\(s AS DATE\)"),
        ("day", "ns", r"cast it, as in CAST\(ns AS DATE\)"),
        ("ns", "s", r"cast it, as in CAST\(s AS TIMESTAMP\)"),
        ("s", "i", r"cast it, as in CAST\(i AS VARCHAR\)"),
        ("i", "day", "pass a number"),
        ("s", "raw", r"cast it, as in CAST\(raw AS VARCHAR\)"),
        ("l", "i", r"pass a list<"),
    ],
)
def test_the_advice_is_one_that_works(column: str, text: str, advice: str) -> None:
    with pytest.raises(ExpressionError, match=advice):
        compile_values({column: text}, WIDE)
    if advice.startswith("cast it"):
        compile_values({column: advice.partition("as in ")[2].replace("\\", "")}, WIDE)
