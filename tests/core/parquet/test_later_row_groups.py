"""A fault that is only in the second row group of the second file, where reading the first would not show it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import KeyColumnError, SchemaMismatchError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

IO = PyarrowDatasetIO()
LATE = (
    pa.array([0, 1, 2, 3], pa.timestamp("ns")),
    pa.array([4, 5, 6, 2**62], pa.timestamp("us")),
    SchemaMismatchError,
    r"'x' of b\.parquet .*do not fit",
)
"""Nanoseconds end in the year 2262."""
NULL = (pa.array([0, 1, 2, 3]), pa.array([4, 5, 6, None], pa.int64()), KeyColumnError, r"b\.parquet.* has 1 NULL")
CALLS: dict[str, tuple[tuple[Any, ...], Callable[[str], Any]]] = {
    "late time, compact": (LATE, lambda path: IO.compact_parquet_dataset(path, target_rows_per_file=100)),
    "late time, optimize": (LATE, lambda path: IO.optimize_parquet_dataset(path, "x")),
    "null, upsert": (NULL, lambda path: IO.merge(pa.table({"x": [1]}), path, key_columns="x")),
    "null, deduplicate": (NULL, lambda path: IO.deduplicate_parquet_dataset(path, "x")),
}


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_a_fault_is_found_before_anything_is_written(tmp_path: Path, name: str, statistics: bool) -> None:
    (first, second, error, message), call = CALLS[name]
    for file, values in (("a", first), ("b", second)):
        path = tmp_path / f"{file}.parquet"
        pq.write_table(pa.table({"x": values}), path, row_group_size=2, write_statistics=statistics)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(error, match=message):
        call(str(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
