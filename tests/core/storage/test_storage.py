"""The interface of all storages, and the system calls of the local one."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from fsspeckit.common.errors import StorageError
from fsspeckit.core.storage import LocalStorage, Storage, for_each, join, local, parent, resolve
from fsspeckit.core.storage.fsspec import FsspecStorage

Place = tuple[Storage, str]


@pytest.fixture(params=["local", "memory", "folder of memory", "folder of local"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    memory = MemoryFileSystem(global_store=False, skip_instance_cache=True)
    if request.param == "local":
        yield LocalStorage(), str(tmp_path / "root")
    elif request.param == "memory":
        yield FsspecStorage(memory), "/base/root"
    elif request.param == "folder of memory":
        yield FsspecStorage(DirFileSystem(path="/base", fs=memory)), "root"
    else:
        yield resolve("root", DirFileSystem(path=str(tmp_path), fs=LocalFileSystem()))


def fill(storage: Storage, root: str, *paths: str) -> None:
    for path in paths:
        storage.make_dirs(parent(join(root, path)))
        storage.write_bytes(join(root, path), path.encode())


def test_list_tree_returns_all_files_and_no_sidecar_content(place: Place) -> None:
    storage, root = place
    fill(
        storage,
        root,
        "b.txt",
        "a=1/x.parquet",
        "a=1/b=2/.y.crc",
        "_meta/z",
        ".fsspeckit/log/1.json",
        "a=1/.b.fsspeckit/lock",
    )
    tree = storage.list_tree(root)
    assert [entry.path for entry in tree.files] == ["_meta/z", "a=1/b=2/.y.crc", "a=1/x.parquet", "b.txt"]
    assert tree.folders == ("_meta", "a=1", "a=1/b=2")
    assert [entry.size for entry in tree.files] == [len(entry.path) for entry in tree.files]


def test_rewritten_file_has_another_stamp(place: Place) -> None:
    storage, root = place
    fill(storage, root, "x")
    before = storage.stat(join(root, "x"))
    time.sleep(0.02)  # longer than a tick of the kernel's clock
    fill(storage, root, "x")
    after = storage.stat(join(root, "x"))
    assert before is not None
    assert after is not None
    assert before.stamp != after.stamp


def test_a_time_that_was_set_back_gives_another_version(tmp_path: Path) -> None:
    storage, path = LocalStorage(), tmp_path / "x"
    path.write_bytes(b"old")
    before, status = storage.stat(str(path)), path.stat()
    time.sleep(0.02)  # longer than a tick of the kernel's clock
    path.write_bytes(b"new")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    (after,) = storage.list_tree(str(tmp_path)).files
    assert before is not None
    assert (after.size, after.stamp) == (before.size, before.stamp)
    assert after.version != before.version


def test_missing_files_and_folders(place: Place) -> None:
    storage, root = place
    assert storage.list_dir(root) == []
    assert storage.stat(join(root, "x")) is None
    storage.remove(join(root, "x"))
    storage.remove_tree(root)
    storage.retire(join(root, "x"), join(root, "y"))
    for call in (storage.list_tree, storage.read_bytes, storage.open_input):
        with pytest.raises(FileNotFoundError, match=r"cannot .*root"):
            call(root if call == storage.list_tree else join(root, "x"))


def test_create_exclusive_succeeds_once(place: Place) -> None:
    storage, root = place
    storage.make_dirs(root)
    won: list[int] = []
    barrier = threading.Barrier(8)

    def take(number: int) -> None:
        barrier.wait()
        try:
            storage.create_exclusive(join(root, "slot"), str(number).encode())
        except FileExistsError:
            return
        won.append(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [str(number).encode() for number in won] == [storage.read_bytes(join(root, "slot"))]
    assert [entry.path for entry in storage.list_dir(root)] == ["slot"]


def test_files_are_written_and_read(place: Place) -> None:
    storage, root = place
    storage.make_dirs(root)
    data = pa.table({"x": list(range(1000))})
    with storage.open_output(join(root, "x.parquet")) as file:
        pq.write_table(data, file)
    with storage.open_input(join(root, "x.parquet")) as one, storage.open_input(join(root, "x.parquet")) as two:
        first, second = pq.ParquetFile(one), pq.ParquetFile(two)
        assert first.read().equals(second.read())
        assert first.read().equals(data)
    whole = storage.read_bytes(join(root, "x.parquet"))
    assert storage.read_tail(join(root, "x.parquet"), 4) == b"PAR1"
    assert storage.read_tail(join(root, "x.parquet"), 10**9) == whole


def test_liveness(place: Place) -> None:
    storage, root = place
    storage.make_dirs(root)
    folder = join(root, ".staging_1")
    assert not storage.staging_exists(folder)
    handle = storage.claim_staging(folder)
    assert storage.is_alive(folder)
    assert storage.staging_exists(folder)
    handle.release()
    handle.release()
    assert not storage.is_alive(folder)
    storage.remove_tree(folder)
    assert not storage.staging_exists(folder)
    assert not storage.is_alive(folder)


def test_lock_excludes_other_threads(place: Place) -> None:
    storage, root = place
    storage.make_dirs(root)
    seen: list[str] = []

    def other() -> None:
        with storage.lock(join(root, "lock")):
            seen.append("other")

    with storage.lock(join(root, "lock")):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.1)
        seen.append("first")
    thread.join()
    assert seen == ["first", "other"]


def test_for_each_keeps_order_and_waits_for_all_calls() -> None:
    storage = FsspecStorage(fsspec.filesystem("memory"))
    storage.workers = 4
    ended: list[int] = []
    all_began = threading.Barrier(4, timeout=30)

    def work(number: int) -> int:
        all_began.wait()
        if number == 0:
            raise StorageError("first")
        time.sleep(0.01)
        ended.append(number)
        return number

    assert for_each(storage, lambda number: number * 2, range(10)) == [number * 2 for number in range(10)]
    with pytest.raises(StorageError, match="first"):
        for_each(storage, work, range(4))
    assert sorted(ended) == [1, 2, 3]


def test_file_deleted_during_the_listing_is_skipped(tmp_path: Path) -> None:
    storage = LocalStorage()
    fill(storage, str(tmp_path), *(f"a=1/{number}" for number in range(5)), "a=2/x")
    lstat = local._lstat

    def gone(item: os.DirEntry[str]) -> os.stat_result | None:
        if item.name == "2" and os.path.exists(item.path):
            os.unlink(item.path)
        return lstat(item)

    with mock.patch.object(local, "_lstat", gone):
        paths = [entry.path for entry in storage.list_tree(str(tmp_path)).files]
    assert paths == ["a=1/0", "a=1/1", "a=1/3", "a=1/4", "a=2/x"]


def test_failed_create_leaves_no_temporary_file(tmp_path: Path) -> None:
    broken = mock.patch.object(local.os, "fsync", side_effect=OSError(errno.EIO, "I/O error"))
    with broken, pytest.raises(StorageError):
        LocalStorage().create_exclusive(str(tmp_path / "slot"), b"x")
    assert os.listdir(tmp_path) == []


def test_other_device_is_rejected_before_the_commit(tmp_path: Path) -> None:
    storage = LocalStorage()
    fill(storage, str(tmp_path), "staging/x", "ds/day=1/y")
    stat = os.stat

    def elsewhere(path: Any, **kwargs: Any) -> Any:
        found = stat(path, **kwargs)
        if str(path).endswith("day=1"):
            return mock.Mock(wraps=found, st_dev=found.st_dev + 1, st_mode=found.st_mode)
        return found

    with mock.patch.object(local.os, "stat", elsewhere), pytest.raises(StorageError, match="another device"):
        storage.check_publishable(str(tmp_path / "staging"), [str(tmp_path / "ds/day=1/z.parquet")])
