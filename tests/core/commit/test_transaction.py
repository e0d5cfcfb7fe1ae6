"""The commit API: snapshots, conflicts, rejected changes, and the files after a commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.commit.steps import append_files, clear, overwrite, rewrite, stage, start, table
from faults.worlds import LocalWorld, MemoryWorld, World
from fsspeckit.common.errors import CommitConflictError, DamagedFileError, StorageError
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.transaction import Changes, Publish, Transaction
from fsspeckit.core.file_names import is_data_file
from fsspeckit.core.storage import LocalStorage, join


@pytest.fixture(params=[LocalWorld, MemoryWorld])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World = request.param()
    start(made)
    yield made
    made.close()


@pytest.fixture
def local() -> Iterator[LocalWorld]:
    made = LocalWorld()
    start(made)
    yield made
    made.close()


def replace_a(world: World, transaction: Transaction, name: str = "a2") -> Changes:
    staged = stage(world.storage, transaction, table(range(5), "mine"))
    if world.storage.in_place:
        return Changes((Publish(staged, "day=1/a.parquet", 5, replaces=True),))
    return Changes((Publish(staged, f"day=1/{name}.parquet", 5),), ("day=1/a.parquet",))


def add(world: World, transaction: Transaction, path: str = "mine.parquet", **options: object) -> Changes:
    staged = stage(world.storage, transaction, table(range(80, 83), "mine"))
    return Changes((Publish(staged, path, 3),), **options)  # type: ignore[arg-type]


def put(world: World, path: str, data: pa.Table) -> None:
    with world.storage.open_output(join(world.root, path)) as file:
        pq.write_table(data, file)


def test_view_of_a_missing_dataset_creates_nothing(world: World) -> None:
    before = world.files()
    journal = Journal(world.storage, join(world.root, "nowhere"))
    assert not journal.recover()
    view = journal.view()
    assert (view.exists, view.head, view.files) == (False, 0, ())
    assert world.files() == before


def test_appends_do_not_conflict(world: World) -> None:
    journal = Journal(world.storage, world.root)
    view = journal.view()
    with journal.begin(view, "one") as one, journal.begin(view, "two") as two, journal.begin(view, "three") as three:
        first, second, third = add(world, one, "1.parquet"), add(world, two, "2.parquet"), replace_a(world, three)
        assert [one.commit(first).seq, three.commit(third).seq, two.commit(second).seq] == [2, 3, 4]
    assert (world.raw_rows()[(80, "mine")], world.raw_rows()[(0, "mine")]) == (2, 1)


def foreign(path: str) -> Callable[[World], Any]:
    return lambda world: put(world, path, table(range(3), "foreign"))


def append(path: str) -> Callable[[World], Any]:
    return lambda world: append_files(world.storage, world.root, {path: table(range(3), "other")})


CONFLICTS: dict[str, tuple[Callable[[World], Any], dict[str, Any], str]] = {
    "append to a complete view": (append("other.parquet"), {"complete_view": True}, "another writer committed append"),
    "append of the same name": (append("mine.parquet"), {}, "another writer committed append"),
    "foreign file of the same name": (foreign("mine.parquet"), {}, "created by another program"),
    "foreign file in a complete view": (foreign("day=1/z.parquet"), {"complete_view": True}, "added by another"),
    "foreign change of an input": (foreign("day=1/b.parquet"), {"inputs": ("day=1/b.parquet",)}, r"b\.parquet was"),
    "foreign change in a complete view": (foreign("day=1/b.parquet"), {"complete_view": True}, r"b\.parquet was"),
    "rewrite of an input": (
        lambda world: rewrite(world.storage, world.root),
        {"inputs": ("day=1/a.parquet",)},
        "another writer committed",
    ),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_conflicts_change_nothing(world: World, name: str) -> None:
    change, options, message = CONFLICTS[name]
    journal = Journal(world.storage, world.root)
    with journal.begin(journal.view(), "mine") as transaction:
        changes = add(world, transaction, **options)
        change(world)
        after = world.dataset_files()
        with pytest.raises(CommitConflictError, match=message):
            transaction.commit(changes)
        assert world.dataset_files() == after
    assert not journal.recover()


def test_commit_removes_stale_side_files_only(world: World) -> None:
    rewrite(world.storage, world.root)
    names = set(world.dataset_files())
    assert {"_metadata", "day=1/.a.parquet.crc"}.isdisjoint(names)
    assert {"notes.txt", "day=1/.b.parquet.crc"} <= names


def test_empty_partition_folder_is_removed_and_root_stays(local: LocalWorld) -> None:
    overwrite(local.storage, local.root)
    assert sorted(os.listdir(local.root)) == ["notes.txt", "o0.parquet", "o1.parquet"]
    clear(local.storage, local.root)
    assert os.listdir(local.root) == ["notes.txt"]


def test_damaged_staged_file_is_rejected(world: World) -> None:
    journal = Journal(world.storage, world.root)
    before = world.dataset_files()
    with journal.begin(journal.view(), "append") as transaction:
        whole = world.storage.read_bytes(stage(world.storage, transaction, table(range(80, 83), "mine")))
        for content in (b"", b"PAR1", whole[:-20], whole[: len(whole) // 2], whole[:4] + whole[-60:]):
            staged = transaction.staged_path()
            world.storage.write_bytes(staged, content)
            with pytest.raises(DamagedFileError, match=r"staged file .* is damaged"):
                transaction.commit(Changes((Publish(staged, "mine.parquet", 3),)))
        with pytest.raises(DamagedFileError, match="has 3 rows instead of 4"):
            transaction.commit(
                Changes((Publish(stage(world.storage, transaction, table(range(3), "x")), "mine.parquet", 4),))
            )
        with pytest.raises(StorageError, match="is missing in"):
            transaction.commit(Changes((Publish(transaction.staged_path(), "mine.parquet", 4),)))
    assert world.dataset_files() == before


def test_invalid_changes_are_rejected(world: World) -> None:
    journal = Journal(world.storage, world.root)
    before = world.dataset_files()
    with journal.begin(journal.view(), "bad") as transaction:
        staged = stage(world.storage, transaction, table(range(3), "x"))
        bad = [
            Changes((Publish(staged, "x.parquet", 3), Publish(staged, "x.parquet", 3))),
            Changes((Publish(staged, "x.parquet", 3),), ("unknown.parquet",)),
            Changes((Publish(staged, "x.parquet", 3),), inputs=("unknown.parquet",)),
            Changes((Publish(staged, "x.parquet", 3, replaces=True),)),
            Changes((Publish(staged, "../x.parquet", 3),)),
            Changes((Publish(staged, "a//x.parquet", 3),)),
            Changes((Publish(staged, "x\0.parquet", 3),)),
            Changes((Publish(staged, "_hidden/x.parquet", 3),)),
            Changes((Publish(staged, "x.txt", 3),)),
            Changes((Publish("/elsewhere/x.staged", "x.parquet", 3),)),
        ]
        for changes in bad:
            with pytest.raises(ValueError, match=r"."):
                transaction.commit(changes)
        with pytest.raises(FileExistsError, match="already exists"):
            transaction.commit(Changes((Publish(staged, "day=1/a.parquet", 3),)))
    assert world.dataset_files() == before


def test_too_long_file_name_is_rejected_before_any_change(local: LocalWorld) -> None:
    journal = Journal(local.storage, local.root)
    before = local.files()
    for path in (f"day={'x' * 300}/a.parquet", f"{'x' * 251}.parquet"):
        with journal.begin(journal.view(), "append") as transaction:
            changes = add(local, transaction, path)
            with pytest.raises(OSError, match="allows 255"):
                transaction.commit(changes)
    assert local.files() == before


def test_data_file_names() -> None:
    named = {
        *("a.parquet", "a.PARQUET", "a.parq", "a.pq", "day=1/a.parquet", "_day=1/a.parquet", ".day=1/a.parquet"),
        "a.b/c_d/a.parquet",
    }
    others = ["_a.parquet", ".a.parquet", "_tmp/a.parquet", ".staging_1/a.parquet", "x/_tmp/day=1/a.parquet"]
    others += ["a.parquet.crc", "a.txt", "_x=1.parquet"]
    assert {path for path in (*named, *others) if is_data_file(path)} == named


class NothingBeside(LocalStorage):
    """A storage on which the dataset is writable and its parent folder is not."""

    def make_dirs(self, path: str) -> tuple[str, ...]:
        if "/.ds.fsspeckit" in path:
            raise PermissionError(f"cannot create folder {path}: Permission denied")
        return super().make_dirs(path)


def test_sidecar_is_inside_if_the_parent_is_not_writable(tmp_path: Path) -> None:
    root = str(tmp_path / "ds")
    os.mkdir(root)
    append_files(NothingBeside(), root, {"a.parquet": table(range(3), "x")})
    assert sorted(os.listdir(tmp_path)) == ["ds"]
    append_files(LocalStorage(), root, {"b.parquet": table(range(3), "x")})
    assert sorted(os.listdir(tmp_path)) == ["ds"]
    view = Journal(LocalStorage(), root).view()
    assert (view.head, [file.path for file in view.files]) == (2, ["a.parquet", "b.parquet"])


def test_moved_journal_is_a_conflict(local: LocalWorld) -> None:
    """Of two journals without records, the one inside the dataset is used."""
    root = join(local.folder, "fresh")
    journal = Journal(local.storage, root)
    with journal.begin(journal.view(), "append") as transaction:
        changes = add(local, transaction)
        os.makedirs(join(root, ".fsspeckit"))
        with pytest.raises(CommitConflictError, match="journal was moved"):
            transaction.commit(changes)


def test_reader_is_not_starved_by_frequent_commits(local: LocalWorld) -> None:
    """A commit interrupts every listing until the reader takes the lock."""
    numbers = iter(range(100))

    class Busy(LocalStorage):
        locked = False

        def lock(self, path: str, *, shared: bool = False):  # type: ignore[no-untyped-def]
            Busy.locked = shared
            return super().lock(path, shared=shared)

        def list_tree(self, root: str):  # type: ignore[no-untyped-def]
            tree = super().list_tree(root)
            if not Busy.locked:
                name = f"n{next(numbers)}.parquet"
                append_files(LocalStorage(), root, {name: table(range(1), "busy")})
            return tree

    view = Journal(Busy(), local.root).view()
    assert Busy.locked
    assert len(view.files) == 3 + next(numbers)
