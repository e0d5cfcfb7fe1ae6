"""Errors of conditions and values name the argument, also while rows are read, and say what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fsspeckit import DamagedFileError, FilterError
from fsspeckit.common.errors import ExpressionError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

ROWS = pa.table({"s": ["a", "b", "1"], "a": [1, 2, 0], "zero": [0, 0, 0], "amount": [1.5, 2.5, 3.5]})
SOURCE = pa.table({"s": ["a", "new"], "a": [5, 6], "zero": [0, 0], "amount": [0.0, 0.0]})
IO = PyarrowDatasetIO()


def merge(path: str, **options: Any) -> Any:
    return IO.merge(SOURCE, path, strategy="upsert", key_columns=["s"], **options)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("filters: .*divide by zero", lambda path: IO.read_parquet(path, filters="a / zero > 1")),
        ("filters: .*above 1000000", lambda path: IO.read_parquet(path, filters="lpad(s, 10000000000, 'x') = 'x'")),
        ("filters: unknown column", lambda path: IO.read_parquet(path, filters="b > 1")),
        ("filters: ", lambda path: IO.read_parquet(path, filters="a >")),
        ("where: .*divide by zero", lambda path: IO.delete(path, where="a / zero > 1")),
        ("where: .*divide by zero", lambda path: IO.update(path, set={"a": "1"}, where="a / zero > 1")),
        ("set: .*divide by zero", lambda path: IO.update(path, set={"amount": "a / zero"}, where="true")),
        ("set: unknown .*did you mean 'amount'", lambda path: IO.update(path, set={"amonut": "1"}, where="true")),
        ("update_when: .*divide by zero", lambda path: merge(path, update_when="source.a / target.zero > 1")),
        ("insert_when: .*divide by zero", lambda path: merge(path, insert_when="source.a / source.zero > 1")),
        ("insert_when: .*use only columns of the source$", lambda path: merge(path, insert_when="target.a = 1")),
        ("delete_when: .*divide by zero", lambda path: merge(path, delete_when="a / zero > 1")),
        (
            "replace_where: .*divide by zero",
            lambda path: IO.write_dataset(ROWS, path, mode="overwrite", replace_where="a / zero > 1"),
        ),
    ],
)
def test_the_argument_is_named_and_nothing_changes(tmp_path: Path, message: str, call: Any) -> None:
    pq.write_table(ROWS, tmp_path / "a.parquet")
    with pytest.raises(ExpressionError, match=f"^{message}"):
        call(str(tmp_path))
    assert pq.read_table(tmp_path / "a.parquet").equals(ROWS)


@pytest.mark.parametrize(
    "filters", [pc.divide_checked(pc.field("a"), pc.field("zero")) > 0, pc.field("s").cast("int64") > 0], ids=str
)
def test_a_filter_that_fails_is_not_a_damaged_file(tmp_path: Path, filters: Any) -> None:
    pq.write_table(ROWS, tmp_path / "a.parquet")
    for columns in (None, ["amount"]):
        with pytest.raises(FilterError, match=r"^filters: .* cannot be computed for the rows of a\.parquet") as error:
            IO.read_parquet(tmp_path, columns=columns, filters=filters)
        assert not isinstance(error.value, DamagedFileError)
