"""Nulls in statistics: a null is above all values, and bounds without a count of nulls do not exclude any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import KeyColumnError
from fsspeckit.core.parquet.bytes.format_fields import ChunkField, FileField, GroupField, MetaField, StatisticsField
from fsspeckit.core.parquet.bytes.thrift import Struct
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from kit import edit_footer

IO = PyarrowDatasetIO()


def put(path: Path, ids: list[Any], *, nulls: str = "counted", row_group_size: int = 100) -> None:
    """Write ids; the nulls are counted in the statistics, or their count is missing, or there are no statistics."""
    path.parent.mkdir(exist_ok=True)
    rows = pa.table({"id": pa.array(ids), "n": range(len(ids))})
    pq.write_table(rows, path, row_group_size=row_group_size, write_statistics=nulls != "no statistics")
    if nulls == "not counted":
        edit_footer(path, _without_null_counts)


def _without_null_counts(tree: Struct) -> None:
    for group in tree[FileField.groups][1][1]:
        for chunk in group[GroupField.columns][1][1]:
            del chunk[ChunkField.meta][1][MetaField.statistics][1][StatisticsField.nulls]


NULLS = ["counted", "not counted", "no statistics"]


@pytest.mark.parametrize("nulls", NULLS)
def test_a_null_of_the_source_is_found_beside_any_bounds(tmp_path: Path, nulls: str) -> None:
    put(tmp_path / "d" / "a.parquet", [5, 6, None], nulls=nulls)
    source = pa.table({"id": pa.array([None, 100], pa.int64()), "n": [70, 71]})
    result = IO.merge(source, str(tmp_path / "d"), strategy="upsert", key_columns="id", null_keys="match")
    assert (result.inserted, result.updated) == (1, 1)


@pytest.mark.parametrize("nulls", NULLS)
def test_a_null_key_is_found_where_the_first_row_group_has_none(tmp_path: Path, nulls: str) -> None:
    put(tmp_path / "d" / "a.parquet", [5, 6, 7, None], nulls=nulls, row_group_size=2)
    source = pa.table({"id": [100], "n": [1]})
    with pytest.raises(KeyColumnError, match="1 NULL"):
        IO.merge(source, str(tmp_path / "d"), strategy="upsert", key_columns="id")


def in_turn(folder: Path) -> list[Any]:
    """The ids of all files in the order of their first rows."""
    files = [pq.ParquetFile(path).read()["id"].to_pylist() for path in folder.glob("*.parquet")]
    return [value for ids in sorted(files, key=lambda ids: (ids[0] is None, ids[0])) for value in ids]


@pytest.mark.parametrize("kind", [int, float, str])
@pytest.mark.parametrize("nulls", NULLS)
@pytest.mark.parametrize("order", ["new", "in order"])
def test_a_file_with_a_null_reaches_beyond_all_others(tmp_path: Path, kind: Any, nulls: str, order: str) -> None:
    """A null is the last row of the whole order, so its file is sorted together with those that begin above it."""
    low, high = [kind(5), kind(6), None], [kind(7), kind(8), kind(9)]
    first, second = (high, low) if order == "new" else (low, high)
    put(tmp_path / "d" / "a.parquet", first, nulls=nulls)
    IO.optimize_parquet_dataset(str(tmp_path / "d"), "id", target_rows_per_file=3)
    put(tmp_path / "d" / "b.parquet", second, nulls=nulls)
    IO.optimize_parquet_dataset(str(tmp_path / "d"), "id", target_rows_per_file=3)
    assert in_turn(tmp_path / "d") == [kind(value) for value in range(5, 10)] + [None]
