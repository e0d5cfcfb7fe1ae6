"""Hand-written polars: read everything, join, write everything, swap the folders.

The order of rows is lost, no rows are counted and no files are synced.
"""

from __future__ import annotations

import os

import polars as pl

from benchmarks.data import COLUMNS
from benchmarks.job import CLUSTERED_BY, KEY, Job, Work
from benchmarks.row_queries import DELETE_WHEN, SEQUENCE, VALUE

_ROWS_PER_FILE = 100_000


def upsert(job: Job) -> Work:
    def work() -> None:
        source = pl.from_arrow(job.source)
        assert isinstance(source, pl.DataFrame)
        kept = pl.scan_parquet(job.files()).join(source.lazy(), on=KEY, how="anti")
        _write(job, pl.concat([kept, source.lazy()]))

    return work


def full_sync(job: Job) -> Work:
    """Write the source as the new dataset, without comparing or counting rows."""

    def work() -> None:
        source = pl.from_arrow(job.source)
        assert isinstance(source, pl.DataFrame)
        _write(job, source.lazy())

    return work


def delete_rows(job: Job) -> Work:
    return lambda: _write(job, pl.scan_parquet(job.files()).filter(~_matches(job)))


def delete_per_file(job: Job) -> Work:
    """Rewrite the files that are known to change."""

    def work() -> None:
        for file in (str(job.target / name) for name in job.affected):
            kept = pl.read_parquet(file).filter(~_matches(job))
            if kept.height:
                kept.write_parquet(f"{file}.tmp", compression="snappy")
                os.replace(f"{file}.tmp", file)
            else:
                os.remove(file)

    return work


def update_rows(job: Job) -> Work:
    value = pl.when(_matches(job)).then(pl.col(VALUE) * 2).otherwise(pl.col(VALUE)).alias(VALUE)
    return lambda: _write(job, pl.scan_parquet(job.files()).with_columns(value))


def merge_columns(job: Job) -> Work:
    def work() -> None:
        source = pl.from_arrow(job.source.select([KEY, VALUE]))
        assert isinstance(source, pl.DataFrame)
        _write(job, pl.scan_parquet(job.files()).update(source.lazy(), on=KEY))

    return work


def apply_changes(job: Job) -> Work:
    def work() -> None:
        source = pl.from_arrow(job.source)
        assert isinstance(source, pl.DataFrame)
        target, feed = pl.scan_parquet(job.files()), source.lazy()
        known = target.join(feed.select(KEY, pl.col(SEQUENCE).alias("_new")), on=KEY, how="left")
        kept = known.filter(pl.col("_new").is_null() | (pl.col("_new") <= pl.col(SEQUENCE)))
        late = target.join(feed.select(KEY, pl.col(SEQUENCE).alias("_new")), on=KEY, how="inner")
        late = late.filter(pl.col("_new") <= pl.col(SEQUENCE)).select(KEY)
        new = feed.filter(~pl.sql_expr(DELETE_WHEN)).join(late, on=KEY, how="anti")
        _write(job, pl.concat([kept.select(COLUMNS), new.select(COLUMNS)]))

    return work


def _matches(job: Job) -> pl.Expr:
    return pl.col(job.condition.column).is_between(job.condition.low, job.condition.high)


def compact(job: Job) -> Work:
    return lambda: _write(job, pl.scan_parquet(job.files()), 500_000)


def cluster(job: Job) -> Work:
    return lambda: _write(job, pl.scan_parquet(job.files()).sort(*CLUSTERED_BY), 1_000_000)


def deduplicate(job: Job) -> Work:
    return lambda: _write(job, pl.scan_parquet(job.files()).sort("ts").unique(KEY, keep="last"))


def _write(job: Job, rows: pl.LazyFrame, rows_per_file: int = _ROWS_PER_FILE) -> None:
    scratch = job.scratch()
    rows.sink_parquet(pl.PartitionBy(scratch, max_rows_per_file=rows_per_file), compression="snappy")
    job.swap(scratch)
