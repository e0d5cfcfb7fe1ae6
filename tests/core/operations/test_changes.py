"""The change feed: its schema, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fsspeckit.common.errors import KeyColumnError, SchemaMismatchError, VersionNotFoundError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO


def rows(ids: list[int], value: str = "a") -> pa.Table:
    return pa.table({"id": ids, "value": [value] * len(ids)})


@pytest.fixture
def io() -> PyarrowDatasetIO:
    return PyarrowDatasetIO()


@pytest.fixture
def path(io: PyarrowDatasetIO, tmp_path: Path) -> str:
    folder = str(tmp_path / "d")
    io.write_dataset(rows([1, 2, 3]), folder)
    io.keep_history(folder)
    return folder


def test_feed_of_a_changed_schema_and_of_moved_rows(io: PyarrowDatasetIO, tmp_path: Path) -> None:
    folder = str(tmp_path / "d")
    io.write_dataset(pa.table({"id": [1, 2], "day": ["a", "b"]}), folder, partition_by="day")
    first = io.keep_history(folder)
    source = pa.table({"id": [1, 2, 3], "day": ["b", "b", "c"], "extra": [None, 7, 8]})
    io.merge(source, folder, key_columns="id", schema_mode="evolve", partition_move="move")
    feed = io.changes(folder, since=first, key_columns="id")
    assert feed.column_names == ["id", "extra", "day", "_change_type", "_version", "_at"]
    assert sorted(map(str, zip(*feed.drop_columns(["_version", "_at"]).to_pydict().values(), strict=True))) == [
        "(1, None, 'a', 'update_before')",
        "(1, None, 'b', 'update_after')",
        "(2, 7, 'b', 'update_after')",
        "(2, None, 'b', 'update_before')",
        "(3, 8, 'c', 'insert')",
    ]
    assert str(feed.schema.field("_at").type) == "timestamp[us, tz=UTC]"


def test_errors(io: PyarrowDatasetIO, path: str) -> None:
    for since, until in ((5, None), (2, 1)):
        with pytest.raises(ValueError, match="is later than version"):
            io.changes(path, since=since, until=until)
    for since, until in ((-1, None), (True, None), ("2", None), (2, "3"), (2, 3.0), (2, True), (2, -1)):
        with pytest.raises(ValueError, match=r"(since|until)=.* is not the number of a version"):
            io.changes(path, since=since, until=until)  # type: ignore[arg-type]
    for before, after in ((True, 2), ("2", 3), (2, 3.0), (2, -1)):
        with pytest.raises(ValueError, match=r"(before|after)=.* is not the number of a version"):
            io.diff(path, before, after)  # type: ignore[arg-type]
    with pytest.raises(VersionNotFoundError, match="no version 7"):
        io.changes(path, since=2, until=7)
    with pytest.raises(VersionNotFoundError, match=r"Version 1 of .* is not kept"):
        io.changes(path, since=1)
    with pytest.raises(KeyColumnError, match="no column 'x'"):
        io.changes(path, since=2, key_columns="x")
    nested = path + "2"
    io.write_dataset(pa.table({"id": [[1]], "_at": [1]}), nested)
    first = io.keep_history(nested)
    with pytest.raises(ValueError, match="has a column '_at'"):
        io.changes(nested, since=first)
    io.write_dataset(pa.table({"id": [[1]]}), nested, mode="overwrite")
    io.write_dataset(pa.table({"id": [[2]]}), nested, mode="overwrite")
    with pytest.raises(SchemaMismatchError, match="cannot be a key"):
        io.changes(nested, since=first + 1, key_columns="id")
