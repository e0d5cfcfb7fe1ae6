"""A dataset that has lost its last row: it exists, has columns, and takes rows of these columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit import Dataset, DatasetExistsError, DatasetNotFoundError, PartitionError, SchemaMismatchError
from kit import data_files, look, numbers, tree_of

Call = Callable[[Any, str], Any]
COLUMNS = ["id", "v", "day"]


def rows(ids: list[int], days: list[str], v: str = "old") -> pa.Table:
    return numbers(ids, pa.array([v] * len(ids), pa.string()), day=pa.array(days, pa.string()))


FULL: dict[str, Any] = {"strategy": "full_merge", "key_columns": ["id"], "partition_move": "unchecked"}
EMPTIES: dict[str, Call] = {
    "delete": lambda io, path: io.delete(path, where="true"),
    "full_merge": lambda io, path: io.merge(rows([], []), path, **FULL),
    "merge": lambda io, path: io.merge(rows([1, 2], ["a", "b"]), path, key_columns=["id"], delete_when="id > 0"),
    "overwrite": lambda io, path: io.write_dataset(rows([], []), path, mode="overwrite"),
    "replace_where": lambda io, path: io.write_dataset(
        rows([], []), path, mode="overwrite", replace_where="day in ('a', 'b')"
    ),
    "two deletes": lambda io, path: [io.delete(path, where=f"id = {number}") for number in (1, 2)],
}


@pytest.fixture(params=EMPTIES)
def emptied(request: pytest.FixtureRequest, io: Any, tmp_path: Path) -> Path:
    """A dataset of two partitions whose rows are all gone."""
    io.write_dataset(rows([1, 2], ["a", "b"]), str(tmp_path / "d"), partition_by="day")
    EMPTIES[request.param](io, str(tmp_path / "d"))
    assert data_files(tmp_path / "d") == []
    return tmp_path / "d"


def empty(io: Any, path: Path) -> Path:
    """A dataset of one column of folders and two of files, without rows."""
    io.write_dataset(rows([1, 2], ["a", "b"]), str(path), partition_by="day")
    io.delete(str(path), where="true")
    return path


def test_reads_return_no_rows_and_the_columns(io: Any, emptied: Path) -> None:
    found = io.read_parquet(str(emptied))
    assert found.schema.equals(pa.schema([("id", pa.int64()), ("v", pa.string()), ("day", pa.string())]))
    assert found.num_rows == 0
    assert io.read_parquet(str(emptied), columns=["day", "id"], filters="day = 'a'").column_names == ["day", "id"]
    with pytest.raises(ValueError, match="dya"):
        io.read_parquet(str(emptied), filters="dya = 'a'")
    if hasattr(io, "read"):
        frame = io.read(str(emptied))
        assert (frame.columns, frame.count()) == (COLUMNS, 0)


def test_types_are_checked_and_partitions_stay(io: Any, emptied: Path) -> None:
    path = str(emptied)
    other = pa.table({"id": [1], "v": [1.5], "day": ["a"]})
    for write in (
        lambda: io.write_dataset(other, path),
        lambda: io.merge(other, path, key_columns=["id"]),
        lambda: io.merge(rows([1], ["a"]).drop_columns(["v"]), path, key_columns=["id"]),
        lambda: io.apply_changes(other.append_column("lsn", [[1]]), path, key_columns="id", sequence_by="lsn"),
    ):
        with pytest.raises(SchemaMismatchError):
            write()
    with pytest.raises(PartitionError):
        io.write_dataset(rows([1], ["a"]), path, partition_by="v")
    io.write_dataset(rows([3], ["c"]), path)
    assert io.merge(rows([3, 4], ["c", "d"], "new"), path, key_columns=["id"]).inserted == 1
    assert look(emptied, *COLUMNS) == [(3, "new", "c"), (4, "new", "d")]
    assert {file.parent.name for file in data_files(emptied)} == {"day=c", "day=d"}
    assert io.read_parquet(path).column_names == COLUMNS


def test_changes_without_rows_change_nothing(io: Any, emptied: Path) -> None:
    path, before = str(emptied), tree_of(emptied.parent)
    assert io.update(path, set={"v": "'x'"}, where="id > 0").updated == 0
    assert io.delete(path, where="true").deleted == 0
    assert io.merge(rows([1], ["a"]), path, strategy="update", key_columns=["id"]).updated == 0
    assert io.merge(rows([], []), path, **FULL).total == 0
    assert io.write_dataset(rows([], []), path).rows == 0
    for call in (
        lambda: io.update(path, set={"w": "1"}, where="true"),
        lambda: io.update(path, set={"v": "1"}, where="true"),
        lambda: io.delete(path, where="w > 1"),
    ):
        with pytest.raises(ValueError, match=r"'?w'?|v"):
            call()
    for result in (
        io.compact_parquet_dataset(path, target_mb_per_file=1),
        io.optimize_parquet_dataset(path, zorder_columns=["id"]),
        io.deduplicate_parquet_dataset(path, key_columns=["id"]),
    ):
        assert (result.before_file_count, result.after_file_count) == (0, 0)
    assert tree_of(emptied.parent) == before


def test_the_folder_is_a_dataset_that_exists(io: Any, emptied: Path) -> None:
    path = str(emptied)
    with pytest.raises(DatasetExistsError):
        io.write_dataset(rows([1], ["a"]), path, mode="error")
    assert io.write_dataset(rows([1], ["a"]), path, mode="ignore").skipped
    assert io.history(path)[0].version
    layout = Dataset(path, key="id").inspect()
    assert (layout["rows"], layout["files"], list(layout["partition_columns"])) == (0, 0, ["day"])
    assert list(layout["schema"]) == ["id", "v"]
    assert io.merge(path, str(emptied.parent / "copy"), key_columns=["id"]).inserted == 0


def test_no_other_commit_forgets_the_columns(io: Any, tmp_path: Path) -> None:
    """Neither commits without files, nor as many of them as the journal keeps records, nor a lost folder."""
    path = str(empty(io, tmp_path / "d"))
    io.keep_history(path)
    for number in range(70):
        io.on_terms(idempotency_key=f"run {number}").delete(path, where="true")
    rmtree(path)
    assert io.read_parquet(path).column_names == COLUMNS
    io.write_dataset(rows([5], ["e"]), path)
    assert look(tmp_path / "d", *COLUMNS) == [(5, "old", "e")]
    rmtree(path)
    with pytest.raises(DatasetNotFoundError):
        io.read_parquet(path)


def test_versions_without_rows_are_read_and_restored(io: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    io.write_dataset(rows([1, 2], ["a", "b"]), path, partition_by="day")
    first = io.keep_history(path)
    io.delete(path, where="true")
    none = io.history(path)[0].version
    assert io.read_parquet(path, version=none).column_names == COLUMNS
    assert io.restore(path, version=first).restored_files
    assert io.read_parquet(path).num_rows == 2
    assert io.read_parquet(path, version=none).num_rows == 0
    assert len(io.restore(path, version=none).removed_files) == 2
    assert io.read_parquet(path).schema.equals(io.read_parquet(path, version=first).schema)
    assert io.diff(path, first, io.history(path)[0].version).rows_before == 2
    changes = io.changes(path, since=first)
    assert len(changes.collect() if hasattr(io, "spark") else changes) == 6


def test_overwriting_a_dataset_without_rows_gives_it_other_columns(io: Any, tmp_path: Path) -> None:
    path = str(empty(io, tmp_path / "d"))
    none = pa.table({"n": pa.array([], pa.int8()), "at": pa.array([], pa.int32()), "on": pa.array([], pa.date32())})
    io.write_dataset(none, path, mode="overwrite", partition_by=["at"])
    assert io.read_parquet(path).schema.equals(pa.schema([("n", pa.int8()), ("on", pa.date32()), ("at", pa.int32())]))
    io.write_dataset(pa.table({"n": pa.array([1], pa.int8()), "at": [7], "on": [date(2026, 1, 2)]}), path)
    assert io.read_parquet(path).to_pylist() == [{"n": 1, "on": date(2026, 1, 2), "at": 7}]


def test_a_first_write_without_rows_makes_a_dataset(io: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    io.write_dataset(rows([], []), path, partition_by="day")
    assert io.read_parquet(path).column_names == COLUMNS
    io.write_dataset(rows([1], ["a"]), path)
    assert [file.parent.name for file in data_files(tmp_path / "d")] == ["day=a"]


def test_a_feed_removes_the_last_row_and_goes_on(io: Any, tmp_path: Path) -> None:
    path, options = str(tmp_path / "d"), {"key_columns": "id", "sequence_by": "n", "delete_when": "v = 'gone'"}
    io.apply_changes(numbers([1, 2], n=[1, 1]), path, **options)
    assert io.apply_changes(numbers([1, 2], "gone", n=[2, 2]), path, **options).deleted == 2
    assert io.read_parquet(path).column_names == ["id", "v", "n"]
    with pytest.raises(SchemaMismatchError):
        io.apply_changes(numbers([1], [1.5], n=[3]), path, **{**options, "delete_when": None})
    assert io.apply_changes(numbers([1, 2], ["gone", "new"], n=[3, 3]), path, **options).inserted == 1


def test_a_history_without_rows_stays_a_history(io: Any, tmp_path: Path) -> None:
    path, feed = str(tmp_path / "d"), pa.table({"id": [1], "v": ["a"], "lsn": [5]})
    options: dict[str, Any] = {"key_columns": "id", "sequence_by": "lsn", "scd_type": 2}
    io.apply_changes(feed, path, **options)
    schema = io.read_parquet(path).schema
    io.delete(path, where="true")
    assert io.read_parquet(path).schema.equals(schema)
    assert io.apply_changes(feed, path, **options).inserted == 1
    assert io.read_parquet(path).num_rows == 1


def test_a_writer_that_appends_meanwhile_keeps_its_rows(io: Any, tmp_path: Path) -> None:
    """The delete of all rows commits on the files that it has seen; rows that match are deleted by another attempt."""
    path = str(tmp_path / "d")
    io.write_dataset(rows([1], ["a"]), path, partition_by="day")

    def append(*_: Any) -> None:
        if not done:
            done.append(1)
            io.write_dataset(rows([9], ["z"]), path)

    done: list[int] = []
    result = io.delete(path, where="id = 1", progress=append)
    assert (result.deleted, look(tmp_path / "d", *COLUMNS)) == (1, [(9, "old", "z")])
    assert io.delete(path, where="true").deleted == 1
    assert io.read_parquet(path).column_names == COLUMNS
