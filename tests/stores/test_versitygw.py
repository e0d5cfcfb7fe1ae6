"""What only another server than that of moto does: versitygw refuses to create an object again that was deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.common.errors import StorageError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from stores.servers import Store, running

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def versioned() -> Iterator[Store]:
    with running("versitygw", versions=True) as store:
        yield store


@pytest.fixture
def bucket(versioned: Store) -> str:
    name = versioned.bucket()
    versioning = {"Status": "Enabled"}
    versioned.filesystem().call_s3("put_bucket_versioning", Bucket=name, VersioningConfiguration=versioning)
    return name


def append(store: Store, path: str, number: int) -> Any:
    return PyarrowDatasetIO(filesystem=store.filesystem()).write_dataset(pa.table({"id": [number]}), path)


def test_a_journal_that_was_deleted_in_a_versioned_bucket(versioned: Store, bucket: str) -> None:
    """The error says what to do, and that helps. `forget` needs no such step."""
    path, fs = f"{bucket}/lake/ds", versioned.filesystem()
    for number in range(3):
        append(versioned, path, number)
    PyarrowDatasetIO(filesystem=fs).forget(path)
    append(versioned, path, 3)
    fs.rm(f"{bucket}/lake/.ds.fsspeckit", recursive=True)
    with pytest.raises(StorageError, match="Delete all versions and delete markers"):
        append(versioned, path, 4)
    found = fs.call_s3("list_object_versions", Bucket=bucket, Prefix="lake/.ds.fsspeckit/")
    for each in (*found.get("Versions", ()), *found.get("DeleteMarkers", ())):
        fs.call_s3("delete_object", Bucket=bucket, Key=each["Key"], VersionId=each["VersionId"])
    for number in (4, 5):
        append(versioned, path, number)
    io = PyarrowDatasetIO(filesystem=versioned.filesystem())
    io.update(path, set={"id": "id * 10"}, where="id >= 4")
    assert Counter(io.read_parquet(path)["id"].to_pylist()) == Counter([0, 1, 2, 3, 40, 50])
    assert not io.recover(path)
