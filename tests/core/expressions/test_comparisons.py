"""Numbers of different types are compared exactly, and a float32 with a constant in double: in rows and in proofs."""

from __future__ import annotations

import math
import operator
import tempfile
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.expressions.generated import Generated, Row, both, column, combine, constant, either, strict
from fsspeckit.core.expressions.conditions import compile_condition
from fsspeckit.core.expressions.evaluate import evaluate
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

BIG = 2**53
SCHEMA = pa.schema(
    {"f": pa.float64(), "g": pa.float32(), "h": pa.float16(), "i": pa.int64(), "u": pa.uint64(), "n": pa.int8()}
)
FLOATS = [0.0, -0.0, 0.1, 0.5, 1.0, -3.0, 2.0**53, 2.0**63, -(2.0**63), 2.0**64, math.inf, -math.inf, math.nan]
NARROW = {"g": np.float32, "h": np.float16}
SMALL = [0.0, -0.0, 0.1, 0.5, 1.0, -3.0, 16777216.0, math.inf, math.nan]
WHOLE = [0, 1, -3, BIG, BIG + 1, -BIG - 1, 2**63 - 1, -(2**63)]
CONSTANTS = ["0", "0.1", "0.5", "0.1e0", "0.5e0", "1", "-3", "1.5e0", "16777217", str(BIG + 1), f"{BIG}e0"]
CONSTANTS += [str(2**63 - 1), "9223372036854775808e0", "1e300", "-1e300", "(- 0e0)"]


def rows() -> st.SearchStrategy[list[Row]]:
    floats, whole = st.sampled_from(FLOATS), st.sampled_from(WHOLE)
    with np.errstate(over="ignore"):
        small = {name: st.sampled_from([float(kind(x)) for x in SMALL]) for name, kind in NARROW.items()}
    many = {"f": floats, "i": whole, "u": st.sampled_from([0, 1, BIG + 1, 2**63, 2**64 - 1]), **small}
    many["n"] = st.sampled_from([0, 1, -3, 127])
    return st.lists(
        st.fixed_dictionaries({name: st.none() | many[name] for name in SCHEMA.names}), min_size=1, max_size=4
    )


def number(sql: str) -> Generated:
    """A number is the one that is written; a decimal is the nearest float, since the other side may be a float."""
    text = sql.strip("()").replace(" ", "")
    return constant(sql, int(text) if text.lstrip("-").isdigit() else float(text))


def rank(value: float) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return (2, 0) if math.isnan(value) else (math.copysign(1, value), 0)
    return (0, Fraction(value))


def by(function: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    return strict(lambda a, b: function(rank(a), rank(b)))


SIGNS = {"=": by(operator.eq), "<>": by(operator.ne), "<": by(operator.lt), "<=": by(operator.le)}
SIGNS |= {">": by(operator.gt), ">=": by(operator.ge)}
EQUAL, NOT_ABOVE = SIGNS["="], SIGNS["<="]


def is_one_of(a: Any, b: Any, c: Any) -> Any:
    return either(EQUAL(a, b), EQUAL(a, c))


def conditions() -> st.SearchStrategy[Generated]:
    side = st.sampled_from([column(name) for name in SCHEMA.names] + [number(text) for text in CONSTANTS])
    return st.one_of(
        *(combine(f"{{}} {sign} {{}}", function, side, side) for sign, function in SIGNS.items()),
        combine("{} BETWEEN {} AND {}", lambda a, b, c: both(NOT_ABOVE(b, a), NOT_ABOVE(a, c)), side, side, side),
        combine("{} IN ({}, {})", is_one_of, side, side, side),
        combine("{} NOT IN ({}, {})", lambda *row: strict(operator.not_)(is_one_of(*row)), side, side, side),
        combine("{} IS DISTINCT FROM {}", lambda a, b: (a is None) != (b is None) or EQUAL(a, b) is False, side, side),
        combine("CASE {} WHEN {} THEN true ELSE false END", lambda a, b: EQUAL(a, b) is True, side, side),
    )


@given(rows(), conditions())
def test_rows_and_proofs_say_what_exact_numbers_say(found: list[Row], condition: Generated) -> None:
    halves = [None if row["h"] is None else np.float16(row["h"]) for row in found]
    table = pa.Table.from_pylist([{**row, "h": half} for row, half in zip(found, halves, strict=True)], SCHEMA)
    expected = [condition.of(row) for row in found]
    assert evaluate(compile_condition(condition.sql, SCHEMA), table).to_pylist() == expected
    with tempfile.TemporaryDirectory() as folder:
        numbered = table.append_column("row", pa.array(range(len(found))))
        pq.write_table(numbered, f"{folder}/a.parquet", row_group_size=1)
        read = PyarrowDatasetIO().read_parquet(folder, filters=condition.sql)
    assert read["row"].to_pylist() == [number for number, is_true in enumerate(expected) if is_true]


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
