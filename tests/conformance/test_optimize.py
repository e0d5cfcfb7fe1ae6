"""Optimize: one order over all files of a partition, file sizes, skipped files, deduplication in the same pass."""

from __future__ import annotations

import itertools
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import fsspeckit
from conformance.rows import duckdb_rows
from conformance.upkeep import check_upkeep, values
from fsspeckit.datasets.pyarrow import optimize_parquet_dataset_pyarrow
from inside import lower
from kit import data_files, numbers, put, table_of, tree_of

CURVES = ("linear", "zorder", "hilbert")


def scattered(dataset: Path, files: int = 6, rows: int = 200, seed: int = 0, **options: Any) -> None:
    """Files whose values of ``a``, ``b`` and ``s`` are spread over their whole range, some of them null."""
    random = np.random.default_rng(seed)
    for i in range(files):
        a = pa.array([None if x % 17 == 0 else int(x) for x in random.integers(0, 500, rows)], pa.int64())
        b = pa.array(random.normal(size=rows))
        s = pa.array([f"{x:03d}" for x in random.integers(0, 900, rows)])
        put(dataset / f"in-{seed}-{i}.parquet", pa.table({"a": a, "b": b, "s": s, "n": range(rows)}), **options)


def in_order(table: pa.Table, columns: list[str]) -> bool:
    wanted = table.select(columns)
    keys = [(name, "ascending") for name in columns]
    return wanted.equals(wanted.take(pc.sort_indices(wanted, sort_keys=keys)))


def whole(dataset: Path) -> pa.Table:
    """All files one after the other, in the order of their names."""
    return pa.concat_tables([table_of(path) for path in data_files(dataset)])


@pytest.mark.scenario("UP-09", "MD-5.5", "MD-NAMES", "MD-API2", "MD-STATS", "MD-5.7")
@pytest.mark.parametrize("columns", [["a"], ["a", "b"], ["s", "a", "b"]])
def test_the_linear_order_holds_over_all_files(io: Any, tmp_path: Path, columns: list[str]) -> None:
    scattered(tmp_path / "d")
    optimize = partial(io.optimize_parquet_dataset, str(tmp_path / "d"), columns, target_rows_per_file=250)
    result = check_upkeep(optimize, tmp_path / "d")
    assert in_order(whole(tmp_path / "d"), columns)
    assert [len(n) for n in values(tmp_path / "d", "n")] == [240] * 5
    assert all(re.fullmatch(r"optimized-[0-9a-f]{12}-\d{5}\.parquet", p.name) for p in data_files(tmp_path / "d"))
    assert result["zorder_columns"] == columns
    assert (result["curve"], result.before_file_count, result.after_file_count) == ("linear", 6, 5)
    assert len(duckdb_rows(data_files(tmp_path / "d"), ["a", "b", "s", "n"])) == 1200
    meta = pq.read_metadata(data_files(tmp_path / "d")[0])
    at = [table_of(data_files(tmp_path / "d")[0]).column_names.index(name) for name in columns]
    assert [(c.column_index, c.descending, c.nulls_first) for c in meta.row_group(0).sorting_columns] == [
        (i, False, False) for i in at
    ]
    assert all(meta.row_group(0).column(i).has_column_index for i in range(meta.num_columns))


@pytest.mark.parametrize("before", ["scattered", "by y"])
@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
def test_curves_cluster_rows_that_are_near_in_all_columns(io: Any, tmp_path: Path, curve: str, before: str) -> None:
    random = np.random.default_rng(1)
    x, y = random.permutation(64 * 64), random.permutation(64 * 64)
    x = np.sort(x) if before == "by y" else x
    for i in range(8):
        part = slice(512 * i, 512 * i + 512)
        put(tmp_path / "d" / f"{i}.parquet", pa.table({"x": x[part] % 64, "y": x[part] // 64, "z": y[part]}))
    optimize = partial(io.optimize_parquet_dataset, str(tmp_path / "d"), ["x", "y"], curve=curve)
    check_upkeep(partial(optimize, target_rows_per_file=256), tmp_path / "d")
    assert all("order" not in name for name in whole(tmp_path / "d").column_names)
    spans = [(max(t["x"].to_pylist()) - min(t["x"].to_pylist()), max(t["y"].to_pylist()) - min(t["y"].to_pylist()))
             for t in map(table_of, data_files(tmp_path / "d"))]  # fmt: skip
    assert len(spans) == 16
    assert max(np.mean(spans, axis=0)) < 32, spans


# What is left alone


@pytest.mark.parametrize("curve", CURVES)
def test_only_new_and_overlapping_files_are_rewritten(io: Any, tmp_path: Path, curve: str) -> None:
    path = str(tmp_path / "d")
    for i in range(4):
        ids = list(range(100 * i, 100 * i + 100))
        put(tmp_path / "d" / f"{i}.parquet", pa.table({"x": ids, "y": ids}))
    optimize = partial(io.optimize_parquet_dataset, path, ["x", "y"], curve=curve, target_rows_per_file=100)
    optimize()
    first = set(data_files(tmp_path / "d"))
    io.write_dataset(pa.table({"x": [120, 110, 115], "y": [120, 110, 115]}), path)
    plan = optimize(dry_run=True)
    assert sorted(len(group) for group in plan["planned_groups"]) == [2]
    result = check_upkeep(optimize, tmp_path / "d")
    assert len(first & set(data_files(tmp_path / "d"))) == 3
    assert set(result["skipped_files"].values()) == {"in this order already"}
    assert len(result["skipped_files"]) == 3
    if curve == "linear":
        ranges = sorted((min(x), max(x)) for x in values(tmp_path / "d", "x"))
        assert all(before[1] < after[0] for before, after in itertools.pairwise(ranges))


def test_a_merge_that_changes_the_order_makes_its_file_unsorted(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", pa.table({"id": range(20), "x": range(20)}))
    optimize = partial(io.optimize_parquet_dataset, str(tmp_path / "d"), "x", target_rows_per_file=10)
    optimize()
    merge = partial(io.merge, path=str(tmp_path / "d"), strategy="upsert", key_columns=["id"])
    merge(pa.table({"id": [3], "x": [100]}))
    assert optimize().compacted_file_count == 2
    assert whole(tmp_path / "d")["x"].to_pylist() == [*range(3), *range(4, 20), 100]
    merge(pa.table({"id": [50], "x": [50]}))
    assert optimize().compacted_file_count >= 1


def test_the_sort_note_is_not_copied_to_other_files(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", pa.table({"x": [2, 1]}))
    io.optimize_parquet_dataset(str(tmp_path / "d"), "x")
    assert b"fsspeckit.layout" in pq.read_metadata(data_files(tmp_path / "d")[0]).metadata
    read = io.read_parquet(str(tmp_path / "d"))
    assert read.schema.metadata is None
    notes = pq.read_metadata(data_files(tmp_path / "d")[0]).metadata
    carried = table_of(data_files(tmp_path / "d")[0]).replace_schema_metadata(notes)
    for target in ("d", "e"):
        io.write_dataset(carried, str(tmp_path / target))
        new = [path for path in data_files(tmp_path / target) if path.name.startswith("part")]
        assert new
        assert all(b"fsspeckit.layout" not in (pq.read_metadata(path).metadata or {}) for path in new)
    pq.write_table(pa.concat_tables([carried, carried]), tmp_path / "d" / "foreign.parquet")
    plan = io.optimize_parquet_dataset(str(tmp_path / "d"), "x", dry_run=True)
    assert any(path.endswith("foreign.parquet") for group in plan["planned_groups"] for path in group)


# Partitions, limits, memory


@pytest.mark.scenario("UP-13")
def test_each_partition_has_its_own_order(io: Any, tmp_path: Path) -> None:
    for i, day in enumerate("abac"):
        scattered(tmp_path / "d" / f"day={day}", files=2, rows=50, seed=i)
    untouched = tree_of(tmp_path / "d" / "day=c")
    optimize = partial(io.optimize_parquet_dataset, str(tmp_path / "d"), ["a", "n"], target_rows_per_file=60)
    result = optimize(partition_filter=["day=a", "day=b"])
    assert result.before_file_count == 6
    assert tree_of(tmp_path / "d" / "day=c") == untouched
    for day in "ab":
        assert in_order(whole(tmp_path / "d" / f"day={day}"), ["a", "n"])


@pytest.mark.scenario("UP-12")
@pytest.mark.parametrize("curve", CURVES)
def test_ranges_larger_than_memory_are_split_on_disk(
    io: Any, tmp_path: Path, curve: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, "bytes of a range", 4096)
    lower(monkeypatch, "pieces in memory", 1000)
    scattered(tmp_path / "d", row_group_size=60)
    optimize = partial(io.optimize_parquet_dataset, str(tmp_path / "d"), ["a", "s"], curve=curve)
    check_upkeep(partial(optimize, target_rows_per_file=400), tmp_path / "d")
    assert [len(n) for n in values(tmp_path / "d", "n")] == [400] * 3
    if curve == "linear":
        assert in_order(whole(tmp_path / "d"), ["a", "s"])


def test_empty_files(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", numbers([]))
    result = io.optimize_parquet_dataset(str(tmp_path / "d"), "id")
    assert (result.compacted_file_count, result.skipped_files) == (0, {str(tmp_path / "d" / "a.parquet"): "empty"})
    put(tmp_path / "d" / "b.parquet", numbers([2, 1]))
    check_upkeep(partial(io.optimize_parquet_dataset, str(tmp_path / "d"), "id"), tmp_path / "d")
    assert values(tmp_path / "d", "id") == [[1, 2]]


# Deduplication on the way


@pytest.mark.scenario("UP-48")
@pytest.mark.parametrize("columns", [None, ["x"], ["x", "id"]])
@pytest.mark.parametrize("target", [None, 4])
def test_optimize_deduplicates_on_request(io: Any, tmp_path: Path, columns: Any, target: int | None) -> None:
    put(tmp_path / "d" / "a.parquet", pa.table({"id": [1, 2, 3, 1], "x": [9, 8, 7, 6], "n": [0, 1, 2, 3]}))
    put(tmp_path / "d" / "b.parquet", pa.table({"id": [4, 2, 5], "x": [5, 4, 3], "n": [4, 5, 6]}))
    call = {"deduplicate_key_columns": ["id"], "dedup_order_by": ["x"], "target_rows_per_file": target}
    plan = io.optimize_parquet_dataset(str(tmp_path / "d"), columns, dry_run=True, **call)
    result = io.optimize_parquet_dataset(str(tmp_path / "d"), columns, **call)
    assert sorted(n for part in values(tmp_path / "d", "n") for n in part) == [0, 1, 2, 4, 6]
    for found in (plan, result):
        assert (found["deduplicated"], found["deduplicated_rows"], found["after_row_count"]) == (True, 2, 5)
    assert (plan["after_file_count"], plan["planned_groups"]) == (result["after_file_count"], result["planned_groups"])
    if columns:
        assert whole(tmp_path / "d")["x"].to_pylist() == [3, 5, 7, 8, 9]
        assert result["after_file_count"] == (1 if target is None else 2)


def test_sorted_files_are_only_deduplicated(io: Any, tmp_path: Path) -> None:
    for i in range(3):
        put(tmp_path / "d" / f"{i}.parquet", pa.table({"x": [10 * i, 10 * i + 1], "id": [i, 9]}))
    optimize = partial(io.optimize_parquet_dataset, str(tmp_path / "d"), "x", target_rows_per_file=2)
    optimize()
    with pytest.raises(ValueError, match="Pass dedup_order_by with an order without ties"):
        optimize(deduplicate_key_columns="id", max_groups_per_commit=1)
    result = optimize(deduplicate_key_columns="id", dedup_order_by="x", max_groups_per_commit=1)
    assert (result["deduplicated_rows"], result.compacted_file_count, len(result.commits)) == (2, 2, 2)
    assert whole(tmp_path / "d")["x"].to_pylist() == [0, 10, 20, 21]
    assert optimize(deduplicate_key_columns="id").compacted_file_count == 0


# Other faces, bad input


@pytest.mark.scenario("MD-API2", "MD-5.6")
def test_the_functions(tmp_path: Path) -> None:
    scattered(tmp_path / "d")
    before = tree_of(tmp_path)
    plan = optimize_parquet_dataset_pyarrow(
        str(tmp_path / "d"), zorder_columns=["a", "b"], target_mb_per_file=256, dry_run=True
    )
    assert tree_of(tmp_path) == before
    assert (plan["estimated_after_file_count"], plan["dry_run"], plan["zorder_columns"]) == (1, True, ["a", "b"])
    done = optimize_parquet_dataset_pyarrow(str(tmp_path / "d"), ["a"], 256, None, None, "zstd", False, curve="zorder")
    assert (done["after_file_count"], done["compression_codec"]) == (1, "zstd")
    assert (
        fsspeckit.optimize(str(tmp_path / "d"), zorder_columns="a", curve="zorder", engine="pyarrow")[
            "compacted_file_count"
        ]
        == 0
    )
