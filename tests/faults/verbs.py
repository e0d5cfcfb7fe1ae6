"""Every verb of the public API on a small dataset, for the sweeps of faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from faults.worlds import World
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import Storage, join

Run = Callable[[Storage, str], Any]
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("lsn", pa.int64()), ("value", pa.string())])
FEED_SCHEMA = SCHEMA.append(pa.field("op", pa.string()))


@dataclass(frozen=True, slots=True)
class Operation:
    """A change to test: the dataset before it, the change itself, and whether it changes files but no rows."""

    name: str
    prepare: Callable[[World], None]
    run: Run
    same_rows: bool = False


def table(rows: Iterable[tuple[Any, ...]], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def call(verb: str, *arguments: Any, **options: Any) -> Run:
    """A call of a method, whose last argument is the dataset."""
    return lambda storage, root: getattr(PyarrowDatasetIO(filesystem=storage), verb)(*arguments, root, **options)


def start(world: World) -> None:
    """Two files of three row groups in each of two partitions, and an unrelated file."""
    for first in (0, 12):
        rows = table([(first + i, "ab"[i // 6], 10, "old") for i in range(12)])
        call("write_dataset", rows, partition_by=["day"], row_group_size=2)(world.storage, world.root)
    world.storage.write_bytes(join(world.root, "notes.txt"), b"none of our business")


def start_doubled(world: World) -> None:
    """The same and a few rows again, in a third file of one partition and a large one of the other."""
    start(world)
    again = [*((i, "a", 11, "again") for i in (2, 3)), *((i, "b", 11, "again") for i in (6, *range(8, 20)))]
    call("write_dataset", table(again), partition_by=["day"])(world.storage, world.root)


def start_kept(world: World) -> None:
    """A dataset that keeps versions, and has two."""
    start(world)
    call("keep_history")(world.storage, world.root)
    call("update", set={"value": "'kept'"}, where="id IN (1, 7)")(world.storage, world.root)


def start_bare(world: World) -> None:
    """A dataset that another program wrote: no sidecar."""
    start(world)
    sidecar = f"{world.root.rpartition('/')[0]}/.ds.fsspeckit"
    world.storage.remove_tree(sidecar)


def start_inside(world: World) -> None:
    """A dataset that keeps its sidecar inside."""
    world.storage.make_dirs(join(world.root, ".fsspeckit", "log"))
    world.storage.write_bytes(join(world.root, ".fsspeckit", "lock"), b"")
    start(world)


def nothing(world: World) -> None:
    """No dataset at all."""


def nothing_deep(world: World) -> None:
    """No dataset, and none of the folders above it."""
    world.root = world.root.replace("lake/ds", "lake/a/b/ds")


def restore_first(storage: Storage, root: str) -> Any:
    """Restore the first version that is kept."""
    io = PyarrowDatasetIO(filesystem=storage)
    return io.restore(root, version=min(each.version for each in io.history(root) if each.readable))


def start_deleted(world: World) -> None:
    """Some keys are deleted, in files of tombstones that the next deletes join."""
    start(world)
    for key in (4, 5, 19):
        feed = table([(key, None, 20, None, "d")], FEED_SCHEMA)
        call("apply_changes", feed, except_columns="op", tombstones="1d", **DELETING)(world.storage, world.root)


CHANGED = table(
    [(2, "a", 11, "new"), (3, "a", 11, "new"), (6, "b", 11, "new"), (40, "a", 11, "new"), (50, "c", 1, "x")]
)
COLUMNS = table(
    [(2, "a", 11, "new", "u"), (13, "a", 11, "new", "d"), (20, "b", 9, "late", "u"), (30, "b", 11, "new", "u")],
    FEED_SCHEMA,
)
FEED = table(
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
DELETING = {"key_columns": "id", "sequence_by": "lsn", "delete_when": "op = 'd'"}
APPLY = call("apply_changes", FEED, except_columns="op", **DELETING)
LATE = table(
    [(4, "a", 15, "late", "u"), (5, "a", 21, "again", "u"), (6, None, 21, None, "d"), (99, None, 7, None, "d")],
    FEED_SCHEMA,
)
"""A late change, one that revives a key, and deletes of a key that exists and of one that does not."""
UNKNOWN = table([(98, None, 7, None, "d"), (99, None, 7, None, "d")], FEED_SCHEMA)
"""Deletes that change no row, only the tombstones."""
UPSERT = call("merge", CHANGED, strategy="upsert", key_columns="id")
PARTIAL = {"update_columns": ["value"], "delete_when": "op = 'd'", "newer_by": "lsn"}
UPDATE = call("update", set={"value": "value || ' new'", "lsn": "lsn + id"}, where="id IN (3, 7, 8, 19)")
SORT = call("optimize_parquet_dataset", zorder_columns=["id"], target_rows_per_file=6)
UNIQUE = {"deduplicate_key_columns": ["value", "day"], "zorder_columns": ["id"], "curve": "hilbert"}

OPERATIONS = [
    *(
        Operation(f"write {mode}", start, call("write_dataset", CHANGED, mode=mode, partition_by=["day"]))
        for mode in ("append", "overwrite", "overwrite_partitions")
    ),
    Operation("create", nothing, call("write_dataset", CHANGED, partition_by=["day"])),
    Operation("create deep", nothing_deep, call("write_dataset", CHANGED, partition_by=["day"])),
    Operation("append to bare", start_bare, call("write_dataset", CHANGED, partition_by=["day"])),
    *(
        Operation(name, start, call("merge", CHANGED, strategy=name, key_columns=["id"]))
        for name in ("upsert", "full_merge", "deduplicate")
    ),
    Operation("upsert inside", start_inside, UPSERT),
    Operation("merge columns", start, call("merge", COLUMNS, strategy="upsert", key_columns="id", **PARTIAL)),
    Operation("delete", start, call("delete", where="id BETWEEN 4 AND 11")),
    Operation("delete all", start, call("delete", where="true")),
    Operation("update rows", start, UPDATE),
    Operation("apply changes", start, APPLY),
    *(
        Operation(name, start_deleted, call("apply_changes", feed, except_columns="op", **DELETING))
        for name, feed in (("apply late changes", LATE), ("delete unknown keys", UNKNOWN))
    ),
    Operation("create from a feed", nothing, call("apply_changes", FEED, partition_by="day", **DELETING)),
    Operation("keep the history of keys", nothing, call("apply_changes", FEED, scd_type=2, **DELETING)),
    Operation("compact", start, call("compact_parquet_dataset", target_mb_per_file=1), same_rows=True),
    Operation("optimize", start, SORT, same_rows=True),
    Operation("deduplicate dataset", start, call("deduplicate_parquet_dataset", key_columns=["value"])),
    Operation("optimize and deduplicate", start, call("optimize_parquet_dataset", **UNIQUE)),
    Operation(
        "deduplicate and join",
        start_doubled,
        call("optimize_parquet_dataset", deduplicate_key_columns=["id"], target_rows_per_file=8),
    ),
    Operation("apply changes, keep versions", start_kept, APPLY),
    Operation("overwrite, keep versions", start_kept, call("write_dataset", CHANGED, mode="overwrite")),
    Operation("restore", start_kept, restore_first),
]
NAMED = {operation.name: operation for operation in OPERATIONS}
