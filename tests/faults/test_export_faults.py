"""Faults in the steps of an export: the dataset is never affected, and the next recovery completes the export."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faults.injection import CRASHES, ERRORS, Fault, FaultStorage
from faults.operations import append_files, stage, table
from faults.sweep import choose, run_with
from faults.worlds import LocalWorld, MemoryWorld, World
from fsspeckit.common.choices import ForeignChange
from fsspeckit.common.errors import TableFormatError
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.transaction import Changes, Commit, Publish
from fsspeckit.core.dataset.exported import connected
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.operations.export import export, remove_export
from fsspeckit.core.storage import Storage
from sweeps import Sweep

WORLDS = {"local": LocalWorld, "memory": MemoryWorld}
_FAULTS_IN_CI = 60


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = WORLDS[request.param]()
    files = {"day=1/a.parquet": table(range(5), "old"), "day=2/c.parquet": table(range(10, 15), "old")}
    append_files(made.storage, made.root, files)
    yield made
    made.close()


def journal_of(storage: Storage, root: str) -> Journal:
    return connected(Journal(storage, root), storage, root, root)


def place_of(storage: Storage, root: str) -> Place:
    return Place(root, root, storage, journal_of(storage, root))


def export_kept(storage: Storage, root: str) -> object:
    return export(place_of(storage, root), "delta", keep_exported=True)


def rewrite(storage: Storage, root: str) -> Commit:
    """Replace one file by one with a new name, in a journal whose commits are exported."""
    journal = journal_of(storage, root)
    journal.recover()
    with journal.begin(journal.view(), "rewrite") as transaction:
        publish = Publish(stage(storage, transaction, table(range(5), "new")), "day=1/a2.parquet", 5)
        return transaction.commit(Changes((publish,), ("day=1/a.parquet",)))


def described(world: World) -> set[str]:
    """The files that the Delta log describes."""
    files: set[str] = set()
    logs = {path: data for path, data in world.dataset_files().items() if path.endswith(".json")}
    for path in sorted(logs):
        for line in logs[path].splitlines():
            action = json.loads(line)
            files -= {unquote(action["remove"]["path"])} if "remove" in action else set()
            files |= {unquote(action["add"]["path"])} if "add" in action else set()
    return files


def data_files(world: World) -> set[str]:
    return {file.path for file in Journal(world.new_storage(), world.root).view().files}


def faults_of(world: World, sweep: Sweep, rng: random.Random, run: object) -> list[Fault]:
    world.keep()
    storage = FaultStorage(world.new_storage())
    run(storage, world.root)  # type: ignore[operator]
    points = [Fault(kind, call) for call in range(1, len(storage.calls) + 1) for kind in (*CRASHES, *ERRORS)]
    return choose(sweep, rng, points, _FAULTS_IN_CI)


def test_a_commit_is_exported_after_recovery(world: World, sweep: Sweep, rng: random.Random) -> None:
    export_kept(world.storage, world.root)
    for fault in faults_of(world, sweep, rng, rewrite):
        world.reset()
        before = data_files(world)
        outcome = run_with(world, rewrite, fault)
        journal_of(world.new_storage(), world.root).recover()
        after = data_files(world)
        assert after in (before, {"day=1/a2.parquet", "day=2/c.parquet"}), fault
        assert described(world) == after, fault
        assert not (isinstance(outcome, Commit) and after == before), fault


def test_a_first_export_can_be_repeated(world: World, sweep: Sweep, rng: random.Random) -> None:
    for fault in faults_of(world, sweep, rng, export_kept):
        world.reset()
        run_with(world, export_kept, fault)
        assert len(data_files(world)) == 2, "the dataset is usable after a crash in an export"
        export_kept(world.new_storage(), world.root)
        assert described(world) == data_files(world), fault


def test_a_removal_can_be_repeated(world: World, sweep: Sweep, rng: random.Random) -> None:
    export_kept(world.storage, world.root)
    rewrite(world.storage, world.root)

    def remove(storage: Storage, root: str) -> object:
        return remove_export(place_of(storage, root), "delta")

    for fault in faults_of(world, sweep, rng, remove):
        world.reset()
        run_with(world, remove, fault)
        assert len(data_files(world)) == 2
        remove(world.new_storage(), world.root)
        assert not described(world), fault
        assert not Journal(world.new_storage(), world.root).view().log.exports, fault


def commit_of_another_program(world: World) -> set[str]:
    """Add a file to the Delta table and remove one, as another program does; return the files of the table."""
    staged = f"{world.root}/day=2/other.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(table(range(20, 25), "other"), sink)
    world.storage.write_bytes(staged, sink.getvalue().to_pybytes())
    entry = world.storage.stat_file(staged)
    assert entry is not None
    add = {"path": "day%3D2/other.parquet", "partitionValues": {"day": "2"}, "size": entry.size, "dataChange": True}
    remove = {"path": "day=1/a.parquet", "deletionTimestamp": 1, "dataChange": True}
    for version, action in ((1, {"add": add}), (2, {"remove": remove})):
        world.storage.write_bytes(f"{world.root}/_delta_log/{version:020d}.json", json.dumps(action).encode())
    return {"day=2/c.parquet", "day=2/other.parquet"}


@pytest.mark.parametrize("foreign", ["keep", "discard"])
def test_a_removal_with_a_choice_can_be_repeated(
    world: World, sweep: Sweep, rng: random.Random, foreign: ForeignChange
) -> None:
    export_kept(world.storage, world.root)
    own = data_files(world)
    wanted = commit_of_another_program(world) if foreign == "keep" else own
    if foreign == "discard":
        commit_of_another_program(world)

    def remove(storage: Storage, root: str) -> object:
        return remove_export(place_of(storage, root), "delta", foreign)

    for fault in faults_of(world, sweep, rng, remove):
        world.reset()
        run_with(world, remove, fault)
        with suppress(TableFormatError):  # nobody sees files of both before the choice is carried out
            assert data_files(world) == wanted, fault
        remove(world.new_storage(), world.root)
        assert data_files(world) == wanted, fault
        assert not described(world), fault


def test_a_file_is_not_replaced_in_place_if_an_export_begins_after_the_view() -> None:
    world = LocalWorld()
    append_files(world.storage, world.root, {"a.parquet": table(range(5), "old")})
    journal = journal_of(world.storage, world.root)
    with journal.begin(journal.view(), "rewrite") as transaction:
        publish = Publish(stage(world.storage, transaction, table(range(5), "new")), "a.parquet", 5, replaces=True)
        export_kept(world.new_storage(), world.root)
        with pytest.raises(RuntimeError, match="was exported during the operation"):
            transaction.commit(Changes((publish,)))
    assert data_files(world) == described(world) == {"a.parquet"}
    world.close()


def test_a_mark_without_its_version_does_not_hide_a_foreign_table(world: World) -> None:
    export_kept(world.storage, world.root)
    world.storage.write_bytes(f"{world.root}/_delta_log/{7:020d}.json", b"{}")
    with pytest.raises(TableFormatError, match="Another program"):
        data_files(world)
