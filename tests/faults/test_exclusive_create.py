"""Writers that race on S3, and storages on which two writers of one record would both win: these are refused.

`make test-more` also runs this file with the lowest versions of s3fs and fsspec that are declared.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from faults.injection import CRASHES, ERRORS, Fault
from faults.sweep import Tally, expect, single_fault
from faults.verbs import NAMED, Operation, start
from faults.worlds import MemoryWorld, World
from fsspeckit.cli.app import main
from fsspeckit.common.errors import CommitConflictError, StorageError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import FsspecStorage, fsspec_storage
from sweeps import Sweep

pytestmark = pytest.mark.s3
KEYS = {"strategy": "upsert", "key_columns": "id"}


def rows(*ids: int, value: int = 0) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "value": [value] * len(ids)})


def content(fs: Any, bucket: str) -> dict[str, bytes]:
    fs.invalidate_cache()
    return {path.removeprefix(bucket): fs.cat_file(path) for path in fs.find(bucket)}


def marks(fs: Any, bucket: str) -> list[str]:
    return [path for path in content(fs, bucket) if "/log/probed-" in path]


@pytest.fixture(scope="module")
def careless_options() -> Iterator[dict[str, Any]]:
    """Options for a server that ignores `If-None-Match`. It has the same buckets as the other server."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    application = server._server.app  # type: ignore[union-attr]

    def careless(environment: dict[str, Any], respond: Any) -> Any:
        environment.pop("HTTP_IF_NONE_MATCH", None)
        return application(environment, respond)

    server._server.app = careless  # type: ignore[union-attr]
    host, port = server.get_host_and_port()
    yield {"key": "test", "secret": "test", "client_kwargs": {"endpoint_url": f"http://{host}:{port}"}}
    server.stop()


@pytest.fixture
def careless_fs(careless_options: dict[str, Any]) -> Any:
    return fsspec.filesystem("s3", skip_instance_cache=True, **careless_options)


def test_writers_that_race_from_the_first_write_on_lose_nothing(s3_server: Any, s3_bucket: str) -> None:
    path, merges = f"{s3_bucket}/race/ds", 3

    def write(writer: int) -> int:
        io = PyarrowDatasetIO(filesystem=s3_server.filesystem())
        done = 0
        for number in range(merges):
            try:
                io.merge(rows(0, 100 * writer + number, value=writer), path, retries=20, **KEYS)
            except CommitConflictError:
                continue
            done += 1
        return done

    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(write, (1, 2, 3)))
    found = Counter(PyarrowDatasetIO(filesystem=s3_server.filesystem()).read_parquet(path)["id"].to_pylist())
    assert found.pop(0) == 1
    assert set(found.values()) == {1}
    assert sum(found.values()) == sum(done) > 0


def test_the_result_of_a_probe_is_kept(s3_server: Any, s3_bucket: str) -> None:
    fs, path = s3_server.filesystem(), f"{s3_bucket}/lake/ds"
    io = PyarrowDatasetIO(filesystem=fs)

    def puts() -> int:
        s3_server.requests.clear()
        io.write_dataset(rows(1), path)
        return Counter(s3_server.requests)["PUT"]

    first, second, third = puts(), puts(), puts()
    assert first > second == third
    assert not [name for name in content(fs, s3_bucket) if ".staging_" in name]
    (mark,) = marks(fs, s3_bucket)
    fs.rm_file(s3_bucket + mark)  # a journal of an earlier version
    assert puts() == second + 4
    assert marks(fs, s3_bucket) == [mark]
    assert puts() == second


WRITES: dict[str, Callable[[PyarrowDatasetIO, str], Any]] = {
    "write": lambda io, path: io.write_dataset(rows(9), path),
    "merge": lambda io, path: io.merge(rows(1, 9), path, **KEYS),
    "delete": lambda io, path: io.delete(path, where="id = 1"),
    "compact": lambda io, path: io.compact_parquet_dataset(path, target_rows_per_file=100),
    "keep history": lambda io, path: io.keep_history(path),
}


def test_a_server_that_ignores_the_condition_is_refused_for_writes(
    s3_server: Any, s3_bucket: str, careless_options: dict[str, Any], careless_fs: Any
) -> None:
    path, url = f"{s3_bucket}/lake/ds", f"s3://{s3_bucket}/lake/ds"
    careless = PyarrowDatasetIO(storage_options=careless_options)
    with pytest.raises(StorageError, match=r"two writers could both commit.*If-None-Match"):
        careless.write_dataset(rows(1), url)
    assert content(careless_fs, s3_bucket) == {}
    good = PyarrowDatasetIO(filesystem=s3_server.filesystem())
    good.write_dataset(rows(1, 2), path)
    good.write_dataset(rows(3), path)
    before = content(careless_fs, s3_bucket)
    for name, write in WRITES.items():
        with pytest.raises(StorageError, match="Nothing was changed, and reading works"):
            write(careless, url)
        assert content(careless_fs, s3_bucket) == before, name
    assert sorted(careless.read_parquet(url)["id"].to_pylist()) == [1, 2, 3]
    good.write_dataset(rows(4), path)


def test_doctor_finds_a_server_that_ignores_the_condition(
    s3_server: Any, s3_bucket: str, careless_options: dict[str, Any], careless_fs: Any, capsys: Any
) -> None:
    def checks(url: str, options: dict[str, Any]) -> dict[str, Any]:
        pairs = ("key=test", "secret=test", f"client_kwargs.endpoint_url={options['client_kwargs']['endpoint_url']}")
        words = [word for pair in pairs for word in ("--storage-option", pair)]
        main(["doctor", url, "--engine", "pyarrow", "--json", *words])
        return {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}

    for url in (f"s3://{s3_bucket}", f"s3://{s3_bucket}/ds"):
        found = checks(url, careless_options)
        assert (found["write access"]["verdict"], found["two writers"]["verdict"]) == ("ok", "fail")
        assert "If-None-Match" in found["two writers"]["mend"]
        assert checks(url, s3_server.storage_options)["two writers"]["verdict"] == "ok"
        assert content(careless_fs, s3_bucket) == {}


def test_recovery_removes_the_file_of_an_interrupted_probe(
    s3_server: Any, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs, path = s3_server.filesystem(), f"{s3_bucket}/lake/ds"
    io = PyarrowDatasetIO(filesystem=fs)
    io.write_dataset(rows(1), path)
    staging = f"{s3_bucket}/lake/.ds.fsspeckit/.staging_{uuid.uuid4().hex}"
    for name in ("owner", "probe"):
        fs.pipe_file(f"{staging}/{name}", b"")
    monkeypatch.setattr(fsspec_storage, "LEASE_SECONDS", -1.0)
    assert len(io.recover(path).removed) == 1
    assert not [name for name in content(fs, s3_bucket) if ".staging_" in name]


def test_recovery_is_refused_too(
    s3_server: Any, s3_bucket: str, careless_fs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would create a record."""
    path = f"{s3_bucket}/lake/ds"
    PyarrowDatasetIO(filesystem=s3_server.filesystem()).write_dataset(rows(1), path)
    careless_fs.pipe_file(f"{s3_bucket}/lake/.ds.fsspeckit/.staging_{uuid.uuid4().hex}/owner", b"")
    monkeypatch.setattr(fsspec_storage, "LEASE_SECONDS", -1.0)
    before = content(careless_fs, s3_bucket)
    with pytest.raises(StorageError, match="two writers could both commit"):
        PyarrowDatasetIO(filesystem=careless_fs).recover(path)
    assert content(careless_fs, s3_bucket) == before


def start_without_a_mark(world: World) -> None:
    start(world)
    log = f"{world.root.rpartition('/')[0]}/.ds.fsspeckit/log"
    names = world.storage.list_names(log)
    world.storage.remove_many([f"{log}/{name}" for name in names if name.startswith("probed-")])


PROBED = Operation("probe and append", start_without_a_mark, NAMED["write append"].run)


def test_a_fault_at_any_call_of_a_write_that_probes(sweep: Sweep) -> None:
    world = MemoryWorld()
    expected = expect(world, PROBED)
    seen = Tally()
    for call in range(1, expected.calls + 1):
        for kind in (*CRASHES, *ERRORS) if sweep.full else ("crash after", "error after"):
            seen[single_fault(world, PROBED, expected, Fault(kind, call))] += 1  # type: ignore[arg-type]
    assert seen["error"] > 0
    assert seen["published"] > 0


class OldMemory(MemoryFileSystem):
    """Ignores the mode, like the memory filesystem of fsspec before 2024.12."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        super().pipe_file(path, value)


def test_other_filesystems_are_probed_too() -> None:
    fs = OldMemory(global_store=False, skip_instance_cache=True)
    with pytest.raises(StorageError, match=r"the library OldMemory .*two writers could both commit"):
        PyarrowDatasetIO(filesystem=fs).write_dataset(rows(1), "/lake/ds")
    assert fs.find("/") == []


class Recovering(FsspecStorage):
    """Another process removes the first file of a probe between the two calls."""

    removed = 0

    def create_exclusive(self, path: str, data: bytes) -> None:
        super().create_exclusive(path, data)
        if path.endswith("/probe") and not self.removed:
            self.removed += 1
            self.remove(path)


def test_a_recovery_during_the_probe_does_not_refuse_the_storage() -> None:
    storage = Recovering(MemoryFileSystem(global_store=False, skip_instance_cache=True))
    PyarrowDatasetIO(filesystem=storage).write_dataset(rows(1), "/lake/ds")
    assert storage.removed == 1
    assert len(storage.list_tree("/lake/ds").files) == 1
