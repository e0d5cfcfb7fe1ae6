"""Rows in canonical form, so that two readers and the oracle can be compared with ``==``.

Times of all units become nanoseconds, NaN becomes a mark of its own, -0.0 becomes 0.0, dictionaries and views become
plain values, nested values become tuples. Partition columns become text, since a folder name is all that is stored of
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.types as pt

from conformance.oracle import Row
from installed import has_duckdb

NAN = ("NaN",)
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY = 24 * 3600 * 10**9


def canonical(value: Any) -> Any:
    """The canonical, hashable form of an Arrow scalar."""
    if not value.is_valid:
        return None
    kind = value.type
    if pt.is_dictionary(kind):
        return canonical(value.dictionary[value.index.as_py()])
    if pt.is_date32(kind):
        return value.value * _DAY
    if pt.is_date64(kind):
        return value.value * _NANOSECONDS["ms"]
    if pt.is_temporal(kind):
        return value.value * _NANOSECONDS[kind.unit]
    if pt.is_floating(kind):
        number = float(value.as_py()) + 0.0
        return NAN if number != number else number
    if pt.is_struct(kind):
        return tuple((field.name, canonical(value[i])) for i, field in enumerate(kind))
    if pt.is_nested(kind):
        return tuple(canonical(item) for item in value.values)
    return value.as_py()


def rows_of(table: pa.Table, partitions: Sequence[str] = ()) -> list[Row]:
    """A table as canonical rows, in order."""
    columns = {
        name: [_text(v) if name in partitions else canonical(v) for v in table.column(name)]
        for name in table.column_names
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def bag(rows: Iterable[Row]) -> Counter[tuple[tuple[str, Any], ...]]:
    """Rows as a multiset: order of rows and of columns does not count."""
    return Counter(tuple(sorted(row.items())) for row in rows)


def _text(value: Any) -> str | None:
    """A partition value. DuckDB before 1.5 reads the folder of nulls as its name."""
    return str(value.as_py()) if value.is_valid and value.as_py() != "__HIVE_DEFAULT_PARTITION__" else None


@cache
def second_reader() -> duckdb.DuckDBPyConnection:
    """One DuckDB for the whole process: opening one costs more than a query."""
    connection = duckdb.connect()
    connection.sql("set threads = 1")
    return connection


def unreadable_by_duckdb(schema: pa.Schema) -> dict[str, str]:
    """Columns the second reader cannot give back as they are, and why."""
    reasons = {}
    for field in schema:
        if pt.is_decimal(field.type) and field.type.precision > 38:
            reasons[field.name] = "DuckDB reads decimals above 38 digits as DOUBLE"
        elif pt.is_duration(field.type):
            reasons[field.name] = "Parquet has no duration: DuckDB sees a bare BIGINT without its unit"
        elif _is_cut(field.type) and not has_duckdb("2.0"):
            reasons[field.name] = "DuckDB before 2.0 cuts nanoseconds of times of day and of times with a zone"
    return reasons


def _is_cut(type_: pa.DataType) -> bool:
    return type_ == pa.time64("ns") or (pt.is_timestamp(type_) and type_.unit == "ns" and type_.tz is not None)


def duckdb_rows(files: Iterable[Path], columns: Sequence[str], partitions: Sequence[str] = ()) -> list[Row]:
    """The given columns of Parquet files as DuckDB reads them."""
    paths = [str(path) for path in files]
    if not paths:
        return []
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    query = f"""select {names} from read_parquet($paths, union_by_name = true,
                hive_partitioning = {bool(partitions)}, hive_types_autocast = false)"""
    return rows_of(second_reader().sql(query, params={"paths": paths}).to_arrow_table(), partitions)
