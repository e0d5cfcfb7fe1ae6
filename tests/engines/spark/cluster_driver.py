"""The program that a cluster test runs: merges on executors that are made to fail, and dies in its last commit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.datasets.spark.errors import ExecutorSetupError
from fsspeckit.datasets.spark.executor_check import check_executors
from inside import LocalStorage

ROWS = 200_000
KEYS = {"key_columns": ["id"]}


def main(master: str, folder: str, faults: str, route: str, last_call: str) -> None:
    """Every step is checked against the PyArrow engine on a folder of its own."""
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    before = settings(spark)
    life = Life(spark, Path(folder), Path(faults))
    life.start()
    life.task_fails_twice()
    life.worker_is_lost(route, kills_worker=master.startswith("spark://"))
    assert settings(spark) == before, "the caller's session was changed"
    print("ready to die", flush=True)
    die_at(last_call)
    life.merge(life.rows(2, value=4.0), "upsert")


def settings(spark: SparkSession) -> list[tuple[str, str]]:
    """All that a session is configured with, and what it is asked to run for jobs of this thread."""
    own = dict(spark.sparkContext.getConf().getAll()) | dict(spark.conf.getAll)
    return sorted((own | {"tags": str(sorted(spark.getTags()))}).items())


def die_at(call: str) -> None:
    """Die as by kill -9 when a system call of the commit is about to be made."""

    def on_event(event: str, arguments: tuple[object, ...]) -> None:
        if event == call and "/.ds.fsspeckit/" in _source_path(*arguments[::2]) and _is_last(call, str(arguments[0])):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(on_event)


def _source_path(name: object, folder: object) -> str:
    """The path that a call names, also relative to the descriptor of a folder."""
    return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), str(name)) if folder != -1 else str(name)


def _is_last(call: str, name: str) -> bool:
    """Files are published by renaming staged ones; other files of the journal are renamed before the decision, too."""
    return call != "os.rename" or name.endswith(".staged")


class Life:
    """The life of one dataset on Spark and of its twin on PyArrow."""

    def __init__(self, spark: SparkSession, folder: Path, faults: Path) -> None:
        self.spark, self.io, self.twin = spark, SparkDatasetIO(spark), PyarrowDatasetIO()
        self.path, self.expected, self.faults = folder / "ds", folder / "twin", faults

    def rows(self, every: int, value: float) -> pa.Table:
        """Rows of all files, and some new ones."""
        ids = np.arange(0, 3 * ROWS + 10 * every, every)
        return pa.table({"id": ids, "v": np.full(len(ids), value), "noise": np.random.default_rng(1).random(len(ids))})

    def merge(self, source: object, strategy: str, twin: pa.Table | None = None) -> None:
        """Merge on both sides; the counts, the rows and the folder must be right."""
        theirs = self.twin.merge(source if twin is None else twin, self.expected, strategy=strategy, **KEYS)
        ours = self.io.merge(source, self.path, strategy=strategy, **KEYS)
        assert ours.stats() == theirs.stats(), (ours.stats(), theirs.stats())
        self.check()

    def check(self) -> None:
        ours, theirs = (self.twin.read_parquet(path).sort_by("id") for path in (self.path, self.expected))
        assert ours.equals(theirs)
        left = [name for name in os.listdir(self.path.parent / ".ds.fsspeckit") if "staging" in name]
        assert left == [], left

    def start(self) -> None:
        assert not self.executors_have("fsspeckit")
        assert self.executors_have("fsspec")
        with pytest.raises(ExecutorSetupError, match="does not see /no/such/folder"):
            check_executors(self.spark, LocalStorage(), lambda: nullcontext("/no/such/folder"))
        table = self.rows(1, 0.0).slice(0, 3 * ROWS)
        self.twin.write_dataset(table, self.expected, max_rows_per_file=ROWS)
        self.io.write_dataset(table, self.path, max_rows_per_file=ROWS)
        frame = self.spark.range(5, 100).selectExpr("id", "cast(1 as double) as v", "cast(0 as double) as noise")
        self.merge(frame, "upsert", frame.toArrow())
        assert self.io.read(self.path).count() == 3 * ROWS
        assert not self.executors_have("fsspeckit"), "something was installed"
        print("works", flush=True)

    def executors_have(self, package: str) -> bool:
        """Asked in fresh processes, which have only what stands on the disks of executors."""

        def look(batches):
            code = f"import importlib.util as u, sys; sys.exit(u.find_spec({package!r}) is None)"
            for batch in batches:
                found = subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
                yield pa.RecordBatch.from_pydict({"found": [found] * batch.num_rows})

        return any(row.found for row in self.spark.range(2).mapInArrow(look, "found boolean").collect())

    def order(self, *tokens: str) -> None:
        for token in tokens:
            (self.faults / token).touch()

    def struck(self, kind: str) -> list[str]:
        return [name for name in os.listdir(self.faults) if name.startswith(f"struck-{kind}.")]

    def task_fails_twice(self) -> None:
        """One file is affected, so there is one task, and its Python worker dies in the first two attempts."""
        self.order("kill.1", "kill.2")
        self.merge(self.rows(1, 2.0).slice(10, 20), "update")
        assert len(self.struck("kill")) == 2, os.listdir(self.faults)
        print("survived two failures", flush=True)

    def worker_is_lost(self, route: str, *, kills_worker: bool) -> None:
        """A Python worker stops with a file half written; then the machine it is on goes away."""
        source, limit = self.rows(2, 3.0), 1 if route == "exchange" else None
        self.io = SparkDatasetIO(self.spark, share_limit=limit)
        plan = self.io.merge(source, self.path, strategy="full_merge", dry_run=True, **KEYS)
        assert plan.source_route == route, plan.source_route
        self.order("stop.1")
        thread = threading.Thread(target=self.kill_the_stopped, args=(kills_worker,))
        thread.start()
        self.merge(source, "full_merge")
        thread.join()
        assert len(self.struck("stop")) == 1
        print("survived a lost worker", flush=True)

    def kill_the_stopped(self, kills_worker: bool) -> None:
        until = time.monotonic() + 400
        while not self.struck("stop"):
            assert time.monotonic() < until, "nothing was stopped"
            time.sleep(0.02)
        stopped = int(self.struck("stop")[0].split(".")[1])
        above = ancestors(stopped)
        executor = next(pid for pid in above if "CoarseGrainedExecutorBackend" in command(pid))
        worker = [pid for pid in above if "deploy.worker.Worker" in command(pid)]
        for pid in [*(worker if kills_worker else ()), executor, stopped]:
            os.kill(pid, signal.SIGKILL)


def ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        found.append(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
