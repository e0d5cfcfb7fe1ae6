"""Run the contenders of a case alternately in one Spark session, each time on a new copy, and keep the best run.

Contenders alternate within each repeat, so that slow phases of the machine affect all of them. The first repeat also
warms up Java's compiler and the Python workers; it counts, but is rarely the best.
"""

from __future__ import annotations

import gc
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import benchmarks.cases as plain
from benchmarks.check import Checksum, checksum, expected
from benchmarks.data import copy_target, fingerprint, load_source
from benchmarks.spark.cases import OTHERS, PEERS, Case, Inputs
from benchmarks.spark.contenders import Job
from benchmarks.spark.formats import FORMATS, is_available
from benchmarks.spark.processes import Processes
from benchmarks.spark.session import Stages, collect_garbage, wake_workers

Run = dict[str, Any]


@dataclass(slots=True)
class CaseResult:
    """All runs of a case by contender, and the errors."""

    case: Case
    runs: dict[str, list[Run]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def best(self, label: str) -> Run | None:
        """Return the fastest run, with the minimum time of each part."""
        runs = self.runs.get(label)
        if not runs:
            return None
        best = dict(min(runs, key=lambda run: run["wall"]))
        for name in (name for name in best if name.endswith("_s")):
            best[name] = min(run[name] for run in runs)
        return best


@dataclass(frozen=True, slots=True)
class Settings:
    data: Path
    scale: float
    repeats: int
    only: tuple[str, ...]


def run_case(case: Case, spark: SparkSession, settings: Settings, say: Callable[[str], None]) -> CaseResult:
    """Build the data of a case and run all contenders on it."""
    result = CaseResult(case)
    say(f"{case.name}: preparing data")
    built = case.build(settings.data, settings.scale)
    before = {label: fingerprint(inputs.target) for label, inputs in built.items()}
    wanted: dict[str, Checksum] = {
        label: expected(plain.Inputs(inputs.target, inputs.source, (), where=inputs.where), case.strategy)
        for label, inputs in built.items()
    }
    labels = [name for name in case.contenders if not settings.only or any(part in name for part in settings.only)]
    labels = [name for name in labels if is_available(spark, name)]
    for repeat in range(settings.repeats):
        for label in _rotated(labels, repeat):
            inputs = built.get(label, built.get("all"))
            assert inputs is not None
            if label in FORMATS:
                inputs = replace(inputs, target=FORMATS[label].original(spark, inputs.target))
            check = wanted.get(label, wanted.get("all")) if repeat == 0 else None
            _attempt(result, label, inputs, spark, settings.data / "run", check)
            if label in result.runs:
                say(f"{case.name}: {label} {result.runs[label][-1]['wall']:.3f} s")
    if before != {label: fingerprint(inputs.target) for label, inputs in built.items()}:
        raise RuntimeError(f"{case.name}: a contender wrote into the original data; all its numbers are void")
    return result


def _rotated(labels: list[str], by: int) -> list[str]:
    by %= max(1, len(labels))
    return labels[by:] + labels[:by]


def _attempt(
    result: CaseResult, label: str, inputs: Inputs, spark: SparkSession, place: Path, wanted: Checksum | None
) -> None:
    """Run a contender once on a new copy; a contender that fails is not run again in this case."""
    if label in result.failures:
        return
    shutil.rmtree(place, ignore_errors=True)
    target = place / "target"
    target.mkdir(parents=True)
    copy_target(inputs.target, target)
    if label in FORMATS:
        FORMATS[label].prepare(spark, target)
    _warm(target)
    os.sync()
    frame = spark.read.parquet(str(inputs.files))
    job = Job(spark, target, load_source(inputs.source), inputs.files, frame, inputs.where)
    gc.collect()
    collect_garbage(spark)
    wake_workers(spark)
    stages, processes, begin = Stages(spark), Processes(), time.perf_counter()
    try:
        facts = result.case.contenders[label](job)
    except Exception as error:  # noqa: BLE001 - whatever it is, the others go on and the report says it
        result.failures[label] = str(error).strip().splitlines()[0]
        return
    wall, used = time.perf_counter() - begin, processes.facts()
    if wanted is not None and (label in PEERS + OTHERS or facts):
        own = [str(path) for path in sorted(target.rglob("*.parquet"))]
        files = FORMATS[label].files(spark, target) if label in FORMATS else own
        if (found := checksum(files)) != wanted:
            result.failures[label] = f"wrong result: {found}, expected {wanted}"
            return
    result.runs.setdefault(label, []).append({"wall": wall, **used, **stages.facts(), **facts})
    shutil.rmtree(place, ignore_errors=True)


def _warm(target: Path) -> None:
    for path in target.glob("*.parquet"):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
