"""DataFrames that are shared and that are exchanged give what PyArrow gives: rows, counts, plans and errors."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from core.operations.routes import Routes, failure, in_memory, succeeded
from fsspeckit.common.errors import ExpressionError, KeyColumnError, PartitionError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO
from inside import by_shuffle

FAILS = "10 / (target.v - 1) > 0"
ROWS = pa.table({"id": [1, 2, 3], "p": ["x", "y", "x"], "v": [1, 1, 1]})


def spark_routes(spark: SparkSession, folder: Path, *, ordered: bool = True) -> Routes:
    exchanging = by_shuffle(SparkDatasetIO(spark, share_limit=0))
    ios = {"memory": in_memory(ordered=ordered), "shared": SparkDatasetIO(spark), "exchange": exchanging}
    return Routes(folder, ordered=ordered, ios=ios)


def merged(routes: Routes, spark: SparkSession, source: pa.Table, **options: Any) -> Any:
    """Merge a table on PyArrow, and a DataFrame with its rows on Spark, in an order or after a shuffle."""
    columns = ", ".join(f"{name} {_sql(source, name)}" for name in source.column_names)
    frame = spark.createDataFrame(source.to_pylist(), schema=columns)
    frame = frame.coalesce(1) if routes.ordered else frame.repartition(3, "v")

    def call(io: Any, path: str, *, dry_run: bool) -> Any:
        data = frame if isinstance(io, SparkDatasetIO) else source
        return io.merge(data, path, dry_run=dry_run, key_columns="id", **({"strategy": "upsert"} | options))

    return routes.outcome(call)


def _sql(table: pa.Table, name: str) -> str:
    return {pa.int64(): "bigint", pa.string(): "string", pa.timestamp("us", "UTC"): "timestamp"}[
        table.schema.field(name).type
    ]


def test_an_unordered_dataframe_is_deduplicated_by_columns(spark: SparkSession, tmp_path: Path) -> None:
    routes = spark_routes(spark, tmp_path, ordered=False)
    routes.rows_in_order = False
    source = pa.table({"id": [1, 2, 1, 2], "v": [5, 6, 7, 4]})
    options = {"strategy": "deduplicate", "on_duplicate_source": "last"}
    found = merged(routes, spark, source, dedup_order_by=["v"], **options)
    assert succeeded(found)["inserted"] == 2
    error, message = failure(merged(routes, spark, source, **options))
    assert error is KeyColumnError
    assert "without dedup_order_by would keep an arbitrary one" in message


@pytest.mark.parametrize(("ids", "fails"), [([8, 2, 3], False), ([1, 2, 3], True)])
def test_a_sequence_that_does_not_fit_counts_only_in_matched_rows(
    spark: SparkSession, tmp_path: Path, ids: list[int], fails: bool
) -> None:
    routes = spark_routes(spark, tmp_path)
    rows = pa.table({"id": [1, 2, 3], "v": [1, 2, 3], "at": pa.array([1, 2, 3], pa.timestamp("ns", "UTC"))})
    PyarrowDatasetIO().write_dataset(rows, routes.target)
    times = pa.array([datetime(year, 1, 1, tzinfo=UTC) for year in (2500, 2020, 2021)], pa.timestamp("us", "UTC"))
    source = pa.table({"id": ids, "v": [7, 8, 9], "at": times})
    found = merged(routes, spark, source, strategy="update", update_columns=["v"], newer_by="at")
    assert isinstance(found[1], tuple) == fails


@pytest.mark.parametrize("fault", ["moves", "target nulls"])
def test_faults_come_before_a_condition_that_fails(spark: SparkSession, tmp_path: Path, fault: str) -> None:
    routes = spark_routes(spark, tmp_path)
    if fault == "moves":
        PyarrowDatasetIO().write_dataset(ROWS, routes.target, partition_by=["p"])
    else:
        PyarrowDatasetIO().write_dataset(ROWS.set_column(0, "id", pa.array([1, 2, None])), routes.target)
    source = pa.table({"id": [1, 2, 9], "p": ["x", "x", "x"], "v": [1, 1, 1]})
    error, _ = failure(merged(routes, spark, source, update_when=FAILS))
    assert error is (PartitionError if fault == "moves" else KeyColumnError)
    allowed = {"partition_move": "move", "null_keys": "match"}
    assert failure(merged(routes, spark, source, update_when=FAILS, **allowed))[0] is ExpressionError
