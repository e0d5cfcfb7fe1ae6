"""Numbers of different types are compared exactly, and a float32 with a constant in double: in rows and in proofs."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.core.expressions.conditions import compile_condition
from fsspeckit.core.expressions.evaluate import evaluate
from fsspeckit.core.expressions.parse import parse_expression
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

BIG = 2**53
SCHEMA = pa.schema(
    [
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("h", pa.float16()),
        ("i", pa.int64()),
        ("u", pa.uint64()),
        ("n", pa.int8()),
    ]
)
FLOATS = [0.0, -0.0, 0.1, 0.5, 1.0, -3.0, 2.0**53, 2.0**63, -(2.0**63), 2.0**64, math.inf, -math.inf, math.nan]
SMALL = [0.0, -0.0, 0.1, 0.5, 1.0, -3.0, 16777216.0, math.inf, math.nan]
WHOLE = [0, 1, -3, BIG, BIG + 1, -BIG - 1, 2**63 - 1, -(2**63)]
CONSTANTS = ["0", "0.1", "0.5", "0.1e0", "0.5e0", "1", "-3", "1.5e0", "16777217", str(BIG + 1), f"{BIG}e0"]
CONSTANTS += [str(2**63 - 1), "9223372036854775808e0", "1e300", "-1e300", "(- 0e0)"]

Row = dict[str, Any]


class Side(NamedTuple):
    sql: str
    of: Callable[[Row], Any]


def narrowed(value: float, kind: type) -> float:
    with np.errstate(over="ignore"):
        return float(kind(value))


def rows() -> st.SearchStrategy[list[Row]]:
    floats, small, whole = st.sampled_from(FLOATS), st.sampled_from(SMALL), st.sampled_from(WHOLE)
    row = st.fixed_dictionaries(
        {
            "f": st.none() | floats,
            "g": st.none() | small.map(lambda x: narrowed(x, np.float32)),
            "h": st.none() | small.map(lambda x: narrowed(x, np.float16)),
            "i": st.none() | whole,
            "u": st.none() | st.sampled_from([0, 1, BIG + 1, 2**63, 2**64 - 1]),
            "n": st.none() | st.sampled_from([0, 1, -3, 127]),
        }
    )
    return st.lists(row, min_size=1, max_size=4)


def constant(sql: str) -> Side:
    """A number is the one that is written; a decimal is the nearest float, since the other side may be a float."""
    text = sql.strip("()").replace(" ", "")
    value = int(text) if text.lstrip("-").isdigit() else float(text)
    return Side(sql, lambda _row: value)


def sides() -> st.SearchStrategy[Side]:
    columns = [Side(name, lambda row, name=name: row[name]) for name in SCHEMA.names]
    return st.sampled_from(columns + [constant(text) for text in CONSTANTS])


def rank(value: float) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return (2, 0) if math.isnan(value) else (math.copysign(1, value), 0)
    return (0, Fraction(value))


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def compared(operator: str, a: Side, b: Side, row: Row) -> bool | None:
    left, right = a.of(row), b.of(row)
    return None if left is None or right is None else OPERATORS[operator](rank(left), rank(right))


def conjunction(*parts: bool | None) -> bool | None:
    return False if False in parts else None if None in parts else True


def conditions() -> st.SearchStrategy[Side]:
    def between(a: Side, b: Side, c: Side) -> Side:
        return Side(
            f"{a.sql} BETWEEN {b.sql} AND {c.sql}",
            lambda row: conjunction(compared(">=", a, b, row), compared("<=", a, c, row)),
        )

    def among(a: Side, b: Side, c: Side, negated: bool) -> Side:
        def of(row: Row) -> bool | None:
            parts = [compared("=", a, side, row) for side in (b, c)]
            found = True if True in parts else None if None in parts else False
            return found if found is None else found != negated

        return Side(f"{a.sql} {'NOT ' if negated else ''}IN ({b.sql}, {c.sql})", of)

    def distinct(a: Side, b: Side) -> Side:
        def of(row: Row) -> bool:
            found = compared("<>", a, b, row)
            return (a.of(row) is None) != (b.of(row) is None) if found is None else found

        return Side(f"{a.sql} IS DISTINCT FROM {b.sql}", of)

    def case(a: Side, b: Side) -> Side:
        return Side(f"CASE {a.sql} WHEN {b.sql} THEN true ELSE false END", lambda row: compared("=", a, b, row) is True)

    def simple(operator: str, a: Side, b: Side) -> Side:
        return Side(f"{a.sql} {operator} {b.sql}", lambda row: compared(operator, a, b, row))

    return st.one_of(
        st.builds(simple, st.sampled_from(list(OPERATORS)), sides(), sides()),
        st.builds(between, sides(), sides(), sides()),
        st.builds(among, sides(), sides(), sides(), st.booleans()),
        st.builds(distinct, sides(), sides()),
        st.builds(case, sides(), sides()),
    )


@given(rows(), conditions())
def test_rows_and_proofs_say_what_exact_numbers_say(found: list[Row], condition: Side) -> None:
    table = pa.Table.from_pylist([{**row, "h": _half(row["h"])} for row in found], SCHEMA)
    expected = [condition.of(row) for row in found]
    assert evaluate(compile_condition(condition.sql, SCHEMA), table).to_pylist() == expected
    with tempfile.TemporaryDirectory() as folder:
        numbered = table.append_column("row", pa.array(range(len(found))))
        pq.write_table(numbered, f"{folder}/a.parquet", row_group_size=1)
        read = PyarrowDatasetIO().read_parquet(folder, filters=condition.sql)
    assert read["row"].to_pylist() == [number for number, is_true in enumerate(expected) if is_true]


def _half(value: float | None) -> Any:
    return None if value is None else np.float16(value)


@pytest.mark.parametrize("sql", ["g = 0.1e0", "g IN (0.1e0)", "g BETWEEN 0.1e0 AND 0.2e0", "g IS DISTINCT FROM 0.1e0"])
def test_a_float_constant_is_not_narrowed_as_in_duckdb(sql: str) -> None:
    given = pa.table({"g": pa.array([0.1, 0.5, None], pa.float32())})
    expected = [row[0] for row in duckdb.sql(f"SELECT {sql} FROM given").fetchall()]
    assert evaluate(parse_expression(sql, given.schema), given).to_pylist() == expected


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("coalesce(g, 0.1e0) = 0.1e0", [False, True]),
        ("greatest(g, 0.2e0)", [0.2, 0.2]),
        ("least(g, 0.2e0) < 0.1e0", [False, False]),
        ("nullif(g, 0.1e0) IS NULL", [False, True]),
        ("CASE WHEN g IS NULL THEN 0.1e0 ELSE g END = 0.1e0", [False, True]),
        ("g = CAST(0.1 AS FLOAT)", [True, None]),
        ("nullif(i, 9007199254740992e0) IS NULL", [False, True]),
        ("sign(n)", [None, -1.0]),
    ],
)
def test_constants_beside_a_narrow_float(sql: str, values: list[Any]) -> None:
    table = pa.table({"g": pa.array([0.1, None], pa.float32()), "i": [BIG - 1, BIG], "n": [math.nan, -2.5]})
    found = evaluate(parse_expression(sql, table.schema), table).to_pylist()
    assert [None if value != value else value for value in found] == values


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ([("g", "=", 0.1)], []),
        ([("g", "in", [0.1, 0.5])], [1]),
        ([("g", "not in", [0.1])], [0, 1]),
        ([("g", ">", 0.1)], [0, 1]),
        ([("f", "=", BIG + 1)], []),
        ([("i", ">", float(BIG))], [0]),
        ([("i", "in", [float(BIG), 0.5])], [1]),
    ],
)
def test_tuples(condition: Any, rows: list[int]) -> None:
    table = pa.table({"g": pa.array([0.1, 0.5], pa.float32()), "f": [2.0**53, 1.0], "i": [BIG + 1, BIG]})
    found = evaluate(compile_condition(condition, table.schema), table).to_pylist()
    assert [row for row, is_true in enumerate(found) if is_true] == rows
