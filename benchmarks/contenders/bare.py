"""Plain pyarrow: read everything into one table, write one file, swap the folders."""

from __future__ import annotations

import pyarrow.parquet as pq

from benchmarks.job import Job, Work


def read_and_write(job: Job) -> Work:
    pq.ParquetDataset(job.files()[:1])  # imports what the reader imports, before the clock starts

    def work() -> None:
        scratch = job.scratch()
        pq.write_table(pq.read_table(job.files()), scratch / "all.parquet")
        job.swap(scratch)

    return work
