"""The commit protocol on an object store: the S3 server of moto over HTTP on localhost, through s3fs."""

from __future__ import annotations

import gc
import io as io_module
import json
import os
import random
import subprocess
import sys
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem

from faults.injection import Fault
from faults.sweep import expect, run_with
from faults.verbs import NAMED, Operation, start
from faults.worlds import Rows, World
from fsspeckit.common.errors import CommitConflictError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import FsspecStorage, Storage, fsspec_storage, join, recover
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


def test_smoke_of_verbs_in_a_bucket_with_a_stale_listing(world: S3World, s3_server: Any) -> None:
    """Another client, whose cache has an older listing, sees each commit, and its own filesystem keeps its cache."""
    mine = s3_server.filesystem()
    io, steps = PyarrowDatasetIO(filesystem=mine), ("write append", "upsert", "update rows", "delete", "compact")
    for name in steps:
        mine.ls(world.root)
        mine.find(world.root)
        NAMED[name].run(world.storage, world.root)
        assert world.seen_rows() == world.raw_rows()
        assert io.read_parquet(world.root).num_rows == world.raw_rows().total()
    assert mine.dircache
    assert not recover(world.new_storage(), world.root)
    assert {path for path in world.files() if ".staging_" in path} == set()


@pytest.mark.parametrize("wrapped", [False, True])
def test_new_file_is_readable_after_an_older_listing(world: S3World, s3_server: Any, wrapped: bool) -> None:
    fs = DirFileSystem(path=f"{world.bucket}/lake", fs=s3_server.filesystem()) if wrapped else s3_server.filesystem()
    storage, root = FsspecStorage(fs), "ds" if wrapped else world.root
    assert storage.list_dir(join(root, "day=a"))
    storage._fs.ls(join(root, "day=a"))
    world.storage.write_bytes(join(world.root, "day=a/late"), b"late")
    storage._fs.ls(join(root, "day=a"))
    world.storage.write_bytes(join(world.root, "day=a/later"), b"later")
    assert storage.read_bytes(join(root, "day=a/later")) == b"later"
    assert storage._fs.cat_file(join(root, "day=a/later")) == b"later"


def test_an_object_that_changes_within_its_size_and_second_is_a_conflict(s3_server: Any, s3_bucket: str) -> None:
    """Only the ETag tells: the server counts times in seconds."""
    io, path = PyarrowDatasetIO(filesystem=s3_server.filesystem()), f"{s3_bucket}/ds"
    io.write_dataset(pa.table({"id": [1], "v": ["old"]}), path)
    [name] = [name for name in s3_server.filesystem().find(path) if name.endswith(".parquet")]
    contents = [parquet(pa.table({"id": [1], "v": [value]})) for value in ("one", "two")]
    assert len(contents[0]) == len(contents[1])
    fs, in_one_second = s3_server.filesystem(), 0
    for number in range(40):
        fs.pipe_file(name, contents[number % 2])
        before = fs.info(name, refresh=True)["LastModified"]

        def change(event: Any, other: bytes = contents[1 - number % 2]) -> None:
            if event.stage == "write" and event.done == event.total:
                fs.pipe_file(name, other)

        with pytest.raises(CommitConflictError, match="changed"):
            io.update(path, set={"v": "'mine'"}, where="true", progress=change, retries=0)
        in_one_second += fs.info(name, refresh=True)["LastModified"] == before
        if in_one_second == 3:
            break
    assert in_one_second > 0


def parquet(data: pa.Table) -> bytes:
    buffer = io_module.BytesIO()
    pq.write_table(data, buffer)
    return buffer.getvalue()


SWEPT = [
    NAMED[name] for name in ("write append", "write overwrite", "upsert", "delete", "update rows", "apply changes")
]


@pytest.mark.parametrize("operation", SWEPT, ids=lambda operation: operation.name)
def test_faults_and_recovery(
    s3_server: Any, s3_bucket: str, operation: Operation, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsspec_storage, "LEASE_SECONDS", -1.0)
    world = S3World(s3_server, s3_bucket)
    expected = expect(world, operation)
    points = range(1, expected.calls + 1)
    for call in sweep.sample(points, 3):
        for kind in ("crash before", "crash after", "error after") if sweep.full else ("crash after",):
            world.reset()
            outcome = run_with(world, operation.run, Fault(kind, call))  # type: ignore[arg-type]
            gc.collect()  # s3fs uploads open files when they are collected, which must not come after the recovery
            seen = world.seen_rows()
            recover(world.new_storage(), world.root)
            rows: Rows = world.raw_rows()
            assert rows == seen
            assert rows in (expected.old, expected.new), f"{kind} at call {call}"
            if not isinstance(outcome, BaseException):
                assert rows == expected.new
            elif isinstance(outcome, Exception):
                assert rows == expected.old
            assert not recover(world.new_storage(), world.root)


WRITER = """
import json, sys
import fsspec
import pyarrow as pa
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
options, path, writer = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
io = PyarrowDatasetIO(filesystem=fsspec.filesystem(sys.argv[4], **options))
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
    kill_writers(s3_server, s3_bucket, rng, turns=10 if sweep.full else 1)


def kill_writers(s3_server: Any, s3_bucket: str, rng: random.Random, turns: int) -> None:
    """Kill four writers at once in each turn, and recover."""
    path = f"{s3_bucket}/lake/ds"
    io = PyarrowDatasetIO(filesystem=s3_server.filesystem())
    io.write_dataset(pa.table({"id": [0], "n": [0]}), path)
    reported: dict[int, int] = {}
    for turn in range(turns):
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
    command.append(server.protocol)
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


def test_dataset_in_a_bucket_root_has_its_journal_inside(s3_server: Any, s3_bucket: str) -> None:
    io = PyarrowDatasetIO(storage_options=s3_server.storage_options)
    for _ in range(2):
        io.write_dataset(pa.table({"id": [1], "day": [1]}), f"s3://{s3_bucket}", partition_by="day")
    assert len(io.history(f"s3://{s3_bucket}")) == 2
    names = s3_server.filesystem().find(s3_bucket)
    assert all("/.fsspeckit/" in name or name.endswith(".parquet") for name in names)
