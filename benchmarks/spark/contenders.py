"""The contenders: fsspeckit on Spark and on PyArrow, and hand-written PySpark jobs.

The hand-written jobs write a new folder and swap the folders, which is not safe for readers or after a crash. They
count no rows and sync no files. Small sets of source keys have a broadcast hint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from benchmarks.job import KEY, Where
from benchmarks.spark.session import empty_java_job, empty_job
from fsspeckit.common.choices import StrategyName
from fsspeckit.core.dataset.source import Input, Source
from fsspeckit.core.engine.protocol import OnDone, Scratch
from fsspeckit.core.model import KeySetSpec, Match, Outcome, Scan, Task
from fsspeckit.core.results import MergeResult
from fsspeckit.core.storage import Storage
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.datasets.spark.engine import SparkEngine

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """A copy of the target, and the source: in memory, as files, and as a lazy DataFrame over the files."""

    spark: SparkSession
    target: Path
    table: pa.Table
    files: Path
    frame: DataFrame
    where: Where | None = None

    @property
    def condition(self) -> Where:
        """Return the rows that a delete or an update is about."""
        assert self.where is not None
        return self.where

    @property
    def rows(self) -> int:
        """Return the number of rows of the target."""
        return sum(pq.read_metadata(path).num_rows for path in self.target.glob("*.parquet"))

    def beside(self, name: str) -> Path:
        """Return a folder for new files."""
        return self.target.with_name(f"{self.target.name}.{name}")


Contender = Callable[[Job], Facts]


def ours(job: Job) -> Facts:
    """Merge with fsspeckit, with a DataFrame as source."""
    return _merge(job, job.frame)


def ours_query(job: Job) -> Facts:
    """Merge a DataFrame that does more than read files, so that Spark sends each row."""
    return _merge(job, _query(job))


def _query(job: Job) -> DataFrame:
    return job.frame.where(sql.col(KEY).isNotNull())


def ours_exchange(job: Job) -> Facts:
    """Merge with the rows sent to the tasks that need them."""
    return _merge(job, job.frame, 0)


def ours_shuffle(job: Job) -> Facts:
    """Merge as on a cluster, where Spark sends each row through its shuffle."""
    return _merge(job, _query(job), 0, TimedShuffle)


def ours_path(job: Job) -> Facts:
    """Merge with the folder of the source files as source."""
    return _merge(job, str(job.files))


def ours_arrow(job: Job) -> Facts:
    """Merge with an Arrow table as source."""
    return _merge(job, job.table)


def full_merge(job: Job) -> Facts:
    """Make the target equal to the source with fsspeckit."""
    return _merge(job, job.frame, strategy="full_merge")


def pyarrow_engine(job: Job) -> Facts:
    """Merge with the PyArrow engine."""
    return row_facts(PyarrowDatasetIO().merge(job.table, str(job.target), strategy="upsert", key_columns=[KEY]))


def _merge(
    job: Job,
    source: Any,
    share_limit: int | None = None,
    timed: type[TimedEngine] | None = None,
    *,
    strategy: StrategyName = "upsert",
) -> Facts:
    io = SparkDatasetIO(job.spark, share_limit=share_limit)
    io.engine = engine = (timed or TimedEngine)(job.spark, share_limit)
    facts = row_facts(io.merge(source, str(job.target), strategy=strategy, key_columns=[KEY]))
    return {**facts, **engine.spent}


def row_facts(result: Any) -> dict[str, Any]:
    """Return the counts of a result."""
    assert isinstance(result, MergeResult)
    return {
        "updated": result.updated,
        "inserted": result.inserted,
        "deleted": result.deleted,
        "rewritten_files": len(result.rewritten_files),
        "commit_s": result.commit_seconds,
    }


class TimedEngine(SparkEngine):
    """The Spark engine, with the time of each part measured."""

    def __init__(self, spark: SparkSession, share_limit: int | None) -> None:
        super().__init__(spark, share_limit)
        self.spent: dict[str, float] = {}

    @contextmanager
    def open_source(self, given: Input, storage: Storage, scratch: Scratch) -> Iterator[Source]:
        begin = time.perf_counter()
        with super().open_source(given, storage, scratch) as source:
            self._spend("source_s", begin)
            yield source

    def match(
        self, storage: Storage, source: Source, specs: Sequence[KeySetSpec], scans: Sequence[Scan], on_done: OnDone
    ) -> list[Match]:
        begin = time.perf_counter()
        found = super().match(storage, source, specs, scans, on_done)
        self._spend("match_s", begin)
        return found

    def run(
        self, storage: Storage, source: Source, tasks: Sequence[Task], staging: str | None, on_done: OnDone
    ) -> list[Outcome]:
        begin = time.perf_counter()
        outcomes = super().run(storage, source, tasks, staging, on_done)
        self._spend("rewrite_s", begin)
        return outcomes

    def _spend(self, name: str, begin: float) -> None:
        self.spent[name] = self.spent.get(name, 0.0) + time.perf_counter() - begin


class TimedShuffle(TimedEngine):
    """The Spark engine without the optimisations for one machine: keys on the driver, rows in files."""

    def scans_here(self, rows: int) -> bool:  # noqa: ARG002 - as many as there may be
        return False

    @contextmanager
    def packets(self) -> Iterator[str | None]:
        yield None


def by_hand(job: Job) -> Facts:
    """Anti-join, union, write to a new folder, swap; the source keys are broadcast."""
    return _by_hand(job, sql.broadcast(job.frame.select(KEY)))


def by_hand_shuffled(job: Job) -> Facts:
    """Anti-join as in `by_hand`, with a sort-merge join, for more keys than can be broadcast."""
    return _by_hand(job, job.frame.select(KEY).hint("merge"))


def _by_hand(job: Job, keys: DataFrame) -> Facts:
    kept = job.spark.read.parquet(str(job.target)).join(keys, KEY, "left_anti")
    kept.unionByName(job.frame).write.parquet(str(job.beside("new")))
    swap(job)
    return {}


def full_outer(job: Job) -> Facts:
    """One full outer join of everything, write to a new folder, swap."""
    _outer(job, job.spark.read.parquet(str(job.target))).write.parquet(str(job.beside("new")))
    swap(job)
    return {}


def touched_files_broadcast(job: Job) -> Facts:
    """Merge like lakehouse formats: find the files with a matching row, then full outer join only these."""
    return _touched(job, sql.broadcast(job.frame.select(KEY)))


def touched_files(job: Job) -> Facts:
    """Merge like `touched_files_broadcast`, for more keys than can be broadcast."""
    return _touched(job, job.frame.select(KEY))


def _touched(job: Job, keys: DataFrame) -> Facts:
    target = job.spark.read.parquet(str(job.target))
    named = target.select(KEY, sql.col("_metadata.file_name").alias("_file"))
    found = named.join(keys, KEY, "left_semi").select("_file").distinct().toArrow()
    names = found["_file"].to_pylist()
    new = job.beside("new")
    rows = job.spark.read.parquet(*(str(job.target / name) for name in names)) if names else target.limit(0)
    _outer(job, rows).write.parquet(str(new))
    for name in names:
        (job.target / name).unlink()
    for path in new.glob("*.parquet"):
        path.rename(job.target / path.name)
    return {"rewritten_files": len(names)}


def _outer(job: Job, rows: DataFrame) -> DataFrame:
    old = rows.withColumn("_old", sql.lit(True)).alias("old")
    new = job.frame.withColumn("_new", sql.lit(True)).alias("new")
    joined = old.join(new, sql.col(f"old.{KEY}") == sql.col(f"new.{KEY}"), "full_outer")
    is_new = sql.col("_new").isNotNull()
    return joined.select(
        *(
            sql.when(is_new, sql.col(f"new.{name}")).otherwise(sql.col(f"old.{name}")).alias(name)
            for name in rows.columns
        )
    )


def swap(job: Job) -> None:
    """Replace the old folder with the new one."""
    job.target.rename(job.beside("old"))
    job.beside("new").rename(job.target)


def three_empty_jobs(job: Job) -> Facts:
    """Run three empty Spark jobs with Python workers."""
    for _ in range(3):
        empty_job(job.spark)
    return {}


def three_empty_java_jobs(job: Job) -> Facts:
    """Run three empty Spark jobs without Python."""
    for _ in range(3):
        empty_java_job(job.spark)
    return {}
