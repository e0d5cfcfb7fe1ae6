"""Kept versions of a dataset to which other programs add files: a version has the files that its commit listed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.commit.steps import table
from faults.worlds import LocalWorld, MemoryWorld, World
from fsspeckit.core.commit.matching import Matcher
from fsspeckit.core.commit.record import FileList
from fsspeckit.core.model import ViewFile
from fsspeckit.core.storage import join
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

WORLDS = {"local": LocalWorld, "memory": MemoryWorld}


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = WORLDS[request.param]()
    io = PyarrowDatasetIO(filesystem=made.storage)
    io.write_dataset(table([1, 2, 3], "a"), made.root)
    io.keep_history(made.root, retain="7d")
    yield made
    made.close()


def add_file(world: World, ids: list[int], name: str = "foreign.parquet") -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table(ids, "foreign"), sink)
    world.storage.write_bytes(join(world.root, name), sink.getvalue().to_pybytes())


def ids(io: PyarrowDatasetIO, world: World, version: int) -> list[int]:
    return sorted(io.read_parquet(world.root, version=version)["id"].to_pylist())


def feed(io: PyarrowDatasetIO, world: World, since: int, until: int | None = None) -> list[tuple[int, str, int]]:
    rows = io.changes(world.root, since=since, until=until, key_columns="id").to_pylist()
    return sorted((row["_version"], row["_change_type"], row["id"]) for row in rows)


@pytest.mark.parametrize("files", [1, 3])
def test_rewrite_of_an_added_file_leaves_earlier_versions(world: World, files: int) -> None:
    io = PyarrowDatasetIO(filesystem=world.storage)
    io.delete(world.root, where="id = 1")
    for number in range(files):
        add_file(world, [10 + number], f"foreign-{number}.parquet")
    io.compact_parquet_dataset(world.root, target_rows_per_file=1000)
    added = [10 + number for number in range(files)]
    assert [ids(io, world, version) for version in (2, 3, 4)] == [[1, 2, 3], [2, 3], [2, 3, *added]]
    assert feed(io, world, 2) == [(3, "delete", 1), *((4, "insert", each) for each in added)]
    io.restore(world.root, version=2)
    assert ids(io, world, 5) == [1, 2, 3]


def test_changes_have_the_rows_of_added_files(world: World) -> None:
    """A commit inserts the rows of the files that its version is the first one to have, as the commit leaves them."""
    io = PyarrowDatasetIO(filesystem=world.storage)
    add_file(world, [8, 9])
    io.write_dataset(table([4], "b"), world.root)
    assert feed(io, world, 2) == [(3, "insert", 4), (3, "insert", 8), (3, "insert", 9)]
    io.delete(world.root, where="id = 9")
    add_file(world, [20, 21], "more.parquet")
    io.delete(world.root, where="id = 20")
    assert feed(io, world, 3) == [(4, "delete", 9), (5, "insert", 21)]
    assert [ids(io, world, version) for version in (3, 4, 5)] == [
        [1, 2, 3, 4, 8, 9],
        [1, 2, 3, 4, 8],
        [1, 2, 3, 4, 8, 21],
    ]


def view_file(path: str, size: int, modified: float = 0.0) -> ViewFile:
    return ViewFile(path, path, size, "", modified=modified)


@pytest.mark.parametrize(
    "listed",
    [{"a": 5, "c": 7}, {"a": 5, "b": 8}, {"a": 12}, {"a": 5, "b": 7, "c": 1}],
    ids=["renamed", "other size", "one of both sizes", "missing"],
)
def test_matching_accepts_no_other_files(listed: dict[str, int]) -> None:
    files: dict[str, Any] = {"a": view_file("a", 5), "b": view_file("b", 7)}
    assert Matcher().find(FileList.of(listed), files, (), 3.0) is None
