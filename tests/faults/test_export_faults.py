"""Faults in the steps of an export: the dataset is never affected, and the next recovery completes the export."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faults.injection import CRASHES, ERRORS, Fault, FaultStorage
from faults.sweep import choose, run_with
from faults.verbs import Run, call, table
from faults.worlds import World
from fsspeckit.common.choices import ForeignChange
from fsspeckit.common.errors import TableFormatError
from inside import files_of
from sweeps import Sweep

_FAULTS_IN_CI = 60
EXPORT = call("export", format="delta", keep_exported=True)
REWRITE = call("update", set={"value": "'new'"}, where="id < 3")


@pytest.fixture
def lake(world: World) -> World:
    """A file in each of two partitions."""
    rows = table([(number, "ab"[number // 5], 1, "old") for number in range(10)])
    call("write_dataset", rows, partition_by="day")(world.storage, world.root)
    return world


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
    return {path.removeprefix(f"{world.root}/") for path in files_of(world.new_storage(), world.root)}


def faults_of(world: World, sweep: Sweep, rng: random.Random, run: Run) -> Iterator[tuple[Fault, object]]:
    """Run with many faults, and yield the outcome of each."""
    world.keep()
    storage = FaultStorage(world.new_storage())
    run(storage, world.root)
    points = [Fault(kind, call) for call in range(1, len(storage.calls) + 1) for kind in (*CRASHES, *ERRORS)]
    for fault in choose(sweep, rng, points, _FAULTS_IN_CI):
        world.reset()
        yield fault, run_with(world, run, fault)


def test_a_commit_is_exported_after_recovery(lake: World, sweep: Sweep, rng: random.Random) -> None:
    EXPORT(lake.storage, lake.root)
    before = data_files(lake)
    for fault, outcome in faults_of(lake, sweep, rng, REWRITE):
        call("recover")(lake.new_storage(), lake.root)
        after = data_files(lake)
        assert after == before or len(after - before) == len(before - after) == 1, fault
        assert described(lake) == after, fault
        assert isinstance(outcome, BaseException | logging.Handler) or after != before, fault


def test_a_first_export_can_be_repeated(lake: World, sweep: Sweep, rng: random.Random) -> None:
    for fault, _ in faults_of(lake, sweep, rng, EXPORT):
        assert len(data_files(lake)) == 2, "the dataset is usable after a crash in an export"
        EXPORT(lake.new_storage(), lake.root)
        assert described(lake) == data_files(lake), fault


@pytest.mark.parametrize("foreign", [None, "keep", "discard"])
def test_a_removal_can_be_repeated(
    lake: World, sweep: Sweep, rng: random.Random, foreign: ForeignChange | None
) -> None:
    """Also after another program committed to the table, and with a choice between its files and ours."""
    EXPORT(lake.storage, lake.root)
    wanted = data_files(lake)
    if foreign is not None:
        theirs = commit_of_another_program(lake, min(wanted))
        wanted = {*wanted, *theirs} - {min(wanted)} if foreign == "keep" else wanted
    remove = call("remove_export", foreign=foreign)
    for fault, _ in faults_of(lake, sweep, rng, remove):
        with suppress(TableFormatError):  # nobody sees files of both before the choice is carried out
            assert data_files(lake) == wanted, fault
        remove(lake.new_storage(), lake.root)
        assert data_files(lake) == wanted, fault
        assert not described(lake), fault
        assert not [path for path in lake.files() if "_delta_log" in path], fault


def commit_of_another_program(world: World, removed: str) -> set[str]:
    """Add a file to the Delta table and remove one, as another program does; return the file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table([(20, "b", 1, "other")]).drop(["day"]), sink)
    data = sink.getvalue().to_pybytes()
    world.storage.write_bytes(f"{world.root}/day=b/other.parquet", data)
    add = {"path": "day%3Db/other.parquet", "partitionValues": {"day": "b"}, "size": len(data), "dataChange": True}
    remove = {"path": removed, "deletionTimestamp": 1, "dataChange": True}
    for version, action in ((1, {"add": add}), (2, {"remove": remove})):
        world.storage.write_bytes(f"{world.root}/_delta_log/{version:020d}.json", json.dumps(action).encode())
    return {"day=b/other.parquet"}


def test_a_mark_without_its_version_does_not_hide_a_foreign_table(lake: World) -> None:
    EXPORT(lake.storage, lake.root)
    lake.storage.write_bytes(f"{lake.root}/_delta_log/{7:020d}.json", b"{}")
    with pytest.raises(TableFormatError, match="Another program"):
        data_files(lake)
