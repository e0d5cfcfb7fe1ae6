"""All kinds of sources: in memory, on disk, from other libraries, and streams that can be read only once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest

from conformance.effort import for_each
from fsspeckit.common.errors import ColumnNameError
from kit import by_day, look, numbers, put, three_files, tree_of

SOURCE = numbers([1, 12, 50], "new")


class Stream:
    """An object that supports only the Arrow stream protocol, and only once."""

    def __init__(self, table: pa.Table) -> None:
        self._reader: Any = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=2))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader, self._reader = self._reader, None
        assert reader is not None, "a one-shot stream was read twice"
        return reader.__arrow_c_stream__(requested_schema)


def _duckdb_relation(folder: Path) -> Any:
    connection = duckdb.connect()
    connection.register("source", SOURCE)
    return connection.sql("select * from source")


def _ibis_table(folder: Path) -> Any:
    ibis = pytest.importorskip("ibis", reason="ibis does not work with the lowest version of sqlglot")
    return ibis.polars.connect().create_table("t", SOURCE).filter(lambda table: table.id > 0)


SOURCES: dict[str, Callable[[Path], Any]] = {
    "table": lambda folder: SOURCE,
    "chunked table": lambda folder: pa.concat_tables([SOURCE.slice(i, 1) for i in range(3)]),
    "record batch": lambda folder: SOURCE.to_batches()[0],
    "record batch reader": lambda folder: SOURCE.to_reader(max_chunksize=1),
    "dataset": lambda folder: pds.dataset(put(folder / "s.parquet", SOURCE)),
    "in-memory dataset": lambda folder: pds.dataset(SOURCE),
    "file": lambda folder: str(put(folder / "s.parquet", SOURCE)),
    "path object": lambda folder: put(folder / "s.parquet", SOURCE),
    "folder": lambda folder: str(put(folder / "s" / "a.parquet", SOURCE).parent),
    "url": lambda folder: put(folder / "s.parquet", SOURCE).as_uri(),
    "polars": lambda folder: pl.DataFrame(pl.from_arrow(SOURCE)),
    "polars lazy": lambda folder: pl.DataFrame(pl.from_arrow(SOURCE)).lazy().filter(pl.col("id") > 0),
    "ibis table": _ibis_table,
    "filtered pandas": lambda folder: pd.concat([pd.DataFrame({"id": [0], "v": [""]}), SOURCE.to_pandas()])[1:],
    "pandas": lambda folder: pd.DataFrame({"id": [1, 12, 50], "v": ["new"] * 3}),
    "duckdb relation": _duckdb_relation,
    "arrow stream": lambda folder: Stream(SOURCE),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("strategy", ["upsert", "full_merge"])
def test_merge_from_any_source(io: Any, tmp_path: Path, kind: str, strategy: str) -> None:
    three_files(tmp_path / "d")
    source = SOURCES[kind](tmp_path / "source")
    result = io.merge(source, str(tmp_path / "d"), strategy=strategy, key_columns=["id"])
    assert (result.inserted, result.updated, result.source_count) == (1, 2, 3)
    assert [row for row in look(tmp_path / "d") if row[1] == "new"] == [(1, "new"), (12, "new"), (50, "new")]
    assert pq.read_schema(result.inserted_files[0]).types == [pa.int64(), pa.string()]


@for_each("kind", SOURCES)
def test_write_from_any_source(io: Any, tmp_path: Path, kind: str) -> None:
    source = SOURCES[kind](tmp_path / "source")
    result = io.write_dataset(source, str(tmp_path / "d"), max_rows_per_file=2)
    assert (result.rows, len(result.files)) == (3, 2)
    assert look(tmp_path / "d") == [(1, "new"), (12, "new"), (50, "new")]


@for_each("kind", SOURCES)
def test_an_empty_source_of_any_kind(io: Any, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SOURCE", numbers([]).cast(SOURCE.schema))
    source = SOURCES[kind](tmp_path / "source") if kind not in ("pandas", "record batch") else SOURCE
    three_files(tmp_path / "d")
    before = tree_of(tmp_path / "d")
    result = io.merge(source, str(tmp_path / "d"), strategy="upsert", key_columns=["id"])
    assert (result.inserted, result.updated, result.source_count, result.total) == (0, 0, 0, 30)
    assert tree_of(tmp_path / "d") == before


def test_polars_string_views_and_large_types(io: Any, tmp_path: Path) -> None:
    """polars exports string views and large lists: the dataset keeps its types."""
    table = pa.table({"id": ["a", "b"], "v": [[1], [2]]})
    put(tmp_path / "d" / "a.parquet", table)
    frame = pl.DataFrame({"id": ["b", "c"], "v": [[3], [4]]})
    result = io.merge(frame, str(tmp_path / "d"), strategy="upsert", key_columns=["id"])
    assert (result.inserted, result.updated) == (1, 1)
    for path in (tmp_path / "d").iterdir():
        assert pq.read_schema(path).equals(table.schema)


@pytest.mark.scenario("UP-06", "PM-07")
def test_a_hive_partitioned_source_brings_its_partitions(io: Any, tmp_path: Path) -> None:
    by_day(tmp_path / "d", mon=[1, 2], tue=[3, 4])
    put(tmp_path / "s" / "day=mon" / "x.parquet", numbers([2, 5], "new"))
    call: dict[str, Any] = {"strategy": "upsert", "key_columns": ["id"]}
    plan = io.merge(str(tmp_path / "s"), str(tmp_path / "d"), dry_run=True, **call)
    assert [e.reason for e in plan.entries if "day=tue" in e.path] == ["partition"]
    result = io.merge(str(tmp_path / "s"), str(tmp_path / "d"), **call)
    assert (result.inserted, result.updated) == (1, 1)
    assert [row for row in look(tmp_path / "d", "id", "v", "day") if row[1] == "new"] == [
        (2, "new", "mon"),
        (5, "new", "mon"),
    ]


@pytest.mark.scenario("UP-06", "PM-07")
def test_one_partition_folder_as_the_source(merge_function: Callable[..., Any], tmp_path: Path) -> None:
    """A path into a partition of a staging folder, as the specification writes it: /staging/updates/date=2025-11-15."""
    by_day(tmp_path / "d", mon=[1, 2], tue=[3, 4])
    put(tmp_path / "staging" / "day=tue" / "x.parquet", numbers([4], "new"))
    stats = merge_function(str(tmp_path / "staging" / "day=tue"), str(tmp_path / "d"), key_columns="id")
    assert stats == {"inserted": 0, "updated": 1, "deleted": 0, "total": 4}


def test_files_of_a_source_folder_that_are_not_data_are_skipped(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    put(tmp_path / "s" / "a.parquet", numbers([1], "new"))
    put(tmp_path / "s" / "_tmp" / "b.parquet", numbers([2], "new"))
    (tmp_path / "s" / "_SUCCESS").touch()
    result = io.merge(str(tmp_path / "s"), str(tmp_path / "d"), strategy="upsert", key_columns=["id"])
    assert (result.source_count, result.updated) == (1, 1)


def test_a_dataset_can_be_merged_into_itself(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    before = tree_of(tmp_path / "d")
    result = io.merge(str(tmp_path / "d"), str(tmp_path / "d"), strategy="upsert", key_columns=["id"])
    assert (result.updated, result.unchanged) == (30, 30)
    assert tree_of(tmp_path / "d") == before


def test_overwriting_a_dataset_with_its_own_rows(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    io.write_dataset(pds.dataset(tmp_path / "d"), str(tmp_path / "d"), mode="overwrite")
    assert [row[0] for row in sorted(look(tmp_path / "d"))] == list(range(30))


def test_a_stream_that_fails_halfway_changes_nothing(io: Any, tmp_path: Path) -> None:
    def batches() -> Any:
        yield SOURCE.to_batches()[0]
        raise RuntimeError("the line went dead")

    three_files(tmp_path / "d")
    before = tree_of(tmp_path)
    reader = pa.RecordBatchReader.from_batches(SOURCE.schema, batches())
    with pytest.raises(Exception, match="the line went dead"):
        io.merge(reader, str(tmp_path / "d"), strategy="upsert", key_columns=["id"])
    assert tree_of(tmp_path) == before


def test_numbers_of_rows_of_pandas_are_no_column(io: Any, tmp_path: Path) -> None:
    """Integers without a name are dropped; a named level and other labels are columns."""
    frame = pd.DataFrame({"id": [1, 2, 3], "v": list("abc")})
    named = frame.set_index("v")
    labelled = pd.DataFrame({"id": [1]}, index=["x"])
    both = named.set_index(pd.Index([7, 8, 9]), append=True)
    for number, (given, columns) in enumerate(
        [
            (frame[frame.id > 1].sort_values("id", ascending=False), ["id", "v"]),
            (named, ["id", "v"]),
            (both, ["id", "v"]),
            (labelled, ["id", "__index_level_0__"]),
        ]
    ):
        io.write_dataset(given, str(tmp_path / str(number)))
        assert pq.read_table(tmp_path / str(number)).column_names == columns


def test_a_named_range_is_a_column_of_a_pandas_frame(io: Any, tmp_path: Path) -> None:
    """pandas 3 makes a range of the keys 1, 2, 3 that become the index; pyarrow does not store a range."""
    frame = pd.DataFrame({"v": ["a", "b", "c"]}, index=pd.RangeIndex(1, 4, name="id"))
    io.write_dataset(frame, str(tmp_path))
    assert io.read_parquet(str(tmp_path)).sort_by("id").to_pydict() == {"v": ["a", "b", "c"], "id": [1, 2, 3]}
    result = io.merge(frame.iloc[1:] + "x", str(tmp_path), strategy="upsert", key_columns=["id"])
    assert (result.inserted, result.updated) == (0, 2)
    io.write_dataset(frame.iloc[:0], str(tmp_path), mode="append")
    levels = pd.MultiIndex.from_arrays([[4], ["z"]], names=["id", "v"])
    io.write_dataset(pd.DataFrame(index=levels), str(tmp_path), mode="append")
    assert sorted(look(tmp_path)) == [(1, "a"), (2, "bx"), (3, "cx"), (4, "z")]


@pytest.mark.parametrize(
    "index",
    [
        pd.RangeIndex(2, name="v"),
        pd.Index([7, 8], name="v"),
        pd.MultiIndex.from_arrays([[1, 2], [3, 4]], names=["k", "k"]),
    ],
)
def test_an_index_of_pandas_with_the_name_of_a_column_is_an_error(io: Any, tmp_path: Path, index: Any) -> None:
    frame = pd.DataFrame({"id": [1, 2], "v": ["a", "b"]}, index=index)
    with pytest.raises(ColumnNameError, match=r"the index '[vk]' .* Rename one of them, or reset the index"):
        io.write_dataset(frame, str(tmp_path / "d"))
    assert not (tmp_path / "d").exists()


@pytest.mark.many_rows
def test_a_lazy_frame_is_not_collected(io: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pl.DataFrame({"id": range(300_000), "v": ["a text of some length"] * 300_000})
    collect = pl.LazyFrame.collect
    sizes = []

    def counted(self: pl.LazyFrame, *args: Any, **options: Any) -> Any:
        sizes.append(len(result := collect(self, *args, **options)))
        return result

    monkeypatch.setattr(pl.LazyFrame, "collect", counted)
    assert io.write_dataset(rows.lazy(), str(tmp_path / "d")).rows == 300_000
    assert sum(sizes) == 0
