"""Maintenance of columns whose values a footer tells little of, or that have no place in one type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from conformance.builders import put
from conformance.tree import tree_of
from conformance.upkeep import values
from fsspeckit.common import errors

END = 253402300799
"""The last second of the year 9999."""


def far_times(dataset: Path, statistics: bool = True) -> None:
    """Seconds of the year 9999 in one file and nanoseconds in another: there is no type for both."""
    far = pa.table({"id": [1, 2], "at": pa.array([END, 0], pa.timestamp("s"))})
    near = pa.table({"id": [2, 3], "at": pa.array([1, 2], pa.timestamp("ns"))})
    put(dataset / "far.parquet", far, write_statistics=statistics)
    put(dataset / "near.parquet", near)


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize(
    ("operation", "call"),
    [
        ("compact", {"target_mb_per_file": 1}),
        ("compact", {"target_rows_per_file": 100}),
        ("optimize", {"zorder_columns": "at"}),
        ("optimize", {"zorder_columns": "id"}),
        ("optimize", {"deduplicate_key_columns": "id", "target_mb_per_file": 1}),
        ("deduplicate", {"key_columns": "at"}),
        ("deduplicate", {"key_columns": "id", "dedup_order_by": "-at"}),
    ],
)
def test_times_that_no_unit_holds_together(
    io: Any, tmp_path: Path, operation: str, call: dict[str, Any], statistics: bool
) -> None:
    far_times(tmp_path / "d", statistics)
    before = tree_of(tmp_path)
    for dry_run in (True, False):
        with pytest.raises(errors.SchemaMismatchError, match=r"'at' of far\.parquet .*near\.parquet"):
            getattr(io, f"{operation}_parquet_dataset")(str(tmp_path / "d"), dry_run=dry_run, **call)
        assert tree_of(tmp_path) == before


def test_times_that_are_not_compared_do_not_matter(io: Any, tmp_path: Path) -> None:
    far_times(tmp_path / "d")
    assert io.deduplicate_parquet_dataset(str(tmp_path / "d"), "id")["deduplicated_rows"] == 1
    assert values(tmp_path / "d", "id") == [[1], [2, 3]]


@pytest.mark.parametrize("statistics", [True, False])
def test_times_of_several_units_that_fit_are_joined(io: Any, tmp_path: Path, statistics: bool) -> None:
    lists = pa.list_(pa.duration("s")), pa.list_(pa.duration("us"))
    for i, unit in enumerate(["s", "ms", "us", "ns"]):
        columns = {"at": pa.array([None, i], pa.timestamp(unit)), "for": pa.array([[i], None], lists[i % 2])}
        put(tmp_path / "d" / f"{unit}.parquet", pa.table(columns), write_statistics=statistics)
    result = io.optimize_parquet_dataset(str(tmp_path / "d"), "at")
    assert (result.after_file_count, result.after_row_count) == (1, 8)
    assert values(tmp_path / "d", "at")[0][:4] == sorted(values(tmp_path / "d", "at")[0][:4])
