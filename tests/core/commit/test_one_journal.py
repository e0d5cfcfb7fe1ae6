"""A dataset has one journal, whichever filesystem object it is opened with."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.dirfs import DirFileSystem

from fsspeckit.common.errors import NestedDatasetError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

ROWS = pa.table({"id": [1, 2], "day": ["a", "b"]})


def test_through_a_filesystem_of_a_folder(memory_fs: Any) -> None:
    PyarrowDatasetIO().write_dataset(ROWS, "memory://lake/d", partition_by=["day"])
    below = PyarrowDatasetIO(filesystem=DirFileSystem(path="/lake/d", fs=memory_fs))
    with pytest.raises(NestedDatasetError, match="/lake/d"):
        below.write_dataset(ROWS, "day=a")
    for path in (".", "/"):
        below.write_dataset(ROWS, path)
    journals = {path.partition("/log/")[0] for path in memory_fs.find("/lake") if path.endswith(".json")}
    assert journals == {"/lake/.d.fsspeckit"}
