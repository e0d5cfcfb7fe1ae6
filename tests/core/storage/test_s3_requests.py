"""The requests that operations send to S3, counted at the server, and the requests that s3fs does not offer."""

from __future__ import annotations

import json
from collections import Counter
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import FsspeckitError
from fsspeckit.core.storage import Storage, join
from fsspeckit.core.storage.fsspec import FsspecStorage
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO


def content(table: pa.Table) -> bytes:
    buffer = BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


FILES = 100
SOURCE = pa.table({"id": range(500, 510), "v": ["new"] * 10})
CALLS: dict[str, tuple[Any, int, Counter[str]]] = {
    "upsert": (
        lambda io, url: io.merge(SOURCE, url, strategy="upsert", key_columns="id"),
        20,
        Counter(LIST=5, HEAD=1, GET=4, PUT=5, COPY=1, DELETE=1),
    ),
    "append": (
        lambda io, url: io.write_dataset(SOURCE, url),
        12,
        Counter(LIST=3, HEAD=1, GET=2, PUT=4, COPY=1, DELETE=1),
    ),
    "read": (lambda io, url: io.read_parquet(url), 110, Counter(LIST=3, HEAD=1, GET=FILES)),
    "compact": (
        lambda io, url: io.compact_parquet_dataset(url, target_mb_per_file=64),
        130,
        Counter(LIST=5, HEAD=1, GET=FILES + 3, PUT=5, COPY=1, DELETE=1),
    ),
}


def test_requests_of_operations(s3_server: Any, s3_bucket: str) -> None:
    """On 100 files with a journal. Every operation has a new client, as in a new process."""
    url = f"s3://{s3_bucket}/d"
    new_io = lambda: PyarrowDatasetIO(filesystem=s3_server.filesystem())  # noqa: E731
    fs = s3_server.filesystem()
    for number in range(FILES):
        rows = pa.table({"id": range(number * 100, number * 100 + 100), "v": ["old"] * 100})
        fs.pipe_file(f"{s3_bucket}/d/part-{number:04}.parquet", content(rows))
    new_io().delete(url, where="id = 0")
    for name, (run, total, limits) in CALLS.items():
        io = new_io()
        s3_server.requests.clear()
        run(io, url)
        requests = Counter(s3_server.requests)
        more = {"read": 1, "compact": 2}.get(name, 0)  # of the appended file, and of the index with it
        assert requests <= limits + Counter(GET=more), (name, requests)
        assert requests.total() <= total + more, (name, requests)
    assert Counter(new_io().read_parquet(url)["v"].to_pylist()) == {"old": FILES * 100 - 11, "new": 20}


@pytest.fixture
def storage(s3_server: Any) -> FsspecStorage:
    return FsspecStorage(s3_server.filesystem())


def fill(storage: Storage, root: str, names: list[str]) -> list[str]:
    for name in names:
        storage.write_bytes(join(root, name), b"x")
    return sorted(names)


@pytest.mark.parametrize("files", [7, 1])
@pytest.mark.parametrize("folders", [0, 1, 3, 40])
def test_large_trees_are_listed_in_ranges(
    storage: FsspecStorage, s3_bucket: str, monkeypatch: pytest.MonkeyPatch, folders: int, files: int
) -> None:
    names = [f"a{number}" for number in range(9)]
    names += [f"p={one}/q={two}/{file}" for one in range(folders) for two in range(2) for file in range(files)]
    names += [f"z{number}" for number in range(9)]
    expected = fill(storage, f"{s3_bucket}/tree", names)
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "5")
    assert [entry.path for entry in storage.list_tree(f"{s3_bucket}/tree").files] == expected


def test_bulk_deletion_reports_files_that_remain(storage: FsspecStorage, s3_bucket: str) -> None:
    names = fill(storage, s3_bucket, [f"f{number}" for number in range(5)])
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:DeleteObject",
                "Resource": f"arn:aws:s3:::{s3_bucket}/f3",
            }
        ],
    }
    storage._fs.call_s3("put_bucket_policy", Bucket=s3_bucket, Policy=json.dumps(policy))
    with pytest.raises((PermissionError, FsspeckitError), match="f3"):
        storage.remove_many([join(s3_bucket, name) for name in names])
    storage._fs.call_s3("delete_bucket_policy", Bucket=s3_bucket)
    storage.remove_many([join(s3_bucket, name) for name in names] + [join(s3_bucket, "missing")])
    assert storage.list_dir(s3_bucket) == []


def test_replaced_file_is_not_read(storage: FsspecStorage, s3_bucket: str) -> None:
    path = f"{s3_bucket}/a.parquet"
    storage.write_bytes(path, b"old")
    old = storage.stat_file(path)
    assert old is not None
    storage.write_bytes(path, b"new")
    with pytest.raises(FileNotFoundError, match="was replaced"):
        storage.open_input(path, old.size, old.stamp)
