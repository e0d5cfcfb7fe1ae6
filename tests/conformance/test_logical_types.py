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

from fsspeckit.common.errors import SchemaMismatchError, UnsupportedDataError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
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


STRUCT, BINARY, LOGICAL = 12, 8, 10
ANNOTATIONS: dict[str, Struct] = {
    "older ENUM": {6: (I32, 4)},
    "BSON": {6: (I32, 20), LOGICAL: (STRUCT, {13: (STRUCT, {})})},
    "GEOGRAPHY": {LOGICAL: (STRUCT, {18: (STRUCT, {1: (BINARY, b"OGC:CRS84")})})},
    "of the future": {LOGICAL: (STRUCT, {99: (STRUCT, {})})},
}


@pytest.mark.parametrize("kind", ANNOTATIONS)
def test_an_annotation_that_arrow_ignores_is_kept(tmp_path: Path, kind: str) -> None:
    """Bounds of values without an order would mislead readers, so there are none."""
    io, folder = PyarrowDatasetIO(), tmp_path / "d"
    rows = pa.table({"id": [1, 2, 3], "x": [b"a", b"b", None], "s": ["v"] * 3})
    for name in "abc":
        path = put(folder / f"{name}.parquet", rows)
        edit_footer(path, lambda tree: tree[FileField.schema][1][1][2].update(ANNOTATIONS[kind]))
    wanted = kinds_of(path)
    io.update(str(folder), set={"s": "'new'"}, where="id = 1")
    io.merge(rows.slice(0, 1).set_column(0, "id", [[9]]), str(folder), key_columns="id")
    assert {tuple(kinds_of(file)) for file in data_files(folder)} == {tuple(wanted)}
    found = [pq.read_metadata(file).row_group(0).column(1).statistics for file in data_files(folder)]
    has_order = kind in ("older ENUM", "BSON")
    assert {bool(stats is not None and stats.has_min_max) for stats in found} == {has_order}


def test_intervals_have_no_bounds(tmp_path: Path) -> None:
    folder = lake(tmp_path, "duckdb_interval")
    PyarrowDatasetIO().compact_parquet_dataset(folder, None, 3, compression="none")
    for file in data_files(Path(folder)):
        stats = pq.read_metadata(file).row_group(0).column(1).statistics
        assert stats is None or not stats.has_min_max
    with duckdb.connect() as connection:
        found = connection.sql(f"select id from '{folder}/**/*.parquet' where iv = interval '1 month 1 day'")
        assert found.fetchall() == [(1,), (1,)]


REFUSED: dict[str, Callable[[Any, str], Any]] = {
    "merge": lambda io, d: io.merge(io.read_parquet(d).slice(0, 1).set_column(0, "id", [[9]]), d, key_columns="id"),
    "compact": lambda io, d: io.compact_parquet_dataset(d, target_rows_per_file=100),
    "optimize": lambda io, d: io.optimize_parquet_dataset(d, "id"),
    "copy": lambda io, d: io.write_dataset(d, f"{d}-new"),
}


@pytest.mark.parametrize("call", REFUSED)
def test_files_with_and_without_a_type_are_not_joined(io: Any, tmp_path: Path, call: str) -> None:
    """As an earlier version of fsspeckit left them. Rows of each file can be changed in place."""
    folder = tmp_path / "d"
    table = pq.read_table(LAKES / "duckdb_interval.parquet", columns=["id", "iv"])
    for name in "ab":
        path = put(folder / f"{name}.parquet", table.set_column(0, "id", [[ord(name) + n for n in range(3)]]))
    edit_footer(path, lambda tree: tree[FileField.schema][1][1][2].update({6: (I32, 21)}))
    before = contents(folder)
    with pytest.raises(UnsupportedDataError, match="column 'iv' with different logical types: no logical type and INT"):
        REFUSED[call](io, str(folder))
    assert contents(folder) == before
    kinds = {tuple(kinds_of(file)) for file in data_files(folder)}
    assert io.delete(str(folder), where="id IN (97, 98)").deleted == 3
    assert {tuple(kinds_of(file)) for file in data_files(folder)} == kinds


def test_values_that_a_type_cannot_have_are_refused(io: Any, tmp_path: Path) -> None:
    folder = lake(tmp_path, "duckdb_interval")
    before = contents(tmp_path / "d")
    table = copied(io, folder)
    longer = table.set_column(table.column_names.index("iv"), "iv", pa.array([b"x" * 13]))
    for call in (
        lambda: io.merge(longer, folder, key_columns=["id", "p"]),
        lambda: io.write_dataset(longer, folder, partition_by="p"),
    ):
        with pytest.raises((UnsupportedDataError, SchemaMismatchError), match="iv"):
            call()
    assert contents(tmp_path / "d") == before


SOURCES: dict[str, Callable[[str], Any]] = {
    "pandas": lambda d: pd.read_parquet(f"{d}/p=1/a.parquet"),
    "polars": lambda d: pl.read_parquet(f"{d}/p=1/a.parquet"),
    "pyarrow": lambda d: pq.read_table(f"{d}/p=1/a.parquet", partitioning=None),
    "duckdb": lambda d: duckdb.sql(f"select * exclude p from '{d}/p=1/a.parquet'").to_arrow_table(),
    "text": lambda _: pa.table({
        "id": pa.array([1, 2, 3], pa.int32()), "js": [b'{"a":1}', b'{"a":2}', b'{"a":3}'],
        "u": pa.array([str(uuid.UUID(int=n)).upper() for n in (1, 2, 3)]).dictionary_encode(), "s": ["v1", "v2", "v3"],
    }),
}  # fmt: skip


@pytest.mark.parametrize("key", ["id", "u"])
@pytest.mark.parametrize("reader", SOURCES)
def test_json_and_uuid_take_what_readers_of_the_folder_return(io: Any, tmp_path: Path, reader: str, key: str) -> None:
    folder = lake(tmp_path, "duckdb_json")
    before, types = contents(tmp_path / "d"), pl.read_parquet(f"{folder}/p=1/*.parquet").schema
    source = SOURCES[reader](folder)
    source = source.assign(p=1) if isinstance(source, pd.DataFrame) else pa.table(source).append_column("p", [[1] * 3])
    same = io.merge(source, folder, key_columns=[key, "p"])
    assert (same.updated, same.unchanged, same.inserted, contents(tmp_path / "d")) == (3, 3, 0, before)
    table = pa.Table.from_pandas(source, preserve_index=False) if isinstance(source, pd.DataFrame) else source
    new = table.set_column(table.column_names.index("id"), "id", pa.array([7, 8, 9], pa.int32()))
    assert io.merge(new, folder, key_columns=["id", "p"]).inserted == 3
    found = pl.read_parquet([str(file) for file in data_files(Path(folder))])
    assert (found.schema, found["js"].n_unique(), found["u"].n_unique(), found.height) == (types, 3, 3, 9)
    assert rows_of(folder)[0] == ["INTEGER", "JSON", "UUID", "VARCHAR", "BIGINT"]


@pytest.mark.parametrize("key", ["id", "u"])
def test_a_text_that_is_no_uuid_is_refused(io: Any, tmp_path: Path, key: str) -> None:
    folder = lake(tmp_path, "duckdb_json")
    before = contents(tmp_path / "d")
    wrong = pa.table({"id": pa.array([1], pa.int32()), "js": ["{}"], "u": ["{not-one}"], "s": ["v"], "p": [1]})
    with pytest.raises(SchemaMismatchError, match=r"\{not-one\}"):
        io.merge(wrong, folder, key_columns=[key, "p"])
    assert contents(tmp_path / "d") == before


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", ["datafusion_v2", "polars_array"])
def test_pages_that_pyarrow_reads_only_as_plain_values(io: Any, tmp_path: Path, name: str, verb: str) -> None:
    """Categories without a dictionary, and arrays with nulls (text[2], an array of text in DuckDB)."""
    folder = lake(tmp_path, name)
    types, rows = rows_of(folder)
    kinds = pl.read_parquet(f"{folder}/p=1/*.parquet").schema
    change, model = VERBS[verb]
    change(io, folder)
    assert rows_of(folder) == (types, sorted(model(rows), key=str))
    assert pl.read_parquet([str(file) for file in data_files(Path(folder))]).schema == kinds


@pytest.mark.parametrize("verb", VERBS)
def test_integers_that_arrow_lacks_are_no_damage(io: Any, tmp_path: Path, verb: str) -> None:
    folder = lake(tmp_path, "polars_int128")
    before = contents(tmp_path / "d")
    for call in (lambda: VERBS[verb][0](io, folder), lambda: io.read_parquet(folder)):
        with pytest.raises(UnsupportedDataError, match=r"a\.parquet is not damaged.*column\(s\) \['i'\]"):
            call()
    assert contents(tmp_path / "d") == before


@pytest.mark.parametrize("verb", VERBS)
def test_arrays_of_size_zero_are_refused(tmp_path: Path, verb: str) -> None:
    """No reader can read the files that pyarrow writes of them."""
    io, folder = PyarrowDatasetIO(), tmp_path / "d"
    column = pl.Series([[], [], None], dtype=pl.Array(pl.Int64, 0))
    for p in (1, 2):
        (folder / f"p={p}").mkdir(parents=True)
        rows = pl.DataFrame({"id": [1, 2, 3], "a": column, "s": ["v1", "v2", "v3"]})
        rows.write_parquet(folder / f"p={p}" / "a.parquet")
    before = contents(folder)
    with pytest.raises(UnsupportedDataError, match="'a' has arrays of size 0"):
        VERBS[verb][0](io, str(folder))
    assert contents(folder) == before


def test_results_have_plain_fields(tmp_path: Path) -> None:
    io, folder = PyarrowDatasetIO(), lake(tmp_path, "duckdb_interval")
    since = io.keep_history(folder)
    io.update(folder, set={"s": "'new'"}, where="id = 1")
    for table in (io.read_parquet(folder), io.changes(folder, since=since)):
        assert [field.metadata for field in table.schema if field.metadata] == []
