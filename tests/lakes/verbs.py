"""What is done to each lake, in this order, and which rows must be in it after each verb."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from conformance.rows import rows_of
from fsspeckit import Dataset
from fsspeckit.common.errors import OldCalendarError, UnsupportedDataError
from lakes.model import Lake, Rows, ddl

CHANGED: dict[str, Any] = {
    "name": "neu ß",
    "amount": Decimal("9.25"),
    "price": 0.5,
    "born": dt.date(2001, 2, 3),
    "at": dt.datetime(2026, 11, 2, 10, 30, 0, 125_000, dt.UTC),
    "kind": "k2",
    "tags": ["new", None],
    "counts": [("new", 1)],
    "ancient_at": dt.datetime(1600, 1, 1, tzinfo=dt.UTC),
}
"""What a change gives a row, of the columns that a lake has."""


@dataclass
class Run:
    """A lake on its way through the verbs."""

    io: Any
    lake: Lake
    path: str
    rows: Rows
    """What must be in it."""
    first: int = 0
    """The version of the rows that it had."""
    is_migrated: bool = False
    """Whether its INT96 became 64 bits."""

    def changed(self, *ids: int) -> pa.Table:
        """Rows of the lake, changed."""
        return self.lake.table(lambda row: row | {name: CHANGED[name] for name in row if name in CHANGED}, ids)

    def new(self, id_: int) -> pa.Table:
        """A row with another id."""
        return self.lake.table(lambda row: row | {"id": id_}, [2])

    def put(self, table: pa.Table) -> None:
        """Expect rows."""
        self.rows |= self.lake.canonical(table)


def source(run: Run, table: pa.Table) -> Any:
    """A table as users of the engine have it: a DataFrame, a relation, a table."""
    engine = run.io.engine.name
    if engine == "spark":
        return run.io.spark.createDataFrame(table, ddl(table.column_names))
    if engine == "duckdb":
        import duckdb

        return duckdb.connect().from_arrow(table)
    return table


def inspect(run: Run) -> None:
    found = Dataset(run.path, engine="pyarrow").inspect(key="id")
    assert found["rows"] == len(run.rows)


def keep_history(run: Run) -> None:
    run.first = run.io.keep_history(run.path, retain="7d")


def merge(run: Run) -> None:
    given = pa.concat_tables([run.changed(2, 9), run.new(13)])
    result = run.io.merge(source(run, given), run.path, key_columns="id")
    assert (result.inserted, result.updated) == (1, 2)
    run.put(given)


def append(run: Run) -> None:
    run.io.write_dataset(source(run, run.new(14)), run.path)
    run.put(run.new(14))


def delete(run: Run) -> None:
    assert run.io.delete(run.path, where="id = 3").deleted == 1
    del run.rows[3]


def update(run: Run) -> None:
    assert run.io.update(run.path, set={"name": "'set'"}, where="id = 10").updated == 1
    run.rows[10] = run.rows[10] | {"name": "set"}


def apply_changes(run: Run) -> None:
    time = "at" if "at" in run.lake.columns else "ancient_at"
    changed = run.changed(1, 11)
    feed = changed.append_column("op", pa.array(["d", "u"]))
    result = run.io.apply_changes(
        source(run, feed), run.path, key_columns="id", sequence_by=time, delete_when="op = 'd'", except_columns="op"
    )
    assert (result.deleted, result.updated) == (1, 1)
    del run.rows[1]
    run.put(changed.slice(1))


def compact(run: Run) -> None:
    run.io.compact_parquet_dataset(run.path, target_rows_per_file=100)


def optimize(run: Run) -> None:
    run.io.optimize_parquet_dataset(run.path, "id")


def history(run: Run) -> None:
    versions = [each["version"] for each in run.io.history(run.path)]
    assert run.first in versions
    found = run.lake.canonical(run.io.read_parquet(run.path, version=run.first))
    assert found == run.lake.rows()


def restore(run: Run) -> None:
    run.io.restore(run.path, version=run.first)
    run.rows = run.lake.rows()


def export_delta(run: Run) -> None:
    _export(run, "delta")
    _same(run, DeltaTable(run.path).to_pyarrow_table())


def export_iceberg(run: Run) -> None:
    _export(run, "iceberg")
    folder = Path(f"{run.path}.iceberg", "metadata")
    version = (folder / "version-hint.text").read_text("utf-8")
    _same(run, StaticTable.from_metadata(f"{folder}/v{version}.metadata.json").scan().to_arrow())


def _export(run: Run, form: Any) -> None:
    """Export, after the migration that the error names where the files have INT96."""
    try:
        run.io.export(run.path, form)
    except (OldCalendarError, UnsupportedDataError) as error:
        if "--timestamps micros" not in str(error):
            raise
        run.io.alter(run.path, timestamps="micros")
        run.is_migrated = True
        run.io.export(run.path, form)


def _same(run: Run, found: pa.Table) -> None:
    rows = rows_of(found, run.lake.partitions)
    assert {row["id"]: row for row in rows} == run.rows


VERBS: dict[str, Callable[[Run], None]] = {
    "inspect": inspect,
    "keep_history": keep_history,
    "merge": merge,
    "append": append,
    "delete": delete,
    "update": update,
    "apply_changes": apply_changes,
    "compact": compact,
    "optimize": optimize,
    "history": history,
    "restore": restore,
    "Delta": export_delta,
    "Iceberg": export_iceberg,
}
ROW_VERBS = ("merge", "append", "delete", "update", "apply_changes")
"""Verbs that change rows, and only files with these."""
READS = ("inspect", "keep_history", "history")
"""Verbs that change no file."""
