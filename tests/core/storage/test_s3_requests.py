"""The requests that operations send to S3, counted at the server, and the requests that s3fs does not offer."""

from __future__ import annotations

import io
import json
import pickle
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import FsspeckitError
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.model import KeptBytes
from fsspeckit.core.storage import Storage, fsspec, join, resolve
from fsspeckit.core.storage.fsspec import FsspecStorage
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

FILES = 100
ROWS = 100


def rows(start: int, stop: int, value: str) -> pa.Table:
    return pa.table({"id": pa.array(range(start, stop), pa.int64()), "v": [value] * (stop - start)})


def content(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


class Dataset:
    """A dataset of 100 small files with a journal. Every operation has a new client, as in a new process."""

    def __init__(self, server: Any, bucket: str) -> None:
        self._server, self.url = server, f"s3://{bucket}/d"
        fs = server.filesystem()
        for number in range(FILES):
            table = rows(number * ROWS, (number + 1) * ROWS, "old")
            fs.pipe_file(f"{bucket}/d/part-{number:04}.parquet", content(table))
        self.io().merge(rows(0, 1, "first"), self.url, strategy="upsert", key_columns="id")

    def io(self) -> PyarrowDatasetIO:
        return PyarrowDatasetIO(filesystem=self._server.filesystem())

    def remove_index(self) -> None:
        self._server.filesystem().rm(f"{self.url[5:-1]}.d.fsspeckit/index", recursive=True)

    def count(self, run: Callable[[PyarrowDatasetIO], object]) -> Counter[str]:
        """Run an operation and return its requests by kind."""
        client = self.io()
        self._server.requests.clear()
        run(client)
        return Counter(self._server.requests)


@pytest.fixture
def dataset(s3_server: Any, s3_bucket: str) -> Dataset:
    return Dataset(s3_server, s3_bucket)


def check(requests: Counter[str], total: int, **kinds: int) -> None:
    """Each kind has an upper limit, and other kinds are not used."""
    assert requests <= Counter(kinds), requests
    assert requests.total() <= total


def test_append_of_one_file(dataset: Dataset) -> None:
    requests = dataset.count(lambda io: io.write_dataset(rows(50_000, 50_010, "new"), dataset.url))
    check(requests, 12, LIST=3, HEAD=1, GET=2, PUT=4, COPY=1, DELETE=1)
    assert dataset.io().read_parquet(dataset.url).num_rows == FILES * ROWS + 10


def test_upsert_that_changes_one_file(dataset: Dataset) -> None:
    source = rows(500, 510, "new")
    requests = dataset.count(lambda io: io.merge(source, dataset.url, strategy="upsert", key_columns="id"))
    check(requests, 20, LIST=5, HEAD=1, GET=4, PUT=5, COPY=1, DELETE=1)
    table = dataset.io().read_parquet(dataset.url)
    assert Counter(table["v"].to_pylist()) == {"old": FILES * ROWS - 11, "new": 10, "first": 1}


def _merge(io: PyarrowDatasetIO, source: pa.Table, url: str) -> object:
    return io.merge(source, url, strategy="upsert", key_columns="id")


def test_upsert_without_an_index(dataset: Dataset) -> None:
    dataset.remove_index()
    source = rows(500, 510, "new")
    requests = dataset.count(lambda io: io.merge(source, dataset.url, strategy="upsert", key_columns="id"))
    check(requests, 20 + FILES, LIST=5, HEAD=1, GET=FILES + 3, PUT=5, COPY=1, DELETE=1)
    assert requests.total() - FILES <= 14, "besides one request for each footer"


def test_upserts_with_a_growing_index(dataset: Dataset) -> None:
    """The files of the index are joined, so that no operation reads many of them."""
    for number in range(10):
        requests = dataset.count(partial(_merge, source=rows(number * 500, number * 500 + 10, "new"), url=dataset.url))
        assert requests.total() <= 20, requests
    requests = dataset.count(lambda io: io.delete(dataset.url, where="id = 700"))
    assert requests.total() <= 20, requests
    assert dataset.io().read_parquet(dataset.url).num_rows == FILES * ROWS - 1


def test_read_of_all_files(dataset: Dataset) -> None:
    check(dataset.count(lambda io: io.read_parquet(dataset.url)), 110, LIST=3, HEAD=1, GET=FILES)


def test_read_of_a_folder_without_journal(s3_server: Any, s3_bucket: str) -> None:
    s3_server.filesystem().pipe_file(f"{s3_bucket}/plain/a.parquet", content(rows(0, 5, "old")))
    io_ = PyarrowDatasetIO(filesystem=s3_server.filesystem())
    s3_server.requests.clear()
    assert io_.read_parquet(f"s3://{s3_bucket}/plain").num_rows == 5
    check(Counter(s3_server.requests), 7, LIST=5, HEAD=1, GET=1)


def test_compaction_of_all_files_into_one(dataset: Dataset) -> None:
    requests = dataset.count(lambda io: io.compact_parquet_dataset(dataset.url, target_mb_per_file=64))
    check(requests, 130, LIST=5, HEAD=1, GET=FILES + 3, PUT=5, COPY=1, DELETE=1)
    assert dataset.io().read_parquet(dataset.url).num_rows == FILES * ROWS


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


def test_truncated_listing_of_a_sidecar(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "3")
    dataset.io().write_dataset(rows(50_000, 50_010, "new"), dataset.url)
    dataset.io().merge(rows(500, 510, "new"), dataset.url, strategy="upsert", key_columns="id")
    assert dataset.io().read_parquet(dataset.url).num_rows == FILES * ROWS + 10


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


def test_many_files_are_deleted_by_few_requests(storage: FsspecStorage, s3_server: Any, s3_bucket: str) -> None:
    s3_server.requests.clear()
    storage.remove_many([f"{s3_bucket}/missing-{number}" for number in range(2001)])
    assert s3_server.requests == ["DELETE"] * 3


def test_replaced_file_is_not_read(storage: FsspecStorage, s3_bucket: str) -> None:
    path = f"{s3_bucket}/a.parquet"
    storage.write_bytes(path, b"old")
    old = storage.stat_file(path)
    assert old is not None
    storage.write_bytes(path, b"new")
    with pytest.raises(FileNotFoundError, match="was replaced"):
        storage.open_input(path, old.size, old.stamp)


def test_large_file_is_read_in_ranges(
    storage: FsspecStorage, s3_server: Any, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"x": list(range(50_000)), "y": [str(number) for number in range(50_000)]})
    data = content(table)
    storage.write_bytes(f"{s3_bucket}/a.parquet", data)
    monkeypatch.setattr(fsspec, "WHOLE_FILE", 10)
    monkeypatch.setattr(storage._fs, "default_block_size", 100_000)
    s3_server.requests.clear()
    with storage.open_input(f"{s3_bucket}/a.parquet", len(data), "") as file:
        assert file.size() == len(data)
        assert file.read_at(100, 50) == data[50:150]
        assert pq.read_table(file).equals(table)
    assert set(s3_server.requests) == {"GET"}


def test_two_journals_with_records_are_an_error(dataset: Dataset, storage: FsspecStorage) -> None:
    _, root = resolve(dataset.url, storage)
    storage.write_bytes(join(root, ".fsspeckit/log/00000000000000000001.json"), b"{}")
    with pytest.raises(FsspeckitError, match="two journals"):
        Journal(storage, root).view()


def test_kept_bytes_stay_in_the_process() -> None:
    assert KeptBytes(b"x") == b"x"
    assert pickle.loads(pickle.dumps({"content": KeptBytes(b"x")})) == {"content": None}
