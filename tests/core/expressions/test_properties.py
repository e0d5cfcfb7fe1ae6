"""Random conditions mean what a plain Python function and DuckDB say, also where others guard them."""

from __future__ import annotations

import duckdb
import pyarrow as pa
from hypothesis import given

from core.expressions.generated import SCHEMA, Generated, Row, conditions, numbers, rows
from fsspeckit.core.expressions.conditions import compile_condition
from fsspeckit.core.expressions.evaluate import evaluate
from fsspeckit.core.expressions.parse import parse_expression


@given(rows(), conditions())
def test_a_condition_means_what_the_oracle_and_duckdb_say(found: list[Row], condition: Generated) -> None:
    given = pa.Table.from_pylist(found, SCHEMA)
    compiled = compile_condition(condition.sql, SCHEMA)
    assert evaluate(compiled, given).to_pylist() == [condition.of(row) for row in found]
    guarded = f"CASE WHEN i <> 0 THEN ({condition.sql}) AND (1 % i = 0 OR ({condition.sql})) END"
    answer = duckdb.sql(f"SELECT ({condition.sql}), ({guarded}) FROM given").fetchall()
    for number, text in enumerate((condition.sql, guarded)):
        assert evaluate(compile_condition(text, SCHEMA), given).to_pylist() == [row[number] for row in answer]


@given(rows(), numbers())
def test_a_value_is_what_the_oracle_says(found: list[Row], number: Generated) -> None:
    compiled = parse_expression(number.sql, SCHEMA)
    assert evaluate(compiled, pa.Table.from_pylist(found, SCHEMA)).to_pylist() == [number.of(row) for row in found]
