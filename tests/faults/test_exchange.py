"""Commits that are published by an exchange of folders: other writers, other readers, and unsuitable folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from faults.injection import Crash, Fault, FaultStorage
from faults.verbs import UPSERT, call, start
from faults.worlds import LocalWorld, Violation, rows_of
from fsspeckit.common.choices import PublishMode
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import LocalStorage, join, publish_by, recover
from sweeps import Sweep

ROOT = Path(__file__).parents[2]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalWorld]:
    publish_by(monkeypatch, "exchange")
    made = LocalWorld()
    yield made
    made.close()


def rows(ids: list[int], value: str) -> pa.Table:
    return pa.table({"id": ids, "value": [value] * len(ids)})


def test_another_reader_sees_the_old_or_the_new_files_after_every_call(world: LocalWorld) -> None:
    """A folder without partitions is listed with one call, so that a mix would be a mistake of the commit."""
    storage = FaultStorage(world.new_storage())
    root = join(world.folder, "flat")
    io = PyarrowDatasetIO(filesystem=storage, publish="exchange")
    io.write_dataset(rows([*range(9)], "old"), root, max_rows_per_file=3)
    states = [sorted(os.listdir(root))]
    storage.on_call = lambda name: states.append(sorted(os.listdir(root))) if os.path.isdir(root) else None
    io.merge(rows([1, 7, 20], "new"), root, strategy="upsert", key_columns="id")
    states.append(sorted(os.listdir(root)))
    assert len({tuple(state) for state in states}) == 2
    assert "exchange" in storage.calls
    assert len(set(states[0]) & set(states[-1])) == 1, "rewritten files have new names"


@pytest.mark.parametrize("publish", ["new_names", "exchange"])
def test_rewritten_file_is_missing_under_its_old_name(tmp_path: Path, publish: PublishMode) -> None:
    io, root = PyarrowDatasetIO(publish=publish), str(tmp_path / "events")
    io.write_dataset(rows([*range(9)], "old"), root, max_rows_per_file=3)
    listed = ds.dataset(root)
    result = io.merge(rows([1], "new"), root, strategy="upsert", key_columns="id")
    [path] = result.rewritten_files
    assert pq.read_table(path)["value"].to_pylist() == ["old", "new", "old"]
    with pytest.raises(FileNotFoundError):
        listed.to_table()
    assert Counter(ds.dataset(root).to_table()["value"].to_pylist()) == {"old": 8, "new": 1}


@pytest.mark.parametrize("crash", [False, True])
def test_changes_of_other_programs_during_the_exchange_are_kept(world: LocalWorld, crash: bool) -> None:
    start(world)
    before = world.raw_rows()
    storage = FaultStorage(world.new_storage())
    day = Path(world.root, "day=a")
    swapped = next(day.glob("*.parquet"))
    gone = rows_of(swapped.read_bytes())

    def interfere(name: str) -> None:
        if name == "exchange":
            pq.write_table(pa.table({"id": [77]}), day / "late.parquet")
            swapped.unlink()
            pq.write_table(pa.table({"id": [78]}), swapped)
            if crash:
                storage.fault = Fault("crash after", len(storage.calls))

    storage.on_call = interfere
    added = pa.table({"id": [90, 91], "day": ["a", "c"], "lsn": [1, 1], "value": ["new", "new"]})
    with pytest.raises(Crash) if crash else nullcontext():
        call("write_dataset", added, partition_by=["day"])(storage, world.root)
    recover(world.new_storage(), world.root)
    kept = before if crash else before - gone + Counter({(78,): 1})
    expected = kept + Counter({(77,): 1, (90, 1, "new"): 1, (91, 1, "new"): 1})
    if world.raw_rows() != expected:
        raise Violation(f"{world.raw_rows()} instead of {expected}")


def test_smallest_folder_with_all_changes_is_exchanged(world: LocalWorld) -> None:
    """A program that has the dataset folder open or mounted then stays in it."""
    start(world)
    folders = [join(world.root, name) for name in ("", "day=a", "day=b")]
    numbers, others = [os.stat(folder).st_ino for folder in folders], sorted(os.listdir(folders[2]))
    times = [os.stat(join(folders[2], name)).st_ctime_ns for name in others]
    call("compact_parquet_dataset", target_mb_per_file=1, partition_filter="day=a/")(world.storage, world.root)
    after = [os.stat(folder).st_ino for folder in folders]
    assert [old == new for old, new in zip(numbers, after, strict=True)] == [True, False, True]
    assert [os.stat(join(folders[2], name)).st_ctime_ns for name in others] == times
    assert len(os.listdir(folders[1])) == 1


def test_one_new_file_is_renamed(world: LocalWorld) -> None:
    start(world)
    storage = FaultStorage(world.new_storage())
    call("write_dataset", pa.table({"id": [20], "day": ["a"], "lsn": [1], "value": ["new"]}))(storage, world.root)
    assert "exchange" not in storage.calls


def test_folders_keep_their_permissions_and_other_files(world: LocalWorld) -> None:
    start(world)
    os.chmod(world.root, 0o750)
    os.chmod(join(world.root, "day=a"), 0o711)
    os.mkdir(join(world.root, "empty"))
    call("delete", where="id < 12 OR day = 'b'")(world.storage, world.root)
    assert [os.stat(join(world.root, name)).st_mode & 0o777 for name in ("", "day=a")] == [0o750, 0o711]
    assert os.path.isdir(join(world.root, "empty"))
    assert not os.path.exists(join(world.root, "day=b"))
    assert world.dataset_files()["notes.txt"] == b"none of our business"


def test_without_the_system_call_files_are_published_one_by_one(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LocalStorage, path: str, other: str) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(LocalStorage, "exchange", refuse)
    start(world)
    UPSERT(world.storage, world.root)
    assert Counter(row[2] for row in world.raw_rows().elements()) == {"new": 4, "x": 1, "old": 21}
    assert not recover(world.storage, world.root)


@pytest.mark.more
def test_sample_of_the_soak(sweep: Sweep) -> None:
    """Some seconds of continuous changes; `benchmarks/readers.py` runs for longer, and with other readers.

    pyarrow is not among them: rarely, it leaves out files that vanish between its listing and its look at their sizes.
    """
    command = [sys.executable, "-m", "benchmarks.readers", "--layout", "flat", "--seconds", "60" if sweep.full else "3"]
    done = subprocess.run([*command, "duckdb"], cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    print(found)
    assert found["duckdb"].keys() == {"reads", "anomalies", "not found"}
    assert found["duckdb"]["anomalies"] == 0
    assert found["duckdb"]["reads"] > found["duckdb"]["not found"]
