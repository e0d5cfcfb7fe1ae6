"""polars as one writes it by hand: read everything, join, write everything anew, swap the folders.

Rows lose their order, nothing is counted and nothing is synced; in exchange it streams through one fast engine.
"""

from __future__ import annotations

import polars as pl

from benchmarks.job import KEY, Job, Work

_ROWS_PER_FILE = 100_000


def upsert(job: Job) -> Work:
    def work() -> None:
        source = pl.from_arrow(job.source)
        assert isinstance(source, pl.DataFrame)
        kept = pl.scan_parquet(job.files()).join(source.lazy(), on=KEY, how="anti")
        _write(job, pl.concat([kept, source.lazy()]))

    return work


def full_sync(job: Job) -> Work:
    """The source is the new state: write it, compare nothing, count nothing."""

    def work() -> None:
        source = pl.from_arrow(job.source)
        assert isinstance(source, pl.DataFrame)
        _write(job, source.lazy())

    return work


def _write(job: Job, rows: pl.LazyFrame) -> None:
    scratch = job.scratch()
    rows.sink_parquet(pl.PartitionBy(scratch, max_rows_per_file=_ROWS_PER_FILE), compression="snappy")
    job.swap(scratch)
