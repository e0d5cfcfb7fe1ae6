"""Publishing of many files on an object store that fails in the middle, and is finished by a recovery."""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.commit.steps import table
from faults.injection import FaultStorage
from fsspeckit.common.errors import FsspeckitError
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.publishing import Distribute, PublishFiles
from fsspeckit.core.commit.transaction import Changes, Commit, Publish
from fsspeckit.core.storage import Storage, for_each
from fsspeckit.core.storage.fsspec import FsspecStorage

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
