"""Reading with a filter in SQL: DuckDB says which rows of a file, the shared reader reads them.

Only the columns of the condition are read of every file, and the others of files that have rows left, so that values
come from the one reader and keep their types, whatever DuckDB makes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import to_arrow, to_numpy
from fsspeckit.core.engine import ReadRequest
from fsspeckit.core.model import DataFile, RowNumbers
from fsspeckit.core.reading import full_schema, read_snapshot
from fsspeckit.core.rows import pick
from fsspeckit.core.snapshot import Snapshot
from fsspeckit.core.storage import Storage
from fsspeckit.core.threads import spread, workers
from fsspeckit.datasets.duckdb.connection import Database
from fsspeckit.datasets.duckdb.filters import Predicate, as_filter_error, parse_predicate, quote

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ROWS = "fsspeckit_rows"


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads single files of a snapshot under the schema of all of them."""

    storage: Storage
    snapshot: Snapshot
    schema: pa.Schema
    path_of: Callable[[str], str]

    def read(self, file: DataFile, request: ReadRequest) -> pa.Table:
        one = replace(self.snapshot, files=(file,))
        return read_snapshot(self.storage, one, request, self.path_of, schema=self.schema)


def read_where(
    database: Database, storage: Storage, snapshot: Snapshot, request: ReadRequest, path_of: Callable[[str], str]
) -> pa.Table:
    """Read the rows of a snapshot for which an SQL condition holds, in the order of the files."""
    text: str = request.filters
    schema = full_schema(snapshot)
    reader = _Reader(storage, snapshot, schema, path_of)
    wanted = replace(request, filters=None, use_threads=False)
    with database.cursor() as cursor:
        predicate = parse_predicate(cursor, text)
        names = predicate.columns_of(schema.names)
        _select(cursor, pa.Table.from_batches([], schema).select(names), predicate, text)

    def read_one(file: DataFile) -> pa.Table | None:
        tested = reader.read(file, replace(wanted, columns=tuple(names), include_file_path=False))
        with database.cursor() as cursor:
            rows = _select(cursor, _with_rows(tested, file.rows), predicate, text)
        return pick(reader.read(file, wanted), rows) if len(rows) else None

    files = snapshot.files
    tables = spread(workers(storage), read_one, files) if request.use_threads else [read_one(file) for file in files]
    found = [table for table in tables if table is not None]
    return pa.concat_tables(found) if found else reader.read(files[0], wanted).slice(0, 0)


def _with_rows(tested: pa.Table, rows: int) -> pa.Table:
    """A table that has its rows even where it has no column."""
    return tested if tested.num_columns else pa.table({_ROWS: to_arrow(np.arange(rows))})


def _select(cursor: DuckDBPyConnection, table: pa.Table, predicate: Predicate, text: str) -> RowNumbers:
    """Numbers of the rows for which the condition holds, ascending."""
    taken = {name.lower() for name in table.column_names}
    number = next(name for i in range(len(taken) + 1) if (name := f"fsspeckit row {i}") not in taken)
    numbered = table.append_column(number, to_arrow(np.arange(table.num_rows)))
    query = f"SELECT {quote(number)} AS found FROM {_ROWS} AS rows WHERE {predicate.sql}"  # noqa: S608
    with as_filter_error(text):
        cursor.register(_ROWS, numbered)
        found = to_numpy(cursor.sql(query).to_arrow_table()["found"])
    return np.sort(found)
