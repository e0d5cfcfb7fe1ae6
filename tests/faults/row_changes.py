"""Row changes for the fault tests: delete, update, a partial merge and change feeds, on files of several row groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from faults.operations import Operation
from faults.worlds import World
from fsspeckit.core.storage import Storage, join
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

Run = Callable[[Storage, str], Any]
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("lsn", pa.int64()), ("value", pa.string())])


def start(world: World) -> None:
    """Two files of three row groups in each of two partitions, and an unrelated file."""
    io = PyarrowDatasetIO(filesystem=world.storage)
    for first in (0, 12):
        rows = [(first + i, "ab"[i // 6], 10, "old") for i in range(12)]
        io.write_dataset(_table(rows), world.root, partition_by=["day"], row_group_size=2)
    world.storage.write_bytes(join(world.root, "notes.txt"), b"none of our business")


def _table(rows: Iterable[tuple[Any, ...]], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def delete(where: str) -> Run:
    return lambda storage, root: PyarrowDatasetIO(filesystem=storage).delete(root, where=where)


def update(storage: Storage, root: str) -> Any:
    """Change one row group of each of three files."""
    values = {"value": "value || ' new'", "lsn": "lsn + id"}
    return PyarrowDatasetIO(filesystem=storage).update(root, set=values, where="id IN (3, 7, 8, 19)")


def merge_columns(storage: Storage, root: str) -> Any:
    """Change one column of some rows, delete one row, insert one."""
    rows = [(2, "a", 11, "new", "u"), (13, "a", 11, "new", "d"), (20, "b", 9, "late", "u"), (30, "b", 11, "new", "u")]
    return PyarrowDatasetIO(filesystem=storage).merge(
        _table(rows, FEED_SCHEMA),
        root,
        strategy="upsert",
        key_columns="id",
        update_columns=["value"],
        delete_when="op = 'd'",
        newer_by="lsn",
    )


FEED_SCHEMA = SCHEMA.append(pa.field("op", pa.string()))
FEED = _table(
    [
        (1, "a", 11, "replaced in the feed", "u"),
        (1, "a", 12, "new", "u"),
        (2, "b", 12, "moved", "u"),
        (3, "c", 12, "moved to a new partition", "u"),
        (4, None, 12, None, "d"),
        *((i, None, 12, None, "d") for i in range(18, 24)),
        (7, "b", 9, "late", "u"),
        (40, "a", 12, "new", "c"),
        (41, "c", 12, "new", "c"),
        (42, "c", 12, None, "d"),
    ],
    FEED_SCHEMA,
)


def apply_feed(feed: pa.Table, **options: Any) -> Run:
    return lambda storage, root: PyarrowDatasetIO(filesystem=storage).apply_changes(
        feed, root, key_columns="id", sequence_by="lsn", delete_when="op = 'd'", except_columns="op", **options
    )


def create_from_feed(storage: Storage, root: str) -> Any:
    """Create a dataset from a feed."""
    return PyarrowDatasetIO(filesystem=storage).apply_changes(
        FEED, root, key_columns="id", sequence_by="lsn", delete_when="op = 'd'", partition_by="day"
    )


def start_deleted(world: World) -> None:
    """Some keys are deleted, in files of tombstones that the next deletes join."""
    start(world)
    for key in (4, 5, 19):
        apply_feed(_table([(key, None, 20, None, "d")], FEED_SCHEMA), tombstones="1d")(world.storage, world.root)


LATE = _table(
    [(4, "a", 15, "late", "u"), (5, "a", 21, "again", "u"), (6, None, 21, None, "d"), (99, None, 7, None, "d")],
    FEED_SCHEMA,
)
"""A late change, one that revives a key, and deletes of a key that exists and of one that does not."""
UNKNOWN = _table([(98, None, 7, None, "d"), (99, None, 7, None, "d")], FEED_SCHEMA)
"""Deletes that change no row, only the tombstones."""


ROW_CHANGES = [
    Operation("delete", start, delete("id BETWEEN 4 AND 11")),
    Operation("delete a partition", start, delete("day = 'b' OR id = 1")),
    Operation("delete all", start, delete("true")),
    Operation("update rows", start, update),
    Operation("merge columns", start, merge_columns),
    Operation("apply changes", start, apply_feed(FEED)),
    Operation("create from a feed", lambda world: None, create_from_feed),
    Operation("apply late changes", start_deleted, apply_feed(LATE)),
    Operation("delete unknown keys", start_deleted, apply_feed(UNKNOWN)),
]
