"""A dataset inside a dataset: refused by every operation that changes files, on every engine, before any write."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from conformance.effort import for_each
from conformance.test_refusals import refused
from fsspeckit.common.errors import NestedDatasetError
from kit import numbers, put

ROWS = numbers([1, 50], "new")
CHANGES: dict[str, Callable[[Any, str], Any]] = {
    "append": lambda io, path: io.write_dataset(ROWS, path),
    "overwrite": lambda io, path: io.write_dataset(ROWS, path, mode="overwrite"),
    "merge": lambda io, path: io.merge(ROWS, path, strategy="upsert", key_columns=["id"]),
    "full merge": lambda io, path: io.merge(ROWS, path, strategy="full_merge", key_columns=["id"]),
    "plan of a merge": lambda io, path: io.merge(ROWS, path, strategy="upsert", key_columns=["id"], dry_run=True),
    "compact": lambda io, path: io.compact_parquet_dataset(path, target_rows_per_file=1000),
    "plan of a compaction": lambda io, path: io.compact_parquet_dataset(path, target_rows_per_file=1000, dry_run=True),
    "optimize": lambda io, path: io.optimize_parquet_dataset(path, zorder_columns=["id"]),
    "deduplicate": lambda io, path: io.deduplicate_parquet_dataset(path, key_columns=["id"]),
    "recover": lambda io, path: io.recover(path),
}
_WITH_FILTER = [CHANGES[name] for name in ("compact", "plan of a compaction", "optimize", "deduplicate")]
every_change = for_each("change", CHANGES.values())


@every_change
def test_a_folder_that_contains_datasets(io: Any, tmp_path: Path, change: Callable[[Any, str], Any]) -> None:
    for name in ("a", "b"):
        io.write_dataset(numbers([1, 2, 3]), str(tmp_path / "lake" / name))
    with refused(tmp_path, NestedDatasetError, ".a.fsspeckit", str(tmp_path / "lake" / "a")):
        change(io, str(tmp_path / "lake"))


@every_change
def test_a_partition_of_a_dataset(io: Any, tmp_path: Path, change: Callable[[Any, str], Any]) -> None:
    io.write_dataset(numbers([1, 2], day=["a", "b"]), str(tmp_path / "lake"), partition_by=["day"])
    folder = next((tmp_path / "lake").glob("day=*"))
    with refused(tmp_path, NestedDatasetError, ".lake.fsspeckit", f"use the path {tmp_path / 'lake'}") as caught:
        change(io, str(folder))
    assert (f"partition_filter={folder.name!r}" in str(caught.value)) == (change in _WITH_FILTER)


@pytest.mark.parametrize("inner", ["b", "b/c", "day=1/b", ".hidden/b"])
@for_each("where", ["beside", "inside"])
def test_a_new_dataset_inside_a_dataset(io: Any, tmp_path: Path, inner: str, where: str) -> None:
    io.write_dataset(numbers([1, 2, 3]), str(tmp_path / "a"))
    if where == "inside":
        shutil.move(tmp_path / ".a.fsspeckit", tmp_path / "a" / ".fsspeckit")
    with refused(tmp_path, NestedDatasetError, f"use the path {tmp_path / 'a'}"):
        io.write_dataset(numbers([4]), str(tmp_path / "a" / inner))


@every_change
def test_folders_that_are_not_partitions(io: Any, tmp_path: Path, change: Callable[[Any, str], Any]) -> None:
    """Two datasets of other programs, without journals, are not treated as one dataset."""
    put(tmp_path / "lake" / "a" / "1.parquet", numbers([1, 2]))
    put(tmp_path / "lake" / "b" / "1.parquet", numbers([1, 3]))
    with refused(tmp_path, NestedDatasetError, "not partitions", "(a, b)"):
        change(io, str(tmp_path / "lake"))


@for_each("folder", ["a", "day=1/a", "a/day=1", "=1"])
def test_one_folder_that_is_no_partition_is_enough(io: Any, tmp_path: Path, folder: str) -> None:
    put(tmp_path / "lake" / "0.parquet", numbers([1, 2]))
    put(tmp_path / "lake" / folder / "1.parquet", numbers([1, 3]))
    with refused(tmp_path, NestedDatasetError, folder):
        io.merge(ROWS, str(tmp_path / "lake"), strategy="upsert", key_columns=["id"])


@for_each("name", ["merge", "plan of a merge", "compact", "optimize", "deduplicate"])
def test_partitions_that_are_different_datasets(io: Any, tmp_path: Path, name: str) -> None:
    put(tmp_path / "lake" / "kind=a" / "1.parquet", numbers([1, 2]))
    put(tmp_path / "lake" / "kind=b" / "1.parquet", pa.table({"id": [1], "town": ["x"], "zip": ["y"]}))
    with refused(tmp_path, NestedDatasetError, "town", "different datasets"):
        CHANGES[name](io, str(tmp_path / "lake"))


def test_files_may_have_different_columns(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "lake" / "day=1" / "1.parquet", pa.table({"id": [1], "a": [1], "b": [1], "old": [1]}))
    put(tmp_path / "lake" / "day=2" / "1.parquet", pa.table({"id": [2], "a": [1], "b": [1], "new": [1]}))
    put(tmp_path / "lake" / "day=3" / "1.parquet", pa.table({"id": [3]}))
    result = io.deduplicate_parquet_dataset(str(tmp_path / "lake"), key_columns=["id"])
    assert result["deduplicated_rows"] == 0


def test_a_journal_below_is_named_even_if_its_dataset_was_deleted(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "lake" / "0.parquet", numbers([1, 2]))
    (tmp_path / "lake" / ".gone.fsspeckit" / "log").mkdir(parents=True)
    with refused(tmp_path, NestedDatasetError, ".gone.fsspeckit", "delete the journal"):
        io.merge(ROWS, str(tmp_path / "lake"), strategy="upsert", key_columns=["id"])


def test_advice_does_not_lead_back(io: Any, tmp_path: Path) -> None:
    """A dataset with a journal, and in it files of another program or a dataset of its own."""
    outer, inner = str(tmp_path / "n1"), str(tmp_path / "n1" / "tmp")
    io.write_dataset(numbers([1]), outer)
    put(tmp_path / "n1" / "tmp" / "1.parquet", numbers([2]))
    with refused(tmp_path, NestedDatasetError, f"move them out of {outer}"):
        io.write_dataset(ROWS, outer)
    with refused(tmp_path, NestedDatasetError, f"use the path {outer}"):
        io.write_dataset(ROWS, inner)
    shutil.copytree(tmp_path / ".n1.fsspeckit", tmp_path / "n1" / ".tmp.fsspeckit")
    with refused(tmp_path, NestedDatasetError, f"move {inner} out of {outer}"):
        io.write_dataset(ROWS, outer)
    with refused(tmp_path, NestedDatasetError, f"move {inner} out of {outer}"):
        io.write_dataset(ROWS, inner)


def test_a_journal_above_is_named_with_what_to_do_about_it(io: Any, tmp_path: Path) -> None:
    io.write_dataset(numbers([1]), str(tmp_path / "a"))
    shutil.rmtree(tmp_path / "a")
    with refused(tmp_path, NestedDatasetError, ".a.fsspeckit", "or delete that journal"):
        io.write_dataset(ROWS, str(tmp_path / "a" / "b"))


def test_reading_a_folder_that_contains_datasets(io: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        io.write_dataset(numbers([1, 2, 3]), str(tmp_path / "lake" / name))
    with refused(tmp_path, NestedDatasetError, str(tmp_path / "lake" / "a")):
        io.read_parquet(str(tmp_path / "lake"))


def test_reading_a_partition_and_folders_of_other_programs(io: Any, tmp_path: Path) -> None:
    """Reading changes nothing, so folders that other readers accept are accepted."""
    io.write_dataset(numbers([1, 2], day=["a", "b"]), str(tmp_path / "lake"), partition_by=["day"])
    folder = next((tmp_path / "lake").glob("day=*"))
    assert io.read_parquet(str(folder)).num_rows > 0
    put(tmp_path / "landing" / "2026" / "11" / "a.parquet", numbers([1, 2]))
    assert io.read_parquet(str(tmp_path / "landing")).num_rows == 2
    io.merge(str(tmp_path / "landing"), str(tmp_path / "copy"), strategy="upsert", key_columns=["id"])


def test_datasets_in_neighbouring_folders_are_allowed(io: Any, tmp_path: Path) -> None:
    for name in ("a", "ab", "a.b"):
        io.write_dataset(pa.table({"id": [1]}), str(tmp_path / "lake" / name))
        io.merge(pa.table({"id": [2]}), str(tmp_path / "lake" / name), strategy="upsert", key_columns=["id"])
