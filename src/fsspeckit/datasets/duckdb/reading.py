"""Read with a filter in SQL: DuckDB selects the rows of a file, and the common reader reads them.

The columns of the condition are read from every file, the others only from files with selected rows. All values come
from the common reader, so they keep their types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import to_arrow, to_numpy
from fsspeckit.common.errors import FilterError
from fsspeckit.common.types import unwrapped
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.engine.local import run_in_threads, workers
from fsspeckit.core.engine.protocol import ReadRequest
from fsspeckit.core.engine.read import full_schema, read_snapshot
from fsspeckit.core.model import DataFile, RowNumbers
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.take import take_ascending
from fsspeckit.datasets.duckdb.connection import Database
from fsspeckit.datasets.duckdb.failures import report_duckdb_errors
from fsspeckit.datasets.duckdb.filters import Predicate, as_filter_error, parse_predicate, quote

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads single files of a snapshot with the schema of the snapshot."""

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
    """Read the rows of a snapshot for which an SQL condition is true, in the order of the files.

    ``database`` is a database for conditions.
    """
    schema = full_schema(snapshot)
    reader = _Reader(storage, snapshot, schema, path_of)
    unfiltered = replace(request, filters=None, use_threads=False)
    with database.cursor() as cursor:
        predicate = parse_predicate(cursor, request.filters)
        names = predicate.columns_of(schema.names)
        tested = pa.Table.from_batches([], schema).select(names)
        _check_not_rounded(cursor, tested.schema)
        _select(cursor, tested, 0, predicate)

    def read_one(file: DataFile) -> pa.Table | None:
        tested = reader.read(file, replace(unfiltered, columns=tuple(names), include_file_path=False))
        with database.cursor() as cursor:
            rows = _select(cursor, tested, file.rows, predicate)
        return take_ascending(reader.read(file, unfiltered), rows) if len(rows) else None

    files = snapshot.files
    tables = (
        run_in_threads(workers(storage), read_one, files) if request.use_threads else [read_one(file) for file in files]
    )
    selected = [table for table in tables if table is not None]
    return pa.concat_tables(selected) if selected else reader.read(files[0], unfiltered).slice(0, 0)


def _select(cursor: DuckDBPyConnection, table: pa.Table, rows: int, predicate: Predicate) -> RowNumbers:
    """Return the numbers of the rows for which the condition is true, ascending. The table may have no columns."""
    name = predicate.unused_name
    schema = table.schema.append(pa.field(name, pa.int64()))
    numbered = pa.Table.from_arrays([*table.columns, to_arrow(np.arange(rows))], schema=schema)
    # The table and its number column have a name that does not occur in the condition.
    query = f"SELECT {quote(name)} FROM {quote(name)} WHERE {predicate.sql}"  # noqa: S608
    with as_filter_error(predicate.text):
        cursor.register(name, numbered)
        return np.sort(to_numpy(cursor.sql(query).to_arrow_table()[name]))


def _check_not_rounded(cursor: DuckDBPyConnection, schema: pa.Schema) -> None:
    """Raise if a column has nanoseconds that DuckDB truncates, because it would compare other values."""
    rounded = [field.name for field in schema if any(_is_rounded(cursor, leaf) for leaf in _leaves(field.type))]
    if rounded:
        raise FilterError(
            f"DuckDB truncates the nanoseconds of the columns {rounded}, so SQL cannot compare them. Use tuples or an "
            "expression of pyarrow.compute.field as filters, or store microseconds."
        )


def _leaves(type_: pa.DataType) -> Iterator[pa.DataType]:
    value = unwrapped(type_)
    if not value.num_fields:
        yield value
    for i in range(value.num_fields):
        yield from _leaves(value.field(i).type)


def _is_rounded(cursor: DuckDBPyConnection, type_: pa.DataType) -> bool:
    """Return whether DuckDB treats two different nanoseconds as equal. That depends on the type and the version."""
    if getattr(type_, "unit", None) != "ns":
        return False
    moments = pa.table({"moment": pa.array([0, 1], pa.int64()).cast(type_)})
    with report_duckdb_errors("testing the types of DuckDB"):
        cursor.register("moments", moments)
        return len(cursor.execute("SELECT DISTINCT moment FROM moments").fetchall()) == 1
