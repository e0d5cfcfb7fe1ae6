"""What statistics prove about conditions is true of every row, whatever the statistics are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.expressions.generated import SCHEMA, Generated, Row, conditions, rows
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import load_snapshot
from fsspeckit.core.expressions.conditions import compile_condition
from fsspeckit.core.model import DataFile
from fsspeckit.core.planning.condition_proofs import Truth, possible_truths


def file_of(folder: Path, table: pa.Table, rows_per_group: int, **options: Any) -> DataFile:
    pq.write_table(table, folder / "a.parquet", row_group_size=rows_per_group, **options)
    place = Place.of(str(folder), None, None)
    (file,) = load_snapshot(place.storage, place.journal.view(), stats_for=table.column_names).files
    return file


def truth(value: bool | None) -> Truth:
    return Truth.NULL if value is None else Truth.TRUE if value else Truth.FALSE


@given(found=rows(), condition=conditions(), rows_per_group=st.integers(1, 5), statistics=st.booleans())
def test_every_truth_value_of_a_row_is_possible(
    tmp_path_factory: pytest.TempPathFactory,
    found: list[Row],
    condition: Generated,
    rows_per_group: int,
    statistics: bool,
) -> None:
    table = pa.Table.from_pylist(found, SCHEMA)
    file = file_of(tmp_path_factory.mktemp("proof"), table, rows_per_group, write_statistics=statistics)
    possible = possible_truths(compile_condition(condition.sql, SCHEMA), file)
    for number, row in enumerate(found):
        assert truth(condition.of(row)) in possible[number // rows_per_group]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("i < 5", [Truth.TRUE, Truth.FALSE]),
        ("i >= 5", [Truth.FALSE, Truth.TRUE]),
        ("i = 2", [Truth.TRUE | Truth.FALSE, Truth.FALSE]),
        ("i IN (1, 2)", [Truth.TRUE | Truth.FALSE, Truth.FALSE]),
        ("i NOT IN (1, NULL)", [Truth.NULL | Truth.FALSE, Truth.NULL]),
        ("i BETWEEN 0 AND 9", [Truth.TRUE, Truth.TRUE | Truth.FALSE]),
        ("s LIKE 'a%'", [Truth.TRUE | Truth.FALSE, Truth.FALSE]),
        ("f > 2.5", [Truth.TRUE | Truth.FALSE, Truth.TRUE]),
        ("f < 0", [Truth.FALSE, Truth.FALSE]),
        ("n IS NULL", [Truth.FALSE, Truth.TRUE]),
        ("n = 1", [Truth.TRUE, Truth.NULL]),
        ("i < 5 AND n = 1", [Truth.TRUE, Truth.FALSE]),
        ("i < 5 OR n = 1", [Truth.TRUE, Truth.NULL]),
        ("i = 2.5", [Truth.TRUE | Truth.FALSE, Truth.FALSE]),
        ("i + 1 = 2", [Truth.ANY, Truth.ANY]),
        ("1 = 2", [Truth.FALSE, Truth.FALSE]),
    ],
)
def test_bounds_prove_what_they_can(tmp_path: Path, condition: str, expected: list[Truth]) -> None:
    table = pa.table(
        {
            "i": [1, 2, 3, 8, 9, 10],
            "s": ["a", "aa", "ab", "x", "y", "z"],
            "f": [0.0, 1.0, math.nan, 3.0, 4.0, 5.0],
            "n": pa.array([1, 1, 1, None, None, None], pa.int64()),
        }
    )
    file = file_of(tmp_path, table, 3)
    assert possible_truths(compile_condition(condition, table.schema), file) == expected


def test_a_file_without_the_column_has_nulls(tmp_path: Path) -> None:
    file = file_of(tmp_path, pa.table({"i": [1]}), 1)
    wider = pa.schema([("i", pa.int64()), ("new", pa.string())])
    assert possible_truths(compile_condition("new IS NULL", wider), file) == [Truth.TRUE]
    assert possible_truths(compile_condition("new = 'a'", wider), file) == [Truth.NULL]
