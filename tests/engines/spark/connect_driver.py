"""The program of all tests of Spark Connect, on one server: a life, cancelled jobs, the format, streams, errors."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import life
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from stream_driver import source

from fsspeckit.common.errors import KeyColumnError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO, register_data_source
from fsspeckit.datasets.spark.errors import SparkJobCancelledError, SparkJobError
from fsspeckit.datasets.spark.executor_check import slots
from fsspeckit.datasets.spark.jobs import run_items

IO = PyarrowDatasetIO()


def main(folder: str) -> None:
    """Streams without registration of the format, then batches with it, to which Spark passes filters."""
    spark: Any = SparkSession.builder.remote("local[2]").getOrCreate()
    assert type(spark).__module__.startswith("pyspark.sql.connect")
    life.live(spark, folder)
    assert slots(spark) == 2
    for test in (progress, errors, cancel, press_ctrl_c, stream_of_merges, streams_of_the_format):
        test(spark, folder)
        print(test.__name__, flush=True)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    register_data_source(spark)
    batches(spark, folder)
    print("done", flush=True)


def progress(spark: Any, folder: str) -> None:
    told, started = [], time.monotonic()
    run_items(spark, time.sleep, [0.5] * 16, 16, lambda count: told.append((time.monotonic() - started, count)))
    assert sum(count for _, count in told) == 16
    assert time.monotonic() - started - told[0][0] > 0.5, told


def errors(spark: Any, folder: str) -> None:
    io, path = SparkDatasetIO(spark), f"{folder}/ds"
    twice = spark.createDataFrame([(1, "1", 1), (1, "1", 2)], "id long, day string, v long")
    with pytest.raises(KeyColumnError, match="duplicate"):
        io.merge(twice, path, strategy="upsert", key_columns="id")
    broken = spark.range(1).selectExpr("id", "'1' as day", "cast(raise_error('sensor broken') as bigint) as v")
    with pytest.raises(SparkJobError, match="sensor broken") as caught:
        io.merge(broken, path, strategy="upsert", key_columns="id")
    assert "\n" not in str(caught.value)


def cancel(spark: Any, folder: str) -> None:
    """The caller's own tag, interrupted from another thread, as Spark Connect has it in place of job groups."""
    spark.addTag("mine")
    stopped(spark, folder, SparkJobCancelledError, lambda: spark.interruptTag("mine"))
    spark.removeTag("mine")


def press_ctrl_c(spark: Any, folder: str) -> None:
    started = time.monotonic()
    stopped(spark, folder, KeyboardInterrupt, lambda: os.kill(os.getpid(), signal.SIGINT))
    assert time.monotonic() - started < 25, "the job was waited for"
    quick = spark.range(2).selectExpr("id", "'1' as day", "id as v")
    SparkDatasetIO(spark).merge(quick, f"{folder}/ds", strategy="upsert", key_columns="id")


def stopped(spark: Any, folder: str, error: type[BaseException], stop: Callable[[], object]) -> None:
    """A merge whose source takes half a minute is stopped before, and leaves the old dataset."""

    def wait(batches: Any) -> Any:
        for batch in batches:
            time.sleep(30)
            yield batch

    frame = spark.range(2).mapInArrow(wait, "id long").selectExpr("id", "'1' as day", "id as v")
    io, path = SparkDatasetIO(spark), f"{folder}/ds"
    before = io.read_parquet(path)
    timer = threading.Timer(3, stop)
    timer.start()
    with pytest.raises(error):
        io.merge(frame, path, strategy="upsert", key_columns="id")
    timer.join()
    assert io.read_parquet(path).equals(before)
    assert not io.recover(path)


def put(folder: str, number: int, *lines: str) -> None:
    """A file of the source; times a minute apart make the order of batches."""
    path = Path(folder, "in", f"{number}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))
    os.utime(path, (1_700_000_000 + 60 * number,) * 2)


def uncommitted(checkpoint: str, number: int) -> None:
    """As if the process had died after the commit of a batch, before Spark took note of it."""
    for name in (str(number), f".{number}.crc"):
        Path(checkpoint, "commits", name).unlink()


def stream_of_merges(spark: Any, folder: str) -> None:
    """Two batches, the last one again, and a third: the server runs the function of each in a process of its own."""
    folder = f"{folder}/merges"
    io, path = SparkDatasetIO(spark), f"{folder}/ds"

    def stream() -> list[tuple[Any, ...]]:
        options = {"key_columns": "id", "checkpoint": f"{folder}/checkpoint", "trigger": {"availableNow": True}}
        query = io.merge_stream(source(spark, folder), path, **options)
        query.awaitTermination()
        assert query.exception() is None, query.exception()
        return sorted(tuple(row.values()) for row in IO.read_parquet(path).to_pylist())

    put(folder, 0, '{"id": 1, "v": "a"}', '{"id": 2, "v": "b"}')
    put(folder, 1, '{"id": 2, "v": "B"}')
    assert stream() == [(1, "a"), (2, "B")]
    IO.merge(pa.table({"id": [2], "v": ["mine"]}), path, strategy="upsert", key_columns="id")
    uncommitted(f"{folder}/checkpoint", 1)
    assert stream() == [(1, "a"), (2, "mine")], "the batch was merged again"
    put(folder, 2, '{"id": 3, "v": "c"}')
    assert stream() == [(1, "a"), (2, "mine"), (3, "c")]


def streams_of_the_format(spark: Any, folder: str) -> None:
    """A stream of files into a dataset that keeps its history, and the stream of its changes into another."""
    folder = f"{folder}/found"
    path = f"{folder}/copy"
    IO.write_dataset(pa.table({"id": [0], "v": ["-"]}), path)
    IO.keep_history(path)

    def write(stream: Any, target: str, **options: str) -> None:
        writer = stream.writeStream.format("fsspeckit").options(checkpointLocation=f"{target}.checkpoint", **options)
        query = writer.trigger(availableNow=True).start(target)
        query.awaitTermination()
        assert query.exception() is None, query.exception()

    def run() -> list[tuple[Any, ...]]:
        write(spark.readStream.schema("id bigint, v string").json(f"{folder}/in"), path, keys="id")
        changes = spark.readStream.format("fsspeckit").option("changes", "true").option("keys", "id").load(path)
        write(changes, f"{folder}/log")
        log = IO.read_parquet(f"{folder}/log").to_pylist()
        return sorted((row["id"], row["v"], row["_change_type"]) for row in log)

    put(folder, 0, '{"id": 1, "v": "x"}', '{"id": 2, "v": "y"}')
    first = [(0, "-", "insert"), (1, "x", "insert"), (2, "y", "insert")]
    assert run() == first
    put(folder, 1, '{"id": 2, "v": "z"}')
    later = [(2, "y", "update_before"), (2, "z", "update_after")]
    assert run() == sorted([*first, *later])
    uncommitted(f"{path}.checkpoint", 1)
    assert run() == sorted([*first, *later])
    assert len(IO.read_parquet(path)) == 3


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
    assert (read.schema.simpleString(), read.count()) == ("struct<id:bigint,v:string,day:bigint>", 12)
    assert sorted(row.v for row in read.filter("id > 8 AND day = 1").collect()) == ["b11", "b9"]
    assert spark.read.format("fsspeckit").option("version", kept).load(path).count() == 10
    assert spark.read.format("fsspeckit").option("columns", "v").load(path).columns == ["v"]
    with pytest.raises(PySparkException, match="the option 'kyes' is unknown here"):
        more.write.format("fsspeckit").option("kyes", "id").mode("append").save(path)
    big = spark.range(300_000).selectExpr("id", "uuid() AS v", "1 AS day")
    with pytest.raises(PySparkException, match=r"SparkDatasetIO\(spark\).merge\(df, .*key_columns=\['id'\]"):
        big.write.format("fsspeckit").options(keys="id", max_mb="1").mode("append").save(path)
    assert IO.read_parquet(path).num_rows == 12
