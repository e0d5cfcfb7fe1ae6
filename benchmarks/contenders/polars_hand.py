"""Hand-written polars: read everything, join, write everything, swap the folders.

The order of rows is lost, no rows are counted and no files are synced.
"""

from __future__ import annotations

import polars as pl

from benchmarks.job import CLUSTERED_BY, KEY, Job, Work

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
