"""Measure the driver: one plan in a separate process, with the peak memory of Python and of Java.

`python -m benchmarks.spark.driver '{"target": ..., "source": ..., ...}'` prints the facts as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.spark.processes import java_processes, peak_mb

_MB = 1e6


def measure(target: Path, source: Path, *, share_limit: int | None = None) -> dict[str, Any]:
    """Plan a merge in a new process and return the facts."""
    spec = {"target": str(target), "source": str(source), "share_limit": share_limit}
    command = [sys.executable, "-m", "benchmarks.spark.driver", json.dumps(spec)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _measure(spec: Mapping[str, Any]) -> dict[str, Any]:
    from benchmarks.job import KEY
    from benchmarks.spark.contenders import TimedEngine, TimedShuffle
    from benchmarks.spark.session import start
    from fsspeckit.datasets.spark import SparkDatasetIO

    spark, _ = start({"spark.driver.memory": "1g"})
    io = SparkDatasetIO(spark, share_limit=spec["share_limit"])
    io.engine = engine = (TimedShuffle if spec["share_limit"] == 0 else TimedEngine)(spark, spec["share_limit"])
    frame = spark.read.parquet(spec["source"])
    frame.limit(1).toArrow()
    before = _peaks()
    begin = time.perf_counter()
    io.merge(frame, spec["target"], strategy="upsert", key_columns=[KEY], dry_run=True)
    wall = time.perf_counter() - begin
    after = _peaks()
    return {
        "wall": wall,
        "python_mb": after["python"],
        "java_mb": after["java"],
        "python_start_mb": before["python"],
        "java_start_mb": before["java"],
        "java_heap_mb": _heap(spark),
        **engine.spent,
    }


def _peaks() -> dict[str, float]:
    """Return the high-water marks of this process and of its Java process."""
    return {"python": peak_mb(os.getpid()), "java": sum(map(peak_mb, java_processes()))}


def _heap(spark: Any) -> float:
    """Return the used heap of Java after a garbage collection."""
    runtime = spark.sparkContext._jvm.Runtime.getRuntime()
    runtime.gc()
    return float(runtime.totalMemory() - runtime.freeMemory()) / _MB


if __name__ == "__main__":
    print(json.dumps(_measure(json.loads(sys.argv[1]))))
