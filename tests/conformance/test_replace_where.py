"""Writing with ``replace_where``, and the modes ``error`` and ``ignore``."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import ExpressionError
from kit import by_day, data_files, look, numbers, put, three_files, tree_of


def replace(io: Any, rows: pa.Table, path: Path, where: Any, **options: Any) -> Any:
    return io.write_dataset(rows, str(path), mode="overwrite", replace_where=where, **options)


def test_only_matching_rows_are_replaced(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    (tmp_path / "d" / "readme.txt").write_text("kept")
    before = tree_of(tmp_path / "d")
    new = numbers([7, 12, 6], "new")
    planned = replace(io, new, tmp_path / "d", "id BETWEEN 5 AND 19", dry_run=True)
    assert tree_of(tmp_path / "d") == before
    result = replace(io, new, tmp_path / "d", "id BETWEEN 5 AND 19")
    for found in (planned, result):
        assert (found.rows, found.replaced, len(found.files)) == (3, 15, 1)
        assert (len(found.rewritten_files), len(found.deleted_files)) == (1, 1)
    assert planned.deleted_files == result.deleted_files
    assert result.commit_seq is not None
    kept = [(i, "old") for i in (*range(5), *range(20, 30))]
    assert look(tmp_path / "d") == sorted([*kept, (6, "new"), (7, "new"), (12, "new")], key=repr)
    after = tree_of(tmp_path / "d")
    assert [after[name] for name in ("part-2.parquet", "readme.txt")] == [
        before[name] for name in ("part-2.parquet", "readme.txt")
    ]
    assert sorted(map(str, data_files(tmp_path / "d"))) == sorted(
        [*result.rewritten_files, *(file.path for file in result.files), str(tmp_path / "d" / "part-2.parquet")]
    )


@pytest.mark.names_stay
def test_row_groups_without_a_match_are_copied(io: Any, tmp_path: Path) -> None:
    path = put(tmp_path / "d" / "a.parquet", numbers(list(range(9))), row_group_size=3, write_page_checksum=True)
    before = pq.ParquetFile(path).metadata
    replace(io, numbers([4], "new"), tmp_path / "d", "id = 4")
    after = pq.ParquetFile(path).metadata
    assert [after.row_group(i).num_rows for i in range(3)] == [3, 2, 3]
    for group in (0, 2):
        old, new = (meta.row_group(group).column(1) for meta in (before, after))
        assert (old.total_compressed_size, old.statistics) == (new.total_compressed_size, new.statistics)


def test_the_error_counts_all_rows_outside_and_shows_a_few(io: Any, tmp_path: Path) -> None:
    by_day(tmp_path / "d", mon=[1])
    rows = numbers(list(range(12)), day=["mon", "tue", None] * 4)
    with pytest.raises(ExpressionError, match=r"^8 source") as caught:
        replace(io, rows, tmp_path / "d", "day = 'mon'")
    assert str(caught.value).count("'day'") == 5
    with pytest.raises(ExpressionError, match=r"^12 source"):
        replace(io, rows, tmp_path / "d", "false")


def test_a_missing_dataset_is_written(io: Any, tmp_path: Path) -> None:
    with pytest.raises(ExpressionError, match="outside"):
        replace(io, numbers([1, 2]), tmp_path / "d", "id = 1")
    assert not (tmp_path / "d").exists()
    result = replace(io, numbers([1], day=["mon"]), tmp_path / "d", "id = 1", partition_by="day")
    assert (result.rows, result.replaced) == (1, 0)
    assert look(tmp_path / "d") == [(1, "old")]


def test_dates_in_folders_are_compared_as_readers_get_them(io: Any, tmp_path: Path) -> None:
    days = [dt.date(2026, 11, 1), dt.date(2026, 11, 2)]
    io.write_dataset(numbers([1, 2], day=pa.array(days)), str(tmp_path / "d"), partition_by="day")
    result = replace(io, numbers([3], "new", day=pa.array(days[1:])), tmp_path / "d", "day = '2026-11-02'")
    assert (result.replaced, look(tmp_path / "d")) == (1, [(1, "old"), (3, "new")])
    with pytest.raises(ExpressionError, match=r"1 source row\(s\) are outside"):
        replace(io, numbers([4, 5], day=pa.array(days)), tmp_path / "d", "day = '2026-11-02'")
    scope = {"strategy": "full_merge", "key_columns": "id", "scope": "day = '2026-11-02'"}
    merged = io.merge(numbers([5], "new", day=pa.array(days[1:])), str(tmp_path / "d"), **scope)
    assert (merged.inserted, merged.deleted) == (1, 1)
    with pytest.raises(ExpressionError, match=r"1 source row\(s\) are outside the condition scope.*such as"):
        io.merge(numbers([8], day=pa.array(days[:1])), str(tmp_path / "d"), **scope)


def test_a_write_is_ignored_where_a_dataset_exists(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    before = tree_of(tmp_path)
    result = io.write_dataset(numbers([1]), str(tmp_path / "d"), mode="ignore")
    assert (result.skipped, result.rows, result.files, result.commit_seq) == (True, 0, [], None)
    assert result.to_dict()["skipped"] is True
    assert "the dataset exists" in str(result)
    assert tree_of(tmp_path) == before


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_a_folder_without_data_files_is_no_dataset(io: Any, tmp_path: Path, mode: str) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "readme.txt").write_text("kept")
    result = io.write_dataset(numbers([1], day=["a"]), str(tmp_path / "d"), mode=mode, partition_by="day")
    assert (result.skipped, result.rows, result.mode) == (False, 1, mode)
    assert look(tmp_path / "d") == [(1, "old")]
    assert (tmp_path / "d" / "readme.txt").exists()


def test_an_ignored_write_keeps_its_idempotency_key(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    result = io.on_terms(idempotency_key="monday").write_dataset(numbers([1]), str(tmp_path / "d"), mode="ignore")
    assert result.skipped
    assert io.committed(str(tmp_path / "d"), "monday") == result.commit_seq
    assert len(look(tmp_path / "d")) == 30
