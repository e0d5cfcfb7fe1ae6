"""The format "fsspeckit" on Spark Connect: reads, merges, filters, streams of writes and of changes, errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import register_data_source

IO = PyarrowDatasetIO()


def main(folder: str) -> None:
    """Streams without registration, then batches with the registered format, to which Spark passes filters."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    assert type(spark).__module__.startswith("pyspark.sql.connect")
    streams(spark, f"{folder}/found")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    register_data_source(spark)
    batches(spark, f"{folder}/registered")
    spark.stop()
    print("done", flush=True)


def batches(spark: Any, folder: str) -> None:
    path = f"{folder}/events"
    first = spark.range(10).selectExpr("id", "concat('a', id) AS v", "id % 2 AS day")
    first.write.format("fsspeckit").option("keys", "id").option("partition_by", "day").mode("append").save(path)
    IO.keep_history(path)
    kept = IO.history(path)[0].version
    more = spark.range(8, 12).selectExpr("id", "concat('b', id) AS v", "id % 2 AS day")
    for _ in range(2):
        options = {"keys": "id", "strategy": "upsert", "idempotency_key": "k"}
        more.write.format("fsspeckit").options(**options).mode("append").save(path)
    read = spark.read.format("fsspeckit").load(path)
    assert read.schema.simpleString() == "struct<id:bigint,v:string,day:bigint>"
    assert read.count() == 12
    assert sorted(row.v for row in read.filter("id > 8 AND day = 1").collect()) == ["b11", "b9"]
    assert spark.read.format("fsspeckit").option("version", kept).load(path).count() == 10
    assert spark.read.format("fsspeckit").option("columns", "v").load(path).columns == ["v"]
    with pytest.raises(PySparkException, match="the option 'kyes' is unknown here"):
        more.write.format("fsspeckit").option("kyes", "id").mode("append").save(path)
    big = spark.range(300_000).selectExpr("id", "uuid() AS v", "1 AS day")
    with pytest.raises(PySparkException, match=r"SparkDatasetIO\(spark\).merge\(df, .*key_columns=\['id'\]"):
        big.write.format("fsspeckit").options(keys="id", max_mb="1").mode("append").save(path)
    assert IO.read_parquet(path).num_rows == 12


def streams(spark: Any, folder: str) -> None:
    """A stream of files into a dataset that keeps its history, and the stream of its changes into another."""
    path, source = f"{folder}/copy", Path(folder, "in")
    source.mkdir(parents=True)
    IO.write_dataset(pa.table({"id": [0], "v": ["-"]}), path)
    IO.keep_history(path)

    def write(stream: Any, target: str, **options: str) -> None:
        writer = stream.writeStream.format("fsspeckit").options(checkpointLocation=f"{target}.checkpoint", **options)
        query = writer.trigger(availableNow=True).start(target)
        query.awaitTermination()
        assert query.exception() is None, query.exception()

    def run() -> list[tuple[Any, ...]]:
        write(spark.readStream.schema("id bigint, v string").json(str(source)), path, keys="id")
        changes = spark.readStream.format("fsspeckit").option("changes", "true").option("keys", "id").load(path)
        write(changes, f"{folder}/log")
        log = IO.read_parquet(f"{folder}/log").to_pylist()
        return sorted((row["id"], row["v"], row["_change_type"]) for row in log)

    (source / "a.json").write_text('{"id": 1, "v": "x"}\n{"id": 2, "v": "y"}\n')
    first = [(0, "-", "insert"), (1, "x", "insert"), (2, "y", "insert")]
    assert run() == first
    (source / "b.json").write_text('{"id": 2, "v": "z"}\n')
    later = [(2, "y", "update_before"), (2, "z", "update_after")]
    assert run() == sorted([*first, *later])
    for name in ("1", ".1.crc"):  # as if the process had died after the commit, before Spark recorded it
        Path(f"{path}.checkpoint", "commits", name).unlink()
    assert run() == sorted([*first, *later])
    assert len(IO.read_parquet(path)) == 3


if __name__ == "__main__":
    main(*sys.argv[1:])
