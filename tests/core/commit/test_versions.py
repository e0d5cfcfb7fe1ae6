"""Kept versions in the commit layer: what is read from disk is checked, and a version is complete or an error."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from core.commit.steps import append_files, keep_versions, rewrite, set_policy, start, table
from faults.injection import FaultStorage
from faults.sweep import versions_of
from faults.worlds import LocalWorld, MemoryWorld, World
from fsspeckit.common.errors import DatasetNotFoundError, StorageError, VersionNotFoundError
from fsspeckit.core.commit import history, log
from fsspeckit.core.commit.history import Segment, all_versions, list_segments, read_records
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.log import Log
from fsspeckit.core.commit.record import FileList, Identity, Published, Record, Retired
from fsspeckit.core.storage import LocalStorage, join
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

WORLDS = {"local": LocalWorld, "memory": MemoryWorld}
OWNER = "0" * 32


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = WORLDS[request.param]()
    yield made
    made.close()


def sidecar(world: World) -> str:
    return f"{world.root.rpartition('/')[0]}/.ds.fsspeckit"


def fold_early() -> Any:
    return mock.patch.multiple(log, KEPT_RECORDS=2, _PRUNE_SLACK=1)


def append_many(world: World, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        append_files(world.storage, world.root, {f"n{number}.parquet": table([100 + number], "new")})


def listing_calls(world: World) -> tuple[list[str], int]:
    """Return the calls of a listing of the dataset, and the number of names in the folder of records."""
    counted = FaultStorage(world.storage)
    assert Journal(counted, world.root).view().files
    return counted.calls, len(world.storage.list_names(join(sidecar(world), "log")))


def test_listing_a_dataset_does_not_depend_on_the_number_of_commits() -> None:
    world = LocalWorld()
    with fold_early():
        keep_versions(world)
        calls, _ = listing_calls(world)
        assert calls.count("list_names") == 2  # the sidecar and its records
        assert calls.count("list_tree") == 1
        append_many(world, 25)
        later, names = listing_calls(world)
        assert later == calls
        assert names <= 4 + 1 + 1  # records, the mark of the newest one, the policy
    world.close()


@pytest.mark.parametrize("commits", [1, 2, 3, 4, 5, 8])
def test_commits_during_a_listing_are_found(world: World, commits: int) -> None:
    """Also if the records after the one of the listing were removed again."""
    start(world)
    left = [commits]

    def commit(name: str) -> None:
        if name == "list_tree" and left:
            append_many(world, left.pop())

    with fold_early():
        storage = FaultStorage(world.storage)
        storage.on_call = commit
        assert len(Journal(storage, world.root).view().files) == 3 + commits


def test_vacuum_names_the_oldest_version_that_can_be_read(tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "ds")
    io.write_dataset(table([1], "old"), path)
    first = io.keep_history(path)
    io.write_dataset(table([2], "new"), path)  # replaces no file
    for dry_run in (True, False):
        assert io.vacuum(path, older_than="0s", dry_run=dry_run).oldest_version == first
    assert io.read_parquet(path, version=first).num_rows == 1
    io.delete(path, where="id = 1")
    assert io.vacuum(path, older_than="0s").oldest_version == first + 2
    with pytest.raises(VersionNotFoundError):
        io.read_parquet(path, version=first)


def test_journal_inside_the_dataset_keeps_versions(tmp_path: Path) -> None:
    """The journal is inside where the folder above is not writable. Other readers see only the current version."""
    io, path = PyarrowDatasetIO(), tmp_path / "ds"
    (path / ".fsspeckit" / "log").mkdir(parents=True)
    (path / ".fsspeckit" / "lock").touch()
    io.write_dataset(table([1, 2], "old"), str(path))
    first = io.keep_history(str(path))
    io.merge(table([2, 3], "new"), str(path), strategy="upsert", key_columns="id")
    io.delete(str(path), where="id = 1")
    assert sorted(os.listdir(tmp_path)) == ["ds"]
    assert os.listdir(path / ".fsspeckit" / "kept")
    assert sorted(ds.dataset(path).to_table()["id"].to_pylist()) == [2, 3]
    io.restore(str(path), version=first)
    assert sorted(ds.dataset(path).to_table()["value"].to_pylist()) == ["old", "old"]
    io.vacuum(str(path), older_than="0s")
    assert not os.listdir(path / ".fsspeckit" / "kept")
    assert io.read_parquet(str(path)).num_rows == 2


def test_without_history_nothing_is_kept(world: World) -> None:
    start(world)
    rewrite(world.storage, world.root)
    names = world.storage.list_names(sidecar(world))
    assert "kept" not in names
    assert "history" not in names
    assert versions_of(world) == []
    listed = Journal(world.storage, world.root)
    assert [each.readable for each in listed.versions(listed.view(), "ds").history] == [False, False]


def test_local_files_are_kept_without_a_copy() -> None:
    world = LocalWorld()
    keep_versions(world)
    before = {path: os.stat(join(world.root, path)).st_ino for path in ("day=1/a.parquet", "day=2/c.parquet")}
    rewrite(world.storage, world.root)
    kept = {os.stat(join(sidecar(world), "kept", name)).st_ino for name in os.listdir(join(sidecar(world), "kept"))}
    assert kept == set(before.values())
    world.close()


def test_file_of_another_user_is_copied(tmp_path: Path) -> None:
    """Linux refuses a link to a file of another user that this user may not write."""
    storage, path, other = LocalStorage(), str(tmp_path / "a"), str(tmp_path / "b")
    (tmp_path / "a").write_bytes(b"rows")
    with mock.patch("fsspeckit.core.storage.local.os.link", side_effect=PermissionError):
        storage.duplicate(path, other, 4)
    assert (tmp_path / "b").read_bytes() == b"rows"
    assert os.stat(path).st_ino != os.stat(other).st_ino
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_duplicate_replaces_another_file(tmp_path: Path) -> None:
    storage, path, other = LocalStorage(), str(tmp_path / "a"), str(tmp_path / "b")
    (tmp_path / "a").write_bytes(b"rows")
    (tmp_path / "b").write_bytes(b"forged")
    for _ in range(2):
        storage.duplicate(path, other, 4)
    assert (tmp_path / "b").read_bytes() == b"rows"
    with pytest.raises(FileNotFoundError):
        storage.duplicate(str(tmp_path / "missing"), other, 4)


def test_turning_history_off_and_on_again(world: World) -> None:
    keep_versions(world)
    set_policy(world.storage, world.root, 0)
    rewrite(world.storage, world.root)
    assert versions_of(world) == []
    set_policy(world.storage, world.root, 60)
    rewritten = world.raw_rows()
    append_many(world, 1)
    assert versions_of(world) == [rewritten, world.raw_rows()]


def test_versions_survive_many_commits(world: World) -> None:
    with fold_early(), mock.patch.object(history, "_JOINED", 3):
        keep_versions(world)
        rewrite(world.storage, world.root)
        append_many(world, 30)
        names = world.storage.list_names(join(sidecar(world), "log"))
        assert len([name for name in names if not name.startswith("probed-")]) <= 2 * 4 + 1
        found = versions_of(world)
        assert len(found) == 33
        assert found[-1] == world.raw_rows()
        segments = list_segments(world.storage, join(sidecar(world), "history"))
        assert sum(segment.kind == "versions" for segment in segments) < 8


def test_old_versions_expire_when_records_are_folded(world: World) -> None:
    with fold_early():
        keep_versions(world)
        rewrite(world.storage, world.root)
        append_many(world, 2)
        day = 86400
        with mock.patch.object(history, "time", mock.Mock(time=lambda: time.time() + 8 * day)):
            append_many(world, 4, first=2)
        assert world.storage.list_names(join(sidecar(world), "kept")) == []
        found = versions_of(world)
        assert 0 < len(found) < 8
        assert found[-1] == world.raw_rows()
        with pytest.raises(VersionNotFoundError, match="Version 2 of ds is not kept"):
            Journal(world.storage, world.root).versions(Journal(world.storage, world.root).view(), "ds").view_of(2)


def file_bytes(data: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(data, sink)
    return sink.getvalue().to_pybytes()


def test_file_that_another_program_adds_is_in_no_earlier_version(world: World) -> None:
    keep_versions(world)
    rewrite(world.storage, world.root)
    before = versions_of(world)
    time.sleep(0.02)
    world.storage.write_bytes(join(world.root, "foreign.parquet"), file_bytes(table([7], "foreign")))
    assert versions_of(world) == before


def remove_file(world: World) -> None:
    world.storage.remove(join(world.root, "day=1/b.parquet"))


def change_file(world: World) -> None:
    world.storage.write_bytes(join(world.root, "day=1/b.parquet"), file_bytes(table(range(70), "foreign")))


def remove_kept(world: World) -> None:
    folder = join(sidecar(world), "kept")
    world.storage.remove(join(folder, world.storage.list_names(folder)[0]))


def shorten_kept(world: World) -> None:
    folder = join(sidecar(world), "kept")
    world.storage.write_bytes(join(folder, world.storage.list_names(folder)[0]), b"PAR1")


@pytest.mark.parametrize("damage", [remove_file, change_file, remove_kept, shorten_kept])
def test_version_with_a_missing_or_changed_file_is_an_error(world: World, damage: Callable[[World], None]) -> None:
    keep_versions(world)
    rewrite(world.storage, world.root)
    damage(world)
    io = PyarrowDatasetIO(filesystem=world.storage)
    with pytest.raises(VersionNotFoundError):
        io.read_parquet(world.root, version=3)
    with pytest.raises(VersionNotFoundError):
        io.restore(world.root, version=3)


def test_link_in_place_of_the_kept_files_is_refused(tmp_path: Path) -> None:
    world = LocalWorld()
    keep_versions(world)
    rewrite(world.storage, world.root)
    shutil.move(join(sidecar(world), "kept"), tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", join(sidecar(world), "kept"))
    io = PyarrowDatasetIO()
    with pytest.raises(StorageError, match="symbolic link"):
        io.read_parquet(world.root, version=3)
    world.close()


def good_record(seq: int = 3, **changes: Any) -> Record:
    retire = (Retired("a.parquet", Identity(5, "s")),)
    publish = (Published("x", "b.parquet", 1, 5, "s", Identity(4, "t")),)
    values: dict[str, Any] = {"publish": publish, "retire": retire, "keep": True}
    return Record(seq, "commit", OWNER, **values | {"listed": FileList.of({"b.parquet": 5})} | changes)


def test_names_of_kept_files_follow_from_the_record() -> None:
    record = Record.from_bytes(good_record().to_bytes(), 3, "x")
    assert [(item.name, item.path) for item in record.kept] == [
        ("00000000000000000003-0.kept", "b.parquet"),
        ("00000000000000000003-1.kept", "a.parquet"),
    ]
    assert good_record(keep=False).kept == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("keep", "yes"),
        ("keep", 1),
        ("retain", -1),
        ("retain", True),
        ("retain", 10**12),
        ("retain", "7d"),
        ("listed", []),
        ("listed", {"files": 1, "size": 5, "digest": "x"}),
        ("listed", {"files": -1, "size": 5, "digest": "0" * 64}),
        ("listed", {"files": 1, "size": 5}),
        ("format", 3),
    ],
)
def test_forged_field_is_refused(name: str, value: object) -> None:
    body = json.loads(good_record().to_bytes()) | {name: value}
    with pytest.raises(StorageError, match="cannot be used"):
        Record.from_bytes(json.dumps(body).encode(), 3, "x")


def test_record_that_keeps_files_has_a_format_that_older_releases_refuse() -> None:
    formats = [json.loads(record.to_bytes())["format"] for record in (good_record(), good_record(keep=False))]
    assert formats == [2, 1]


COLUMNS = dict(history.columns_of([good_record()]))


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"version": [4]},
        {"version": [3, 3]},
        {"version": ["3"]},
        {"version": [True]},
        {"at": [-1]},
        {"at": [10**30]},
        {"operation": [None]},
        {"inserted": [1.5]},
        {"bytes": [-3]},
        {"version": [0]},
        {"kept": [1]},
        {"note": [["x"]]},
        {"files": []},
        {"files": "x"},
    ],
)
def test_forged_list_of_versions_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    body = {"format": 1, **COLUMNS, **changes}
    (tmp_path / Segment(1, 3, "versions").name).write_text(json.dumps(body))
    with pytest.raises(StorageError, match="cannot be used"):
        all_versions(LocalStorage(), str(tmp_path), lambda after: [])


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b"[" * 100_000, b"\xff"])
def test_damaged_list_of_versions_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / Segment(1, 3, "versions").name).write_bytes(data)
    with pytest.raises(StorageError, match="cannot be used"):
        all_versions(LocalStorage(), str(tmp_path), lambda after: [])


@pytest.mark.parametrize(
    "record",
    [
        good_record(9),
        Record(2, "fence", OWNER),
        good_record(publish=(Published("x", "../b.parquet", 1, 5, "s"),)),
        good_record(publish=(Published("../x", "b.parquet", 1, 5, "s"),)),
        good_record(retire=(Retired("/etc/passwd", Identity(1, "s")),)),
    ],
)
def test_forged_records_are_refused(tmp_path: Path, record: Record) -> None:
    segment = Segment(1, 3, "records")
    (tmp_path / segment.name).write_bytes(record.to_bytes())
    with pytest.raises(StorageError):
        read_records(LocalStorage(), str(tmp_path), segment)


@pytest.mark.parametrize("name", ["x.versions", f"{5:020d}-{1:020d}.versions", f"{0:020d}-{1:020d}.records", "é"])
def test_other_files_in_the_history_folder_are_ignored(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"junk")
    assert list_segments(LocalStorage(), str(tmp_path)) == []


def test_policy_of_a_later_slot_stays_in_effect(tmp_path: Path) -> None:
    log = Log(LocalStorage(), str(tmp_path))
    LocalStorage().make_dirs(log.folder)
    for seq, retain in ((5, 60), (3, 7)):
        log.set_policy(seq, retain)
    log.set_floor(4)
    log.set_floor(2)
    state = log.state()
    assert (state.retain, state.floor) == (60, 4)


def test_large_records_are_divided() -> None:
    with mock.patch.object(history, "_RECORD_BYTES", 10):
        parts = history._parts([(3, b"a" * 6), (4, b"b" * 6), (7, b"c" * 3), (8, b"d" * 30)], (2, 9))
    assert [(first, last) for first, last, _ in parts] == [(2, 3), (4, 7), (8, 9)]


@pytest.mark.parametrize("where", ["id = 1", "id = 77"])
def test_delete_erases_rows_from_kept_versions(world: World, where: str) -> None:
    """Also if only kept versions have the rows."""
    io = PyarrowDatasetIO(filesystem=world.storage)
    io.write_dataset(pa.table({"id": [1, 2], "secret": ["secret-one", "secret-two"]}), world.root)
    io.keep_history(world.root)
    io.merge(pa.table({"id": [77], "secret": ["secret-77"]}), world.root, strategy="upsert", key_columns="id")
    io.delete(world.root, where="id = 77")
    io.compact_parquet_dataset(world.root, target_mb_per_file=1)
    io.delete(world.root, where=where, erase_history=True)
    assert world.storage.list_names(join(sidecar(world), "kept")) == []
    erased = b"secret-one" if where == "id = 1" else b"secret-77"
    assert not [path for path, data in world.files().items() if erased in data]
    assert len(versions_of(world)) == 1
    io.update(world.root, set={"secret": "'x'"}, where="true")
    assert len(versions_of(world)) == 2


def test_history_of_a_path_without_a_dataset_creates_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("missing", "empty"):
        with pytest.raises(DatasetNotFoundError, match=f"no parquet dataset at .*{name}"):
            PyarrowDatasetIO().keep_history(str(tmp_path / name))
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


def test_time_of_a_record_after_the_year_9999_is_not_valid(tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "ds")
    io.write_dataset(pa.table({"id": [1, 2]}), path)
    first = io.keep_history(path)
    io.delete(path, where="id = 1")
    [file] = (tmp_path / ".ds.fsspeckit" / "log").glob(f"*{first + 1}.json")
    record = json.loads(file.read_bytes())
    for at, shown in (
        ("9999-12-31T23:59:59.999999-23:00", "1970-01-01T00:00:00+00:00"),
        ("9999-12-31T23:59:59.999999+00:00", "9999-12-31T23:59:59.999999+00:00"),
    ):
        record["info"]["at"] = at
        file.write_text(json.dumps(record))
        assert io.history(path)[0].at == shown
        assert len(repr(io.history(path)).splitlines()) == 4
        assert io.changes(path, since=first)["id"].to_pylist() == [1]


def test_version_without_rows_says_so(tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "ds")
    io.write_dataset(pa.table({"id": [1, 2]}), path)
    first = io.keep_history(path)
    io.delete(path, where="true")
    assert io.read_parquet(path, version=first + 1).column_names == ["id"]
    [file] = (tmp_path / ".ds.fsspeckit" / "log").glob(f"*{first + 1}.json")
    record = json.loads(file.read_text())
    file.write_text(json.dumps(record | {"emptied": None}))  # as versions before 2.0 wrote it
    with pytest.raises(DatasetNotFoundError, match=f"version {first + 1} of .* has no rows"):
        io.read_parquet(path, version=first + 1)
    io.restore(path, version=first)
    assert io.read_parquet(path).num_rows == 2
