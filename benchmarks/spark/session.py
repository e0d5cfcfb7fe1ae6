"""The one Spark session of a run, and what its status store says about shuffled bytes.

The session has two cores and the compiler of a long-lived application. It is not fsspeckit's own local session, whose
Java options favour a quick start and would slow the peers down.
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
    """A new session, and the seconds that its start took, a first Python job included."""
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
    """The least that work in Python on executors costs: a task on each core that does nothing."""
    spark.range(0, CORES, 1, CORES).mapInArrow(lambda batches: batches, "id long").toArrow()


def wake_workers(spark: SparkSession) -> None:
    """Have a Python worker on each core that knows this library: Spark ends those that were idle for a minute."""
    spark.range(0, CORES, 1, CORES).mapInArrow(_import_tasks, "id long").toArrow()


def _import_tasks(batches: Iterable[Any]) -> Iterator[Any]:
    import fsspeckit.datasets.spark.jobs
    import fsspeckit.datasets.spark.tasks  # noqa: F401

    yield from batches


def empty_java_job(spark: SparkSession) -> None:
    """The least that any job costs: a task on each core that does nothing, and no Python."""
    spark.range(0, CORES, 1, CORES).toArrow()


class Stages:
    """What ran since this was made."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._before = {stage.stageId() for stage in self._all()}

    def facts(self) -> dict[str, float]:
        """Bytes written into shuffles, and how many Spark tasks and stages there were."""
        new = [stage for stage in self._all() if stage.stageId() not in self._before]
        done = [stage for stage in new if stage.numCompleteTasks()]
        return {
            "shuffle_mb": sum(stage.shuffleWriteBytes() for stage in new) / 1e6,
            "spark_stages": len(done),
            "spark_tasks": sum(stage.numCompleteTasks() for stage in done),
        }

    def rows_read(self) -> int:
        """Rows that scans took from files, those that filters dropped later among them."""
        return sum(int(stage.inputRecords()) for stage in self._all() if stage.stageId() not in self._before)

    def _all(self) -> list[Any]:
        context: Any = self._spark.sparkContext
        context._jsc.sc().listenerBus().waitUntilEmpty()
        gateway = context._gateway
        no_quantiles = gateway.new_array(gateway.jvm.double, 0)
        found = context._jsc.sc().statusStore().stageList(None, False, False, no_quantiles, None)
        return [found.apply(number) for number in range(found.size())]


def collect_garbage(spark: SparkSession) -> None:
    """Let nobody pay for what another has left behind."""
    context: Any = spark.sparkContext
    context._jvm.System.gc()
