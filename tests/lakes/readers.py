"""The programs that read a lake: which columns each reads with the values of the model, and with which types."""

from __future__ import annotations

import datetime as dt
import importlib.util
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from conformance.rows import canonical, second_reader
from lakes.model import Lake, Rows

Seen = dict[str, str]
"""Columns that a reader reads with the values of the model, and their types."""


def visible(folder: Path) -> list[str]:
    """Files that are neither hidden nor metadata."""
    hidden = [path for path in folder.iterdir() if path.name[0] in "_." and "=" not in path.name]
    files = [path for path in folder.rglob("*") if path.is_file() and path.name[0] not in "_."]
    return sorted(str(path) for path in files if not set(hidden) & set(path.parents))


def by_polars(lake: Lake, folder: Path) -> pa.Table:
    options: dict[str, Any] = {"missing_columns": "insert"} if lake.missing else {}
    with_ending = any(folder.rglob("*.parquet"))
    files = f"{folder}/**/*.parquet" if with_ending else visible(folder)
    return pl.read_parquet(files, hive_partitioning=bool(lake.partitions), **options)


def by_duckdb(lake: Lake, folder: Path) -> pa.Table:
    query = f"from read_parquet($files, union_by_name = true, hive_partitioning = {bool(lake.partitions)})"
    return second_reader().sql(query, params={"files": visible(folder)}).to_arrow_table()


def by_pandas(lake: Lake, folder: Path) -> Any:
    found = pd.read_parquet(folder)
    return found if found.index.name is None else found.reset_index()


def by_fastparquet(lake: Lake, folder: Path) -> Any:
    import fastparquet

    if any(folder.rglob("*=__HIVE_DEFAULT_PARTITION__")):
        raise ValueError("the types of partitions beside nulls change from run to run")
    flat = [name for name in lake.columns if not pa.types.is_nested(lake.type_of(name))]  # it reads some lists as null
    found = fastparquet.ParquetFile(str(folder)).to_pandas(flat, categories=[])  # it takes those of the first file
    return found if found.index.name is None else found.reset_index()


def by_datafusion(lake: Lake, folder: Path) -> pa.Table:
    from datafusion import SessionContext

    ending = ".parquet" if any(folder.rglob("*.parquet")) else ""
    partitions: list[Any] = [(name, pa.string()) for name in lake.partitions]
    found = SessionContext().read_parquet(str(folder), file_extension=ending, table_partition_cols=partitions)
    return found.to_arrow_table()


def by_spark(session: Any) -> Callable[[Lake, Path], Any]:
    def read(lake: Lake, folder: Path) -> pa.Table:
        reader = session.read.option("mergeSchema", "true") if lake.missing else session.read
        return reader.parquet(str(folder)).toArrow()

    return read


READERS: dict[str, Callable[[Lake, Path], Any]] = {
    "polars": by_polars,
    "duckdb": by_duckdb,
    "pandas": by_pandas,
    "fastparquet": by_fastparquet,
    "datafusion": by_datafusion,
}
INSTALLED = [name for name in READERS if importlib.util.find_spec(name)]


def seen(read: Callable[[Lake, Path], Any], lake: Lake, folder: Path, rows: Rows) -> Seen:
    """What a reader sees of a lake that should have some rows."""
    try:
        with warnings.catch_warnings(action="ignore"):
            found = _columns(read(lake, folder), lake)
    except Exception as error:  # noqa: BLE001 - of any library
        return {"error": f"{type(error).__name__}: {error}"}
    ids = [canonical(each) for each in found.get("id", ("", []))[1]]
    if sorted(ids) != sorted(rows):
        return {"error": f"ids {ids}, not {sorted(rows)}"}
    result = {}
    for name in lake.columns:
        kind, values = found.get(name, ("", []))
        plain = [_of_folder(each) if name in lake.partitions else canonical(each) for each in values]
        if dict(zip(ids, plain, strict=False)) == {id_: row[name] for id_, row in rows.items()}:
            result[name] = _plain(kind)
    return result


def _plain(kind: str) -> str:
    """A type without the width of codes and offsets and the names inside lists, which tell nothing about values."""
    kind = re.sub(r"dictionary<values=(\w+)[^>]*>", r"\1", kind)
    kind = re.sub(r"list<(array|item): ", "list<element: ", kind)
    return re.sub("large_|_view", "", kind).replace("Categorical", "String")


def _of_folder(value: Any) -> str | None:
    """The text of a partition's value. Some readers give the name of the folder of nulls, some dates as times."""
    found = value.as_py()
    if found is None or found != found or found == "__HIVE_DEFAULT_PARTITION__":
        return None
    return str(found.date() if isinstance(found, dt.datetime) else found)


def _columns(found: Any, lake: Lake) -> dict[str, tuple[str, list[Any]]]:
    """The type and the Arrow values of each column, without those that Arrow cannot hold."""
    if isinstance(found, pl.DataFrame):
        return {name: (str(found[name].dtype), list(found[name].to_arrow())) for name in found.columns}
    if isinstance(found, pa.Table):
        return {name: (str(found[name].type), list(found[name])) for name in found.column_names}
    result = {}
    for name in found.columns:
        try:
            values = pa.Array.from_pandas(found[name], type=lake.type_of(name) if name == "counts" else None)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            continue
        plain = isinstance(found[name].dtype, pd.CategoricalDtype)
        kind = str(found[name].dtype.categories.dtype if plain else found[name].dtype)
        result[name] = (kind, list(values))
    return result


def rows_of_file(path: str) -> list[int]:
    """The ids in one file."""
    return pq.ParquetFile(path).read(["id"])["id"].to_pylist()
