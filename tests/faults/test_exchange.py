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

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from faults.injection import Crash, Fault, FaultStorage
from faults.operations import append, append_files, rewrite, stage, start, table
from faults.worlds import LocalWorld, Violation
from fsspeckit.common.choices import PublishMode
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.transaction import Changes, Publish
from fsspeckit.core.storage import LocalStorage, join
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from sweeps import Sweep

ROOT = Path(__file__).parents[2]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalWorld]:
    monkeypatch.setattr(Journal, "publish", "exchange")
    made = LocalWorld()
    yield made
    made.close()


def test_another_reader_sees_the_old_or_the_new_files_after_every_call(world: LocalWorld) -> None:
    """A folder without partitions is listed with one call, so that a mix would be a mistake of the commit."""
    storage = FaultStorage(world.new_storage())
    root = join(world.folder, "flat")
    io = PyarrowDatasetIO(filesystem=storage, publish="exchange")
    io.write_dataset(table(range(9), "old"), root, max_rows_per_file=3)
    states = [sorted(os.listdir(root))]
    storage.on_call = lambda name: states.append(sorted(os.listdir(root))) if os.path.isdir(root) else None
    io.merge(table([1, 7, 20], "new"), root, strategy="upsert", key_columns="id")
    states.append(sorted(os.listdir(root)))
    assert len({tuple(state) for state in states}) == 2
    assert "exchange" in storage.calls
    assert len(set(states[0]) & set(states[-1])) == 1, "rewritten files have new names"


@pytest.mark.parametrize("publish", ["new_names", "exchange"])
def test_rewritten_file_is_missing_under_its_old_name(tmp_path: Path, publish: PublishMode) -> None:
    io, root = PyarrowDatasetIO(publish=publish), str(tmp_path / "events")
    io.write_dataset(table(range(9), "old"), root, max_rows_per_file=3)
    listed = ds.dataset(root)
    result = io.merge(table([1], "new"), root, strategy="upsert", key_columns="id")
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
    late, day = join(world.root, "day=1", "late.parquet"), join(world.root, "day=1")

    def interfere(name: str) -> None:
        if name == "exchange":
            pq.write_table(table([77], "late"), late)
            os.unlink(join(day, "b.parquet"))
            pq.write_table(table([78], "swapped"), join(day, "b.parquet"))
            if crash:
                storage.fault = Fault("crash after", len(storage.calls))

    storage.on_call = interfere
    with pytest.raises(Crash) if crash else nullcontext():
        append(storage, world.root)
    Journal(world.new_storage(), world.root).recover()
    added = Counter(tuple(row.values()) for row in table(range(20, 26), "new").to_pylist())
    swapped = Counter({(i, "old"): 1 for i in range(5, 10)})
    kept = before - swapped + Counter({(78, "swapped"): 1}) if not crash else before
    expected = kept + added + Counter({(77, "late"): 1})
    if world.raw_rows() != expected:
        raise Violation(f"{world.raw_rows()} instead of {expected}")


def test_smallest_folder_with_all_changes_is_exchanged(world: LocalWorld) -> None:
    """A program that has the dataset folder open or mounted then stays in it."""
    start(world)
    numbers = [os.stat(join(world.root, name)).st_ino for name in ("", "day=1", "day=2")]
    other = os.stat(join(world.root, "day=2", "c.parquet"))
    journal = Journal(world.storage, world.root)
    compacted = table(range(10), "new")
    os.unlink(join(world.root, "_metadata"))
    with journal.begin(journal.view(), "compact") as transaction:
        publish = Publish(stage(world.storage, transaction, compacted), "day=1/ab.parquet", 10)
        view_of_others = os.open(join(world.root, "day=1"), os.O_RDONLY)
        transaction.commit(Changes((publish,), ("day=1/a.parquet", "day=1/b.parquet")))
        assert {"a.parquet", "b.parquet"} <= {*os.listdir(view_of_others)}
    os.close(view_of_others)
    after = [os.stat(join(world.root, name)).st_ino for name in ("", "day=1", "day=2")]
    assert [old == new for old, new in zip(numbers, after, strict=True)] == [True, False, True]
    assert os.stat(join(world.root, "day=2", "c.parquet")).st_ctime_ns == other.st_ctime_ns
    assert sorted(os.listdir(join(world.root, "day=1"))) == ["ab.parquet"]


def test_one_new_file_is_renamed(world: LocalWorld) -> None:
    start(world)
    append(world.storage, world.root)
    storage = FaultStorage(world.new_storage())
    append_files(storage, world.root, {"day=1/o.parquet": table([20], "new")})
    assert "exchange" not in storage.calls


def test_folders_keep_their_permissions_and_other_files(world: LocalWorld) -> None:
    start(world)
    os.chmod(world.root, 0o750)
    os.chmod(join(world.root, "day=1"), 0o711)
    os.mkdir(join(world.root, "empty"))
    rewrite(world.storage, world.root)
    assert [os.stat(join(world.root, name)).st_mode & 0o777 for name in ("", "day=1")] == [0o750, 0o711]
    assert os.path.isdir(join(world.root, "empty"))
    assert not os.path.exists(join(world.root, "day=2"))
    assert world.dataset_files()["notes.txt"] == b"side"


def test_without_the_system_call_files_are_published_one_by_one(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LocalStorage, path: str, other: str) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(LocalStorage, "exchange", refuse)
    start(world)
    rewrite(world.storage, world.root)
    assert Counter(value for _, value in world.raw_rows().elements()) == {"new": 8, "old": 5}
    assert not Journal(world.storage, world.root).recover()


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
