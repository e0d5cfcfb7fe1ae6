"""Maintenance of columns without complete statistics, and of columns without a common type."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conformance.effort import for_each
from conformance.upkeep import values
from fsspeckit.common import errors
from kit import data_files, put, table_of, tree_of

END = 253402300799
"""The last second of the year 9999."""


def far_times(dataset: Path, statistics: bool = True) -> None:
    """Seconds of the year 9999 in one file and nanoseconds in another: there is no type for both."""
    far = pa.table({"id": [1, 2], "at": pa.array([END, 0], pa.timestamp("s"))})
    near = pa.table({"id": [2, 3], "at": pa.array([1, 2], pa.timestamp("ns"))})
    put(dataset / "far.parquet", far, write_statistics=statistics)
    put(dataset / "near.parquet", near)


@pytest.mark.parametrize("statistics", [True, False])
@for_each(
    "operation, call",
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
def test_times_that_have_no_common_unit(
    io: Any, tmp_path: Path, operation: str, call: dict[str, Any], statistics: bool
) -> None:
    far_times(tmp_path / "d", statistics)
    before = tree_of(tmp_path)
    for dry_run in (True, False):
        with pytest.raises(errors.SchemaMismatchError, match=r"'at' of far\.parquet .*near\.parquet"):
            getattr(io, f"{operation}_parquet_dataset")(str(tmp_path / "d"), dry_run=dry_run, **call)
        assert tree_of(tmp_path) == before


@pytest.mark.parametrize("statistics", [True, False])
def test_times_of_several_units_that_fit_are_joined(io: Any, tmp_path: Path, statistics: bool) -> None:
    lists = pa.list_(pa.duration("s")), pa.list_(pa.duration("us"))
    for i, unit in enumerate(["s", "ms", "us", "ns"]):
        columns = {"at": pa.array([None, i], pa.timestamp(unit)), "for": pa.array([[i], None], lists[i % 2])}
        put(tmp_path / "d" / f"{unit}.parquet", pa.table(columns), write_statistics=statistics)
    result = io.optimize_parquet_dataset(str(tmp_path / "d"), "at")
    assert (result.after_file_count, result.after_row_count) == (1, 8)
    assert values(tmp_path / "d", "at")[0][:4] == sorted(values(tmp_path / "d", "at")[0][:4])


NAN = float("nan")
ODD = {
    "decimal128(30, 2)": pa.decimal128(30, 2),
    "decimal256": pa.decimal256(60, 2),
    "float16": pa.float16(),
    "float64": pa.float64(),
    "large_string": pa.large_string(),
}
"""Types whose bounds stand in footers in a form of their own, or without NaN."""


def typed(numbers: Iterable[int], type_: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(type_):
        return pa.array([Decimal(number) for number in numbers], type_)
    if pa.types.is_float16(type_):
        return pa.array(np.array(list(numbers), np.float16))
    return pa.array([f"{number:05d}" if type_ == pa.large_string() else number for number in numbers], type_)


def key(row: Iterable[Any]) -> list[tuple[int, Any]]:
    """Order of a row: numbers, then NaN, then null."""
    return [(2, 0) if v is None else (1, 0) if v != v else (0, v) for v in row]


def check_no_overlap(dataset: Path, columns: list[str]) -> None:
    """Every file is sorted, and no two files overlap."""
    tables = [table_of(path).select(columns).to_pydict() for path in data_files(dataset)]
    files = [list(map(key, zip(*table.values(), strict=True))) for table in tables]
    assert all(rows == sorted(rows) for rows in files)
    ends = sorted((rows[0], rows[-1]) for rows in files if rows)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(ends)), ends


@pytest.mark.parametrize("columns", [["x"], ["x", "y"]])
def test_nan_is_above_all_numbers(io: Any, tmp_path: Path, columns: list[str]) -> None:
    optimize = partial(io.optimize_parquet_dataset, str(tmp_path / "d"), columns, target_rows_per_file=10)
    put(tmp_path / "d" / "a.parquet", pa.table({"x": [1.0, NAN, 2.0], "y": [1, 2, 3]}))
    put(tmp_path / "d" / "b.parquet", pa.table({"x": [5.0, 6.0], "y": [1, 2]}))
    assert optimize().compacted_file_count == 2
    check_no_overlap(tmp_path / "d", columns)
    put(tmp_path / "d" / "c.parquet", pa.table({"x": [10.0, 11.0], "y": [1, 2]}))
    assert optimize().compacted_file_count == 2
    check_no_overlap(tmp_path / "d", columns)
    put(tmp_path / "d" / "d.parquet", pa.table({"x": pa.nulls(2, pa.float64()), "y": [1, 2]}))
    assert optimize().compacted_file_count == 1
    check_no_overlap(tmp_path / "d", columns)
    assert optimize().compacted_file_count == 0


@pytest.mark.parametrize("statistics", [True, False])
@for_each("type_", ODD.values())
def test_only_overlapping_files_are_rewritten(io: Any, tmp_path: Path, type_: pa.DataType, statistics: bool) -> None:
    optimize = partial(io.optimize_parquet_dataset, str(tmp_path / "d"), "x", target_rows_per_file=100)
    put(tmp_path / "d" / "a.parquet", pa.table({"x": typed(range(300), type_)}), write_statistics=statistics)
    optimize()
    put(tmp_path / "d" / "b.parquet", pa.table({"x": typed(range(1000, 1100), type_)}), write_statistics=statistics)
    plan, result = optimize(dry_run=True), optimize()
    assert plan.compacted_file_count == result.compacted_file_count == 1
    put(tmp_path / "d" / "c.parquet", pa.table({"x": typed(range(110, 190), type_)}), write_statistics=statistics)
    assert optimize().compacted_file_count == 2
    check_no_overlap(tmp_path / "d", ["x"])


def dictionary_bytes(file: Path, column: str) -> int:
    """Bytes of the dictionaries of a column, of all row groups."""
    meta = pq.read_metadata(file)
    at = pq.read_schema(file).names.index(column)
    chunks = [meta.row_group(i).column(at) for i in range(meta.num_row_groups)]
    return sum(chunk.data_page_offset - chunk.dictionary_page_offset for chunk in chunks)


@pytest.mark.many_rows
@pytest.mark.parametrize("as_codes", [False, True])
@pytest.mark.parametrize("work", ["linear", "hilbert", "deduplicate"])
def test_dictionaries_have_only_values_of_their_rows(io: Any, tmp_path: Path, work: str, as_codes: bool) -> None:
    texts = [f"{i:08x}" for i in range(400)]
    for number in range(4):
        ids = list(range(number, 1600, 4))
        text = pa.array([texts[i // 4] for i in ids for _ in range(20)])
        table = pa.table({"id": np.repeat(ids, 20), "n": np.tile(np.arange(20), 400), "s": text})
        table = table.set_column(2, "s", text.dictionary_encode()) if as_codes else table
        put(tmp_path / "d" / f"{number}.parquet", table, compression="none")
    if work == "deduplicate":
        io.deduplicate_parquet_dataset(str(tmp_path / "d"), ["s"], ["id"], row_group_size=100)
    else:
        io.optimize_parquet_dataset(
            str(tmp_path / "d"), ["id", "n"], curve=work, target_rows_per_file=4000, row_group_size=1000
        )
    for file in data_files(tmp_path / "d"):
        meta = pq.read_metadata(file)
        groups = [pq.ParquetFile(file).read_row_group(i)["s"] for i in range(meta.num_row_groups)]
        found = sum(len(set(group.to_pylist())) for group in groups)
        assert dictionary_bytes(file, "s") <= found * 12 + len(groups) * 40
    assert sum(pq.read_metadata(file).num_rows for file in data_files(tmp_path / "d")) == (
        400 if work == "deduplicate" else 32_000
    )
