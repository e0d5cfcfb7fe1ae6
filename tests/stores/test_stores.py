"""Every verb, concurrent writers, kills, faults and lost answers on every server."""

from __future__ import annotations

import gc
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from faults.injection import Fault
from faults.sweep import expect, run_with
from faults.test_processes import count_up, counter, start_counter
from faults.test_s3 import S3World, kill_writers
from faults.verbs import NAMED, OPERATIONS, Operation
from faults.worlds import MemoryWorld
from fsspeckit.common.errors import StorageError, StoragePermissionError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import fsspec_storage, recover
from stores.conftest import Count
from stores.proxy import Answer, Proxy, Request
from stores.servers import Store


@pytest.fixture
def world(store: Store) -> S3World:
    return S3World(store, store.bucket())


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_verb(world: S3World, operation: Operation, count: Count) -> None:
    """The rows are those in memory, plain readers and our own see the same, and nothing is left over."""
    found, expected = expect(world, operation), expect(MemoryWorld(), operation)
    assert (found.old, found.new) == (expected.old, expected.new)
    assert found.new_versions == expected.new_versions
    assert world.seen_rows() == world.raw_rows()
    count("verbs and options", 1)


def test_concurrent_writers(store: Store, count: Count) -> None:
    root, attempts = f"{store.bucket()}/counter", 6
    ios = [PyarrowDatasetIO(filesystem=store.filesystem()) for _ in range(4)]
    start_counter(ios[0], root)
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda io: count_up(io, root, attempts), ios))
    assert counter(ios[1], root) == sum(won for won, _ in outcomes) > 0
    count("changes of concurrent writers", 4 * attempts)


def test_killed_writers(store: Store, count: Count, rng: random.Random) -> None:
    kill_writers(store, store.bucket(), rng, turns=2)
    count("killed writers", 8)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # open uploads of the crashed process
@pytest.mark.parametrize("name", ["upsert", "compact"])
def test_crashes(world: S3World, name: str, count: Count, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash after each of some calls."""
    monkeypatch.setattr(fsspec_storage, "LEASE_SECONDS", -1.0)
    expected = expect(world, NAMED[name])
    for part in range(1, 7):
        world.reset()
        run_with(world, NAMED[name].run, Fault("crash after", expected.calls * part // 7))
        gc.collect()  # open uploads are sent when they are collected, which must not come after the recovery
        seen = world.seen_rows()
        recover(world.new_storage(), world.root)
        assert world.raw_rows() == seen
        assert seen in (expected.old, expected.new)
        count("crashes", 1)


def test_lost_answers(store: Store, count: Count) -> None:
    """The answer to the request that creates the record, and to the copy."""
    path = f"{store.bucket()}/lake/ds"
    PyarrowDatasetIO(filesystem=store.filesystem()).write_dataset(pa.table({"id": [0]}), path)
    lost: list[str] = []

    def rule(request: Request) -> Answer | None:
        answer = request.forward()
        if request.method != "PUT" or not (request.is_copy or request.target.partition("?")[0].endswith(".json")):
            return answer
        kind = "copy" if request.is_copy else "record"
        if kind in lost:
            return answer
        lost.append(kind)
        return None

    with Proxy(store.endpoint).running() as proxy:
        proxy.rule = rule
        io = PyarrowDatasetIO(filesystem=store.through(proxy).filesystem())
        io.update(path, set={"id": "id + 1"}, where="true")
    assert sorted(lost) == ["copy", "record"]
    found = PyarrowDatasetIO(filesystem=store.filesystem()).read_parquet(path)
    assert Counter(found["id"].to_pylist()) == Counter([1])
    count("lost answers", 2)


def test_wrong_place_and_credentials(store: Store) -> None:
    io = PyarrowDatasetIO(filesystem=store.filesystem())
    for run in (lambda: io.read_parquet("no-such-bucket/ds"), lambda: io.delete("no-such-bucket/ds", where="true")):
        with pytest.raises(StorageError, match="the bucket or container does not exist"):
            run()
    options = dict(store.storage_options)
    if "secret" in options:
        options["secret"] = "wrong"
    else:
        options["connection_string"] = options["connection_string"].replace("AccountKey=E", "AccountKey=F")
    io = PyarrowDatasetIO(storage_options=options)
    with pytest.raises(StoragePermissionError, match="does not accept the credentials"):
        io.read_parquet(f"{store.protocol}://{store.bucket()}/ds")
