"""Maintenance on Spark: fsspeckit and hand-written DataFrame jobs.

The hand-written jobs write a new folder and swap the folders. They get the number of files that fsspeckit writes, and
all usual methods are included; the best one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql

from benchmarks.job import KEY
from benchmarks.spark.contenders import Contender, Facts, Job, swap
from fsspeckit.core.results import MaintenanceResult
from fsspeckit.datasets.spark import SparkDatasetIO

FILE_ROWS = 1_000_000
FILE_BYTES = 128_000_000
ORDER = ["customer", "ts"]
_FILE_MB = FILE_BYTES / 2**20


def compact(job: Job) -> Facts:
    """Compact small files with fsspeckit."""
    return _facts(SparkDatasetIO(job.spark).compact_parquet_dataset(str(job.target), target_rows_per_file=FILE_ROWS))


def compact_to_bytes(job: Job) -> Facts:
    """Compact small files with fsspeckit to files of a size in bytes, as table formats do."""
    return _facts(SparkDatasetIO(job.spark).compact_parquet_dataset(str(job.target), target_mb_per_file=_FILE_MB))


def zorder(job: Job) -> Facts:
    """Sort the whole dataset in z-order with fsspeckit."""
    io = SparkDatasetIO(job.spark)
    call = {"zorder_columns": ORDER, "curve": "zorder", "target_mb_per_file": _FILE_MB}
    return _facts(io.optimize_parquet_dataset(str(job.target), **call))


def cluster(job: Job) -> Facts:
    """Sort the whole dataset with fsspeckit."""
    io = SparkDatasetIO(job.spark)
    return _facts(io.optimize_parquet_dataset(str(job.target), zorder_columns=ORDER, target_rows_per_file=FILE_ROWS))


def deduplicate(job: Job) -> Facts:
    """Keep the newest row of each key with fsspeckit."""
    return _facts(SparkDatasetIO(job.spark).deduplicate_parquet_dataset(str(job.target), KEY, "ts"))


def _facts(result: MaintenanceResult) -> Facts:
    return {"rewritten_files": result.compacted_file_count, "after_files": result.after_file_count}


def _native(change: Callable[[DataFrame, int], DataFrame]) -> Contender:
    """Return a job that reads everything, changes it and writes it to a new folder."""

    def run(job: Job) -> Facts:
        rows = job.spark.read.parquet(str(job.target))
        change(rows, max(1, -(-job.rows // FILE_ROWS))).write.parquet(str(job.beside("new")))
        swap(job)
        return {}

    return run


def newest_rows(rows: DataFrame) -> DataFrame:
    """Return the newest row of each key."""
    newest = Window.partitionBy(KEY).orderBy(sql.col("ts").desc())
    return rows.withColumn("_n", sql.row_number().over(newest)).where("_n = 1").drop("_n")


def _aggregate(rows: DataFrame, _files: int) -> DataFrame:
    best = sql.max(sql.struct("ts", *(name for name in rows.columns if name not in (KEY, "ts"))))
    return rows.groupBy(KEY).agg(best.alias("_r")).select(KEY, *(f"_r.{name}" for name in rows.columns if name != KEY))


def _columns_kept(change: Callable[[DataFrame, int], DataFrame]) -> Callable[[DataFrame, int], DataFrame]:
    return lambda rows, files: change(rows, files).select(rows.columns)


COMPACT: Mapping[str, Contender] = {
    "fsspeckit": compact,
    "coalesce": _native(lambda rows, files: rows.coalesce(files)),
    "repartition": _native(lambda rows, files: rows.repartition(files)),
}
CLUSTER: Mapping[str, Contender] = {
    "fsspeckit": cluster,
    "orderBy": _native(lambda rows, _files: rows.orderBy(*ORDER)),
    "range, sorted": _native(lambda rows, files: rows.repartitionByRange(files, *ORDER).sortWithinPartitions(*ORDER)),
}
DEDUPLICATE: Mapping[str, Contender] = {
    "fsspeckit": deduplicate,
    "window": _native(_columns_kept(lambda rows, _files: newest_rows(rows))),
    "aggregate": _native(_columns_kept(_aggregate)),
}
NATIVE = tuple(name for group in (COMPACT, CLUSTER, DEDUPLICATE) for name in group if name != "fsspeckit")
