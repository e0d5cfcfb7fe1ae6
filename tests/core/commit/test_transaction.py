"""The commit API: snapshots, conflicts, rejected changes, and the files after a commit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.commit.steps import append_files, clear, overwrite, rewrite, stage, start, table
from faults.worlds import LocalWorld, MemoryWorld, World
from fsspeckit.common.errors import CommitConflictError, DamagedFileError, StorageError, TableFormatError
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.replay import Replayer
from fsspeckit.core.commit.sidecar import SidecarLocations
from fsspeckit.core.commit.transaction import Changes, Publish, Transaction
from fsspeckit.core.file_names import is_data_file
from fsspeckit.core.storage import Entry, LocalStorage, join


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


def test_view_lists_data_and_side_files(world: World) -> None:
    view = Journal(world.storage, world.root).view()
    assert [file.path for file in view.files] == ["day=1/a.parquet", "day=1/b.parquet", "day=2/c.parquet"]
    assert [entry.path for entry in view.side_files] == ["_metadata", "day=1/.a.parquet.crc", "day=1/.b.parquet.crc"]
    assert (view.exists, view.head, view.pending) == (True, 1, False)
    assert all(world.storage.stat(file.location) for file in view.files)


def test_view_of_a_missing_dataset_creates_nothing(world: World) -> None:
    before = world.files()
    journal = Journal(world.storage, join(world.root, "nowhere"))
    assert not journal.recover()
    view = journal.view()
    assert (view.exists, view.head, view.files) == (False, 0, ())
    assert world.files() == before


def test_view_of_a_dataset_without_sidecar_creates_nothing(tmp_path: Path) -> None:
    (tmp_path / "ds").mkdir()
    pq.write_table(table(range(3), "x"), tmp_path / "ds" / "a.parquet")
    journal = Journal(LocalStorage(), str(tmp_path / "ds"))
    journal.recover()
    assert [file.path for file in journal.view().files] == ["a.parquet"]
    assert sorted(os.listdir(tmp_path)) == ["ds"]


def test_second_rewrite_of_a_file_conflicts_and_changes_nothing(world: World) -> None:
    journal = Journal(world.storage, world.root)
    with journal.begin(journal.view(), "second") as second:
        changes = replace_a(world, second)
        rewrite(world.storage, world.root)
        after = world.dataset_files()
        with pytest.raises(CommitConflictError, match="Nothing was changed"):
            second.commit(changes)
        assert world.dataset_files() == after
    assert not journal.recover()


def test_appends_do_not_conflict(world: World) -> None:
    journal = Journal(world.storage, world.root)
    view = journal.view()
    with journal.begin(view, "one") as one, journal.begin(view, "two") as two, journal.begin(view, "three") as three:
        first, second, third = add(world, one, "1.parquet"), add(world, two, "2.parquet"), replace_a(world, three)
        assert one.commit(first).seq == 2
        assert three.commit(third).seq == 3
        assert two.commit(second).seq == 4
    assert world.raw_rows()[(80, "mine")] == 2
    assert world.raw_rows()[(0, "mine")] == 1


def test_append_conflicts_with_a_change_on_a_complete_view(world: World) -> None:
    journal = Journal(world.storage, world.root)
    with journal.begin(journal.view(), "whole") as whole:
        changes = add(world, whole, complete_view=True)
        append_files(world.storage, world.root, {"other.parquet": table(range(3), "other")})
        with pytest.raises(CommitConflictError, match="another writer committed append"):
            whole.commit(changes)


def test_two_appends_with_the_same_file_name_conflict(world: World) -> None:
    journal = Journal(world.storage, world.root)
    with journal.begin(journal.view(), "second") as second:
        changes = add(world, second, "same.parquet")
        append_files(world.storage, world.root, {"same.parquet": table(range(3), "other")})
        with pytest.raises(CommitConflictError):
            second.commit(changes)
    assert world.raw_rows()[(80, "mine")] == 0


def test_file_created_by_another_program_is_a_conflict(world: World) -> None:
    journal = Journal(world.storage, world.root)
    with journal.begin(journal.view(), "append") as transaction:
        changes = add(world, transaction, "same.parquet")
        put(world, "same.parquet", table(range(3), "foreign"))
        with pytest.raises(CommitConflictError, match="created by another program"):
            transaction.commit(changes)
    assert world.raw_rows()[(0, "foreign")] == 1


@pytest.mark.parametrize("complete", [True, False])
def test_input_changed_by_another_program_is_a_conflict(world: World, complete: bool) -> None:
    journal = Journal(world.storage, world.root)
    with journal.begin(journal.view(), "rewrite") as transaction:
        changes = add(world, transaction, inputs=("day=1/b.parquet",), complete_view=complete)
        put(world, "day=1/b.parquet", table(range(3), "foreign"))
        with pytest.raises(CommitConflictError, match=r"b\.parquet was changed by another program"):
            transaction.commit(changes)


def test_file_added_by_another_program_conflicts_with_a_complete_view(world: World) -> None:
    journal = Journal(world.storage, world.root)
    with journal.begin(journal.view(), "rewrite") as transaction:
        changes = add(world, transaction, complete_view=True)
        put(world, "day=1/z.parquet", table(range(3), "foreign"))
        with pytest.raises(CommitConflictError, match="added by another program"):
            transaction.commit(changes)


def test_journal_shows_a_conflict_that_size_and_stamp_do_not(local: LocalWorld) -> None:
    """A new file with the same inode and time of change looks unchanged."""
    journal = Journal(local.storage, local.root)
    blind = mock.patch("fsspeckit.core.storage.local._stamp", return_value="same")
    with blind, journal.begin(journal.view(), "second") as second:
        changes = replace_a(local, second)
        with journal.begin(journal.view(), "first") as first:
            first.commit(replace_a(local, first))
        with pytest.raises(CommitConflictError, match="another writer committed first"):
            second.commit(changes)


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


def test_folder_with_other_files_stays(local: LocalWorld) -> None:
    local.storage.write_bytes(join(local.root, "day=1/notes.txt"), b"x")
    clear(local.storage, local.root)
    assert os.listdir(join(local.root, "day=1")) == ["notes.txt"]


def test_empty_change_writes_no_record(world: World) -> None:
    journal = Journal(world.storage, world.root)
    before = world.files()
    with journal.begin(journal.view(), "nothing") as transaction:
        assert transaction.commit(Changes()).seq == 1
    assert world.files() == before


def test_exit_without_commit_deletes_staged_files(world: World) -> None:
    journal = Journal(world.storage, world.root)
    before = world.files()
    with pytest.raises(ZeroDivisionError), journal.begin(journal.view(), "fails") as transaction:
        _ = add(world, transaction).publish[0].rows // 0
    assert world.files() == before


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


def test_footer_longer_than_the_first_read(local: LocalWorld) -> None:
    journal = Journal(local.storage, local.root)
    wide = pa.table({f"column_{number:05d}": [1] for number in range(3000)})
    with journal.begin(journal.view(), "append") as transaction:
        transaction.commit(Changes((Publish(stage(local.storage, transaction, wide), "wide.parquet", 1),)))
    assert os.path.exists(join(local.root, "wide.parquet"))


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


def test_object_store_rejects_replacement_in_place() -> None:
    world = MemoryWorld()
    start(world)
    journal = Journal(world.storage, world.root)
    with journal.begin(journal.view(), "bad") as transaction:
        staged = stage(world.storage, transaction, table(range(3), "x"))
        with pytest.raises(ValueError, match="cannot replace files"):
            transaction.commit(Changes((Publish(staged, "day=1/a.parquet", 3, replaces=True),)))


@pytest.mark.parametrize("length", [300, 251])
def test_too_long_file_name_is_rejected_before_any_change(local: LocalWorld, length: int) -> None:
    journal = Journal(local.storage, local.root)
    before = local.files()
    for path in (f"day={'x' * length}/a.parquet", f"{'x' * length}.parquet"):
        with journal.begin(journal.view(), "append") as transaction:
            changes = add(local, transaction, path)
            if length > 251 or not path.startswith("day="):
                with pytest.raises(OSError, match="allows 255"):
                    transaction.commit(changes)
    assert local.files() == before


def test_file_at_the_path_of_a_partition_folder_is_rejected(local: LocalWorld) -> None:
    journal = Journal(local.storage, local.root)
    with journal.begin(journal.view(), "append") as transaction:
        changes = add(local, transaction, "notes.txt/a.parquet")
        with pytest.raises(StorageError, match="a folder is needed"):
            transaction.commit(changes)


@pytest.mark.parametrize(
    "path",
    [
        *("_delta_log/0.json", ".hoodie/hoodie.properties", "metadata/v1.metadata.json", "metadata/version-hint.text"),
        *("_spark_metadata/0", "schema/schema-0", "day=1/.hoodie_partition_metadata", "day=1/_spark_metadata/0"),
        *("delta_0000001_0000001/000000_0", "day=1/ducklake-01990a1c-7f1c-7c3a-8a55-0123456789ab.parquet"),
    ],
)
def test_table_format_folder_is_rejected(world: World, path: str) -> None:
    world.storage.make_dirs(join(world.root, os.path.dirname(path)))
    world.storage.write_bytes(join(world.root, path), b"x")
    with pytest.raises(TableFormatError, match="not a plain Parquet folder"):
        Journal(world.storage, world.root).view()


def test_plain_folder_named_metadata_is_accepted(world: World) -> None:
    world.storage.make_dirs(join(world.root, "metadata"))
    world.storage.write_bytes(join(world.root, "metadata/readme.txt"), b"x")
    assert len(Journal(world.storage, world.root).view().files) == 3


def test_symlinks_below_the_dataset_are_rejected(local: LocalWorld) -> None:
    os.symlink(join(local.root, "day=1"), join(local.root, "day=9"))
    with pytest.raises(StorageError, match="symbolic link"):
        Journal(local.storage, local.root).view()


def test_dataset_behind_a_symlink_has_the_same_journal(local: LocalWorld) -> None:
    alias = join(local.folder, "alias")
    os.symlink(local.root, alias)
    append_files(local.storage, alias, {"via.parquet": table(range(3), "via")})
    assert Journal(local.storage, local.root).view().head == 2
    assert not os.path.exists(join(local.folder, ".alias.fsspeckit"))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.parquet", True),
        ("a.PARQUET", True),
        ("a.parq", True),
        ("a.pq", True),
        ("day=1/a.parquet", True),
        ("_day=1/a.parquet", True),
        (".day=1/a.parquet", True),
        ("a.b/c_d/a.parquet", True),
        ("_a.parquet", False),
        (".a.parquet", False),
        ("_tmp/a.parquet", False),
        (".staging_1/a.parquet", False),
        ("x/_tmp/day=1/a.parquet", False),
        ("a.parquet.crc", False),
        ("a.txt", False),
        ("_x=1.parquet", False),
    ],
)
def test_data_file_names(path: str, expected: bool) -> None:
    assert is_data_file(path) is expected


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


def test_read_only_sidecar_is_an_error_and_no_second_one_is_created(tmp_path: Path) -> None:
    root = str(tmp_path / "ds")
    append_files(LocalStorage(), root, {"a.parquet": table(range(3), "x")})

    class ReadOnlyBeside(LocalStorage):
        def claim_staging(self, folder: str):  # type: ignore[no-untyped-def]
            raise PermissionError(f"cannot create folder {folder}: Permission denied")

    with pytest.raises(PermissionError):
        append_files(ReadOnlyBeside(), root, {"b.parquet": table(range(3), "x")})
    assert not os.path.exists(join(root, ".fsspeckit"))


def test_two_first_writers_share_one_journal(tmp_path: Path) -> None:
    root = str(tmp_path / "ds")
    os.mkdir(root)

    class Late(NothingBeside):
        """Gets the permission error just after another writer created the sidecar beside the dataset."""

        def make_dirs(self, path: str) -> tuple[str, ...]:
            try:
                return super().make_dirs(path)
            except PermissionError:
                SidecarLocations(LocalStorage(), root).create()
                raise

    assert SidecarLocations(Late(), root).create() == str(tmp_path / ".ds.fsspeckit")
    assert not os.path.exists(join(root, ".fsspeckit"))


def test_moved_journal_is_a_conflict(local: LocalWorld) -> None:
    """Of two journals without records, the one inside the dataset is used."""
    root = join(local.folder, "fresh")
    journal = Journal(local.storage, root)
    with journal.begin(journal.view(), "append") as transaction:
        changes = add(local, transaction)
        os.makedirs(join(root, ".fsspeckit"))
        with pytest.raises(CommitConflictError, match="journal was moved"):
            transaction.commit(changes)


def test_unreadable_record_is_an_error(world: World) -> None:
    sidecar = SidecarLocations(world.storage, world.root).find()
    assert sidecar is not None
    for content in (b"{", b"{}", b'{"format":2}'):
        world.storage.write_bytes(join(sidecar, "log", f"{2:020d}.json"), content)
        with pytest.raises(StorageError, match="cannot be used"):
            Journal(world.storage, world.root).recover()
        with pytest.raises(StorageError, match="cannot be used"):
            Journal(world.storage, world.root).view()


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


def test_commit_reports_slot_size_and_time(world: World) -> None:
    commit = append_files(world.storage, world.root, {"x.parquet": table(range(3), "x")})
    entry = world.storage.stat(join(world.root, "x.parquet"))
    assert isinstance(entry, Entry)
    assert (commit.seq, commit.bytes_published, commit.published) == (2, entry.size, True)
    assert 0 < commit.seconds < 60


def test_folder_removed_by_another_program_after_the_commit_is_created_again(local: LocalWorld) -> None:
    journal = Journal(local.storage, local.root)
    with journal.begin(journal.view(), "append") as transaction:
        changes = add(local, transaction, "day=9/mine.parquet")
        with mock.patch.object(Replayer, "_make_folders"):
            transaction.commit(changes)
    assert (Path(local.root) / "day=9" / "mine.parquet").exists()
