"""Hand-written DuckDB: the whole dataset in one statement, or only the affected files."""

from __future__ import annotations

import os

import duckdb

from benchmarks.job import CLUSTERED_BY, KEY, Job, Work
from benchmarks.row_queries import changed_rows

_OPTIONS = "FORMAT parquet, COMPRESSION snappy"


def upsert_whole(job: Job) -> Work:
    connection = _connect(job)
    rows = f"SELECT * FROM read_parquet({job.files()}) ANTI JOIN source USING ({KEY}) UNION ALL SELECT * FROM source"
    return lambda: _write_all(connection, job, rows)


def full_sync(job: Job) -> Work:
    """Write the source as the new dataset, without comparing or counting rows."""
    connection = _connect(job)
    return lambda: _write_all(connection, job, "SELECT * FROM source")


def upsert_per_file(job: Job) -> Work:
    """Find the affected files by their statistics, then rewrite each with one statement."""
    connection = _connect(job)
    chunks = f"SELECT file_name, stats_min::BIGINT lo, stats_max::BIGINT hi FROM parquet_metadata({job.files()})"
    affected = f"""
        SELECT DISTINCT file_name FROM ({chunks} WHERE path_in_schema = '{KEY}') AS chunk
        SEMI JOIN source ON source.{KEY} BETWEEN chunk.lo AND chunk.hi"""
    return lambda: _write_files(connection, job, affected)


def upsert_per_file_by_keys(job: Job) -> Work:
    """Find the affected files by reading the key column of all of them."""
    connection = _connect(job)
    keys = f"SELECT {KEY}, filename FROM read_parquet({job.files()}, filename = true)"
    return lambda: _write_files(
        connection, job, f"SELECT DISTINCT filename FROM ({keys}) SEMI JOIN source USING ({KEY})"
    )


def change_rows(job: Job) -> Work:
    """Delete, update or merge with one statement that writes the whole dataset."""
    connection = _connect(job)
    connection.execute(f"CREATE VIEW target AS SELECT * FROM read_parquet({job.files()})")
    return lambda: _write_all(connection, job, changed_rows(job.strategy, job.where))


def delete_per_file(job: Job) -> Work:
    """Rewrite the files that are known to change, each with one statement."""
    connection = _connect(job)

    def work() -> None:
        for file in (str(job.target / name) for name in job.affected):
            kept = f"SELECT * FROM read_parquet('{file}') WHERE NOT ({job.condition.sql})"
            found = connection.execute(f"COPY ({kept}) TO '{file}.tmp' ({_OPTIONS})").fetchone()
            os.replace(f"{file}.tmp", file)
            if found is None or not found[0]:
                os.remove(file)

    return work


def compact(job: Job) -> Work:
    connection = _connect(job)
    return lambda: _write_all(connection, job, f"SELECT * FROM read_parquet({job.files()})")


def cluster(job: Job) -> Work:
    """Write one sorted file with ``COPY (... ORDER BY ...)``."""
    connection = _connect(job)
    rows = f"SELECT * FROM read_parquet({job.files()}) ORDER BY {', '.join(CLUSTERED_BY)}"

    def work() -> None:
        scratch = job.scratch()
        connection.execute(f"COPY ({rows}) TO '{scratch}/sorted.parquet' ({_OPTIONS})")
        job.swap(scratch)

    return work


def deduplicate(job: Job) -> Work:
    connection = _connect(job)
    newest = f"row_number() OVER (PARTITION BY {KEY} ORDER BY ts DESC) = 1"
    return lambda: _write_all(connection, job, f"SELECT * FROM read_parquet({job.files()}) QUALIFY {newest}")


def _connect(job: Job) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET preserve_insertion_order = false")
    connection.register("source", job.source)
    return connection


def _write_all(connection: duckdb.DuckDBPyConnection, job: Job, rows: str) -> None:
    scratch = job.scratch()
    connection.execute(f"COPY ({rows}) TO '{scratch}' ({_OPTIONS}, PER_THREAD_OUTPUT true, OVERWRITE_OR_IGNORE true)")
    job.swap(scratch)


def _write_files(connection: duckdb.DuckDBPyConnection, job: Job, affected: str) -> None:
    files = [row[0] for row in connection.execute(affected).fetchall()]
    columns = ", ".join(f"coalesce(s.{name}, t.{name}) AS {name}" for name in job.source.column_names if name != KEY)
    for file in files:
        joined = f"SELECT t.{KEY}, {columns} FROM read_parquet('{file}') t LEFT JOIN source s USING ({KEY})"
        connection.execute(f"COPY ({joined}) TO '{file}.tmp' ({_OPTIONS})")
    new = f"SELECT * FROM source ANTI JOIN read_parquet({files}) USING ({KEY})" if files else "SELECT * FROM source"
    connection.execute(f"COPY ({new}) TO '{job.target}/part-new.parquet' ({_OPTIONS})")
    for file in files:
        os.replace(f"{file}.tmp", file)
