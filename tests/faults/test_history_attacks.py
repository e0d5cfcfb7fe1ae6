"""Kept versions under attack: erasure after folding, crashes, concurrent restores and vacuums, clocks, S3."""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from faults.injection import CRASHES, Fault, FaultStorage
from faults.sweep import choose, run_with, versions_of
from faults.test_s3 import S3World
from faults.worlds import LocalWorld, Rows, World
from fsspeckit.common.errors import DamagedFileError, StorageError, VersionNotFoundError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import Storage, commit_at, join, recover, short_journals
from sweeps import Sweep

KEYS = {"key_columns": "id"}
SECRET = "a-secret-of-row-3"


@pytest.fixture(params=["local", "s3"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A dataset whose journal is folded early, on a local disk and in a bucket."""
    if request.param == "local":
        made: World = LocalWorld()
    else:
        made = S3World(request.getfixturevalue("s3_server"), request.getfixturevalue("s3_bucket"))
    with short_journals(records=3):
        yield made
    made.close()


def io_of(storage: Storage) -> PyarrowDatasetIO:
    return PyarrowDatasetIO(filesystem=storage)


def rows(ids: list[int], value: str, part: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [value] * len(ids), "part": [part] * len(ids)})


def as_rows(table: pa.Table) -> Rows:
    return Counter(tuple(row[name] for name in ("id", "v", "part")) for row in table.to_pylist())


def read(io: PyarrowDatasetIO, root: str, version: int | None = None) -> Rows:
    return as_rows(io.read_parquet(root, version=version))


def start(world: World, **options: Any) -> PyarrowDatasetIO:
    io = io_of(world.storage)
    table = pa.concat_tables([rows([1, 2, 3], "old"), rows([4, 5, 6], "old", "b")])
    io.write_dataset(table, world.root, partition_by="part", **options)
    io.keep_history(world.root)
    return io


def sidecar(world: World, name: str) -> str:
    return join(world.root.rpartition("/")[0], ".ds.fsspeckit", name)


def files_with(world: World, text: str) -> list[str]:
    return [path for path, data in world.files().items() if text.encode() in data]


def with_secrets(world: World) -> PyarrowDatasetIO:
    """A secret in kept files of versions whose records are folded, in kept files of the journal, and in the dataset."""
    io = start(world, compression="none")
    for number in range(6):
        io.merge(rows([3], SECRET if number % 2 else f"n{number}"), world.root, compression="none", **KEYS)
    io.compact_parquet_dataset(world.root, target_rows_per_file=100)
    io.merge(rows([3], SECRET), world.root, compression="none", **KEYS)
    assert len(world.storage.list_names(sidecar(world, "history"))) > 1
    assert len(files_with(world, SECRET)) > 2
    return io


def test_erasure_reaches_folded_versions(world: World) -> None:
    io = with_secrets(world)
    old = [each["version"] for each in io.history(world.root) if each["readable"]]
    io.delete(world.root, where="id = 3", erase_history=True)
    assert files_with(world, SECRET) == []
    for version in old:
        with pytest.raises(VersionNotFoundError):
            io.read_parquet(world.root, version=version)
    [only] = [each["version"] for each in io.history(world.root) if each["readable"]]
    assert read(io, world.root, only) == read(io, world.root)
    io.merge(rows([9], "later"), world.root, **KEYS)
    assert (9, "later", "a") not in read(io, world.root, only)


def test_erasure_reaches_more_commits_than_a_journal_has(tmp_path: Any) -> None:
    """With the sizes of the product: 64 commits and more are folded."""
    io, root = PyarrowDatasetIO(), str(tmp_path / "ds")
    io.write_dataset(rows([1, 3], SECRET), root, compression="none")
    io.keep_history(root)
    for number in range(70):
        io.merge(rows([3], f"{SECRET}-{number}"), root, compression="none", **KEYS)
    assert list((tmp_path / ".ds.fsspeckit" / "history").glob("*.records"))
    io.update(root, set={"v": "'gone'"}, where="id = 1")
    io.delete(root, where="id = 3", erase_history=True)
    found = [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert found == []
    assert io.history(root)[0]["readable"]


def attack(world: World, run: Callable[[Storage, str], object], sweep: Sweep, rng: random.Random) -> Iterator[Fault]:
    """Run with crashes at several calls, and recover after each."""
    world.keep()
    storage = FaultStorage(world.new_storage())
    run(storage, world.root)
    points = [Fault(kind, call) for call in range(1, len(storage.calls) + 1) for kind in CRASHES]
    for fault in choose(sweep, rng, points, 40 if isinstance(world, LocalWorld) else 12):
        world.reset()
        run_with(world, run, fault)
        recover(world.new_storage(), world.root)
        yield fault


def test_crash_during_erasure_is_completed_by_the_next_one(world: World, sweep: Sweep, rng: random.Random) -> None:
    with_secrets(world)
    wanted = versions_of(world)

    def erase(storage: Storage, root: str) -> None:
        io_of(storage).delete(root, where="id = 3", erase_history=True)

    for fault in attack(world, erase, sweep, rng):
        found = versions_of(world)
        known = found[:-1] if len(found) and found[-1] not in wanted else found
        assert known == wanted[len(wanted) - len(known) :], fault
        erase(world.new_storage(), world.root)
        assert files_with(world, SECRET) == [], fault
        assert len(versions_of(world)) == 1, fault


@pytest.mark.parametrize("publish", ["new_names", "replace", "exchange"])
def test_versions_can_be_read_at_every_step_of_a_commit(world: World, publish: Any) -> None:
    """Every second step: the file may be in the dataset, or kept already."""
    io, other = start(world), io_of(world.new_storage())
    first = io.history(world.root)[0].version
    wanted, steps, seen = read(io, world.root), itertools.count(), Counter[int]()

    def look(_: str) -> None:
        if next(steps) % (2 if isinstance(world, LocalWorld) else 5):
            return
        newest = other.history(world.root)[0].version
        assert read(other, world.root, first) == wanted
        assert as_rows(other.read_parquet(world.root, as_of="2100-01-01")) == read(other, world.root, newest)
        feed = other.changes(world.root, since=first, until=newest, key_columns="id")
        assert feed.num_rows == (0 if newest == first else 3)
        assert other.diff(world.root, first, newest).rows_before == (0 if newest == first else 3)
        assert len(other.restore(world.root, version=first, dry_run=True).restored_files) == (newest != first)
        seen[newest - first] += 1

    storage = FaultStorage(world.new_storage())
    storage.on_call = look
    PyarrowDatasetIO(filesystem=storage, publish=publish).merge(rows([2, 7], "new"), world.root, **KEYS)
    assert seen[0] > 2
    assert seen[1] > 2


def test_changes_up_to_the_newest_version_while_others_commit(world: World) -> None:
    """Each look at the dataset is followed by a commit that replaces the files that it found."""
    io, other = start(world), io_of(world.new_storage())
    first = io.history(world.root)[0].version
    io.merge(rows([2], "n0"), world.root, **KEYS)
    storage = FaultStorage(world.new_storage())
    numbers = iter(range(1, 40))

    def commit(name: str) -> None:
        if name == "read_tail" and (number := next(numbers, None)):
            other.merge(rows([2], f"n{number}"), world.root, **KEYS)

    storage.on_call = commit
    feed = io_of(storage).changes(world.root, since=first, key_columns="id")
    assert set(feed["_version"].to_pylist()) == {first + 1}


def with_a_folder_among_kept_files() -> tuple[LocalWorld, PyarrowDatasetIO, Path]:
    made = LocalWorld()
    io = start(made)
    for number in range(3):
        io.merge(rows([3], f"n{number}"), made.root, **KEYS)
    kept = sorted(Path(sidecar(made, "kept")).iterdir())
    kept[0].unlink()
    kept[0].mkdir()
    return made, io, kept[0]


def test_a_folder_among_kept_files_does_not_stop_a_vacuum(caplog: pytest.LogCaptureFixture) -> None:
    made, io, folder = with_a_folder_among_kept_files()
    assert io.vacuum(made.root, older_than="0s").removed_files == 2
    assert list(folder.parent.iterdir()) == [folder]
    assert f"{folder} is a folder that fsspeckit has not created" in caplog.text
    made.close()


def test_an_erasure_that_is_not_complete_says_so() -> None:
    made, io, folder = with_a_folder_among_kept_files()
    with pytest.raises(StorageError, match=r"rows of .* are deleted, but not all .* is a folder .* Move or remove"):
        io.delete(made.root, where="id = 3", erase_history=True)
    assert list(folder.parent.iterdir()) == [folder]
    assert 3 not in io.read_parquet(made.root)["id"].to_pylist()
    folder.rmdir()
    io.delete(made.root, where="id = 3", erase_history=True)
    assert len(versions_of(made)) == 1
    made.close()


def test_one_file_that_cannot_be_removed_does_not_stop_a_vacuum(world: World) -> None:
    io = start(world)
    for number in range(3):
        io.merge(rows([3], f"n{number}"), world.root, **KEYS)
    before = len(world.storage.list_names(sidecar(world, "kept")))

    class Stuck(FaultStorage):
        def remove(self, path: str) -> None:
            if path.endswith("-0.kept") and "03-" in path:
                raise StorageError(f"removing {path} failed")
            super().remove(path)

        def remove_many(self, paths: Iterable[str]) -> None:
            for path in paths:
                self.remove(path)

    with pytest.raises(StorageError, match=r"removing .* failed"):
        io_of(Stuck(world.new_storage())).vacuum(world.root, older_than="0s")
    assert before > 1
    assert len(world.storage.list_names(sidecar(world, "kept"))) == 1


def test_restore_of_a_damaged_footer_changes_nothing(world: World) -> None:
    io = start(world)
    first = io.history(world.root)[0].version
    io.merge(rows([2, 7], "new"), world.root, **KEYS)
    wanted, name = read(io, world.root), world.storage.list_names(sidecar(world, "kept"))[0]
    path = join(sidecar(world, "kept"), name)
    data = bytearray(world.storage.read_bytes(path))
    data[-40] ^= 0xFF
    data[-6] ^= 0x01
    local = isinstance(world, LocalWorld)
    written = os.stat(path).st_mtime_ns if local else 0
    world.storage.remove(path)
    world.storage.write_bytes(path, bytes(data))
    if local:  # a disk damages a file without a new time
        os.utime(path, ns=(written, written))
    with pytest.raises(DamagedFileError):
        io.restore(world.root, version=first)
    assert read(io, world.root) == wanted
    assert io.history(world.root)[0].version == first + 1


def test_reading_a_version_while_it_expires(world: World) -> None:
    io = start(world)
    version = io.history(world.root)[0]["version"]
    wanted = read(io, world.root)
    for number in range(4):
        io.merge(rows([1, 2], f"n{number}"), world.root, **KEYS)
    found: Counter[str] = Counter()
    started, done = threading.Event(), threading.Event()

    def watch() -> None:
        mine = io_of(world.new_storage())
        while not done.is_set() or not found["expired"]:
            try:
                found["right" if read(mine, world.root, version) == wanted else "wrong"] += 1
            except VersionNotFoundError:
                found["expired"] += 1
            started.set()

    thread = threading.Thread(target=watch)
    thread.start()
    started.wait()
    io.vacuum(world.root, older_than="0s")
    done.set()
    thread.join()
    assert found["wrong"] == 0
    assert found["right"] > 0


def test_clock_that_goes_backwards(world: World) -> None:
    """`as_of` returns a version that was committed by that time, also if a later commit has an earlier time."""
    io = start(world)
    base = datetime.now(UTC)
    states: list[tuple[datetime, Rows]] = []
    for hours in (1, 3, -2, 2, 5):
        with commit_at(base + timedelta(hours=hours)):
            io.merge(rows([1], f"at {hours}"), world.root, **KEYS)
        states.append((base + timedelta(hours=hours), read(io, world.root)))
    for at, _ in states:
        wanted = [state for time, state in states if time <= at][-1]
        assert as_rows(io.read_parquet(world.root, as_of=at)) == wanted
    result = io.vacuum(world.root, older_than="1h")
    readable = [each["version"] for each in io.history(world.root) if each["readable"]]
    assert result.oldest_version is None or min(readable) >= result.oldest_version
    assert [read(io, world.root, version) for version in readable[:2]] == [state for _, state in states[:-3:-1]]


@pytest.mark.parametrize("late_days", [-8, 8])
def test_no_version_expires_early_because_of_a_wrong_clock(world: World, late_days: int) -> None:
    """A commit whose writer has a wrong clock does not make versions look old that were replaced just now."""
    io = start(world)
    io.merge(rows([1], "first"), world.root, **KEYS)
    with commit_at(datetime.now(UTC) + timedelta(days=late_days)):
        io.merge(rows([1], "wrong clock"), world.root, **KEYS)
    for number in range(8):
        io.merge(rows([1], str(number)), world.root, **KEYS)
    before = [each.version for each in io.history(world.root) if each.readable]
    assert len(before) >= 10
    io.vacuum(world.root, older_than="7d")
    assert [each.version for each in io.history(world.root) if each.readable] == before
    assert io.vacuum(world.root, older_than="0s").oldest_version == before[0]


def test_a_second_policy_names_the_oldest_version_that_is_kept(world: World) -> None:
    io = start(world)
    io.merge(rows([1], "later"), world.root, **KEYS)
    oldest = min(each.version for each in io.history(world.root) if each.readable)
    assert io.keep_history(world.root, "3d") == oldest


def test_error_of_a_version_whose_kept_file_is_gone_does_not_call_it_expired(world: World) -> None:
    io = start(world)
    version = io.history(world.root)[0].version
    io.merge(rows([1], "later"), world.root, **KEYS)
    kept = sidecar(world, "kept")
    world.storage.remove_many([join(kept, name) for name in world.storage.list_names(kept)])
    with pytest.raises(VersionNotFoundError, match="another program has added, changed or removed files"):
        io.read_parquet(world.root, version=version)
