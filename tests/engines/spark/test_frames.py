"""DataFrames in and out: written by their own tasks, read with every type that Spark has."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import FilterError, SchemaMismatchError, StorageError
from fsspeckit.datasets.spark import SparkDatasetIO

pytestmark = pytest.mark.more


def rows(table):
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def test_a_frame_that_changes_with_every_evaluation_is_evaluated_once(io, spark, tmp_path):
    path = tmp_path / "events"
    io.write_dataset(pa.table({"id": pa.array(range(50)), "v": [0.0] * 50}), path)
    source = spark.range(100).selectExpr("id", "rand() as v")
    result = io.merge(source, path, strategy="upsert", key_columns=["id"])
    assert result.stats() == {"inserted": 50, "updated": 50, "deleted": 0, "total": 100}
    assert pc.count_distinct(io.read_parquet(path)["v"]).as_py() == 100


def test_a_storage_that_executors_cannot_reach_is_refused():
    with pytest.raises(StorageError, match="PyArrow engine"):
        SparkDatasetIO().write_dataset(pa.table({"id": [1]}), "memory://nowhere")


def test_a_snapshot_is_read_as_a_frame(io, tmp_path):
    table = pa.table(
        {
            "id": pa.array([1, 2], pa.uint32()),
            "big": pa.array([2**64 - 1, None], pa.uint64()),
            "at": pa.array([dt.datetime.fromisoformat("2026-01-02T03:04:05.000006"), None], pa.timestamp("us")),
            "day": pa.array([dt.date(2026, 1, 2), None], pa.date64()),
            "kind": pa.array(["a", None]).dictionary_encode(),
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
            "tags": pa.array([["x", "y"], []], pa.large_list(pa.large_string())),
            "part": ["01", "b c"],
        }
    )
    io.write_dataset(table, tmp_path / "t", partition_by=["part"])
    frame = io.read(tmp_path / "t")
    assert [row.asDict() for row in frame.orderBy("id").collect()] == table.to_pylist()
    chosen = io.read(tmp_path / "t", columns=["kind", "id"], filters=[("part", "=", "01")])
    assert [tuple(row) for row in chosen.collect()] == [("a", 1)]


def test_a_frame_of_rows_that_match_a_text(io, tmp_path):
    """Text is the expression language, compiled on the driver; files without a match make no task."""
    table = pa.table({"id": range(8), "name": ["a", None] * 4, "part": [n // 2 for n in range(8)]})
    io.write_dataset(table, tmp_path / "t", partition_by=["part"])
    for text, ids in {
        "part = 1": [2, 3],
        "name IS NULL AND id > 2": [3, 5, 7],
        "part IN (0, 3) AND lower(name) = 'a'": [0, 6],
        "part = 9": [],
    }.items():
        frame = io.read(tmp_path / "t", columns=["id"], filters=text)
        assert sorted(row.id for row in frame.collect()) == ids, text
    assert io.read(tmp_path / "t", filters="part = 1").rdd.getNumPartitions() == 1
    for text in ("nope = 1", "name = 1", "id >"):
        with pytest.raises(FilterError):
            io.read(tmp_path / "t", filters=text)


def test_a_type_that_spark_lacks_is_named(io, tmp_path):
    io.write_dataset(pa.table({"id": [1], "at": pa.array([1], pa.decimal256(76))}), tmp_path / "t")
    with pytest.raises(SchemaMismatchError, match="'at'"):
        io.read(tmp_path / "t")
    assert io.read(tmp_path / "t", columns=["id"]).count() == 1


def test_files_replaced_before_spark_reads_them_fail_the_job(io, tmp_path):
    path = tmp_path / "t"
    io.write_dataset(pa.table({"id": [1, 2], "v": [1, 2]}), path)
    frame = io.read(path)
    io.merge(pa.table({"id": [1], "v": [7]}), path, strategy="update", key_columns="id")
    with pytest.raises(Exception, match=r"(?i)was replaced|not exist|no such file|not found"):
        frame.collect()
    assert sorted(row.v for row in io.read(path).collect()) == [2, 7]


def test_a_memory_limit_makes_small_batches_in_executors(io, tmp_path):
    """Row groups larger than what fits are split, so they tell that the limit reached the kernel."""
    rows = pa.table({"id": pa.array(range(8000)), "v": [0] * 8000})
    io.write_dataset(rows, tmp_path / "t", max_rows_per_file=8000)
    changed = rows.slice(5, 1).set_column(1, "v", [[1]])
    io.merge(changed, tmp_path / "t", strategy="update", key_columns="id", memory_limit=1000)
    file = next((tmp_path / "t").glob("*.parquet"))
    assert pq.ParquetFile(file).num_row_groups == 8
    assert io.read_parquet(tmp_path / "t")["v"].to_pylist() == [0] * 5 + [1] + [0] * 7994
