"""Kept versions in the commit layer: what is read from disk is checked, and a version is complete or an error."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from core.commit.steps import append_files, keep_versions, rewrite, start, table
from faults.injection import FaultStorage
from faults.sweep import versions_of
from faults.worlds import LocalWorld, MemoryWorld, World
from fsspeckit.common.errors import DatasetNotFoundError, StorageError, VersionNotFoundError
from fsspeckit.core.commit import history, log
from fsspeckit.core.commit.history import Segment, all_versions
from fsspeckit.core.commit.journal import Journal
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


def test_file_of_another_user_is_copied(tmp_path: Path) -> None:
    """Linux refuses a link to a file of another user that this user may not write."""
    storage, path, other = LocalStorage(), str(tmp_path / "a"), str(tmp_path / "b")
    (tmp_path / "a").write_bytes(b"rows")
    with mock.patch("fsspeckit.core.storage.local.os.link", side_effect=PermissionError):
        storage.duplicate(path, other, 4)
    assert (tmp_path / "b").read_bytes() == b"rows"
    assert os.stat(path).st_ino != os.stat(other).st_ino
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


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


@pytest.mark.parametrize("data", [None, b"PAR1"], ids=["missing", "changed"])
@pytest.mark.parametrize("kept", [True, False])
def test_version_with_a_missing_or_changed_file_is_an_error(world: World, data: bytes | None, kept: bool) -> None:
    keep_versions(world)
    rewrite(world.storage, world.root)
    folder = join(sidecar(world), "kept")
    path = join(folder, world.storage.list_names(folder)[0]) if kept else join(world.root, "day=1/b.parquet")
    world.storage.remove(path) if data is None else world.storage.write_bytes(path, data)
    io = PyarrowDatasetIO(filesystem=world.storage)
    with pytest.raises(VersionNotFoundError):
        io.read_parquet(world.root, version=3)
    with pytest.raises(VersionNotFoundError):
        io.restore(world.root, version=3)


def good_record(seq: int = 3, **changes: Any) -> Record:
    retire = (Retired("a.parquet", Identity(5, "s")),)
    publish = (Published("x", "b.parquet", 1, 5, "s", Identity(4, "t")),)
    values: dict[str, Any] = {"publish": publish, "retire": retire, "keep": True}
    return Record(seq, "commit", OWNER, **values | {"listed": FileList.of({"b.parquet": 5})} | changes)


def test_names_of_kept_files_follow_from_the_record() -> None:
    """Older releases refuse the format of a record that keeps files."""
    formats = [json.loads(each.to_bytes())["format"] for each in (good_record(), good_record(keep=False))]
    assert formats == [2, 1]
    record = Record.from_bytes(good_record().to_bytes(), 3, "x")
    assert [(item.name, item.path) for item in record.kept] == [
        ("00000000000000000003-0.kept", "b.parquet"),
        ("00000000000000000003-1.kept", "a.parquet"),
    ]
    assert good_record(keep=False).kept == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("keep", "yes"), ("keep", 1), ("retain", -1), ("retain", True), ("retain", 10**12), ("retain", "7d")),
        *(("listed", []), ("listed", {"files": 1, "size": 5, "digest": "x"}), ("listed", {"files": 1, "size": 5})),
        *(("listed", {"files": -1, "size": 5, "digest": "0" * 64}), ("format", 4)),
    ],
)
def test_forged_field_is_refused(name: str, value: object) -> None:
    body = json.loads(good_record().to_bytes()) | {name: value}
    with pytest.raises(StorageError, match="cannot be used"):
        Record.from_bytes(json.dumps(body).encode(), 3, "x")


COLUMNS = dict(history.columns_of([good_record()]))


@pytest.mark.parametrize(
    "changes",
    [
        *(
            {"format": 2},
            {"version": [4]},
            {"version": [3, 3]},
            {"version": ["3"]},
            {"version": [True]},
            {"version": [0]},
        ),
        *({"at": [-1]}, {"at": [10**30]}, {"operation": [None]}, {"inserted": [1.5]}, {"bytes": [-3]}, {"kept": [1]}),
        *({"note": [["x"]]}, {"files": []}, {"files": "x"}, b"", b"[]", b"{", b"[" * 100_000, b"\xff"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_forged_list_of_versions_is_refused(tmp_path: Path, changes: Any) -> None:
    body = changes if isinstance(changes, bytes) else json.dumps({"format": 1, **COLUMNS, **changes}).encode()
    (tmp_path / Segment(1, 3, "versions").name).write_bytes(body)
    with pytest.raises(StorageError, match="cannot be used"):
        all_versions(LocalStorage(), str(tmp_path), lambda after: [])


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
