"""Columns whose logical type Arrow does not carry: files of a dataset keep one type, which their writer still reads."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.common.errors import SchemaMismatchError, UnsupportedDataError
from inside import I32, FileField, Struct
from installed import has_duckdb
from kit import contents, data_files, edit_footer, put

LAKES = Path(__file__).parents[1] / "lakes"
pytestmark = pytest.mark.skipif(not has_duckdb("2.0"), reason="the files are of DuckDB 2.0")


def lake(base: Path, name: str) -> str:
    """A dataset of two partitions with the same rows."""
    for p in (1, 2):
        folder = base / "d" / f"p={p}"
        folder.mkdir(parents=True)
        (folder / "a.parquet").write_bytes((LAKES / f"{name}.parquet").read_bytes())
    return str(base / "d")


def rows_of(folder: str) -> tuple[list[Any], list[tuple[Any, ...]]]:
    """The types and the rows that DuckDB reads."""
    with duckdb.connect() as connection:
        found = connection.sql(f"select * from read_parquet('{folder}/**/*.parquet', hive_partitioning=true)")
        names = found.columns
        rows = connection.sql(f"select {', '.join(f'{name}::varchar' for name in names)} from found").fetchall()
        return [str(type_) for type_ in found.types], sorted(rows, key=str)


def copied(io: Any, folder: str) -> pa.Table:
    """The row 3 of the first partition with the key 9, as a source has it."""
    table = io.read_parquet(folder, filters="id = 3 AND p = 1")
    return table.set_column(table.column_names.index("id"), "id", pa.array([9], table.schema.field("id").type))


def nine(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [*rows, *(("9", *row[1:]) for row in rows if row[0] == "3" and row[-1] == "1")]


def is_first(row: tuple[Any, ...]) -> bool:
    return (row[0], row[-1]) == ("1", "1")


Rows = list[tuple[Any, ...]]
VERBS: dict[str, tuple[Callable[[Any, str], Any], Callable[[Rows], Rows]]] = {
    "delete": (lambda io, d: io.delete(d, where="id = 1 AND p = 1"), lambda rows: [r for r in rows if not is_first(r)]),
    "update": (
        lambda io, d: io.update(d, set={"s": "'new'"}, where="id = 1 AND p = 1"),
        lambda rows: [(*r[:-2], "new", r[-1]) if is_first(r) else r for r in rows],
    ),
    "merge": (lambda io, d: io.merge(copied(io, d), d, key_columns=["id", "p"]), nine),
    "append": (lambda io, d: io.write_dataset(copied(io, d), d, partition_by="p"), nine),
    "merge, compact": (
        lambda io, d: (
            io.merge(copied(io, d), d, key_columns=["id", "p"]),
            io.compact_parquet_dataset(d, target_rows_per_file=100),
        ),
        nine,
    ),
    "optimize": (lambda io, d: io.optimize_parquet_dataset(d, "s"), lambda rows: rows),
}
FILES = ("duckdb_interval", "duckdb_variant", "duckdb_json", "fastparquet_timedelta", "spark_legacy_lists")


def elements(file: Path) -> str:
    """The schema of a file without the name of its root."""
    return str(pq.ParquetFile(file).schema).partition("{")[2]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", FILES)
def test_a_type_is_kept_by_every_verb(io: Any, tmp_path: Path, name: str, verb: str) -> None:
    folder = lake(tmp_path, name)
    other = tmp_path / "d" / "p=2" / "a.parquet"
    types, rows = rows_of(folder)
    before, schema = other.read_bytes(), pq.ParquetFile(other).schema.to_arrow_schema()
    kinds = kinds_of(other)
    change, model = VERBS[verb]
    change(io, folder)
    assert rows_of(folder) == (types, sorted(model(rows), key=str))
    for file in data_files(Path(folder)):
        assert kinds_of(file) == kinds
        assert pq.ParquetFile(file).schema.to_arrow_schema().types == schema.types
    if verb != "optimize":
        assert other.read_bytes() == before


def kinds_of(file: Path) -> list[tuple[Any, ...]]:
    schema = pq.ParquetFile(file).schema
    leaves = [schema.column(number) for number in range(len(schema))]
    plain = ("Int(bitWidth=32, isSigned=true)", "Int(bitWidth=64, isSigned=true)")
    return [
        (leaf.path, leaf.physical_type, "None" if str(leaf.logical_type) in plain else str(leaf.logical_type))
        for leaf in leaves
    ]
