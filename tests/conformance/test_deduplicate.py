"""Deduplication: the right row of each key is kept in the whole dataset, and only files with duplicates change."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from conformance.upkeep import check_upkeep, values
from fsspeckit.common import errors
from fsspeckit.datasets.pyarrow import deduplicate_parquet_dataset_pyarrow
from inside import lower
from kit import data_files, look, numbers, put, table_of, tree_of


def files_of(dataset: Path, *parts: list[int], **columns: list[list[Any]]) -> None:
    """Files ``f0.parquet`` and so on with these ids and further columns, and a column ``n`` that counts all rows."""
    start = 0
    for i, ids in enumerate(parts):
        more = {name: column[i] for name, column in columns.items()}
        put(dataset / f"f{i}.parquet", pa.table({"id": ids, "n": range(start, start + len(ids)), **more}))
        start += len(ids)


def written(path: Path) -> tuple[int, int, int]:
    """Properties that change when a file is rewritten."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def kept(dataset: Path) -> list[int]:
    return sorted(n for column in values(dataset, "n") for n in column)


@pytest.mark.scenario("UP-46")
def test_the_last_row_of_each_key_is_kept(io: Any, tmp_path: Path) -> None:
    files_of(tmp_path / "d", [1, 2, 1], [3, 4], [2, 5, 5])
    alone = written(tmp_path / "d" / "f1.parquet")
    result = check_upkeep(
        partial(io.deduplicate_parquet_dataset, str(tmp_path / "d"), key_columns=["id"]),
        tmp_path / "d",
        same_rows=False,
    )
    assert kept(tmp_path / "d") == [2, 3, 4, 5, 7]
    assert (result["deduplicated_rows"], result.before_row_count, result.after_row_count) == (3, 8, 5)
    assert (result.compacted_file_count, result.after_file_count) == (2, 3)
    assert written(tmp_path / "d" / "f1.parquet") == alone
    assert sorted(io.read_parquet(str(tmp_path / "d"))["id"].to_pylist()) == [1, 2, 3, 4, 5]
    assert look(tmp_path / "d", "id") == sorted([(i,) for i in range(1, 6)])


@pytest.mark.parametrize(
    ("order_by", "expected"),
    [(None, [3, 5]), ("ts", [0, 4]), ("-ts", [2, 5]), (["day", "-ts"], [2, 4]), (["day"], [3, 4])],
)
def test_order_columns_choose_the_row(io: Any, tmp_path: Path, order_by: Any, expected: list[int]) -> None:
    files_of(tmp_path / "d", [1, 1], [1, 1, 2, 2], ts=[[9, 5], [1, 3, 4, 2]], day=[["a", "a"], ["b", "b", "b", "a"]])
    io.deduplicate_parquet_dataset(str(tmp_path / "d"), "id", order_by)
    assert kept(tmp_path / "d") == expected


@pytest.mark.scenario("UP-47")
def test_a_dry_run_counts_and_writes_nothing(io: Any, tmp_path: Path) -> None:
    files_of(tmp_path / "d", [1, 2], [1, 2], [3])
    before = tree_of(tmp_path)
    plan = io.deduplicate_parquet_dataset(str(tmp_path / "d"), key_columns=["id"], dry_run=True)
    assert tree_of(tmp_path) == before
    assert (plan["before_file_count"], plan["after_file_count"], plan["deduplicated_rows"]) == (3, 2, 2)
    assert [[Path(path).name for path in group] for group in plan["planned_groups"]] == [["f0.parquet"]]


def test_a_file_without_remaining_rows_is_removed(io: Any, tmp_path: Path) -> None:
    files_of(tmp_path / "d", [1, 2], [2, 1])
    result = io.deduplicate_parquet_dataset(str(tmp_path / "d"), "id")
    assert [path.name for path in data_files(tmp_path / "d")] == ["f1.parquet"]
    assert (result.after_file_count, result.after_row_count) == (1, 2)


def test_keys_of_several_columns_and_of_folders(io: Any, tmp_path: Path) -> None:
    for day in "ab":
        put(tmp_path / "d" / f"day={day}" / "x.parquet", numbers([1, 1, 2], ["p", "q", "q"]))
    path = str(tmp_path / "d")
    assert io.deduplicate_parquet_dataset(path, ["id", "v", "day"], dry_run=True)["deduplicated_rows"] == 0
    assert io.deduplicate_parquet_dataset(path, ["id", "day"], dry_run=True)["deduplicated_rows"] == 2
    assert io.deduplicate_parquet_dataset(path, ["id", "v"], dry_run=True)["deduplicated_rows"] == 3
    io.deduplicate_parquet_dataset(path, ["id"], "-day")
    assert sorted(look(tmp_path / "d", "id", "v", "day")) == [(1, "q", "a"), (2, "q", "a")]


@pytest.mark.parametrize("inside", [[1, 1], ["01", "01"]])
def test_a_partition_column_that_is_also_in_the_files(io: Any, tmp_path: Path, inside: list[Any]) -> None:
    put(tmp_path / "d" / "day=01" / "x.parquet", numbers([5, 5], day=inside))
    assert io.deduplicate_parquet_dataset(str(tmp_path / "d"), ["id", "day"])["deduplicated_rows"] == 1


@pytest.mark.parametrize("call", [{"key_columns": ["id", "day"]}, {"key_columns": "id", "dedup_order_by": "-day"}])
@pytest.mark.parametrize("inside", [[9], [None], ["no"]])
def test_a_partition_column_that_folder_and_file_disagree_on(
    io: Any, tmp_path: Path, call: dict[str, Any], inside: list[Any]
) -> None:
    for day in (1, 2):
        column = pa.array(inside, None if inside[0] else pa.int64())
        put(tmp_path / "d" / f"day={day}" / "x.parquet", numbers([5], day=column))
    before = tree_of(tmp_path)
    for dry_run in (True, False):
        with pytest.raises(errors.PartitionError, match=r"day=\d/x\.parquet has rows with day="):
            io.deduplicate_parquet_dataset(str(tmp_path / "d"), null_keys="match", dry_run=dry_run, **call)
    assert tree_of(tmp_path) == before
    assert io.deduplicate_parquet_dataset(str(tmp_path / "d"), "id")["deduplicated_rows"] == 1


@pytest.mark.scenario("UP-13")
def test_a_filter_limits_the_compared_files(io: Any, tmp_path: Path) -> None:
    for day in "ab":
        put(tmp_path / "d" / f"day={day}" / "x.parquet", numbers([1, 1, 2]))
    other = tree_of(tmp_path / "d" / "day=b")
    assert io.deduplicate_parquet_dataset(str(tmp_path / "d"), "id", partition_filter="day=a")["deduplicated_rows"] == 1
    assert tree_of(tmp_path / "d" / "day=b") == other


@pytest.mark.names_stay
def test_a_rewritten_file_keeps_its_properties(io: Any, tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int32(), nullable=False, metadata={"unit": "piece"}), pa.field("v", pa.large_string())],
        metadata={"owner": "us"},
    )
    data = pa.table([pa.array([1, 2, 1, 3], pa.int32()), pa.array(list("abcd"))], ["id", "v"]).cast(schema)
    sorting = [pq.SortingColumn(1)]
    put(tmp_path / "d" / "a.parquet", data, compression="zstd", row_group_size=2, sorting_columns=sorting)
    io.deduplicate_parquet_dataset(str(tmp_path / "d"), "id")
    path = tmp_path / "d" / "a.parquet"
    assert table_of(path)["v"].to_pylist() == ["b", "c", "d"]
    assert pq.read_schema(path).equals(schema, check_metadata=True)
    meta = pq.read_metadata(path)
    assert (meta.num_row_groups, meta.row_group(0).column(0).compression) == (2, "ZSTD")
    assert tuple(meta.row_group(0).sorting_columns) == tuple(sorting)


def test_null_keys(io: Any, tmp_path: Path) -> None:
    files_of(tmp_path / "d", [1, None], [None, 1])
    before = tree_of(tmp_path)
    with pytest.raises(errors.KeyColumnError, match=r"id.*NULL.*null_keys"):
        io.deduplicate_parquet_dataset(str(tmp_path / "d"), "id")
    assert tree_of(tmp_path) == before
    assert io.deduplicate_parquet_dataset(str(tmp_path / "d"), "id", null_keys="match")["deduplicated_rows"] == 2
    assert kept(tmp_path / "d") == [2, 3]


@pytest.mark.parametrize("rounds", [None, 1])
def test_a_kept_row_that_disappears_during_the_run_is_a_conflict(io: Any, tmp_path: Path, rounds: int | None) -> None:
    files_of(tmp_path / "d", [1, 2], [2, 3], [3, 4])

    def remove(event: Any) -> None:
        if event.stage == "write" and event.done == (0 if rounds is None else 1):
            io.merge(pa.table({"id": [2], "n": [-1]}), str(tmp_path / "d"), strategy="update", key_columns="id")

    with pytest.raises(errors.CommitConflictError, match="again"):
        io.deduplicate_parquet_dataset(
            str(tmp_path / "d"), "id", progress=remove, max_groups_per_commit=rounds, retries=0
        )
    assert {1, 2, 3, 4} == {i for ids in values(tmp_path / "d", "id") for i in ids}


def test_rows_of_one_key_are_compared_across_many_parts(
    io: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, "rows of a part", 7)
    lower(monkeypatch, "rows of an item", 5)
    parts = [[f"key {i * 7919 % 23}" for i in range(k, k + 9)] for k in range(6)]
    for i, part in enumerate(parts):
        put(tmp_path / "d" / f"{i}.parquet", pa.table({"id": part, "n": range(9 * i, 9 * i + 9)}), row_group_size=4)
    result = io.deduplicate_parquet_dataset(str(tmp_path / "d"), "id")
    last = {key: n for n, key in enumerate(key for part in parts for key in part)}
    assert kept(tmp_path / "d") == sorted(last.values())
    assert result["deduplicated_rows"] == 54 - len(last)


def test_the_functions(tmp_path: Path) -> None:
    files_of(tmp_path / "d", [1, 1], [2])
    found = deduplicate_parquet_dataset_pyarrow(str(tmp_path / "d"), ["id"], dry_run=True)
    assert (found["deduplicated_rows"], found["dry_run"]) == (1, True)
    assert fsspeckit.deduplicate(str(tmp_path / "d"), key_columns="id", engine="pyarrow")["deduplicated_rows"] == 1
