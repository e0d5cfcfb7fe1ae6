"""DataFrames as change feeds of a history: executors compute it, and ties without an order are refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fsspeckit.common.errors import KeyColumnError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from kit import tree_of

OPTIONS = {"key_columns": "id", "sequence_by": "at", "scd_type": 2}


def history(path, *names):
    found = PyarrowDatasetIO().read_parquet(path).sort_by([("id", "ascending"), ("valid_from", "ascending")])
    return [tuple(row.values()) for row in found.select(list(names)).to_pylist()]


def test_a_frame_of_many_keys(io, spark, tmp_path):
    path = str(tmp_path / "d")
    frame = spark.range(5000).selectExpr("id % 1000 AS id", "id div 2000 AS v", "id div 1000 AS at")
    result = io.apply_changes(frame, path, **OPTIONS)
    assert (result.inserted, result.stale) == (3000, 2000)
    late = spark.range(1000).selectExpr("id", "-1L AS v", "CAST(3 AS BIGINT) AS at")
    result = io.apply_changes(late, path, **OPTIONS)
    assert (result.inserted, result.updated, result.deleted) == (1000, 1000, 0)
    rows = history(path, "id", "v", "valid_from", "valid_to")
    expected = [(0, 0, 2), (1, 2, 3), (-1, 3, 4), (2, 4, None)]
    assert rows == [(key, *row) for key in range(1000) for row in expected]
    before = tree_of(tmp_path)
    assert io.apply_changes(late, path, **OPTIONS).stale == 1000
    assert tree_of(tmp_path) == before


def test_a_frame_keeps_the_type_of_the_sequence(io, spark, tmp_path):
    path = str(tmp_path / "d")
    table = pa.table({"id": [1], "v": ["a"], "at": pa.array([1], pa.timestamp("ms", "Europe/Berlin"))})
    PyarrowDatasetIO().apply_changes(table, path, **OPTIONS)
    frame = spark.sql("SELECT 1L AS id, 'b' AS v, TIMESTAMP_MILLIS(2) AS at")
    assert io.apply_changes(frame, path, **OPTIONS).inserted == 1
    stored = PyarrowDatasetIO().read_parquet(path).schema
    assert stored.field("valid_to").type == stored.field("valid_from").type == pa.timestamp("ms", "Europe/Berlin")


def test_ties_need_an_order(io, spark, tmp_path):
    path = str(tmp_path / "d")
    equal = spark.range(8).selectExpr("id % 2 AS id", "'a' AS v", "1L AS at").repartition(4)
    assert io.apply_changes(equal, path, **OPTIONS).inserted == 2
    before = tree_of(tmp_path)
    different = spark.range(8).selectExpr("id % 2 AS id", "CAST(id AS STRING) AS v", "1L AS at")
    with pytest.raises(KeyColumnError, match="orderBy"):
        io.apply_changes(different.repartition(4), path, **OPTIONS)
    assert tree_of(tmp_path) == before
    io.apply_changes(different.repartition(4).orderBy("v"), path, **OPTIONS)
    assert history(path, "id", "v") == [(0, "6"), (1, "7")]
