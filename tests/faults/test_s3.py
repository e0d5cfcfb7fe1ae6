"""The commit protocol on an object store: the S3 server of moto over HTTP on localhost, through s3fs."""

from __future__ import annotations

import gc
import io
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem

from faults.injection import Fault, FaultStorage
from faults.operations import (
    Operation,
    append,
    append_files,
    overwrite,
    revalidate,
    rewrite,
    stage,
    start,
    start_with_other,
    table,
)
from faults.row_changes import ROW_CHANGES
from faults.sweep import expect, run_with
from faults.test_processes import count_up, counter, start_counter
from faults.worlds import Rows, World, rows_of
from fsspeckit.common.errors import CommitConflictError, FsspeckitError
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.publishing import Distribute, PublishFiles
from fsspeckit.core.commit.transaction import Changes, Commit, Publish
from fsspeckit.core.storage import Storage, for_each, fsspec, join, resolve
from fsspeckit.core.storage.fsspec import FsspecStorage
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from sweeps import Sweep


class S3World(World):
    """A dataset in a bucket. Every process has its own client."""

    def __init__(self, server: Any, bucket: str, root: str = "lake/ds") -> None:
        self.bucket = bucket
        self.root = f"{bucket}/{root}".rstrip("/")
        self._fs = server.filesystem()
        self.storage = FsspecStorage(server.filesystem())
        self._template: dict[str, bytes] = {}

    def new_storage(self) -> Storage:
        """Return another client than ``storage``, with its listing cache filled."""
        return FsspecStorage(self._fs)

    def keep(self) -> None:
        self._template = self.files()

    def reset(self) -> None:
        self._fs.invalidate_cache()
        for path in self._fs.find(self.bucket):
            self._fs.rm_file(path)
        for path, data in self._template.items():
            self._fs.pipe_file(f"{self.bucket}/lake/{path}", data)

    def files(self) -> dict[str, bytes]:
        self._fs.invalidate_cache()
        prefix = f"{self.bucket}/lake/"
        return {path.removeprefix(prefix): self._fs.cat_file(path) for path in self._fs.find(self.bucket)}


@pytest.fixture
def world(s3_server: Any, s3_bucket: str) -> S3World:
    made = S3World(s3_server, s3_bucket)
    start(made)
    return made


def test_put_if_absent_succeeds_once(s3_server: Any, s3_bucket: str) -> None:
    storages = [FsspecStorage(s3_server.filesystem()) for _ in range(6)]

    def take(numbered: tuple[int, Storage]) -> bool:
        number, storage = numbered
        try:
            storage.create_exclusive(f"{s3_bucket}/slot-{turn}", str(number).encode())
        except FileExistsError:
            return False
        return True

    for turn in range(5):
        with ThreadPoolExecutor(6) as pool:
            won = list(pool.map(take, enumerate(storages)))
        assert won.count(True) == 1
        assert storages[0].read_bytes(f"{s3_bucket}/slot-{turn}") == str(won.index(True)).encode()


def test_append_rewrite_and_recover_in_a_bucket(world: S3World) -> None:
    journal = Journal(world.storage, world.root)
    assert [file.path for file in journal.view().files] == ["day=1/a.parquet", "day=1/b.parquet", "day=2/c.parquet"]
    append(world.storage, world.root)
    rewrite(world.storage, world.root)
    assert set(world.dataset_files()) == {
        "day=1/.b.parquet.crc",
        "day=1/a2.parquet",
        "day=1/b.parquet",
        "day=1/n.parquet",
        "day=3/m.parquet",
        "day=4/x=1/e.parquet",
        "notes.txt",
    }
    overwrite(world.storage, world.root)
    assert (
        world.view_rows(journal.view())
        == world.raw_rows()
        == Counter({(i, "new"): 1 + (i in (41, 42)) for i in range(40, 44)})
    )
    assert not journal.recover()
    assert {path for path in world.files() if ".staging_" in path} == set()


def test_listing_cache_does_not_hide_files(world: S3World, s3_server: Any) -> None:
    mine = s3_server.filesystem()
    stale = FsspecStorage(mine)
    journal = Journal(stale, world.root)
    assert len(journal.view().files) == 3
    mine.ls(world.root)
    mine.find(world.root)
    append(world.storage, world.root)
    assert len(journal.view().files) == 5
    rewrite(world.storage, world.root)
    assert [file.path for file in journal.view().files] == [
        "day=1/a2.parquet",
        "day=1/b.parquet",
        "day=1/n.parquet",
        "day=3/m.parquet",
        "day=4/x=1/e.parquet",
    ]
    assert stale.stat(join(world.root, "day=1/a.parquet")) is None
    assert stale.read_bytes(join(world.root, "day=1/a2.parquet"))[:4] == b"PAR1"
    assert mine.dircache, "the caller's own filesystem keeps its cache"


@pytest.mark.parametrize("wrapped", [False, True])
def test_new_file_is_readable_after_an_older_listing(world: S3World, s3_server: Any, wrapped: bool) -> None:
    fs = DirFileSystem(path=f"{world.bucket}/lake", fs=s3_server.filesystem()) if wrapped else s3_server.filesystem()
    storage, root = FsspecStorage(fs), "ds" if wrapped else world.root
    assert storage.list_dir(join(root, "day=1"))
    storage._fs.ls(join(root, "day=1"))
    world.storage.write_bytes(join(world.root, "day=1/late"), b"late")
    storage._fs.ls(join(root, "day=1"))
    world.storage.write_bytes(join(world.root, "day=1/later"), b"later")
    assert storage.read_bytes(join(root, "day=1/later")) == b"later"
    assert storage._fs.cat_file(join(root, "day=1/later")) == b"later"


def test_conflicts(world: S3World) -> None:
    journal = Journal(world.storage, world.root)
    with journal.begin(journal.view(), "second") as second, journal.begin(journal.view(), "append") as third:
        staged = stage(world.storage, second, table(range(5), "mine"))
        more = stage(world.storage, third, table(range(80, 83), "mine"))
        rewrite(world.new_storage(), world.root)
        before = world.dataset_files()
        with pytest.raises(CommitConflictError, match="another writer committed rewrite"):
            second.commit(Changes((Publish(staged, "day=1/mine.parquet", 5),), ("day=1/a.parquet",)))
        assert world.dataset_files() == before
        assert third.commit(Changes((Publish(more, "more.parquet", 3),))).seq == 3
    with journal.begin(journal.view(), "foreign") as transaction:
        staged = stage(world.storage, transaction, table(range(5), "mine"))
        buffer = io.BytesIO()
        pq.write_table(table(range(7), "foreign"), buffer)
        world.new_storage().write_bytes(join(world.root, "day=1/b.parquet"), buffer.getvalue())
        with pytest.raises(CommitConflictError, match="changed by another program"):
            transaction.commit(Changes((Publish(staged, "day=1/mine.parquet", 5),), ("day=1/b.parquet",)))


def test_an_object_that_changes_within_its_size_and_second_is_a_conflict(world: S3World) -> None:
    """Only the ETag tells: the server counts times in seconds."""
    journal = Journal(world.storage, world.root)
    contents = []
    for value in ("one", "two"):
        buffer = io.BytesIO()
        pq.write_table(table(range(7), value), buffer)
        contents.append(buffer.getvalue())
    assert len(contents[0]) == len(contents[1])
    for content in contents * 2:
        world.new_storage().write_bytes(join(world.root, "day=1/b.parquet"), content)
        with journal.begin(journal.view(), "foreign") as transaction:
            staged = stage(world.storage, transaction, table(range(5), "mine"))
            other = contents[1 - contents.index(content)]
            world.new_storage().write_bytes(join(world.root, "day=1/b.parquet"), other)
            with pytest.raises(CommitConflictError, match="changed by another program"):
                transaction.commit(Changes((Publish(staged, "day=1/mine.parquet", 5),), ("day=1/b.parquet",)))


SWEPT = [Operation(run.__name__, start, run) for run in (append, rewrite, overwrite)]
SWEPT.append(Operation("revalidate", start_with_other, revalidate))
SWEPT += [
    change for change in ROW_CHANGES if change.name in ("delete", "update rows", "apply changes", "apply late changes")
]


@pytest.mark.parametrize("operation", SWEPT, ids=lambda operation: operation.name)
def test_faults_and_recovery(
    s3_server: Any, s3_bucket: str, operation: Operation, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsspec, "LEASE_SECONDS", -1.0)
    world = S3World(s3_server, s3_bucket)
    expected = expect(world, operation)
    points = range(1, expected.calls + 1)
    for call in sweep.sample(points, 3):
        for kind in ("crash before", "crash after", "error after") if sweep.full else ("crash after",):
            world.reset()
            outcome = run_with(world, operation.run, Fault(kind, call))  # type: ignore[arg-type]
            gc.collect()  # s3fs uploads open files when they are collected, which must not come after the recovery
            seen = world.view_rows(Journal(world.new_storage(), world.root).view())
            Journal(world.new_storage(), world.root).recover()
            rows: Rows = world.raw_rows()
            assert rows == seen
            assert rows in (expected.old, expected.new), f"{kind} at call {call}"
            if not isinstance(outcome, BaseException):
                assert rows == expected.new
            elif isinstance(outcome, Exception):
                assert rows == expected.old
            assert not Journal(world.new_storage(), world.root).recover()


def test_staging_folder_is_alive_during_its_lease(world: S3World, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(world.storage, world.root)
    with journal.begin(journal.view(), "slow") as transaction:
        staged = stage(world.storage, transaction, table(range(80, 83), "mine"))
        assert not Journal(world.new_storage(), world.root).recover()
        monkeypatch.setattr(fsspec, "LEASE_SECONDS", -1.0)
        assert len(Journal(world.new_storage(), world.root).recover().removed) == 1
        with pytest.raises((CommitConflictError, OSError)):
            transaction.commit(Changes((Publish(staged, "more.parquet", 3),)))
    assert world.raw_rows()[(80, "mine")] == 0


WRITER = """
import json, sys
import fsspec
import pyarrow as pa
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
options, path, writer = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
io = PyarrowDatasetIO(filesystem=fsspec.filesystem("s3", **options))
number = 0
while True:
    number += 1
    rows = pa.table({"id": [writer, 1000 * writer + number], "n": [number, number]})
    io.merge(rows, path, strategy="upsert", key_columns="id", retries=1000)
    print(number, flush=True)
"""


def test_recover_leaves_nothing_of_killed_writers(
    s3_server: Any, s3_bucket: str, sweep: Sweep, rng: random.Random
) -> None:
    """Their merges that were reported are there once, and no staged object is left after one explicit recovery."""
    path = f"{s3_bucket}/lake/ds"
    io = PyarrowDatasetIO(filesystem=s3_server.filesystem())
    io.write_dataset(pa.table({"id": [0], "n": [0]}), path)
    reported: dict[int, int] = {}
    for turn in range(10 if sweep.full else 1):
        writers = {4 * turn + at: start_writer(s3_server, path, 4 * turn + at) for at in range(1, 5)}
        for number, writer in writers.items():
            assert writer.stdout is not None
            reported[number] = int(writer.stdout.readline())
        for writer in writers.values():
            time.sleep(rng.uniform(0, 0.4))
            writer.kill()
        for number, writer in writers.items():
            rest = writer.communicate()[0].split("\n")[:-1]
            reported[number] = int(rest[-1]) if rest else reported[number]
        wait_for_requests(s3_server)
        left = {name for name in s3_server.filesystem().find(f"{s3_bucket}/lake") if ".staging_" in name}
        print(f"{len(left)} staged objects were left")
        io.recover(path)
        assert not [name for name in s3_server.filesystem().find(f"{s3_bucket}/lake") if ".staging_" in name]
        assert not io.recover(path)
    found = io.read_parquet(path).to_pylist()
    values = {row["id"]: row["n"] for row in found}
    assert len(values) == len(found)
    for number, last in reported.items():
        assert values[number] in (last, last + 1)
        assert {1000 * number + each for each in range(1, last + 1)} <= values.keys()


def start_writer(server: Any, path: str, number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, json.dumps(server.storage_options), path, str(number)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def wait_for_requests(server: Any) -> None:
    """Wait until the server has executed the last requests of killed clients."""
    seen = -1
    while seen < len(server.requests):
        seen = len(server.requests)
        time.sleep(0.5)


@pytest.mark.parametrize("retries", [0, 3])
def test_explicit_recovery_while_a_writer_stages_is_a_conflict(s3_server: Any, s3_bucket: str, retries: int) -> None:
    path = f"{s3_bucket}/lake/ds"
    io = PyarrowDatasetIO(filesystem=s3_server.filesystem())
    io.write_dataset(pa.table({"id": [1, 2], "n": [0, 0]}), path)
    removed: list[str] = []

    def recover_once(event: Any) -> None:
        if not removed and event.stage == "write" and event.done == event.total:
            removed.extend(PyarrowDatasetIO(filesystem=s3_server.filesystem()).recover(path).removed)

    def merge() -> Any:
        rows = pa.table({"id": [2, 3], "n": [7, 7]})
        return io.merge(rows, path, strategy="upsert", key_columns="id", retries=retries, progress=recover_once)

    if retries:
        merge()
    else:
        with pytest.raises(CommitConflictError, match="considered this writer dead"):
            merge()
    assert len(removed) == 1
    found = sorted((row["id"], row["n"]) for row in io.read_parquet(path).to_pylist())
    assert found == ([(1, 0), (2, 7), (3, 7)] if retries else [(1, 0), (2, 0)])
    assert not [name for name in s3_server.filesystem().find(f"{s3_bucket}/lake") if ".staging_" in name]


def test_a_staged_file_that_a_recovery_removed_is_a_conflict(world: S3World) -> None:
    journal = Journal(world.storage, world.root)
    before = world.raw_rows()
    with journal.begin(journal.view(), "slow") as transaction:
        staged = [stage(world.storage, transaction, table(range(80, 83), "mine")) for _ in range(2)]
        assert not Journal(world.new_storage(), world.root).recover()
        assert len(Journal(world.new_storage(), world.root).recover(end_writers=True).removed) == 1
        publish = tuple(Publish(path, f"more-{number}.parquet", 3) for number, path in enumerate(staged))
        with pytest.raises(CommitConflictError, match="considered this writer dead"):
            transaction.commit(Changes(publish))
    assert world.raw_rows() == before


def test_dataset_in_a_bucket_root_has_its_journal_inside(s3_server: Any, s3_bucket: str) -> None:
    storage, root = resolve(f"s3://{s3_bucket}", storage_options=s3_server.storage_options)
    append_files(storage, root, {"a.parquet": table(range(3), "x")})
    append_files(storage, root, {"day=1/b.parquet": table(range(3), "x")})
    view = Journal(storage, root).view()
    assert (view.head, [file.path for file in view.files]) == (2, ["a.parquet", "day=1/b.parquet"])
    names = s3_server.filesystem().find(s3_bucket)
    assert all("/.fsspeckit/" in name or name.endswith(".parquet") for name in names)


def test_concurrent_writers_lose_no_increment(s3_server: Any, s3_bucket: str, sweep: Sweep) -> None:
    root = f"{s3_bucket}/counter"
    start_counter(FsspecStorage(s3_server.filesystem()), root)
    attempts = 30 if sweep.full else 4
    with ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(lambda _: count_up(FsspecStorage(s3_server.filesystem()), root, attempts), range(3)))
    won, lost = (sum(column) for column in zip(*outcomes, strict=True))
    print(f"{won} won, {lost} lost")
    assert counter(FsspecStorage(s3_server.filesystem()), root) == won
    assert won > 0


def test_storage_contract(s3_server: Any, s3_bucket: str) -> None:
    storage, root = resolve(f"s3://{s3_bucket}/some/folder/", storage_options=s3_server.storage_options)
    assert root == f"{s3_bucket}/some/folder"
    assert (storage.is_local, storage.in_place, storage.has_folders) == (False, False, False)
    assert storage.list_dir(root) == []
    assert storage.stat(root) is None
    with pytest.raises(FileNotFoundError, match="cannot list"):
        storage.list_tree(root)
    with pytest.raises(FileNotFoundError, match="cannot read"):
        storage.read_bytes(join(root, "nothing"))
    data = pa.table({"x": list(range(1000))})
    with storage.open_output(join(root, "a=1/x.parquet")) as file:
        pq.write_table(data, file)
    with storage.open_input(join(root, "a=1/x.parquet")) as file:
        assert pq.read_table(file).equals(data)
    storage._fs.touch(join(root, "marker/"))
    tree = storage.list_tree(root)
    assert [entry.path for entry in tree.files] == ["a=1/x.parquet"]
    listed, alone = tree.files[0], storage.stat(join(root, "a=1/x.parquet"))
    assert alone is not None
    assert (alone.size, alone.stamp) == (listed.size, listed.stamp)
    assert next((entry.path, entry.size) for entry in storage.list_dir(root)) == ("a=1", -1)
    assert storage.read_tail(join(root, "a=1/x.parquet"), 4) == b"PAR1"
    assert rows_of(storage.read_bytes(join(root, "a=1/x.parquet"))).total() == 1000
    storage.publish(join(root, "a=1/x.parquet"), join(root, "a=2/y.parquet"))
    storage.remove_tree(join(root, "a=1"))
    assert [entry.path for entry in storage.list_tree(root).files] == ["a=2/y.parquet"]
    storage.remove(join(root, "nothing"))


FILES = 120


def replace_all(storage: Storage, root: str, distribute: Distribute) -> Commit:
    """Replace a hundred files by as many new ones."""
    journal = Journal(storage, root)
    journal.distribute = distribute
    view = journal.view()
    with journal.begin(view, "replace") as transaction:
        data = world_file(table([1], "new"))
        staged = [transaction.staged_path() for _ in range(FILES)]
        for_each(storage, lambda path: storage.write_bytes(path, data), staged)
        publish = tuple(Publish(path, f"new-{number}.parquet", 1) for number, path in enumerate(staged))
        return transaction.commit(Changes(publish, tuple(file.path for file in view.files)))


def world_file(data: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(data, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("broken", [False, True])
def test_publishing_that_fails_in_the_middle_is_finished(s3_server: Any, s3_bucket: str, broken: bool) -> None:
    """A third of the files is published elsewhere, then that job fails; with ``broken``, so does the storage here."""
    storage, root = FsspecStorage(s3_server.filesystem()), f"{s3_bucket}/ds"
    data = world_file(table([1], "old"))
    for_each(storage, lambda number: storage.write_bytes(f"{root}/old-{number}.parquet", data), range(FILES))
    local = FaultStorage(storage)

    def fails(_: Storage, function: Any, items: Any) -> Any:
        if not isinstance(function, PublishFiles):
            return function(items)
        PublishFiles(storage)(items[: FILES // 3])
        local.broken = broken
        raise FsspeckitError("the job failed")

    commit = replace_all(local, root, fails)
    assert commit.published is not broken
    pending, mixed = Journal(storage, root), storage.list_tree(root).files
    assert Counter(file.path[:3] for file in mixed) == ({"old": FILES, "new": FILES // 3} if broken else {"new": FILES})
    assert {file.path[:3] for file in pending.view().files} == {"new"}
    s3_server.requests.clear()
    assert pending.recover().replayed == ((commit.seq,) if broken else ())
    requests = Counter(s3_server.requests)
    assert {file.path for file in storage.list_tree(root).files} == {f"new-{number}.parquet" for number in range(FILES)}
    if broken:
        assert requests["COPY"] == FILES - FILES // 3, "published files are not copied again"
        assert requests["HEAD"] + requests["LIST"] + requests["DELETE"] < 25
