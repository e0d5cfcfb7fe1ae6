"""Check the result of a contender: row count and an order-independent checksum of all columns, computed by DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from benchmarks.cases import Inputs
from benchmarks.data import COLUMNS, load_source
from benchmarks.job import KEY
from benchmarks.row_queries import QUERIES, changed_rows


@dataclass(frozen=True, slots=True)
class Checksum:
    rows: int
    digest: int


def checksum(files: Sequence[str]) -> Checksum:
    """Return the checksum of all rows of some Parquet files."""
    return _of(duckdb.connect(), f"SELECT * FROM read_parquet({[_path(file) for file in files]})")


def expected(inputs: Inputs, strategy: str) -> Checksum:
    """Return the expected checksum, computed from the original target and the source."""
    connection = duckdb.connect()
    connection.register("source", load_source(inputs.source))
    files = [str(path) for path in sorted(inputs.target.glob("*.parquet"))]
    everything = f"SELECT * FROM read_parquet({files})"
    if strategy == "same rows":
        return _of(connection, everything)
    if strategy == "newest row":
        return _of(connection, f"{everything} QUALIFY row_number() OVER (PARTITION BY {KEY} ORDER BY ts DESC) = 1")
    if strategy in QUERIES:
        connection.execute(f"CREATE VIEW target AS {everything}")
        return _of(connection, changed_rows(strategy, inputs.where))
    kept = f"SELECT * FROM read_parquet({files}) ANTI JOIN source USING ({KEY})"
    rows = "SELECT * FROM source" if strategy == "full_merge" else f"{kept} UNION ALL SELECT * FROM source"
    return _of(connection, rows)


def _of(connection: duckdb.DuckDBPyConnection, rows: str) -> Checksum:
    values = ", ".join(f"epoch_us({name})" if name == "ts" else f"{name}" for name in COLUMNS)
    found = connection.execute(f"SELECT count(*), sum(hash({values}) // 65536) FROM ({rows})").fetchone()
    assert found is not None
    return Checksum(int(found[0]), int(found[1] or 0))


def _path(uri: str) -> str:
    return uri.removeprefix("file://")
