"""Random conditions mean what a plain Python function and DuckDB say; proofs agree with all rows."""

from __future__ import annotations

import duckdb
import pyarrow as pa
from hypothesis import given

from core.expressions.generated import SCHEMA, Generated, Row, conditions, numbers, rows
from fsspeckit.core.expressions.conditions import compile_condition
from fsspeckit.core.expressions.evaluate import evaluate
from fsspeckit.core.expressions.parse import parse_expression


def table_of(found: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(found, SCHEMA)


@given(rows(), conditions())
def test_a_condition_means_what_the_oracle_says(found: list[Row], condition: Generated) -> None:
    compiled = compile_condition(condition.sql, SCHEMA)
    assert evaluate(compiled, table_of(found)).to_pylist() == [condition.of(row) for row in found]


@given(rows(), conditions())
def test_a_condition_means_what_duckdb_says(found: list[Row], condition: Generated) -> None:
    given = table_of(found)  # noqa: F841 - DuckDB finds it by its name
    answer = duckdb.sql(f"SELECT ({condition.sql}) AS found FROM given").fetchall()
    compiled = compile_condition(condition.sql, SCHEMA)
    assert evaluate(compiled, table_of(found)).to_pylist() == [row[0] for row in answer]


@given(rows(), numbers())
def test_a_value_is_what_the_oracle_says(found: list[Row], number: Generated) -> None:
    compiled = parse_expression(number.sql, SCHEMA)
    assert evaluate(compiled, table_of(found)).to_pylist() == [number.of(row) for row in found]
