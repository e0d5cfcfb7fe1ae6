"""The cases of row changes: delete, update, merges of some columns, and change feeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.cases import DUCKDB, OURS, Bar, Case, Inputs, delta_of, names, sorted_target
from benchmarks.data import KEY_STEP, Size, rows, save_source
from benchmarks.job import KEY, Where
from benchmarks.row_queries import VALUE
from benchmarks.upkeep import nothing

BARE = "bare rewrite"
FULL = "fsspeckit, upsert of full rows"
_TARGET = Size(100, 100_000)
_ONE_PERCENT = Where("customer", 0, 9_999)
_STEP = 100
_KINDS = {"delete_rows": "delete", "update_rows": "update", "merge_columns": "columns", "apply_changes": "feed"}


def delete_range(data: Path, scale: float, delta: bool) -> Inputs:
    """Delete half of a file, all of the next one, and half of the one after it."""
    size = _TARGET.scaled(scale)
    target, middle = sorted_target(data, size), size.files // 2
    first = middle * size.rows_per_file - size.rows_per_file // 2
    where = Where(KEY, first * KEY_STEP, (first + 2 * size.rows_per_file) * KEY_STEP - 1)
    return Inputs(target, nothing(data), names(range(middle - 1, middle + 2)), delta_of(target, delta), where)


def one_percent(data: Path, scale: float, delta: bool) -> Inputs:
    """Choose one row in a hundred, in all files, by a column that statistics do not help with."""
    size = _TARGET.scaled(scale)
    target = sorted_target(data, size)
    full = data / f"{target.name}-one-percent"

    def make() -> pa.Table:
        chosen = (pc.field(_ONE_PERCENT.column) >= _ONE_PERCENT.low) & (pc.field("customer") <= _ONE_PERCENT.high)
        return rows(pq.read_table(target, columns=[KEY], filters=chosen)[KEY].combine_chunks(), 1_000_011)

    save_source(full, make)
    return Inputs(target, nothing(data), names(range(size.files)), delta_of(target, delta), _ONE_PERCENT, full)


def some_columns(data: Path, scale: float, delta: bool) -> Inputs:
    """Give one row in a hundred another value in one column."""
    size = _TARGET.scaled(scale)
    target = sorted_target(data, size)
    source, full = data / f"{target.name}-columns", data / f"{target.name}-columns-full"
    ids = np.arange(7, size.rows, _STEP) * KEY_STEP

    def make() -> pa.Table:
        old = pq.read_table(target, filters=pc.field(KEY).isin(ids)).sort_by(KEY)
        return old.set_column(old.column_names.index(VALUE), VALUE, rows(pa.array(ids), 1_000_012)[VALUE])

    save_source(source, make)
    save_source(full, lambda: rows(pa.array(ids), 1_000_013))
    return Inputs(target, source, names(range(size.files)), delta_of(target, delta), full=full)


def feed(data: Path, scale: float, delta: bool) -> Inputs:
    """Build a change feed: of ten changes seven update, one of them late, two insert, and one deletes."""
    size = _TARGET.scaled(scale)
    target = sorted_target(data, size)
    source, full = data / f"{target.name}-feed", data / f"{target.name}-feed-full"
    number = np.arange(len(range(7, size.rows, _STEP)))
    kind = number % 10
    ids = pa.array((number * _STEP + 7) * KEY_STEP + (kind < 2))

    def make() -> pa.Table:
        table = rows(ids, 1_000_014)
        late, deletes = pa.array(kind == 3), pa.array(kind == 2)
        long_ago = pa.scalar(np.datetime64("2000-01-01", "us"), table["ts"].type)
        for name in ("customer", "status", "note", VALUE):
            table = _replaced(table, name, pc.if_else(deletes, pa.scalar(None, table[name].type), table[name]))
        table = _replaced(table, "ts", pc.if_else(late, long_ago, table["ts"]))
        return table.append_column("op", pc.if_else(deletes, "d", pc.if_else(pa.array(kind < 2), "c", "u")))

    save_source(source, make)
    save_source(full, lambda: rows(ids, 1_000_015))
    return Inputs(target, source, names(range(size.files)), delta_of(target, delta), full=full)


def _replaced(table: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def _case(
    change: str, title: str, build: Callable[[Path, float, bool], Inputs], name: str, bar: Bar, *, bare: str | None
) -> Case:
    """Return a case with fsspeckit on two engines, its upsert of as many rows, and the others."""
    contenders = {OURS: f"ours:{name}", DUCKDB: f"ours:{name}_duckdb"}
    contenders |= {BARE: f"bare_rows:{bare}"} if bare else {}
    contenders |= {FULL: "ours:upsert_full"} if bar.base == FULL else {}
    contenders |= {"polars, whole": f"polars_hand:{name}", "DuckDB, whole": "duckdb_hand:change_rows"}
    if change == "delete-range":
        contenders["polars, per file"] = "polars_hand:delete_per_file"
        contenders["DuckDB, per file"] = "duckdb_hand:delete_per_file"
    contenders["delta-rs"] = f"delta_rs:{name}"
    return Case(change, title, _KINDS[name], build, contenders, (bar,), base=bar.base or OURS, unchecked=(FULL,))


ROW_CHANGES: tuple[Case, ...] = (
    _case(
        "delete-range",
        "Delete of a narrow key range: 3 of 100 files (10M rows) touched, one of them removed whole",
        delete_range,
        "delete_rows",
        Bar("wall", 1.5, BARE),
        bare="delete_rows",
    ),
    _case(
        "delete-scattered",
        "Delete of 1 % of the rows, in all of 100 files (10M rows)",
        one_percent,
        "delete_rows",
        Bar("wall", 1.2, BARE),
        bare="delete_rows",
    ),
    _case(
        "update-column",
        "Update of one float column in 1 % of the rows, in all of 100 files (10M rows)",
        one_percent,
        "update_rows",
        Bar("wall", 0.6, FULL),
        bare="update_rows",
    ),
    _case(
        "merge-columns",
        "Merge of one column of 100,000 rows, in all of 100 files (10M rows)",
        some_columns,
        "merge_columns",
        Bar("wall", 0.6, FULL),
        bare="merge_columns",
    ),
    _case(
        "feed",
        "Change feed of 100,000 changes over all of 100 files (10M rows): 70 % updates, 20 % inserts, 10 % deletes",
        feed,
        "apply_changes",
        Bar("wall", 1.2, FULL),
        bare=None,
    ),
)
