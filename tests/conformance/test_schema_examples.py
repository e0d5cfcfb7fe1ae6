"""Types, columns and formats: what a merge widens, refuses, adds and keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import SchemaMismatchError
from kit import data_files, look, numbers, put, three_files, tree_of


def schemas(dataset: Path) -> list[pa.Schema]:
    return [pq.read_schema(path) for path in data_files(dataset)]


@pytest.mark.scenario("UP-34")
@pytest.mark.names_stay
def test_a_narrower_source_is_cast(io: Any, tmp_path: Path) -> None:
    files = three_files(tmp_path / "d")
    before = tree_of(tmp_path / "d")
    source = pa.table({"id": pa.array([1, 99], pa.int8()), "v": ["new", "new"]})
    result = io.merge(source, str(tmp_path / "d"), strategy="upsert", key_columns=["id"])
    assert (result.inserted, result.updated) == (1, 1)
    assert {schema.field("id").type for schema in schemas(tmp_path / "d")} == {pa.int64()}
    after = tree_of(tmp_path / "d")
    assert [p for p in before if before[p] != after[p]] == [files[0].name]


@pytest.mark.scenario("UP-34")
@pytest.mark.parametrize("column", ["key", "value"])
@pytest.mark.names_stay
def test_a_wider_source_promotes_every_file_in_one_commit(io: Any, tmp_path: Path, column: str) -> None:
    small = pa.schema({"key": pa.int16(), "value": pa.int16()})
    wide = small.set(small.get_field_index(column), pa.field(column, pa.int64()))
    for i in range(3):
        table = pa.table({"key": [i], "value": [0]}, schema=small)
        put(tmp_path / "d" / f"{i}.parquet", table, row_group_size=1, compression="zstd")
    put(tmp_path / "d" / "empty.parquet", small.empty_table())
    source = pa.table({"key": [0, 7], "value": [0, 0]}, schema=wide)
    widen: dict[str, Any] = {"strategy": "upsert", "key_columns": ["key"], "schema_mode": "widen"}
    result = io.merge(source, str(tmp_path / "d"), **widen)
    assert (result.inserted, result.updated, result.unchanged, result.total) == (1, 1, 1, 4)
    assert {schema.field(column).type for schema in schemas(tmp_path / "d")} == {pa.int64()}
    assert look(tmp_path / "d", "key", "value") == [(0, 0), (1, 0), (2, 0), (7, 0)]
    assert pq.read_metadata(tmp_path / "d" / "2.parquet").row_group(0).column(0).compression == "ZSTD"
    before = tree_of(tmp_path)
    io.merge(source, str(tmp_path / "d"), **widen)
    assert tree_of(tmp_path) == before


def test_a_value_that_does_not_fit_the_wider_type(io: Any, tmp_path: Path) -> None:
    """Nanoseconds have a smaller range: a stored date of the year 148108 cannot be converted."""
    table = pa.table({"id": [1, 2], "at": pa.array([1, 2**62], pa.timestamp("us"))})
    put(tmp_path / "d" / "a.parquet", table)
    before = tree_of(tmp_path / "d")
    source = pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns"))})
    with pytest.raises(SchemaMismatchError, match="at"):
        io.merge(source, str(tmp_path / "d"), strategy="upsert", key_columns=["id"], schema_mode="widen")
    assert tree_of(tmp_path / "d") == before
    assert not [path for path in tree_of(tmp_path) if "staging" in path]


@pytest.mark.scenario("UP-04", "PM-05")
def test_a_source_that_lacks_or_brings_a_column_is_refused(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", numbers([1], extra=[0]))
    before = tree_of(tmp_path)
    source = numbers([1], "new", fresh=[1])
    with pytest.raises(SchemaMismatchError, match=r"(?s)extra.*fresh|fresh.*extra"):
        io.merge(source, str(tmp_path / "d"), strategy="upsert", key_columns=["id"])
    assert tree_of(tmp_path) == before


def test_evolve_adds_new_columns_and_keeps_values_of_missing_ones(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", numbers([1, 2], extra=[10, 20]))
    put(tmp_path / "d" / "b.parquet", numbers([3], extra=[30]))
    source = numbers([1, 9], "new", fresh=["f", "g"])
    result = io.merge(source, str(tmp_path / "d"), strategy="upsert", key_columns=["id"], schema_mode="evolve")
    assert (result.inserted, result.updated) == (1, 1)
    rows = io.read_parquet(str(tmp_path / "d")).sort_by("id").to_pylist()
    assert rows == [
        {"id": 1, "v": "new", "extra": 10, "fresh": "f"},
        {"id": 2, "v": "old", "extra": 20, "fresh": None},
        {"id": 3, "v": "old", "extra": 30, "fresh": None},
        {"id": 9, "v": "new", "extra": None, "fresh": "g"},
    ]
    assert look(tmp_path / "d", "id", "fresh") == [(1, "f"), (2, None), (3, None), (9, "g")]


@pytest.mark.parametrize("strategy", ["upsert", "update", "deduplicate"])
def test_evolve_accepts_a_source_with_only_keys(io: Any, tmp_path: Path, strategy: str) -> None:
    put(tmp_path / "d" / "a.parquet", numbers(list(range(9))))
    source = pa.table({"id": [7, 3, 5]})
    result = io.merge(source, str(tmp_path / "d"), strategy=strategy, key_columns=["id"], schema_mode="evolve")
    assert (result.inserted, result.updated) == (0, 3)
    assert result.unchanged == 3
    assert look(tmp_path / "d", "id", "v") == [(i, "old") for i in range(9)]


@pytest.mark.names_stay
def test_a_rewritten_file_keeps_its_format(io: Any, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "7", "note": "key"}),
            pa.field("v", pa.dictionary(pa.int32(), pa.string()), metadata={"unit": "kg"}),
        ],
        metadata={"owner": "finance", "pandas": "{}"},
    )
    table = pa.table({"id": range(10), "v": ["old"] * 10}).cast(schema)
    path = put(tmp_path / "d" / "a.parquet", table, row_group_size=4, compression="gzip")
    before = pq.read_schema(path)
    io.merge(numbers([3], "new"), str(tmp_path / "d"), strategy="upsert", key_columns=["id"])
    after = pq.ParquetFile(path, page_checksum_verification=True)
    assert after.schema_arrow.equals(before, check_metadata=True)
    assert [after.metadata.row_group(i).num_rows for i in range(3)] == [4, 4, 2]
    assert after.metadata.row_group(0).column(1).compression == "GZIP"
    assert after.read()["id"].to_pylist() == list(range(10))
    assert not after.schema_arrow.field("id").nullable


def test_codec_and_row_group_size_can_be_changed(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    result = io.merge(
        numbers([*range(5), *range(100, 120)], "new"), str(tmp_path / "d"), strategy="upsert", key_columns=["id"],
        compression="zstd", row_group_size=3, max_rows_per_file=8,
    )  # fmt: skip
    for path in (*result.rewritten_files, *result.inserted_files):
        metadata = pq.read_metadata(path)
        assert metadata.row_group(0).column(0).compression == "ZSTD"
        assert max(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)) == 3
    assert sorted(pq.read_metadata(path).num_rows for path in result.inserted_files) in ([4, 8, 8], [6, 7, 7])
    untouched = pq.read_metadata(tmp_path / "d" / "part-2.parquet")
    assert untouched.row_group(0).column(0).compression == "SNAPPY"


def test_inserted_files_have_the_schema_of_the_dataset(io: Any, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.large_string())], {"owner": "me"})
    put(tmp_path / "d" / "a.parquet", schema.empty_table())
    io.merge(numbers([3], "new"), str(tmp_path / "d"), strategy="insert", key_columns=["id"])
    for found in schemas(tmp_path / "d"):
        assert found.equals(schema)


def test_files_with_different_stored_schemas_of_one_type_are_one_dataset(io: Any, tmp_path: Path) -> None:
    """Without the stored Arrow schema a large string is read as a string; the data is the same."""
    table = pa.table({"id": pa.array(["a", "b"], pa.large_string()), "v": ["old", "old"]})
    put(tmp_path / "d" / "a.parquet", table)
    put(tmp_path / "d" / "b.parquet", pa.table({"id": ["c"], "v": ["old"]}), store_schema=False)
    source = pa.table({"id": ["a", "c", "z"], "v": ["new"] * 3})
    result = io.merge(source, str(tmp_path / "d"), strategy="upsert", key_columns=["id"])
    assert (result.inserted, result.updated) == (1, 2)
    assert look(tmp_path / "d") == [("a", "new"), ("b", "old"), ("c", "new"), ("z", "new")]
    assert io.read_parquet(str(tmp_path / "d")).num_rows == 4


def test_files_with_and_without_a_column_read_as_null(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", numbers([1]))
    put(tmp_path / "d" / "b.parquet", numbers([2], extra=["x"]))
    read = io.read_parquet(str(tmp_path / "d")).sort_by("id").to_pylist()
    assert [row["extra"] for row in read] == [None, "x"]


@pytest.mark.names_stay
def test_a_file_that_lacks_a_column_gets_it_when_it_is_rewritten(io: Any, tmp_path: Path) -> None:
    old = put(tmp_path / "d" / "a.parquet", numbers([1, 2]))
    put(tmp_path / "d" / "b.parquet", numbers([3], extra=["x"]))
    source = numbers([1, 3], "new", extra=["y", "z"])
    result = io.merge(source, str(tmp_path / "d"), strategy="upsert", key_columns=["id"])
    assert (result.inserted, result.updated, result.unchanged) == (0, 2, 0)
    assert pq.read_table(old).to_pylist() == [
        {"id": 1, "v": "new", "extra": "y"},
        {"id": 2, "v": "old", "extra": None},
    ]
    assert look(tmp_path / "d", "id", "extra") == [(1, "y"), (2, None), (3, "z")]
