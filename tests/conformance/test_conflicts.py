"""Another writer commits while an operation of any engine runs: it goes on, or is planned again from the new rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.common.errors import CommitConflictError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

OTHER = PyarrowDatasetIO()


def table(ids: list[int], day: str, v: str) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [v] * len(ids), "day": [day] * len(ids)})


@pytest.fixture
def folder(tmp_path: Path) -> str:
    path = str(tmp_path / "d")
    rows = pa.concat_tables([table([1, 2], "a", "old"), table([11, 12], "b", "old")])
    OTHER.write_dataset(rows, path, partition_by="day")
    return path


def once(act: Callable[[], Any]) -> Callable[[Any], None]:
    """A progress callback that acts when the first file was written."""
    left = [act]

    def callback(event: Any) -> None:
        if left and event.stage in ("write", "sort") and event.done:
            left.pop()()

    return callback


def merge(ids: list[int], folder: str, day: str) -> Callable[[], Any]:
    rows = table(ids, day, "other")
    return lambda: OTHER.merge(rows, folder, strategy="upsert", key_columns="id")


def rows_of(folder: str) -> list[tuple[int, str, str]]:
    found = OTHER.read_parquet(folder)
    return sorted(zip(*(found[name].to_pylist() for name in ("id", "day", "v")), strict=True))


def test_a_merge_goes_on_after_a_commit_of_other_rows(io: Any, folder: str) -> None:
    """Only an exchanged source is planned again: to search the new files, all of it would be exchanged again."""
    rows = table([1, 3], "a", "mine")
    retries = 1 if getattr(io.engine, "share_limit", None) == 0 else 0
    options = {"strategy": "upsert", "key_columns": "id", "retries": retries}
    result = io.merge(rows, folder, progress=once(merge([11], folder, "b")), **options)
    assert (result.updated, result.inserted, result.target_count_before) == (1, 1, 4)
    expected = [(1, "a", "mine"), (2, "a", "old"), (3, "a", "mine"), (11, "b", "other"), (12, "b", "old")]
    assert rows_of(folder) == expected


def test_a_merge_is_planned_again_after_a_commit_of_its_rows(io: Any, folder: str) -> None:
    rows = pa.concat_tables([table([1, 3], "a", "mine"), table([12], "b", "mine")])
    options = {"strategy": "upsert", "key_columns": "id"}
    result = io.merge(rows, folder, progress=once(merge([2, 3], folder, "a")), **options)
    assert (result.updated, result.inserted) == (3, 0)
    expected = [(1, "a", "mine"), (2, "a", "other"), (3, "a", "mine"), (11, "b", "old"), (12, "b", "mine")]
    assert rows_of(folder) == expected


def test_an_update_and_a_compaction_without_retries_are_refused(io: Any, folder: str) -> None:
    OTHER.write_dataset(table([4], "a", "old"), folder)
    with pytest.raises(CommitConflictError):
        io.update(folder, set={"v": "'mine'"}, where="id < 3", retries=0, progress=once(merge([2], folder, "a")))
    delete = once(lambda: OTHER.delete(folder, where="id = 1"))
    with pytest.raises(CommitConflictError):
        io.compact_parquet_dataset(folder, target_rows_per_file=10, retries=0, progress=delete)
    result = io.compact_parquet_dataset(
        folder, target_rows_per_file=10, progress=once(lambda: OTHER.delete(folder, where="id = 4"))
    )
    assert (result.after_file_count, rows_of(folder)) == (2, [(2, "a", "other"), (11, "b", "old"), (12, "b", "old")])
