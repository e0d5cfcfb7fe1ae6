"""Rows that a journal remembers and another program removed: an error with two ways on, never a silent success."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import (
    AlreadyCommittedError,
    CommitConflictError,
    Dataset,
    DatasetLostError,
    DatasetNotFoundError,
    TableFormatError,
)
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import Changes, LocalStorage, Place, Publish
from inside import log_module as log
from kit import numbers, tree_of

KEY = {"strategy": "upsert", "key_columns": "id"}


def ids(io: Any, path: Any) -> list[int]:
    return sorted(io.read_parquet(str(path))["id"].to_pylist())


def load(io: Any, path: Path, key: str, number: int = 1, **terms: Any) -> Any:
    return io.on_terms(idempotency_key=key, **terms).merge(numbers([number]), str(path), **KEY)


def write_anew(path: Path, name: str = "part-00000-of-spark.parquet") -> None:
    """Replace all files, as another program does."""
    rmtree(path)
    path.mkdir()
    pq.write_table(numbers([7]), path / name)


CHANGES: dict[str, Callable[[Any, str], Any]] = {
    "append": lambda io, path: io.write_dataset(numbers([5]), path),
    "overwrite": lambda io, path: io.write_dataset(numbers([5]), path, mode="overwrite"),
    "merge": lambda io, path: io.merge(numbers([5]), path, **KEY),
    "dry run": lambda io, path: io.merge(numbers([5]), path, **KEY, dry_run=True),
    "delete": lambda io, path: io.delete(path, where="id = 1"),
    "compact": lambda io, path: io.compact_parquet_dataset(path, target_mb_per_file=1),
    "new key": lambda io, path: load(io, Path(path), "new"),
}


@pytest.mark.parametrize("empties_only", [False, True])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_a_dataset_without_its_folder_is_an_error(
    io: Any, tmp_path: Path, change: Callable[..., Any], *, empties_only: bool
) -> None:
    path = tmp_path / "d"
    io.write_dataset(numbers([1]), str(path))
    rmtree(path)
    if empties_only:
        path.mkdir()
    before = tree_of(tmp_path)
    with pytest.raises(DatasetLostError, match=rf"{path}.*removed.*--reload.*fsspeckit forget {path}"):
        change(io, str(path))
    assert tree_of(tmp_path) == before
    io.forget(str(path))
    assert not (tmp_path / ".d.fsspeckit").exists()
    assert io.write_dataset(numbers([2]), str(path)).commit_seq == 1


@pytest.mark.parametrize("lose", [rmtree, write_anew], ids=["removed", "written anew"])
def test_a_committed_key_whose_rows_are_gone(
    io: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lose: Callable[[Path], None]
) -> None:
    path = tmp_path / "d"
    load(io, path, "monday")
    load(io, path, "tuesday", 2)
    lose(path)
    there = [7] if path.exists() else []
    for call in (lambda: io.committed(str(path), "monday"), lambda: load(io, path, "monday")):
        with pytest.raises(DatasetLostError, match=r"removed|wrote the folder anew"):
            call()
    assert load(io, path, "monday", reload=True).commit_seq == 3
    assert io.committed(str(path), "monday") == 3
    with pytest.raises(AlreadyCommittedError):
        load(io, path, "monday", reload=True)
    with monkeypatch.context() as patched:  # also when the records are not in the journal any more
        patched.setattr(log, "KEPT_RECORDS", 2)
        patched.setattr(log, "_PRUNE_SLACK", 0)
        for number in (3, 4, 5):
            load(io, path, f"other {number}", number)
        assert io.committed(str(path), "monday") == 3
        with pytest.raises(DatasetLostError, match="commit 3 started the dataset anew"):
            load(io, path, "tuesday", 2)
    load(io, path, "tuesday", 2, reload=True)
    assert ids(io, path) == [1, 2, 3, 4, 5, *there]


def test_operations_without_a_memory_work_on_a_folder_that_was_written_anew(io: Any, tmp_path: Path) -> None:
    path = tmp_path / "d"
    load(io, path, "monday")
    write_anew(path)
    io.write_dataset(numbers([8]), str(path))
    assert load(io, path, "a new key", 9).inserted == 1
    assert ids(io, path) == [7, 8, 9]
    with pytest.raises(DatasetLostError, match="commit 2 started the dataset anew"):
        load(io, path, "monday")


def test_files_that_others_add_remove_or_rewrite_in_part_change_nothing(io: Any, tmp_path: Path) -> None:
    path = tmp_path / "d"
    for number in (1, 2):
        load(io, path, f"key {number}", number)
    pq.write_table(numbers([3]), path / "other.parquet")
    max(path.glob("part-*"), key=lambda file: file.name).unlink()
    assert io.committed(str(path), "key 1") == 1
    io.delete(str(path), where="true")
    assert io.committed(str(path), "key 1") == 1
    rmtree(path)
    assert io.committed(str(path), "key 1") == 1, "the rows were deleted by a commit"
    assert load(io, path, "key 1", reload=True).inserted == 1


def test_forget_removes_the_journal_only(io: Any, tmp_path: Path) -> None:
    path = tmp_path / "d"
    load(io, path, "monday")
    io.keep_history(str(path))
    load(io, path, "tuesday", 2)
    io.delete(str(path), where="id = 1")
    files = tree_of(path)
    planned = io.forget(str(path), dry_run=True)
    assert (planned.commits, planned.idempotency_keys, planned.kept_files, planned.dry_run) == (4, 2, 1, True)
    assert (tmp_path / ".d.fsspeckit").exists()
    assert io.forget(str(path)).commits == 4
    assert [item.name for item in tmp_path.iterdir()] == ["d"]
    assert tree_of(path) == files
    assert io.forget(str(path)).journal is None
    assert io.committed(str(path), "monday") is None
    with pytest.raises(DatasetNotFoundError):
        io.forget(str(tmp_path / "nowhere"))


def test_forget_waits_for_no_writer_and_finishes_a_commit(tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    events = Dataset(path, engine="pyarrow")
    events.write(numbers([1]))
    journal = Place.of(path, None, None).journal
    with journal.begin(journal.view(), "append"), pytest.raises(CommitConflictError, match="1 writer may be at work"):
        events.forget()
    (tmp_path / ".d.fsspeckit" / "log" / f"{1:020d}.done").unlink()
    assert events.forget().commits == 1
    assert events.read().num_rows == 1


def test_an_object_store(tmp_path: Path) -> None:
    """No lock protects the journal, so a fence stays: a late writer does not get a slot for the second time."""
    io, path = PyarrowDatasetIO(), f"memory://{tmp_path.name}/lost"
    place = Place.of(path, None, None)
    io.on_terms(idempotency_key="monday").write_dataset(numbers([1]), path)
    late = place.journal.view()
    place.storage.remove_tree(place.root)
    with pytest.raises(DatasetLostError, match=r"fsspeckit forget memory://"):
        io.on_terms(idempotency_key="monday").write_dataset(numbers([1]), path)
    assert io.forget(path).commits == 1
    assert io.committed(path, "monday") is None
    with place.journal.begin(late, "late") as transaction:
        pq.write_table(numbers([2]), tmp_path / "rows")
        staged = transaction.staged_path()
        place.storage.write_bytes(staged, (tmp_path / "rows").read_bytes())
        assert transaction.commit(Changes((Publish(staged, "late.parquet", 1),))).seq == 3
    assert ids(io, path) == [2]


def test_a_version_whose_files_are_kept_is_restored(tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), tmp_path / "d"
    load(io, path, "monday")
    first = io.keep_history(str(path))
    io.update(str(path), set={"v": "'new'"}, where="true")
    rmtree(path)
    io.restore(str(path), version=first)
    assert ids(io, path) == [1]
    with pytest.raises(DatasetLostError, match="started the dataset anew"):
        load(io, path, "monday")


def test_an_exported_dataset_is_not_forgotten(tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "d")
    io.write_dataset(pa.table({"id": [1]}), path)
    io.export(path)
    with pytest.raises(TableFormatError, match=r"export delta .* --remove"):
        io.forget(path)
    io.remove_export(path)
    assert io.forget(path).journal


def test_a_journal_that_is_forgotten_while_a_writer_begins_is_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io, path, lock = PyarrowDatasetIO(), tmp_path / "d", LocalStorage.lock

    def forgotten(storage: LocalStorage, name: str) -> Any:
        if name.endswith("begin-lock"):
            monkeypatch.undo()
            rmtree(Path(name).parent)
        return lock(storage, name)

    load(io, path, "monday")
    monkeypatch.setattr(LocalStorage, "lock", forgotten)
    assert io.delete(str(path), where="true").deleted == 1
