"""Paths that Spark, Hadoop and hive spell in their own ways, and what Spark remembers of them."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

pytestmark = pytest.mark.more

ODD = "a[b]{c}* ?%20 é"
VALUES = ["01", "a b", "ü", "100%", "a=b", "x/y", "[z]*{}", "+", None]


def glob_escaped(path) -> str:
    """Spark takes explicit paths for patterns."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", f"file://{path}")


def test_odd_folders_and_hive_values(io, spark, tmp_path):
    path = tmp_path / ODD
    ids = list(range(len(VALUES)))
    io.write_dataset(pa.table({"id": ids, "v": ids, "p": VALUES}), path, partition_by=["p"])
    PyarrowDatasetIO().write_dataset(
        pa.table({"id": ids, "v": [-1] * len(ids), "p": VALUES}), tmp_path / f"{ODD}-source"
    )
    result = io.merge(f"file:{tmp_path}/{ODD}-source", f"file:{path}", strategy="upsert", key_columns="id")
    assert (result.updated, result.inserted) == (len(VALUES), 0)
    expected = list(zip(ids, [-1] * len(ids), VALUES, strict=True))
    assert sorted(tuple(row) for row in io.read(path).collect()) == expected
    native = spark.read.parquet(glob_escaped(path)).select("id", "v", "p").collect()
    assert sorted(tuple(row) for row in native) == expected
    chosen = io.read(path, columns=["id"], filters=[("p", "=", "[z]*{}")]).collect()
    assert [row.id for row in chosen] == [VALUES.index("[z]*{}")]


@pytest.mark.parametrize("spell", [lambda path: path, lambda path: f"file:{path}", lambda path: f"file://{path}"])
def test_a_cached_frame_sees_the_rows_of_a_commit(io, spark, tmp_path, spell):
    path = tmp_path / ODD
    io.write_dataset(pa.table({"id": [1, 2], "v": [1, 2]}), path)
    cached = spark.read.parquet(glob_escaped(path)).cache()
    try:
        assert cached.count() == 2
        PyarrowDatasetIO().merge(pa.table({"id": [3], "v": [3]}), path, strategy="upsert", key_columns="id")
        assert cached.count() == 2, "the test shows nothing: Spark sees the change by itself"
        io.merge(pa.table({"id": [1], "v": [9]}), spell(path), strategy="upsert", key_columns="id")
        assert sorted(tuple(row) for row in cached.collect()) == [(1, 9), (2, 2), (3, 3)]
    finally:
        cached.unpersist()


OPERATIONS = {
    "compact": lambda io, path: io.compact_parquet_dataset(path, target_rows_per_file=100),
    "optimize": lambda io, path: io.optimize_parquet_dataset(path, zorder_columns=["id"]),
    "deduplicate": lambda io, path: io.deduplicate_parquet_dataset(path, key_columns=["id"]),
    "append": lambda io, path: io.write_dataset(pa.table({"id": [9], "v": [9]}), path),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_spark_lists_a_dataset_again_after_every_operation(io, spark, tmp_path, operation):
    path = tmp_path / "d"
    for number in (1, 2, 2):
        PyarrowDatasetIO().write_dataset(pa.table({"id": [number], "v": [number]}), path)
    cached = spark.read.parquet(str(path)).cache()
    try:
        assert cached.count() == 3
        PyarrowDatasetIO().write_dataset(pa.table({"id": [3], "v": [3]}), path)
        assert cached.count() == 3, "the test shows nothing: Spark sees the change by itself"
        operation(io, str(path))
        assert cached.count() == io.read_parquet(str(path)).num_rows
    finally:
        cached.unpersist()


def test_what_spark_cannot_open_needs_no_refresh(io, s3_server, s3_bucket):
    """The pip package of Spark has no connector for S3."""
    on_s3 = type(io)(io.spark, storage_options=s3_server.storage_options)
    on_s3.write_dataset(pa.table({"id": [1]}), f"s3a://{s3_bucket}/t")
    assert on_s3.read(f"s3://{s3_bucket}/t").count() == 1
