"""Errors of conditions and values name the argument, also while rows are read, and say what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import sqlglot

from fsspeckit import DamagedFileError, FilterError
from fsspeckit.common.errors import ExpressionError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

ROWS = pa.table({"s": ["a", "b", "1"], "a": [1, 2, 0], "zero": [0, 0, 0], "amount": [1.5, 2.5, 3.5]})


@pytest.fixture
def path(tmp_path: Path) -> str:
    pq.write_table(ROWS, tmp_path / "a.parquet")
    return str(tmp_path)


@pytest.mark.parametrize("filters", ["a / zero > 1", "length(lpad(s, 10000000000, 'x')) > 1", "b > 1", "a >", "a"])
def test_a_read_names_its_filters(path: str, filters: str) -> None:
    with pytest.raises(ExpressionError, match=r"^filters: "):
        PyarrowDatasetIO().read_parquet(path, filters=filters)


@pytest.mark.parametrize(
    "filters",
    [pc.divide_checked(pc.field("a"), pc.field("zero")) > 0, pc.field("s").cast("int64") > 0],
    ids=["division", "cast"],
)
@pytest.mark.parametrize("columns", [None, ["amount"]])
def test_a_filter_that_fails_is_not_a_damaged_file(path: str, filters: Any, columns: list[str] | None) -> None:
    with pytest.raises(FilterError, match=r"^filters: .* cannot be computed for the rows of a\.parquet") as error:
        PyarrowDatasetIO().read_parquet(path, columns=columns, filters=filters)
    assert not isinstance(error.value, DamagedFileError)


@pytest.mark.parametrize(
    "change",
    [
        lambda io, path: io.delete(path, where="a / zero > 1"),
        lambda io, path: io.update(path, set={"a": "1"}, where="a / zero > 1"),
    ],
    ids=["delete", "update"],
)
def test_a_change_names_where(path: str, change: Any) -> None:
    with pytest.raises(ExpressionError, match=r"^where: .*divide by zero"):
        change(PyarrowDatasetIO(), path)


def test_an_update_names_set(path: str) -> None:
    with pytest.raises(ExpressionError, match=r"^set: .*divide by zero"):
        PyarrowDatasetIO().update(path, set={"amount": "a / zero"}, where="true")
    with pytest.raises(ExpressionError, match=r"^set: unknown .*did you mean 'amount'\?"):
        PyarrowDatasetIO().update(path, set={"amonut": "1"}, where="true")
    assert pq.read_table(path).equals(ROWS)


@pytest.mark.parametrize(
    ("argument", "condition"),
    [
        ("update_when", "source.a / target.zero > 1"),
        ("insert_when", "source.a / source.zero > 1"),
        ("delete_when", "a / zero > 1"),
    ],
)
def test_a_merge_names_the_condition(path: str, argument: str, condition: str) -> None:
    source = pa.table({"s": ["a", "new"], "a": [5, 6], "zero": [0, 0], "amount": [0.0, 0.0]})
    with pytest.raises(ExpressionError, match=f"^{argument}: .*divide by zero"):
        PyarrowDatasetIO().merge(source, path, strategy="upsert", key_columns=["s"], **{argument: condition})


def test_replace_where_is_named(path: str) -> None:
    with pytest.raises(ExpressionError, match=r"^replace_where: .*divide by zero"):
        PyarrowDatasetIO().write_dataset(ROWS, path, mode="overwrite", replace_where="a / zero > 1")


def test_conditions_of_new_rows_read_only_the_source(path: str) -> None:
    source = ROWS.slice(0, 1)
    merge = PyarrowDatasetIO().merge
    with pytest.raises(ExpressionError, match=r"use only columns of the source$"):
        merge(source, path, strategy="upsert", key_columns=["s"], insert_when="target.a = 1")
    merge(source, path, strategy="upsert", key_columns=["s"], insert_when="SOURCE.a = 1", dry_run=True)


@pytest.mark.parametrize(
    "run",
    [
        lambda io, path: io.read_parquet(path, filters="a IN (1, 2)"),
        lambda io, path: io.delete(path, where="a IN (1, 2)"),
        lambda io, path: io.write_dataset(ROWS.slice(0, 1), path, mode="overwrite", replace_where="a IN (1, 2)"),
    ],
    ids=["read", "delete", "replace"],
)
def test_a_text_is_parsed_once(path: str, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    parse = sqlglot.parse
    monkeypatch.setattr(sqlglot, "parse", lambda text, **options: texts.append(text) or parse(text, **options))
    run(PyarrowDatasetIO(), path)
    assert texts == ["a IN (1, 2)"]
