"""Measure how much of a sorted dataset selective range queries read.

The dataset is sorted before the timed part. Then DuckDB and Spark run queries on the first column, the second and both.
Reported are the files, row groups and bytes that statistics do not exclude, computed from footers, and what the engines
read: bytes that their processes read from files, and for Spark the rows that its scan returned.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq

from benchmarks.job import CLUSTERED_BY, Job, Work
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

_MB = 1e6
_SELECTED = 0.01
Range = tuple[Any, Any]


def as_written(job: Job) -> Work:
    return _queries(job, lambda: None)


def linear(job: Job) -> Work:
    return _ordered(job, "linear")


def zorder(job: Job) -> Work:
    return _ordered(job, "zorder")


def hilbert(job: Job) -> Work:
    return _ordered(job, "hilbert")


def _ordered(job: Job, curve: Any) -> Work:
    rows = max(10_000, len(job.files()) * 10_000)
    call = {"target_rows_per_file": rows, "curve": curve, "row_group_size": max(1_000, rows // 10)}
    return _queries(
        job, lambda: PyarrowDatasetIO().optimize_parquet_dataset(str(job.target), list(CLUSTERED_BY), **call)
    )


def _queries(job: Job, prepare: Callable[[], object]) -> Work:
    prepare()
    connection = duckdb.connect()
    spark = _Spark(job) if importlib.util.find_spec("pyspark") else None
    ranges = {name: _middle(connection, job, name) for name in CLUSTERED_BY}
    first, second = CLUSTERED_BY
    chosen = {first: [first], second: [second], "both": [first, second]}

    def work() -> dict[str, Any]:
        facts: dict[str, Any] = {}
        for label, names in chosen.items():
            wanted = {name: ranges[name] for name in names}
            facts |= _footers(job, label, wanted)
            facts[f"{label}_duckdb_mb"] = _read_by_duckdb(connection, job, wanted)
            if spark is not None:
                facts[f"{label}_spark_mb"], facts[f"{label}_spark_rows"] = spark.read(wanted)
        return facts

    return work


def _middle(connection: duckdb.DuckDBPyConnection, job: Job, name: str) -> Range:
    """Return a range in the middle of the values that contains one row in a hundred."""
    low, high = 0.5 - _SELECTED / 2, 0.5 + _SELECTED / 2
    found = connection.execute(
        f"SELECT quantile_disc({name}, {low}), quantile_disc({name}, {high}) FROM read_parquet({job.files()})"
    ).fetchone()
    assert found is not None
    return found[0], found[1]


def _footers(job: Job, label: str, ranges: dict[str, Range]) -> dict[str, Any]:
    """Return the files, row groups and megabytes that statistics do not exclude."""
    files = groups = size = 0
    for path in job.files():
        meta = pq.read_metadata(path)
        found = [meta.row_group(i) for i in range(meta.num_row_groups)]
        left = [group for group in found if all(_may_hold(group, name, ends) for name, ends in ranges.items())]
        files += bool(left)
        groups += len(left)
        size += sum(group.column(i).total_compressed_size for group in left for i in range(group.num_columns))
    return {f"{label}_files": files, f"{label}_row_groups": groups, f"{label}_mb": size / _MB}


def _may_hold(group: pq.RowGroupMetaData, name: str, ends: Range) -> bool:
    columns = [group.column(i) for i in range(group.num_columns)]
    stats = next(column.statistics for column in columns if column.path_in_schema == name)
    return bool(stats.min <= ends[1] and stats.max >= ends[0])


def _read_by_duckdb(connection: duckdb.DuckDBPyConnection, job: Job, ranges: dict[str, Range]) -> float:
    where = " AND ".join(f"{name} BETWEEN ? AND ?" for name in ranges)
    before = _bytes_read()
    values = [value for ends in ranges.values() for value in ends]
    rows = connection.execute(f"SELECT * FROM read_parquet({job.files()}) WHERE {where}", values).to_arrow_table()
    assert np.isfinite(rows.num_rows)
    return (_bytes_read() - before) / _MB


class _Spark:
    """A separate session that has read the dataset once, so that classes and footers are loaded."""

    def __init__(self, job: Job) -> None:
        from benchmarks.spark.session import Stages, start

        self._stages = Stages
        self._spark, _ = start({"spark.driver.memory": "1g"})
        self._process = int(self._spark._jvm.java.lang.ProcessHandle.current().pid())
        self._rows = self._spark.read.parquet(*job.files())
        self._scan("customer < 0")

    def read(self, ranges: dict[str, Range]) -> tuple[float, int]:
        """Return the megabytes that the Java process read, and the rows that the scan returned."""
        where = " AND ".join(
            f"{name} BETWEEN {_literal(low)} AND {_literal(high)}" for name, (low, high) in ranges.items()
        )
        stages, before = self._stages(self._spark), _bytes_read(self._process)
        self._scan(where)
        return (_bytes_read(self._process) - before) / _MB, stages.rows_read()

    def _scan(self, where: str) -> None:
        self._rows.where(where).write.format("noop").mode("overwrite").save()


def _literal(value: Any) -> str:
    return f"TIMESTAMP_NTZ'{value}'" if isinstance(value, datetime) else str(value)


def _bytes_read(process: int | str = "self") -> int:
    lines = Path(f"/proc/{process}/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("rchar")))
