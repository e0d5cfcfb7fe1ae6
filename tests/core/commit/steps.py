"""Small operations that use only the commit layer. Every larger operation consists of such steps."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

from faults.worlds import World
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.transaction import Changes, Commit, Publish, Transaction
from fsspeckit.core.storage import Storage, join


def table(ids: Iterable[int], value: str) -> pa.Table:
    """A few rows."""
    listed = list(ids)
    return pa.table({"id": pa.array(listed, pa.int64()), "value": [value] * len(listed)})


def stage(storage: Storage, transaction: Transaction, data: pa.Table) -> str:
    """Write a table into the staging folder."""
    path = transaction.staged_path()
    with storage.open_output(path) as file:
        pq.write_table(data, file)
    return path


def append_files(storage: Storage, root: str, files: dict[str, pa.Table]) -> Commit:
    """Append files under given names."""
    journal = Journal(storage, root)
    journal.recover()
    with journal.begin(journal.view(), "append") as transaction:
        publish = [Publish(stage(storage, transaction, data), path, data.num_rows) for path, data in files.items()]
        return transaction.commit(Changes(publish=tuple(publish)))


def start(world: World) -> None:
    """Three data files in two partitions, side files that become stale, and unrelated files."""
    append_files(
        world.storage,
        world.root,
        {
            "day=1/a.parquet": table(range(5), "old"),
            "day=1/b.parquet": table(range(5, 10), "old"),
            "day=2/c.parquet": table(range(10, 15), "old"),
        },
    )
    for path in ("_metadata", "day=1/.a.parquet.crc", "day=1/.b.parquet.crc", "notes.txt"):
        world.storage.write_bytes(join(world.root, path), b"side")


def keeps_names(storage: Storage) -> bool:
    """Whether a rewritten file replaces the old one under its name."""
    return storage.in_place and Journal.publish == "replace"


def append(storage: Storage, root: str) -> Commit:
    """Two new files, one in a partition that is new."""
    files = {"day=1/n.parquet": table(range(20, 23), "new"), "day=3/m.parquet": table(range(23, 26), "new")}
    return append_files(storage, root, files)


def rewrite(storage: Storage, root: str) -> Commit:
    """Replace one file, add one in a new partition, delete the last one of another."""
    journal = Journal(storage, root)
    journal.recover()
    with journal.begin(journal.view(), "rewrite") as transaction:
        changed = stage(storage, transaction, table(range(5), "new"))
        added = Publish(stage(storage, transaction, table(range(30, 33), "new")), "day=4/x=1/e.parquet", 3)
        if keeps_names(storage):
            publish, retire = Publish(changed, "day=1/a.parquet", 5, replaces=True), ("day=2/c.parquet",)
        else:
            publish, retire = Publish(changed, "day=1/a2.parquet", 5), ("day=1/a.parquet", "day=2/c.parquet")
        return transaction.commit(Changes((publish, added), retire, inputs=("day=1/b.parquet",)))


def overwrite(storage: Storage, root: str) -> Commit:
    """Replace all files."""
    journal = Journal(storage, root)
    journal.recover()
    view = journal.view()
    with journal.begin(view, "overwrite") as transaction:
        publish = tuple(
            Publish(stage(storage, transaction, table(range(40 + i, 43 + i), "new")), f"o{i}.parquet", 3)
            for i in range(2)
        )
        return transaction.commit(Changes(publish, tuple(file.path for file in view.files), complete_view=True))


def clear(storage: Storage, root: str) -> Commit:
    """Delete all files."""
    journal = Journal(storage, root)
    journal.recover()
    view = journal.view()
    with journal.begin(view, "clear") as transaction:
        return transaction.commit(Changes(retire=tuple(file.path for file in view.files), complete_view=True))


def keep_versions(world: World) -> None:
    """A dataset that keeps the files that commits replace, with two versions."""
    start(world)
    set_policy(world.storage, world.root, 7 * 86400)
    append_files(world.storage, world.root, {"day=1/k.parquet": table(range(50, 53), "old")})


def set_policy(storage: Storage, root: str, retain: int) -> Commit:
    """Set for how many seconds commits keep files."""
    journal = Journal(storage, root)
    journal.recover()
    with journal.begin(journal.view(), "keep_history") as transaction:
        return transaction.commit(Changes(retain=retain))
