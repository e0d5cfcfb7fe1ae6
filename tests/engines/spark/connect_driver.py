"""The program of the test of Spark Connect: a life, a job that is cancelled, errors in a few words."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import life
import pytest
from pyspark.sql import SparkSession

from fsspeckit.common.errors import KeyColumnError
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.datasets.spark.errors import SparkJobCancelledError, SparkJobError
from fsspeckit.datasets.spark.executor_check import slots
from fsspeckit.datasets.spark.jobs import run_items


def main(folder: str) -> None:
    """Everything in one session: starting a server takes its time."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    assert type(spark).__module__.startswith("pyspark.sql.connect")
    life.live(spark, folder)
    assert slots(spark) == 2
    progress(spark)
    errors(spark, folder)
    cancel(spark, folder)
    press_ctrl_c(spark, folder)
    print("done", flush=True)


def progress(spark) -> None:
    told, started = [], time.monotonic()
    run_items(spark, time.sleep, [0.5] * 16, 16, lambda count: told.append((time.monotonic() - started, count)))
    assert sum(count for _, count in told) == 16
    assert time.monotonic() - started - told[0][0] > 0.5, told


def errors(spark, folder: str) -> None:
    io, path = SparkDatasetIO(spark), f"{folder}/ds"
    twice = spark.createDataFrame([(1, "1", 1), (1, "1", 2)], "id long, day string, v long")
    with pytest.raises(KeyColumnError, match="duplicate"):
        io.merge(twice, path, strategy="upsert", key_columns="id")
    broken = spark.range(1).selectExpr("id", "'1' as day", "cast(raise_error('sensor broken') as bigint) as v")
    with pytest.raises(SparkJobError, match="sensor broken") as caught:
        io.merge(broken, path, strategy="upsert", key_columns="id")
    assert "\n" not in str(caught.value)


def cancel(spark, folder: str) -> None:
    """The caller's own tag, interrupted from another thread, as Spark Connect has it in place of job groups."""
    spark.addTag("mine")
    stopped(spark, folder, SparkJobCancelledError, lambda: spark.interruptTag("mine"))
    spark.removeTag("mine")


def press_ctrl_c(spark, folder: str) -> None:
    started = time.monotonic()
    stopped(spark, folder, KeyboardInterrupt, lambda: os.kill(os.getpid(), signal.SIGINT))
    assert time.monotonic() - started < 25, "the job was waited for"
    quick = spark.range(2).selectExpr("id", "'1' as day", "id as v")
    SparkDatasetIO(spark).merge(quick, f"{folder}/ds", strategy="upsert", key_columns="id")


def stopped(spark, folder: str, error: type[BaseException], stop: Callable[[], object]) -> None:
    """A merge whose source takes half a minute is stopped before, and leaves the old dataset."""

    def wait(batches):
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
