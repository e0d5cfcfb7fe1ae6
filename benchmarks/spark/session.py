"""Start the Spark session of a run, and read shuffled bytes from its status store.

The session has two cores and the compiler settings of a long-running application. The local session of fsspeckit is not
used, because its Java options favour a fast start and would slow down the other contenders.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession

from fsspeckit.datasets.spark.java import ensure_java

CORES = 2
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": str(4 * CORES),
    "spark.sql.parquet.compression.codec": "snappy",
    "spark.executor.heartbeatInterval": "60s",
    "spark.network.timeout": "600s",
}


def start(settings: dict[str, str] | None = None) -> tuple[SparkSession, float]:
    """Return a new session and the seconds of its start, including a first Python job."""
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    begin = time.perf_counter()
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("benchmarks")
    for name, value in (_SETTINGS | (settings or {})).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    empty_job(spark)
    return spark, time.perf_counter() - begin


def empty_job(spark: SparkSession) -> None:
    """Run an empty Python task on each core."""
    spark.range(0, CORES, 1, CORES).mapInArrow(lambda batches: batches, "id long").toArrow()


def wake_workers(spark: SparkSession) -> None:
    """Start a Python worker with fsspeckit on each core, because Spark ends workers after a minute without work."""
    spark.range(0, CORES, 1, CORES).mapInArrow(_import_tasks, "id long").toArrow()


def _import_tasks(batches: Iterable[Any]) -> Iterator[Any]:
    import fsspeckit.datasets.spark.jobs
    import fsspeckit.datasets.spark.tasks  # noqa: F401

    yield from batches


def empty_java_job(spark: SparkSession) -> None:
    """Run an empty task without Python on each core."""
    spark.range(0, CORES, 1, CORES).toArrow()


class Stages:
    """The Spark stages that ran since this object was created."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._before = {stage.stageId() for stage in self._all()}

    def facts(self) -> dict[str, float]:
        """Return the bytes written to shuffles, and the number of Spark tasks and stages."""
        new = [stage for stage in self._all() if stage.stageId() not in self._before]
        done = [stage for stage in new if stage.numCompleteTasks()]
        return {
            "shuffle_mb": sum(stage.shuffleWriteBytes() for stage in new) / 1e6,
            "spark_stages": len(done),
            "spark_tasks": sum(stage.numCompleteTasks() for stage in done),
        }

    def rows_read(self) -> int:
        """Return the rows that scans read from files, before filters."""
        return sum(int(stage.inputRecords()) for stage in self._all() if stage.stageId() not in self._before)

    def _all(self) -> list[Any]:
        context: Any = self._spark.sparkContext
        context._jsc.sc().listenerBus().waitUntilEmpty()
        gateway = context._gateway
        no_quantiles = gateway.new_array(gateway.jvm.double, 0)
        found = context._jsc.sc().statusStore().stageList(None, False, False, no_quantiles, None)
        return [found.apply(number) for number in range(found.size())]


def collect_garbage(spark: SparkSession) -> None:
    """Collect garbage, so that a run does not pay for the previous one."""
    context: Any = spark.sparkContext
    context._jvm.System.gc()
