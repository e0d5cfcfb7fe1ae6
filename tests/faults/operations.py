"""Small operations that use only the commit layer. Every larger operation consists of such steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from faults.worlds import World
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.log import LogState
from fsspeckit.core.commit.transaction import Changes, Commit, Publish, Transaction
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.operations import versions
from fsspeckit.core.storage import Storage, join

Run = Callable[[Storage, str], Commit | None]


@dataclass(frozen=True, slots=True)
class Operation:
    """A change to test: the dataset before it, the change itself, and whether it changes files but no rows."""

    name: str
    prepare: Callable[[World], None]
    run: Run
    same_rows: bool = False


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


def nothing(world: World) -> None:
    """No dataset at all."""


def nothing_deep(world: World) -> None:
    """No dataset, and none of the folders above it."""
    world.root = world.root.replace("lake/ds", "lake/a/b/ds")


def start_bare(world: World) -> None:
    """A dataset that another program wrote: no sidecar."""
    for path, ids in {"a.parquet": range(5), "b.parquet": range(5, 10)}.items():
        world.storage.make_dirs(world.root)
        with world.storage.open_output(join(world.root, path)) as file:
            pq.write_table(table(ids, "old"), file)


def start_inside(world: World) -> None:
    """A dataset that keeps its sidecar inside."""
    world.storage.make_dirs(join(world.root, ".fsspeckit", "log"))
    world.storage.write_bytes(join(world.root, ".fsspeckit", "lock"), b"")
    start(world)


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


def compact(storage: Storage, root: str) -> Commit:
    """Replace two files by one that has nearly the same rows."""
    journal = Journal(storage, root)
    journal.recover()
    with journal.begin(journal.view(), "compact") as transaction:
        data = pa.concat_tables([table(range(9), "old"), table([9], "new")])
        publish = Publish(stage(storage, transaction, data), "day=1/ab.parquet", 10)
        return transaction.commit(Changes((publish,), ("day=1/a.parquet", "day=1/b.parquet")))


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


def keep_two_versions(world: World) -> None:
    """The same after a rewrite."""
    keep_versions(world)
    rewrite(world.storage, world.root)


def restore_first(storage: Storage, root: str) -> None:
    """Restore the first version that is kept."""
    place = Place.of(root, storage, None)
    versions.restore(place, versions.history(place).oldest_readable, None, dry_run=False)


OTHER = "day=9/other.parquet"


def start_with_other(world: World) -> None:
    """The dataset after another writer committed a file that `revalidate` has not seen."""
    start(world)
    append_files(world.storage, world.root, {OTHER: table(range(90, 93), "other")})


def revalidate(storage: Storage, root: str) -> Commit:
    """Rewrite a file and add one, from a view before the commit of another writer, whose file is looked at."""
    journal = Journal(storage, root)
    journal.recover()
    now = journal.view()
    files = tuple(file for file in now.files if file.path != OTHER)
    view = replace(now, head=1, files=files, log=LogState((1,), frozenset({1})))

    def check(newer: View, new: frozenset[str]) -> None:
        assert new == {OTHER} <= {file.path for file in newer.files}

    with journal.begin(view, "revalidate") as transaction:
        added = Publish(stage(storage, transaction, table(range(30, 33), "new")), "day=4/e.parquet", 3)
        staged = stage(storage, transaction, table(range(5), "new"))
        publish = Publish(staged, "day=1/a.parquet", 5, replaces=True)
        if not keeps_names(storage):
            publish = Publish(staged, "day=1/a2.parquet", 5)
        retire = () if keeps_names(storage) else ("day=1/a.parquet",)
        return transaction.commit(Changes((publish, added), retire, complete_view=True), check)


OPERATIONS = (
    Operation("append", start, append),
    Operation("rewrite", start, rewrite),
    Operation("overwrite", start, overwrite),
    Operation("compact", start, compact),
    Operation("clear", start, clear),
    Operation("create", nothing, append),
    Operation("create deep", nothing_deep, append),
    Operation("append to bare", start_bare, append),
    Operation("rewrite inside", start_inside, rewrite),
    Operation("rewrite, keep versions", keep_versions, rewrite),
    Operation("overwrite, keep versions", keep_versions, overwrite),
    Operation("clear, keep versions", keep_versions, clear),
    Operation("restore", keep_two_versions, restore_first),
    Operation("revalidate", start_with_other, revalidate),
)
