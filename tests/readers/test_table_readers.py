"""Exports: Spark and DuckDB read the rows of the dataset from Delta and Iceberg metadata, after every operation."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from export.changes import CHANGES, ROWS, rows_of
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

IO = PyarrowDatasetIO()
NOON = datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)
TYPES = pa.table(
    {
        "id": pa.array([1, 2], pa.int32()),
        "n": pa.array([-(2**62), None]),
        "small": pa.array([-1, 2], pa.int16()),
        "ratio": [0.5, float("inf")],
        "ok": [True, None],
        "text": ["it's ü", None],
        "raw": pa.array([b"\x00\xff", None]),
        "price": pa.array([Decimal("1.25"), None], pa.decimal128(20, 2)),
        "day": [date(2026, 3, 1), None],
        "at": pa.array([NOON, None], pa.timestamp("us", "UTC")),
        "local": pa.array([NOON.replace(tzinfo=None), None], pa.timestamp("us")),
        "tags": [["x", None], []],
        "pair": [{"a": 1, "b": [{"c": "z"}]}, None],
        "by": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
)
Read = Callable[[str, str, str], pa.Table]
"""Reads a dataset by a format where a condition is true."""


def _address(path: str, kind: str) -> str:
    return path if kind == "delta" else f"{path}.iceberg"


@pytest.fixture
def by_duckdb(duckdb: Any) -> Read:
    def read(path: str, kind: str, condition: str) -> pa.Table:
        query = f"SELECT * FROM {kind}_scan('{_address(path, kind)}') WHERE {condition}"
        return pa.table(duckdb.execute(query).to_arrow_table())

    return read


@pytest.fixture
def by_spark(spark: Any) -> Read:
    def read(path: str, kind: str, condition: str) -> pa.Table:
        frame = spark.read.format(kind).load(_address(path, kind)).where(condition)
        return pa.table(frame.toArrow())

    return read


@pytest.fixture(params=["duckdb", "spark"])
def read(request: pytest.FixtureRequest) -> Read:
    found: Read = request.getfixturevalue(f"by_{request.param}")
    return found


@pytest.fixture
def path(tmp_path: Path) -> str:
    folder = str(tmp_path / "events")
    IO.write_dataset(ROWS, folder, partition_by="day")
    IO.write_dataset(ROWS.slice(0, 2).set_column(0, "id", [[5, 6]]), folder)
    return folder


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_every_operation_is_read(read: Read, path: str, kind: Any) -> None:
    IO.export(path, kind, keep_exported=True)
    assert rows_of(read(path, kind, "true").select(["id", "v", "day"])) == rows_of(IO.read_parquet(path))
    for name, change in CHANGES.items():
        if name == "delete all":
            continue
        change(IO, path)
        expected = rows_of(IO.read_parquet(path))
        assert rows_of(read(path, kind, "true").select(["id", "v", "day"])) == expected, name
    CHANGES["delete all"](IO, path)
    assert read(path, kind, "true").num_rows == 0


CONDITIONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "day = 'a b/c'": lambda row: row["day"] == "a b/c",
    "id > 3": lambda row: row["id"] > 3,
    "v = 'y' AND day <> 'mon'": lambda row: row["v"] == "y" and row["day"] != "mon",
    "v IS NULL": lambda row: row["v"] is None,
}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_conditions_on_partitions_and_statistics(read: Read, path: str, kind: Any) -> None:
    IO.export(path, kind, keep_exported=True)
    CHANGES["merge"](IO, path)
    for condition, keep in CONDITIONS.items():
        found = rows_of(read(path, kind, condition).select(["id", "v", "day"]))
        assert found == [row for row in rows_of(IO.read_parquet(path)) if keep(row)], condition


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_types_and_a_column_that_is_added_later(read: Read, tmp_path: Path, kind: Any) -> None:
    folder = str(tmp_path / "types")
    IO.write_dataset(TYPES, folder)
    IO.export(folder, kind, keep_exported=True)
    more = TYPES.slice(0, 1).set_column(0, "id", pa.array([3], pa.int32())).append_column("late", [["new"]])
    IO.merge(more, folder, key_columns="id", schema_mode="evolve")
    found = {row.pop("id"): row for row in read(folder, kind, "true").to_pylist()}
    expected = {row.pop("id"): row for row in IO.read_parquet(folder).to_pylist()}
    assert {number: _plain(row) for number, row in found.items()} == {n: _plain(row) for n, row in expected.items()}


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Times with a zone in UTC, whatever name it has, and maps as pairs."""
    found = {name: value.astimezone(UTC) if getattr(value, "tzinfo", None) else value for name, value in row.items()}
    return found | {"by": None if row["by"] is None else [tuple(pair) for pair in row["by"]]}
