"""Faults that are only in the second row group of the second file, where reading the first would not show them."""

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
Call = Callable[[str], Any]


def put(path: Path, table: pa.Table, **options: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path, row_group_size=2, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refused(folder: Path, call: Call, error: type[Exception], words: str) -> None:
    """An operation stops before it has written anything."""
    before = contents(folder)
    with pytest.raises(error, match=words):
        call(str(folder))
    assert contents(folder) == before


TIMES: dict[str, Call] = {
    "merge": lambda d: IO.merge(
        pa.table({"at": pa.array([2], pa.timestamp("us")), "v": [9]}), d, strategy="upsert", key_columns="at"
    ),
    "deduplicate": lambda d: IO.deduplicate_parquet_dataset(d, "at"),
    "order of winners": lambda d: IO.deduplicate_parquet_dataset(d, "v", "at"),
    "compact": lambda d: IO.compact_parquet_dataset(d, target_rows_per_file=100),
    "optimize": lambda d: IO.optimize_parquet_dataset(d, "at"),
    "read": IO.read_parquet,
    "filter": lambda d: IO.read_parquet(d, columns=["v"], filters=[("at", ">", pa.scalar(0, pa.timestamp("us")))]),
    "source": lambda d: IO.write_dataset(d, f"{d}-new"),
}


@pytest.mark.parametrize("call", TIMES)
def test_int96_with_nanoseconds(tmp_path: Path, call: str) -> None:
    """The last row group has digits that microseconds cannot hold."""
    old: dict[str, Any] = {"use_deprecated_int96_timestamps": True}
    for name, times in {"a": [0, 1, 2, 3], "b": [4, 5, 6, 7]}.items():
        last = 1 if name == "b" else 0
        column = pa.array([1000 * time + last * (time == 7) for time in times], pa.timestamp("ns"))
        put(tmp_path / "d" / f"{name}.parquet", pa.table({"at": column, "v": times}), **old)
    refused(tmp_path / "d", TIMES[call], SchemaMismatchError, "INT96 timestamps with nanoseconds")


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("call", ["deduplicate", "compact", "optimize"])
def test_a_time_beyond_the_common_unit(tmp_path: Path, call: str, statistics: bool) -> None:
    """Nanoseconds end in the year 2262; the last row group of the file in microseconds is later."""
    micros, nanos = pa.timestamp("us"), pa.timestamp("ns")
    put(tmp_path / "d" / "a.parquet", pa.table({"at": pa.array([0, 1, 2, 3], nanos), "v": [0, 1, 2, 3]}))
    late = pa.table({"at": pa.array([4, 5, 6, 2**62], micros), "v": [4, 5, 6, 7]})
    put(tmp_path / "d" / "b.parquet", late, write_statistics=statistics)
    refused(tmp_path / "d", TIMES[call], SchemaMismatchError, r"'at' of b\.parquet .*do not fit")


NULLS: dict[str, Call] = {
    "upsert": lambda d: IO.merge(pa.table({"id": [1], "v": [9]}), d, strategy="upsert", key_columns="id"),
    "full_merge": lambda d: IO.merge(pa.table({"id": [1], "v": [9]}), d, strategy="full_merge", key_columns="id"),
    "deduplicate": lambda d: IO.deduplicate_parquet_dataset(d, "id"),
}


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("call", NULLS)
def test_a_null_key(tmp_path: Path, call: str, statistics: bool) -> None:
    for name, ids in {"a": [0, 1, 2, 3], "b": [4, 5, 6, None]}.items():
        rows = pa.table({"id": pa.array(ids, pa.int64()), "v": [0, 1, 2, 3]})
        put(tmp_path / "d" / f"{name}.parquet", rows, write_statistics=statistics)
    refused(tmp_path / "d", NULLS[call], KeyColumnError, r"b\.parquet.* has 1 NULL")


def test_a_key_that_only_a_later_row_group_holds(tmp_path: Path) -> None:
    """Positions of matches count the rows of the whole file, also where earlier row groups are not read."""
    ids = [10, 11, 20, 21, 30, 31]
    put(tmp_path / "d" / "a.parquet", pa.table({"id": ids, "v": [0] * 6}))
    source = pa.table({"id": [31, 20, 32], "v": [1, 2, 3]})
    result = IO.merge(source, str(tmp_path / "d"), strategy="update", key_columns="id")
    assert result.stats() == {"inserted": 0, "updated": 2, "deleted": 0, "total": 6}
    [path] = result.rewritten_files
    assert pq.read_table(path)["v"].to_pylist() == [0, 0, 2, 0, 0, 1]
