"""The bare rewrite: pyarrow reads the files that are known to change, changes the rows and writes the files again.

The files are read and written as in `limit`: on all cores, with dictionaries only where they help. Nothing is planned,
proved, counted, synced or safe after a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.contenders import limit
from benchmarks.job import Job, Where, Work
from benchmarks.row_queries import VALUE


def delete_rows(job: Job) -> Work:
    _import()
    return lambda: _rewrite(job, lambda table: table.filter(pc.invert(_matches(table, job.condition))))


def update_rows(job: Job) -> Work:
    _import()

    def change(table: pa.Table) -> pa.Table:
        values = pc.if_else(_matches(table, job.condition), pc.multiply(table[VALUE], 2.0), table[VALUE])
        return table.set_column(table.column_names.index(VALUE), table.schema.field(VALUE), values)

    return lambda: _rewrite(job, change)


merge_columns = limit.upsert


def _import() -> None:
    """Import pandas, as pyarrow does at its first conversion from Python, before the clock starts."""
    pa.scalar(0)


def _matches(table: pa.Table, where: Where) -> pa.ChunkedArray:
    values = table[where.column]
    return pc.and_(pc.greater_equal(values, where.low), pc.less_equal(values, where.high))


def _rewrite(job: Job, change: Callable[[pa.Table], pa.Table]) -> None:
    def rewrite(name: str) -> None:
        path = job.target / name
        rows = change(limit.read(str(path)))
        if rows.num_rows:
            limit.write(rows, str(path), limit.TUNED)
        else:
            Path(path).unlink()

    with ThreadPoolExecutor(limit.CORES) as pool:
        list(pool.map(rewrite, job.affected))
