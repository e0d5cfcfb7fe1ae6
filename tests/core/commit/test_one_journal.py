"""A dataset has one journal, whichever filesystem object it is opened with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.dirfs import DirFileSystem
from pyarrow.fs import LocalFileSystem as LocalArrow

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


def test_through_a_link_and_the_filesystem_of_arrow(tmp_path: Path) -> None:
    PyarrowDatasetIO().write_dataset(ROWS, str(tmp_path / "d"))
    (tmp_path / "link").symlink_to(tmp_path / "d")
    arrow = PyarrowDatasetIO(filesystem=ArrowFSWrapper(LocalArrow()))
    for path in ("link", "d/.", "x/../d"):
        arrow.write_dataset(ROWS, str(tmp_path / path))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == [".d.fsspeckit"]
