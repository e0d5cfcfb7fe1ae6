"""A condition guards a computation that fails for other rows."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given

from core.expressions.generated import SCHEMA, Generated, Row, conditions, rows
from fsspeckit.common.errors import ExpressionError
from fsspeckit.core.expressions.conditions import compile_condition
from fsspeckit.core.expressions.evaluate import evaluate
from fsspeckit.core.expressions.parse import parse_expression

TABLE = pa.table({"a": [6, 6, None, 6], "b": [0, 3, 0, None], "s": ["12", "x", None, "7"], "l": [[1], [2], None, []]})


def computed(text: str) -> list[Any]:
    return evaluate(parse_expression(text, TABLE.schema), TABLE).to_pylist()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("b <> 0 AND a / b > 1", [False, True, False, None]),
        ("b = 0 OR a / b > 1", [True, True, True, None]),
        ("NOT (b = 0 OR a / b > 1)", [False, False, False, None]),
        ("b <> 0 AND a / b > 1 AND a % b = 0", [False, True, False, None]),
        ("b <> 0 AND 6 / b IN (2.0)", [False, True, False, None]),
        (
            "CASE WHEN regexp_matches(s, '^[0-9]+$') THEN CAST(s AS BIGINT) = 12 ELSE false END",
            [True, False, False, False],
        ),
        ("CASE WHEN b = 0 THEN -1 WHEN a / b = 2 THEN a % b END", [-1, 0, -1, None]),
        ("CASE b WHEN 0 THEN s ELSE lpad(s, CAST(2 AS BIGINT), '0') END", ["12", "0x", None, "07"]),
        ("if(b = 0, NULL, a / b) * 2", [None, 4.0, None, None]),
        ("coalesce(nullif(b, 0), CASE WHEN b = 0 THEN 1 ELSE 1 % b END)", [1, 3, 1, None]),
        ("coalesce(b, 1 / 0)", None),
        ("coalesce(b, 5, 1 % 0)", [0, 3, 0, 5]),
        ("CASE WHEN b = 7 THEN 1 / 0 END", [None, None, None, None]),
        ("a / b > 1", None),
        ("a / b > 1 AND b <> 0", None),
    ],
)
def test_guards(text: str, values: list[Any] | None) -> None:
    if values is not None:
        assert computed(text) == values
        return
    with pytest.raises(ExpressionError, match="divide by zero"):
        computed(text)


def test_levels_of_guards_take_linear_time() -> None:
    text = "1 / 0 = 1"
    for level in range(25):
        text = f"CASE WHEN a = {level} THEN true ELSE {text} END"
    with pytest.raises(ExpressionError, match="divide by zero"):
        computed(text)


@given(rows(), conditions())
def test_guarded_conditions_mean_what_duckdb_says(found: list[Row], condition: Generated) -> None:
    given = pa.Table.from_pylist(found, SCHEMA)
    text = f"CASE WHEN i <> 0 THEN ({condition.sql}) AND (1 % i = 0 OR ({condition.sql})) END"
    answer = duckdb.sql(f"SELECT ({text}) FROM given").fetchall()
    assert evaluate(compile_condition(text, SCHEMA), given).to_pylist() == [row[0] for row in answer]
