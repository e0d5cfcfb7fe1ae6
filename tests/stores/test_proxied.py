"""What a proxy in front of S3 can do to a commit: it refuses, drops, delays and repeats requests."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import StorageError, StoragePermissionError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from stores.conftest import Count
from stores.proxy import Answer, Proxy, Request, error
from stores.servers import Store

KEYS: dict[str, Any] = {"strategy": "upsert", "key_columns": "id"}


@pytest.fixture
def proxy(s3_server: Store) -> Iterator[Proxy]:
    with Proxy(s3_server.endpoint).running() as made:
        yield made


def rows(*ids: int, v: str = "new") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [v] * len(ids)})


def io_of(store: Store) -> PyarrowDatasetIO:
    return PyarrowDatasetIO(filesystem=store.filesystem())


def ids(table: pa.Table) -> Counter[int]:
    return Counter(table["id"].to_pylist())


def data_files(store: Store, path: str) -> set[str]:
    fs = store.filesystem()
    return {name for name in fs.find(path) if name.endswith(".parquet")}


def raw_ids(store: Store, path: str) -> Counter[int]:
    """What a reader sees that only lists the folder."""
    fs = store.filesystem()
    return sum((ids(pq.read_table(name, filesystem=fs)) for name in data_files(store, path)), Counter())


def refusing(status: int, code: str, share: float, seen: list[str], rng: random.Random) -> Callable[..., Any]:
    def rule(request: Request) -> Answer:
        if request.is_conditional and rng.random() < share:
            seen.append(request.target)
            return error(status, code)
        return request.forward()

    return rule


def test_conditional_writes_that_conflict_are_sent_again(
    s3_server: Store, s3_bucket: str, proxy: Proxy, count: Count
) -> None:
    """409 says that another request was faster, or none; only 412 says that the object exists."""
    path, refused = f"{s3_bucket}/lake/ds", list[str]()
    proxy.rule = refusing(409, "ConditionalRequestConflict", 0.4, refused, random.Random(1))
    io = io_of(s3_server.through(proxy))
    for number in range(12):
        io.write_dataset(rows(number), path)
        io.merge(rows(number, v="again"), path, **KEYS)
    assert len(refused) > 10
    count("commits with 40 percent of conditional writes answered 409", 24)
    assert ids(io_of(s3_server).read_parquet(path)) == Counter(range(12))


def test_lost_answers_leave_the_old_or_the_new_rows(
    s3_server: Store, s3_bucket: str, proxy: Proxy, rng: random.Random, count: Count
) -> None:
    """Of every eighth request that writes, the answer is lost, or the request itself."""
    path, lost = f"{s3_bucket}/lake/ds", 0
    io_of(s3_server).write_dataset(rows(0), path)

    def rule(request: Request) -> Answer | None:
        nonlocal lost
        if request.method in ("PUT", "POST") and rng.random() < 1 / 8:
            lost += 1
            if rng.random() < 0.5:
                request.forward()
            return None
        return request.forward()

    proxy.rule = rule
    io, expected, unknown = io_of(s3_server.through(proxy)), Counter([0]), set[int]()
    for number in range(1, 9):
        try:
            io.write_dataset(rows(number), path)
            io.update(path, set={"v": "v || '!'"}, where="true")
        except StorageError:
            unknown.add(number)
        else:
            expected[number] += 1
    io_of(s3_server).recover(path)
    found = raw_ids(s3_server, path)
    assert lost > 5
    count("commits with every eighth write lost", 16)
    assert found - expected == Counter(number for number in found - expected if number in unknown)
    assert not expected - found
    assert ids(io_of(s3_server).read_parquet(path)) == found
    assert not [name for name in s3_server.filesystem().find(f"{s3_bucket}/lake") if ".staging_" in name]


class SlowCopies:
    """Rule of a proxy: the server has read the source of a copy, and writes it when it is released."""

    def __init__(self, store: Store, *, answers: bool) -> None:
        self._fs, self._answers = store.filesystem(), answers
        self.started, self.released, self.ended = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, request: Request) -> Answer | None:
        if not request.is_copy or self.started.is_set():
            return request.forward()
        headers = {name.lower(): value for name, value in request.headers.items()}
        source, target = unquote(headers["x-amz-copy-source"]).lstrip("/"), unquote(urlsplit(request.target).path[1:])
        data = self._fs.cat_file(source)
        self.started.set()
        if not self._answers:
            threading.Thread(target=self._end, args=(target, data), daemon=True).start()
            return None
        return self._end(target, data)

    def _end(self, target: str, data: bytes) -> Answer:
        assert self.released.wait(60)
        self._fs.pipe_file(target, data)
        self.ended.set()
        body = b"<?xml version='1.0'?><CopyObjectResult><ETag>\"x\"</ETag></CopyObjectResult>"
        return Answer(200, {"Content-Type": "application/xml"}, body)


@pytest.mark.parametrize("answers", [True, False], ids=["waits", "connection lost"])
def test_smoke_of_a_copy_that_ends_after_its_file_was_removed(
    s3_server: Store, s3_bucket: str, proxy: Proxy, answers: bool, count: Count
) -> None:
    """The writer waits for the copy, while others finish its commit; or its connection fails and it sends it again."""
    path = f"{s3_bucket}/lake/ds"
    io_of(s3_server).write_dataset(rows(1, 2, 3), path)
    proxy.rule = slow = SlowCopies(s3_server, answers=answers)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(io_of(s3_server.through(proxy)).merge, rows(3, 4), path, **KEYS)
        assert slow.started.wait(60)
        if answers:
            assert io_of(s3_server).recover(path).replayed
        else:
            late.result()
        assert ids(io_of(s3_server).read_parquet(path)) == Counter([1, 2, 3, 4])
        io_of(s3_server).update(path, set={"v": "'rewritten'"}, where="true")
        io_of(s3_server).delete(path, where="id IN (1, 2, 3)")
        slow.released.set()
        assert late.result().inserted == 1
    assert slow.ended.wait(60)
    assert ids(io_of(s3_server).read_parquet(path)) == Counter([4])
    if not answers:
        io_of(s3_server).write_dataset(rows(5), path)
    count("copies that end late", 1)
    expected = Counter([4] if answers else [4, 5])
    assert raw_ids(s3_server, path) == ids(io_of(s3_server).read_parquet(path)) == expected


@pytest.mark.parametrize("verb", ["read", "write"])
def test_a_missing_bucket_is_reported_at_once(s3_server: Store, verb: str) -> None:
    io, path = PyarrowDatasetIO(storage_options=s3_server.storage_options), "s3://no-such-bucket-here/lake/ds"
    before = len(s3_server.requests)
    with pytest.raises(StorageError, match="the bucket or container does not exist"):
        io.read_parquet(path) if verb == "read" else io.write_dataset(rows(1), path)
    assert len(s3_server.requests) - before < 12


@pytest.mark.parametrize("code", ["SignatureDoesNotMatch", "InvalidAccessKeyId", "AuthorizationHeaderMalformed"])
def test_wrong_secrets_and_regions_are_named_on_the_first_read(
    s3_server: Store, s3_bucket: str, proxy: Proxy, code: str
) -> None:
    """The answer to a HEAD has no text, so that its status is all that the client gets."""

    def rule(request: Request) -> Answer:
        refusal = error(400 if code == "AuthorizationHeaderMalformed" else 403, code)
        return Answer(refusal.status) if request.method == "HEAD" else refusal

    proxy.rule = rule
    expected = "another region" if code == "AuthorizationHeaderMalformed" else "does not accept the credentials"
    io = PyarrowDatasetIO(storage_options=s3_server.through(proxy).storage_options)
    for run in (
        lambda: io.read_parquet(f"s3://{s3_bucket}/ds"),
        lambda: io.write_dataset(rows(1), f"s3://{s3_bucket}/ds"),
    ):
        with pytest.raises(StoragePermissionError, match=expected):
            run()


def denying_deletions(request: Request) -> Answer:
    if request.kind != "DELETE":
        return request.forward()
    keys = re.findall(rb"<Key>([^<]*)</Key>", request.body)
    failed = b"".join(b"<Error><Key>%s</Key><Code>AccessDenied</Code></Error>" % key for key in keys)
    return Answer(200, {"Content-Type": "application/xml"}, b"<DeleteResult>" + failed + b"</DeleteResult>")


def test_a_writer_that_may_not_delete_is_refused_before_its_first_commit(
    s3_server: Store, s3_bucket: str, proxy: Proxy
) -> None:
    path, proxy.rule = f"{s3_bucket}/lake/ds", denying_deletions
    with pytest.raises(StoragePermissionError, match="may create objects, but not delete them"):
        io_of(s3_server.through(proxy)).write_dataset(rows(1), path)
    assert not data_files(s3_server, path)


def test_a_result_says_that_replaced_files_are_still_there(s3_server: Store, s3_bucket: str, proxy: Proxy) -> None:
    """The permission was taken away later. Nothing but the result would tell before other readers do."""
    path, denied = f"{s3_bucket}/lake/ds", io_of(s3_server.through(proxy))
    assert denied.write_dataset(rows(1, 2, 3), path).published
    proxy.rule = denying_deletions
    result = denied.merge(rows(3, 4, v="changed"), path, **KEYS)
    assert not result.published
    assert "recover" in str(result)
    assert ids(denied.read_parquet(path)) == Counter([1, 2, 3, 4])
    assert raw_ids(s3_server, path) == Counter([1, 1, 2, 2, 3, 3, 4])
    with pytest.raises(StoragePermissionError):
        denied.delete(path, where="id = 1")
    assert io_of(s3_server).recover(path).replayed
    assert raw_ids(s3_server, path) == Counter([1, 2, 3, 4])
