"""Parquet files as sources of a pipeline: read as the other engines read them, with or without steps in between."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import SchemaMismatchError, SourceFileError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.pipeline import Pipeline, StepFailedError
from inside import lower

IO = PyarrowDatasetIO()
KEPT = {"name": "kept", "do": "filter", "from": "raw", "where": "id > 0"}


def run(spark: Any, *between: dict[str, Any], **source: Any) -> pa.Table:
    """Files into a new dataset `lake`."""
    raw = {"format": "parquet", "path": "in"} | source
    last = {"name": "load", "do": "write", "mode": "overwrite", "from": "kept" if between else "raw", "into": "lake"}
    file = {"name": "p", "sources": {"raw": raw}, "datasets": {"lake": {"path": "lake"}}, "steps": [*between, last]}
    Pipeline.of(file).run(spark)
    return IO.read_parquet("lake").sort_by("id")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files with different columns, in folders whose names are no numbers."""
    monkeypatch.chdir(tmp_path)
    for month, table in (
        ("01", pa.table({"id": [1], "a": pa.array([1], pa.uint8())})),
        ("1x", pa.table({"id": [2, 3, 4], "b": ["x", None, "y"]})),
    ):
        (tmp_path / "in" / f"month={month}").mkdir(parents=True)
        pq.write_table(table, tmp_path / "in" / f"month={month}" / "a.parquet", row_group_size=1)
    return tmp_path / "in"


ROWS = [
    {"id": 1, "a": 1, "b": None, "month": "01"},
    {"id": 2, "a": None, "b": "x", "month": "1x"},
    {"id": 3, "a": None, "b": None, "month": "1x"},
    {"id": 4, "a": None, "b": "y", "month": "1x"},
]


@pytest.mark.parametrize("is_small", [True, pytest.param(False, marks=pytest.mark.more)], ids=["driver", "executors"])
@pytest.mark.parametrize("between", [(), (KEPT,)], ids=["straight", "by a step"])
def test_all_columns_of_all_files(
    files: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, between: tuple[Any], is_small: bool
) -> None:
    """A folder, a pattern and a list give the same rows, also where every row group is a task of its own."""
    if not is_small:
        lower(monkeypatch, "bytes of a small file", 0)
        lower(monkeypatch, "bytes of a part of a file")
    for path in ("in", "in/*/*.parquet", ["in/month=01", "in/month=1x/a.parquet"]):
        found = run(spark, *between, path=path)
        assert found.select(["id", "a", "b", "month"]).to_pylist() == ROWS
    assert found.schema.field("a").type == (pa.int16() if between else pa.uint8())


def test_types_of_columns(files: Path, spark: Any) -> None:
    found = run(spark, path="in/month=01/a.parquet", columns="a bigint")
    assert found.schema.equals(pa.schema([("a", pa.int64()), ("id", pa.int64()), ("month", pa.int32())]))
    with pytest.raises(StepFailedError, match=r"no file has the columns \['c'\]") as caught:
        run(spark, columns="c bigint")
    assert isinstance(caught.value.__cause__, SourceFileError)


@pytest.mark.parametrize("between", [(), (KEPT,)], ids=["straight", "by a step"])
def test_nanoseconds_of_old_timestamps_are_not_cut_off(files: Path, spark: Any, between: tuple[Any]) -> None:
    for nanoseconds in (1_000, 1_001):
        at = pa.array([nanoseconds], pa.timestamp("ns"))
        pq.write_table(pa.table({"id": [1], "at": at}), "old.parquet", use_deprecated_int96_timestamps=True)
        if nanoseconds % 1000 and not between:
            found = run(spark, path="old.parquet")
            assert found["at"].cast(pa.int64()).to_pylist() == [nanoseconds]
        elif nanoseconds % 1000:
            with pytest.raises(StepFailedError, match="without loss") as caught:
                run(spark, *between, path="old.parquet")
            assert isinstance(caught.value.__cause__, SchemaMismatchError)
        else:
            found = run(spark, *between, path="old.parquet")
            assert found["at"].to_pylist() == [dt.datetime(1970, 1, 1, microsecond=1, tzinfo=dt.UTC)]
