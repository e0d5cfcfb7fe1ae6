"""Rows that move to another partition: updates of partition columns, and merges that keep values of the target."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conformance.effort import for_each
from fsspeckit import CommitConflictError, ExpressionError, PartitionError
from kit import by_day, data_files, numbers, put, ruin_pages, tree_of


def stats(result: Any) -> tuple[int, ...]:
    return tuple(result[name] for name in ("inserted", "updated", "deleted", "total", "moved", "unchanged"))


def rows_of(io: Any, path: Path, *names: str) -> list[tuple[Any, ...]]:
    table = io.read_parquet(str(path)).select(list(names))
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def test_an_update_of_a_partition_column_moves_rows(io: Any, tmp_path: Path) -> None:
    by_day(tmp_path / "d", mon=[1, 2], tue=[3], wed=[4])
    before = tree_of(tmp_path / "d")
    call = {"set": {"day": "'tue'", "v": "upper(v)"}, "where": "id IN (2, 3)"}
    plan = io.update(str(tmp_path / "d"), dry_run=True, **call)
    assert tree_of(tmp_path / "d") == before
    result = io.update(str(tmp_path / "d"), plan=plan, **call)
    assert stats(plan) == stats(result) == (0, 2, 0, 4, 1, 0)
    assert [entry.action for entry in plan.entries] == ["rewrite", "rewrite", "keep", "insert"]
    assert [file.row_count for file in result.files if file.operation == "inserted"] == [1]
    assert rows_of(io, tmp_path / "d", "id", "v", "day") == [
        (1, "old", "mon"),
        (2, "OLD", "tue"),
        (3, "OLD", "tue"),
        (4, "old", "wed"),
    ]
    assert tree_of(tmp_path / "d")["day=wed/a.parquet"] == before["day=wed/a.parquet"]
    with pytest.raises(CommitConflictError):
        io.update(str(tmp_path / "d"), plan=plan, **call)


def test_a_row_that_gets_its_own_partition_value_stays(io: Any, tmp_path: Path) -> None:
    by_day(tmp_path / "d", mon=[1, 2])
    for name in ("id", "v"):
        ruin_pages(tmp_path / "d" / "day=mon" / "a.parquet", name)
    before = tree_of(tmp_path / "d")
    result = io.update(str(tmp_path / "d"), set={"day": "'mon'"}, where="true")
    assert stats(result) == (0, 2, 0, 2, 0, 2)
    assert (result.commit_seq, tree_of(tmp_path / "d")) == (None, before)


@for_each("value", ["a/b", "50%", "x=y?", "K\u00f6ln", " ", "..", "a'b", "01", None])
def test_new_folders_are_named_as_a_write_names_them(io: Any, tmp_path: Path, value: str | None) -> None:
    by_day(tmp_path / "d", mon=[1], tue=[2])
    io.write_dataset(numbers([1, 2], day=[value, "tue"]), str(tmp_path / "e"), partition_by="day")
    text = "NULL" if value is None else "'" + value.replace("'", "''") + "'"
    assert io.update(str(tmp_path / "d"), set={"day": text}, where="id = 1").moved == 1
    folders = [{path.parent.name for path in data_files(tmp_path / name)} for name in "de"]
    assert folders[0] == folders[1]
    assert rows_of(io, tmp_path / "d", "id", "day") == [(1, value), (2, "tue")]


def test_a_value_that_cannot_be_a_partition_changes_nothing(io: Any, tmp_path: Path) -> None:
    by_day(tmp_path / "d", mon=[1, 2], tue=[3])
    before = tree_of(tmp_path)
    for text, error in (
        ("''", PartitionError),
        ("CASE WHEN id = 2 THEN '__HIVE_DEFAULT_PARTITION__' ELSE 'x' END", PartitionError),
        (f"'{'x' * 300}'", PartitionError),
        ("7", ExpressionError),
        ("nope", ExpressionError),
        ("CAST(id / (id - 2) AS VARCHAR)", ExpressionError),
    ):
        for dry_run in (True, False):
            with pytest.raises(error):
                io.update(str(tmp_path / "d"), set={"day": text}, where="true", dry_run=dry_run)
    with pytest.raises(ExpressionError):
        io.update(str(tmp_path / "d"), set={"day": "'x'", "id": "id / (id - 2)"}, where="true", dry_run=True)
    with pytest.raises(ExpressionError):
        io.update(str(tmp_path / "d"), set={"day": "'x'", "id": "id / (id - 2)"}, where="true")
    assert {name: tree_of(tmp_path)[name] for name in before} == before
    assert io.update(str(tmp_path / "d"), set={"day": "''"}, where="id = 99").updated == 0


def test_a_partition_column_in_the_files_is_set_there_too(io: Any, tmp_path: Path) -> None:
    day = [dt.date(2026, 11, 1), dt.date(2026, 11, 2)]
    put(tmp_path / "d" / "day=2026-11-01" / "a.parquet", numbers([1, 2], day=[day[0]] * 2))
    put(tmp_path / "d" / "day=2026-11-02" / "b.parquet", numbers([3], day=[day[1]]))
    result = io.update(str(tmp_path / "d"), set={"day": "day + INTERVAL 1 DAY"}, where="id = 2")
    assert stats(result) == (0, 1, 0, 3, 1, 0)
    assert rows_of(io, tmp_path / "d", "id", "day") == [(1, day[0]), (2, day[1]), (3, day[1])]
    files = [path for path in data_files(tmp_path / "d") if path.parent.name == "day=2026-11-02"]
    assert sorted(pq.ParquetFile(path).read()["day"].to_pylist()[0] for path in files) == [day[1]] * 2


def test_a_file_whose_values_differ_from_its_folder_is_an_error(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "day=a" / "a.parquet", numbers([1], day=["b"]))
    before = tree_of(tmp_path)
    with pytest.raises(PartitionError, match="folder is for"):
        io.update(str(tmp_path / "d"), set={"day": "'c'"}, where="true")
    assert tree_of(tmp_path) == before


@pytest.mark.names_stay
def test_moved_rows_keep_all_types_and_the_codec(io: Any, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("code", pa.dictionary(pa.int8(), pa.string())),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("at", pa.timestamp("ns", "UTC"), metadata={"unit": "ns"}),
        ]
    )
    for number, day in enumerate(("a", "b")):
        rows = [{"id": 3 * number + i, "code": f"{day}{i}", "tags": ["x", None], "at": i} for i in range(3)]
        put(tmp_path / "d" / f"day={day}" / "x.parquet", pa.Table.from_pylist(rows, schema), compression="zstd")

    def read() -> pa.Table:
        table = io.read_parquet(str(tmp_path / "d")).drop_columns("day").sort_by("id")
        return table.set_column(1, "code", table["code"].cast(pa.string()))

    before = read()
    result = io.update(str(tmp_path / "d"), set={"day": "'c'"}, where="id % 3 < 2")
    assert stats(result) == (0, 4, 0, 6, 4, 0)
    (new,) = [pq.ParquetFile(path) for path in data_files(tmp_path / "d") if path.parent.name == "day=c"]
    assert new.metadata.row_group(0).column(0).compression == "ZSTD"
    old = pq.ParquetFile(tmp_path / "d" / "day=a" / "x.parquet").schema_arrow
    assert new.schema_arrow.equals(old, check_metadata=True)
    assert read().equals(before)


def partial_merge(io: Any, path: Path, source: pa.Table, **options: Any) -> Any:
    return io.merge(source, str(path), strategy="upsert", key_columns="id", partition_move="move", **options)


def test_moved_rows_are_split_into_files_of_a_size(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "day=a" / "a.parquet", numbers(list(range(5)), n=[0] * 5), row_group_size=2)
    put(tmp_path / "d" / "day=b" / "b.parquet", numbers([5, 6, 7], n=[0] * 3))
    source = pa.table({"id": list(range(8)), "n": list(range(8)), "day": ["c"] * 8})
    result = partial_merge(io, tmp_path / "d", source, schema_mode="evolve", max_rows_per_file=3)
    assert [file.row_count for file in result.files] == [3, 3, 2]
    assert rows_of(io, tmp_path / "d", "id", "v", "n", "day") == [(i, "old", i, "c") for i in range(8)]
