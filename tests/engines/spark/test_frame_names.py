"""DataFrames as sources: any column name, and what cannot be a source is said before any job."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fsspeckit.common.errors import SchemaMismatchError, UnsupportedDataError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO


def test_names_that_spark_cannot_resolve(io, tmp_path):
    path = str(tmp_path / "d")
    rows = pa.table({"id": [1, 2], "a.b": [1, 2], "x`y": ["p", "q"], "ID": [7, 8], "": [0, 0]})
    PyarrowDatasetIO().write_dataset(rows, path)
    result = io.merge(io.read(path), path, strategy="upsert", key_columns="id")
    assert (result.updated, result.unchanged) == (2, 2)
    assert io.read_parquet(path).equals(rows)


def test_a_name_that_stands_twice_is_refused(io, spark, tmp_path):
    frame = spark.sql("SELECT 1L AS id, 2 AS v, 3 AS v")
    with pytest.raises(SchemaMismatchError, match="stand twice"):
        io.merge(frame, str(tmp_path / "d"), strategy="upsert", key_columns="id")


def test_a_stream_is_refused(io, spark, tmp_path):
    with pytest.raises(UnsupportedDataError, match="foreachBatch"):
        io.merge(spark.readStream.format("rate").load(), str(tmp_path / "d"), strategy="upsert", key_columns="value")


@pytest.mark.parametrize("limit", [-1, "1MB", True, 1.5])
def test_a_limit_is_a_number_of_bytes(limit):
    with pytest.raises(ValueError, match="share_limit"):
        SparkDatasetIO(share_limit=limit)
