"""fsspeckit through its public API, with the time of the commit measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import sqlglot  # noqa: F401 - the first expression imports it, and imports are not timed

from benchmarks.job import CLUSTERED_BY, KEY, Job, Work
from benchmarks.row_queries import DELETE_WHEN, SEQUENCE, SET, VALUE
from fsspeckit.core.commit import transaction
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.operations.index import rebuild_index
from fsspeckit.core.results import MaintenanceResult, MergeResult
from fsspeckit.datasets.io import DatasetIO
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

Make = Callable[[], DatasetIO]


def _duckdb(memory_limit: str | None = None) -> DatasetIO:
    """Return the DuckDB engine with an open database, which is not timed for the other contenders either."""
    from fsspeckit.datasets.duckdb import DuckDBDatasetIO

    io = DuckDBDatasetIO(memory_limit=memory_limit)
    io.connection.execute("SELECT 1")
    return io


def merge(job: Job, make: Make = PyarrowDatasetIO) -> Work:
    io = make()
    return lambda: _merge(io, job)


def merge_again(job: Job) -> Work:
    """Run a merge that has already run, so that nothing changes."""
    io = PyarrowDatasetIO()
    _merge(io, job)
    return lambda: _merge(io, job)


def plan(job: Job) -> Work:
    io = PyarrowDatasetIO()

    def work() -> dict[str, Any]:
        found = io.merge(job.source, str(job.target), strategy=job.strategy, key_columns=[KEY], dry_run=True)
        return {"updated": found["updated"], "inserted": found["inserted"]}

    return work


def plan_with_index(job: Job) -> Work:
    """Plan a second time: the index has the footers of all files."""
    rebuild_index(Place.of(str(job.target), None, None))
    return plan(job)


def compact(job: Job, make: Make = PyarrowDatasetIO) -> Work:
    io = make()
    return lambda: _maintain(lambda: io.compact_parquet_dataset(str(job.target), target_mb_per_file=32))


def cluster_linear(job: Job, make: Make = PyarrowDatasetIO) -> Work:
    return _cluster(job, "linear", make)


def cluster_zorder(job: Job) -> Work:
    return _cluster(job, "zorder")


def cluster_hilbert(job: Job) -> Work:
    return _cluster(job, "hilbert")


def _cluster(job: Job, curve: Any, make: Make = PyarrowDatasetIO) -> Work:
    io = make()
    rows = max(10_000, sum(1 for _ in job.files()) * 10_000)
    call = {"zorder_columns": list(CLUSTERED_BY), "target_rows_per_file": rows, "curve": curve}
    return lambda: _maintain(lambda: io.optimize_parquet_dataset(str(job.target), **call))


def deduplicate(job: Job, make: Make = PyarrowDatasetIO) -> Work:
    io = make()
    return lambda: _maintain(lambda: io.deduplicate_parquet_dataset(str(job.target), KEY, "ts"))


def delete_rows(job: Job, make: Make = PyarrowDatasetIO) -> Work:
    io = make()
    return lambda: _change(lambda: io.delete(str(job.target), where=job.condition.sql))


def update_rows(job: Job, make: Make = PyarrowDatasetIO) -> Work:
    io = make()
    return lambda: _change(lambda: io.update(str(job.target), set={VALUE: SET}, where=job.condition.sql))


def merge_columns(job: Job, make: Make = PyarrowDatasetIO) -> Work:
    io = make()
    call = {"strategy": "upsert", "key_columns": [KEY], "update_columns": [VALUE]}
    return lambda: _change(lambda: io.merge(job.source, str(job.target), **call))


def apply_changes(job: Job, make: Make = PyarrowDatasetIO) -> Work:
    io = make()
    call = {"key_columns": KEY, "sequence_by": SEQUENCE, "delete_when": DELETE_WHEN, "except_columns": "op"}
    return lambda: _change(lambda: io.apply_changes(job.source, str(job.target), **call))


def upsert_full(job: Job) -> Work:
    """Upsert the same rows with new values in every column."""
    io = PyarrowDatasetIO()
    call = {"strategy": "upsert", "key_columns": [KEY]}
    return lambda: _change(lambda: io.merge(job.full, str(job.target), **call))


merge_duckdb, compact_duckdb, deduplicate_duckdb, cluster_duckdb = (
    partial(work, make=_duckdb) for work in (merge, compact, deduplicate, cluster_linear)
)
delete_rows_duckdb, update_rows_duckdb, merge_columns_duckdb, apply_changes_duckdb = (
    partial(work, make=_duckdb) for work in (delete_rows, update_rows, merge_columns, apply_changes)
)


cluster_in_1gb, deduplicate_in_1gb = (
    partial(work, make=partial(_duckdb, "1GB")) for work in (cluster_linear, deduplicate)
)


def _maintain(run: Callable[[], MaintenanceResult]) -> dict[str, Any]:
    with _commit_time() as spent:
        result = run()
    return {"rewritten_files": result.compacted_file_count, "after_files": result.after_file_count, **spent}


def _merge(io: DatasetIO, job: Job) -> dict[str, Any]:
    return _change(lambda: io.merge(job.source, str(job.target), strategy=job.strategy, key_columns=[KEY]))


def _change(run: Callable[[], Any]) -> dict[str, Any]:
    with _commit_time() as spent:
        result = run()
    assert isinstance(result, MergeResult)
    return {
        "updated": result.updated,
        "inserted": result.inserted,
        "deleted": result.deleted,
        "unchanged": result.unchanged,
        "rewritten_files": len(result.rewritten_files),
        **spent,
    }


@contextmanager
def _commit_time() -> Iterator[dict[str, float]]:
    """Measure the seconds in the commit (checks, journal, publishing) and in fsync."""
    spent = {"commit_seconds": 0.0, "fsync_seconds": 0.0}
    inner_commit, inner_sync = transaction.Transaction.commit, os.fsync

    def timed_commit(*args: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return inner_commit(*args, **options)
        finally:
            spent["commit_seconds"] += time.perf_counter() - start

    def timed_sync(descriptor: int) -> None:
        start = time.perf_counter()
        inner_sync(descriptor)
        spent["fsync_seconds"] += time.perf_counter() - start

    transaction.Transaction.commit, os.fsync = timed_commit, timed_sync  # type: ignore[method-assign, assignment]
    try:
        yield spent
    finally:
        transaction.Transaction.commit, os.fsync = inner_commit, inner_sync  # type: ignore[method-assign]
