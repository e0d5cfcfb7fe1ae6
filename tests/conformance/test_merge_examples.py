"""The sentences of the specification on merge strategies, one example each."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit import contents, look, numbers, put, three_files, tree_of


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Ids 0 to 29 in three files, v = "old"."""
    three_files(tmp_path / "data")
    return tmp_path / "data"


def counts(result: Any) -> tuple[int, int, int, int]:
    return result["inserted"], result["updated"], result["deleted"], result["total"]


@pytest.mark.scenario("UP-01", "UP-18", "UP-19", "PM-01", "IO-13", "IO-14", "IO-16")
@pytest.mark.names_stay
def test_upsert_updates_and_inserts(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", numbers([1, 2, 9]))
    result = io.merge(numbers([1, 2, 3], "new"), str(tmp_path / "d"), strategy="upsert", key_columns=["id"])
    assert look(tmp_path / "d") == [(1, "new"), (2, "new"), (3, "new"), (9, "old")]
    assert counts(result) == (1, 2, 0, 4)
    assert result.rewritten_files == [str(tmp_path / "d" / "a.parquet")]
    assert sorted((f.operation, f.row_count) for f in result.files) == [("inserted", 1), ("rewritten", 3)]
    for file in result.files:
        assert file.row_count == pq.read_metadata(file.path).num_rows
        assert file.size_bytes == Path(file.path).stat().st_size


@pytest.mark.scenario("UP-02", "UP-36", "UP-37", "PM-03")
def test_stats_of_a_full_merge(merge_function: Callable[..., dict[str, int]], dataset: Path) -> None:
    source = numbers([*range(3, 30), 100, 101], [*["new"] * 10, *["old"] * 17, "x", "x"])
    stats = merge_function(source, str(dataset), key_columns="id", strategy="full_merge")
    assert stats == {"inserted": 2, "updated": 27, "deleted": 3, "total": 29}
    assert all(type(value) is int for value in stats.values())
    assert len(look(dataset)) == stats["total"]


@pytest.mark.scenario("UP-20", "UP-21", "IO-09", "PM-02")
def test_insert_writes_only_new_keys_and_rewrites_nothing(io: Any, dataset: Path) -> None:
    before = tree_of(dataset)
    result = io.merge(numbers([1, 2, 77], "new"), str(dataset), strategy="insert", key_columns=["id"])
    after = tree_of(dataset)
    assert counts(result) == (1, 0, 0, 31)
    assert {path: after[path] for path in before} == before
    assert (77, "new") in look(dataset)
    assert len(result.inserted_files) == len(after) - len(before) == 1


@pytest.mark.scenario("UP-22", "UP-23", "IO-10", "IO-15")
@pytest.mark.names_stay
def test_update_replaces_and_ignores_new_keys(io: Any, dataset: Path) -> None:
    before = tree_of(dataset)
    result = io.merge(numbers([2, 77], "new"), str(dataset), strategy="update", key_columns=["id"])
    after = tree_of(dataset)
    assert counts(result) == (0, 1, 0, 30)
    assert sorted(after) == sorted(before)
    assert [path for path in before if before[path] != after[path]] == ["part-0.parquet"]
    assert sorted(result.preserved_files) == [str(dataset / "part-1.parquet"), str(dataset / "part-2.parquet")]
    assert [row for row in look(dataset) if row[1] == "new"] == [(2, "new")]


@pytest.mark.scenario("UP-24", "PM-02")
def test_full_merge_inserts_updates_and_deletes(io: Any, dataset: Path) -> None:
    result = io.merge(numbers([0, 1, 10, 99], "new"), str(dataset), strategy="full_merge", key_columns=["id"])
    assert counts(result) == (1, 3, 27, 4)
    assert look(dataset) == [(0, "new"), (1, "new"), (10, "new"), (99, "new")]
    assert result.deleted_files == [str(dataset / "part-2.parquet")]


@pytest.mark.scenario("UP-25", "UP-38")
def test_full_merge_with_an_empty_source(io: Any, dataset: Path) -> None:
    (dataset / "README.txt").write_text("keep me")
    result = io.merge(numbers([]), str(dataset), strategy="full_merge", key_columns=["id"])
    assert counts(result) == (0, 0, 30, 0)
    assert contents(dataset) == {"README.txt": b"keep me"}


@pytest.mark.parametrize("strategy", ["upsert", "insert", "update", "deduplicate"])
def test_an_empty_source_is_a_no_op(io: Any, dataset: Path, strategy: str) -> None:
    before = tree_of(dataset.parent)
    result = io.merge(numbers([]), str(dataset), strategy=strategy, key_columns=["id"])
    assert counts(result) == (0, 0, 0, 30)
    assert tree_of(dataset.parent) == before


@pytest.mark.scenario("UP-39")
@pytest.mark.parametrize("strategy", ["upsert", "insert", "full_merge", "deduplicate"])
def test_a_missing_target_is_created(io: Any, tmp_path: Path, strategy: str) -> None:
    result = io.merge(numbers([1, 2]), str(tmp_path / "new"), strategy=strategy, key_columns=["id"])
    assert counts(result) == (2, 0, 0, 2)
    assert look(tmp_path / "new") == [(1, "old"), (2, "old")]


@pytest.mark.scenario("UP-40")
def test_update_of_a_missing_target_creates_nothing(io: Any, tmp_path: Path) -> None:
    result = io.merge(numbers([1]), str(tmp_path / "new"), strategy="update", key_columns=["id"])
    assert counts(result) == (0, 0, 0, 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.scenario("UP-26", "UP-42")
def test_deduplicate_keeps_the_highest(io: Any, tmp_path: Path) -> None:
    source = numbers([1, 1, 1, 50, 50], ["b", "c", "a", "x", "y"], seq=pa.array([2, 3, 1, None, 0]))
    dataset = tmp_path / "d"
    put(dataset / "a.parquet", numbers(list(range(10)), seq=[0] * 10))
    result = io.merge(source, str(dataset), strategy="deduplicate", key_columns=["id"], dedup_order_by=["seq"])
    assert counts(result) == (1, 1, 0, 11)
    assert [row for row in look(dataset) if row[0] in (1, 50)] == [(1, "c"), (50, "y")]


@pytest.mark.parametrize(("pick", "value"), [("first", "one"), ("last", "two")])
@pytest.mark.parametrize("strategy", ["upsert", "update", "insert", "full_merge"])
def test_duplicate_source_keys_by_request(io: Any, tmp_path: Path, strategy: str, pick: str, value: str) -> None:
    key = 5 if strategy == "insert" else 1
    put(tmp_path / "d" / "a.parquet", numbers([1]))
    source = numbers([key, key], ["one", "two"])
    io.merge(source, str(tmp_path / "d"), strategy=strategy, key_columns="id", on_duplicate_source=pick)
    assert [row for row in look(tmp_path / "d") if row[0] == key] == [(key, value)]


def test_a_duplicate_key_in_the_target_is_replaced_twice(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", numbers([1, 2, 1]))
    put(tmp_path / "d" / "b.parquet", numbers([1, 3]))
    result = io.merge(numbers([1], "new"), str(tmp_path / "d"), strategy="upsert", key_columns=["id"])
    assert counts(result) == (0, 3, 0, 5)
    assert look(tmp_path / "d") == [(1, "new")] * 3 + [(2, "old"), (3, "old")]


@pytest.mark.parametrize("strategy", ["upsert", "update", "full_merge", "deduplicate"])
def test_equal_rows_count_as_updated_and_unchanged(io: Any, dataset: Path, strategy: str) -> None:
    before = tree_of(dataset)
    result = io.merge(numbers(list(range(30))), str(dataset), strategy=strategy, key_columns=["id"])
    assert (result.updated, result.unchanged, result.inserted, result.deleted) == (30, 30, 0, 0)
    assert (result.rewritten_files, len(result.preserved_files)) == ([], 3)
    assert tree_of(dataset) == before


@pytest.mark.names_stay
def test_skip_unchanged_can_be_turned_off(io: Any, dataset: Path) -> None:
    options = {"strategy": "upsert", "key_columns": ["id"], "skip_unchanged": False}
    result = io.merge(numbers([1, 12]), str(dataset), **options)
    assert sorted(result.rewritten_files) == [str(dataset / "part-0.parquet"), str(dataset / "part-1.parquet")]
    assert (result.updated, result.unchanged) == (2, 2)
    assert len(look(dataset)) == 30


@pytest.mark.scenario("IO-04", "ID-04")
def test_the_whole_row_is_replaced(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", pa.table({"id": [1, 2], "a": ["x", "y"], "b": [1.5, 2.5]}))
    source = pa.table({"b": pa.array([None], pa.float64()), "id": [1], "a": pa.array([None], pa.string())})
    io.merge(source, str(tmp_path / "d"), strategy="update", key_columns=["id"])
    assert look(tmp_path / "d", "id", "a", "b") == [(1, None, None), (2, "y", 2.5)]


@pytest.mark.parametrize(("bits", "type_"), [("u8", pa.float64()), ("u4", pa.float32()), ("u2", pa.float16())])
def test_every_nan_is_the_same_nan(io: Any, tmp_path: Path, bits: str, type_: pa.DataType) -> None:
    """NaN has many bit patterns; as keys they match, and as values they are equal."""
    quiet = np.array([math.nan], type_.to_pandas_dtype())
    odd = (quiet.view(bits) + 1).view(quiet.dtype)
    put(tmp_path / "d" / "a.parquet", pa.table({"id": pa.array(quiet), "v": pa.array(quiet)}))
    before = tree_of(tmp_path / "d")
    source = pa.table({"id": pa.array(odd), "v": pa.array(odd)})
    result = io.merge(source, str(tmp_path / "d"), strategy="upsert", key_columns=["id"])
    assert (result.inserted, result.updated, result.unchanged) == (0, 1, 1)
    assert tree_of(tmp_path / "d") == before


def test_text_is_never_a_number(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", pa.table({"id": ["1", "01", "1.0"], "v": ["old"] * 3}))
    result = io.merge(pa.table({"id": ["1"], "v": ["new"]}), str(tmp_path / "d"), strategy="update", key_columns=["id"])
    assert counts(result) == (0, 1, 0, 3)


@pytest.mark.scenario("UP-15")
def test_one_key_may_be_given_as_text(io: Any, dataset: Path) -> None:
    result = io.merge(numbers([1], "new"), str(dataset), strategy="update", key_columns="id")
    assert result.updated == 1


def test_a_result_reads_as_mapping_json_and_table(io: Any, dataset: Path) -> None:
    result = io.merge(numbers([1, 99], "new"), str(dataset), strategy="upsert", key_columns=["id"])
    as_dict = json.loads(json.dumps(result.to_dict()))
    assert (as_dict["inserted"], as_dict["updated"], as_dict["total"]) == (1, 1, 31)
    assert as_dict["files"][0]["path"].startswith(str(dataset))
    assert "inserted" in str(result)
    assert len(str(result).splitlines()) > 3
