"""Real processes: kills with -9, concurrent writers, and concurrent readers."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from faults.generations import generation_of, read_ours, read_raw, write_generation
from faults.worlds import SHARED_MEMORY
from fsspeckit.common.errors import CommitConflictError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from sweeps import Sweep

TESTS = str(Path(__file__).parent.parent)
_SPAWN = multiprocessing.get_context("spawn")
KILLS = {"in place": (20, 1500), "row changes": (12, 500), "kept exchanges": (12, 500)}
"""How many writers of each kind are killed in a bounded and in a full sweep."""


@pytest.fixture(params=[pytest.param("disk", marks=pytest.mark.more), "memory disk"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A folder on a disk with slow fsync, and one in memory with fast system calls."""
    if request.param == "disk" or not os.path.isdir(SHARED_MEMORY):
        yield str(tmp_path)
        return
    with tempfile.TemporaryDirectory(prefix="fsspeckit-", dir=SHARED_MEMORY) as made:
        yield made


@pytest.mark.parametrize("writer", sorted(KILLS))
def test_kill_9_at_random_times(folder: str, writer: str, sweep: Sweep, rng: random.Random) -> None:
    kills = KILLS[writer][sweep.full]
    seed = rng.randrange(2**32)
    run = subprocess.run(
        [sys.executable, "-m", "faults.generations", folder, str(kills), str(seed), writer],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([TESTS, *sys.path]), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert run.returncode == 0, f"seed {seed}\n{run.stdout}\n{run.stderr}"
    print(f"{kills} kills, {run.stdout.strip()} commits")
    assert int(run.stdout) >= kills / 4


def count_up(io: PyarrowDatasetIO, root: str, attempts: int) -> tuple[int, int]:
    """Increment the counter repeatedly. Return the numbers of commits and of conflicts."""
    won = lost = 0
    for _ in range(attempts):
        try:
            io.update(root, set={"value": "value + 1"}, where="true", retries=0)
            won += 1
        except CommitConflictError:
            lost += 1
    return won, lost


def start_counter(io: PyarrowDatasetIO, root: str) -> None:
    io.write_dataset(pa.table({"value": [0]}), root)


def counter(io: PyarrowDatasetIO, root: str) -> int:
    return int(io.read_parquet(root)["value"][0].as_py())


def _count_in_process(root: str, attempts: int, results: object) -> None:
    results.put(count_up(PyarrowDatasetIO(), root, attempts))  # type: ignore[attr-defined]


def test_concurrent_processes_lose_no_increment(folder: str, sweep: Sweep) -> None:
    root = f"{folder}/ds"
    start_counter(PyarrowDatasetIO(), root)
    attempts = 1000 if sweep.full else 60
    results = _SPAWN.Queue()
    workers = [_SPAWN.Process(target=_count_in_process, args=(root, attempts, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    outcomes = [results.get(timeout=600) for _ in workers]
    for worker in workers:
        worker.join()
    won, lost = (sum(column) for column in zip(*outcomes, strict=True))
    print(f"{won} won, {lost} lost")
    assert counter(PyarrowDatasetIO(), root) == won
    assert won + lost == 4 * attempts
    assert won > 0
    assert lost > 0
    assert not PyarrowDatasetIO().recover(root)
    assert len(os.listdir(root)) == 1


def test_concurrent_threads_in_memory_lose_no_increment(sweep: Sweep) -> None:
    io = PyarrowDatasetIO(filesystem=MemoryFileSystem(global_store=False, skip_instance_cache=True))
    start_counter(io, "/ds")
    attempts = 1000 if sweep.full else 50
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda _: count_up(io, "/ds", attempts), range(4)))
    won, lost = (sum(column) for column in zip(*outcomes, strict=True))
    assert counter(io, "/ds") == won
    assert won + lost == 4 * attempts
    assert not io.recover("/ds")


def _write_generations(root: str, seconds: float, results: object) -> None:
    write_generation(root, 1)  # which imports modules
    generation, end = 1, time.monotonic() + seconds
    while time.monotonic() < end:
        generation += 1
        write_generation(root, generation)
    results.put(generation)  # type: ignore[attr-defined]


def test_readers_see_one_generation_and_no_broken_file(folder: str, sweep: Sweep) -> None:
    root = f"{folder}/ds"
    write_generation(root, 0)
    results = _SPAWN.Queue()
    writer = _SPAWN.Process(target=_write_generations, args=(root, 60.0 if sweep.full else 4.0, results))
    writer.start()
    seen: list[int] = []
    foreign = stale = 0
    while writer.is_alive():
        try:
            seen.append(read_ours(root))
        except CommitConflictError:
            stale += 1
        try:
            read_raw(root)
            foreign += 1
        except FileNotFoundError:
            pass
    last = results.get(timeout=60)
    writer.join()
    print(
        f"{last} generations, {len(seen)} snapshots of {len(set(seen))} of them, {stale} stale, {foreign} foreign reads"
    )
    assert seen == sorted(seen)
    assert len(set(seen)) > 2
    assert foreign > 0
    assert generation_of(read_raw(root)) == last
