"""Run the contenders of a case alternately, each time on a new copy in a new process, and keep the best run.

Contenders alternate within each repeat, so that slow phases of the machine affect all of them. A last run of each
starts with a cold cache: its disk reads are the reported "bytes read", also for contenders that map files.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cases import Case, Inputs
from benchmarks.check import Checksum, checksum, expected
from benchmarks.data import copy_target, fingerprint

_NEEDS = {
    "polars_hand": "polars",
    "skipping": "duckdb",
    "duckdb_hand": "duckdb",
    "delta_rs": "deltalake",
    "ours": "fsspeckit",
}
Run = dict[str, Any]


@dataclass(slots=True)
class CaseResult:
    """All runs of a case by contender, and the errors."""

    case: Case
    runs: dict[str, list[Run]] = field(default_factory=dict)
    cold: dict[str, Run] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def best(self, contender: str) -> Run | None:
        """Return the fastest run, the lowest CPU time and highest peak memory of all runs, and the cold reads."""
        runs = self.runs.get(contender)
        if not runs:
            return None
        best = dict(min(runs, key=lambda run: run["wall"]))
        best["cpu"] = min(run["cpu"] for run in runs)
        best["peak_mb"] = max(run["peak_mb"] for run in runs)
        if cold := self.cold.get(contender):
            best["read_mb"], best["cold_wall"] = cold["disk_read_mb"], cold["wall"]
        return best


@dataclass(frozen=True, slots=True)
class Settings:
    data: Path
    scale: float
    repeats: int
    cold: bool
    only: tuple[str, ...]


def run_case(case: Case, settings: Settings, say: Callable[[str], None]) -> CaseResult:
    """Build the data of a case and run all contenders on it."""
    result = CaseResult(case)
    contenders = _present(case, settings.only)
    say(f"{case.name}: preparing data")
    inputs = case.build(settings.data, settings.scale, any(_is_delta(name) for name in contenders.values()))
    origins = [folder for folder in (inputs.target, inputs.delta) if folder is not None]
    before = [fingerprint(folder) for folder in origins]
    wanted = expected(inputs, case.strategy) if case.checked else None
    for repeat in range(min(settings.repeats, case.most_repeats or settings.repeats)):
        for label in _rotated(list(contenders), repeat):
            _warm(inputs)
            check = wanted if repeat == 0 and label not in case.unchecked else None
            run = _attempt(case, label, inputs, settings, result, check)
            if run is not None:
                result.runs.setdefault(label, []).append(run)
                say(f"{case.name}: {label} {run['wall']:.3f} s")
    for label in contenders if settings.cold and case.cold else ():
        _chill(inputs)
        if (run := _attempt(case, label, inputs, settings, result, None)) is not None:
            result.cold[label] = run
    if before != [fingerprint(folder) for folder in origins]:
        raise RuntimeError(f"{case.name}: a contender wrote into the original data; all its numbers are void")
    return result


def _present(case: Case, only: tuple[str, ...]) -> dict[str, str]:
    return {
        label: name
        for label, name in case.contenders.items()
        if (not only or any(part in label for part in only)) and _installed(name)
    }


def _installed(name: str) -> bool:
    needed = _NEEDS.get(name.partition(":")[0])
    return needed is None or importlib.util.find_spec(needed) is not None


def _is_delta(name: str) -> bool:
    return name.startswith("delta_rs:")


def _rotated(labels: list[str], by: int) -> list[str]:
    by %= max(1, len(labels))
    return labels[by:] + labels[:by]


def _attempt(
    case: Case, label: str, inputs: Inputs, settings: Settings, result: CaseResult, wanted: Checksum | None
) -> Run | None:
    """Run a contender once on a new copy; a contender that fails is not run again in this case."""
    if label in result.failures:
        return None
    name = case.contenders[label]
    origin = inputs.delta if _is_delta(name) and inputs.delta is not None else inputs.target
    with _fresh_copy(origin, settings.data) as copy:
        spec = {
            "contender": name,
            "target": str(copy),
            "source": str(inputs.source),
            "strategy": case.strategy,
            "affected": list(inputs.affected),
            "where": inputs.where,
            "full": str(inputs.full) if inputs.full else None,
        }
        command = [sys.executable, "-m", "benchmarks.measure", json.dumps(spec)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
        if done.returncode != 0:
            result.failures[label] = done.stderr.strip().splitlines()[-1]
            return None
        run: Run = json.loads(done.stdout.splitlines()[-1])
        if wanted is not None and (found := checksum(run.get("files") or _data_files(copy))) != wanted:
            result.failures[label] = f"wrong result: {found}, expected {wanted}"
            return None
    return run


def _data_files(folder: Path) -> list[str]:
    return [str(path) for path in sorted(folder.rglob("*.parquet"))]


class _fresh_copy:  # noqa: N801 - reads as the verb it is
    def __init__(self, origin: Path, data: Path) -> None:
        self._origin, self._place = origin, data / "run"

    def __enter__(self) -> Path:
        shutil.rmtree(self._place, ignore_errors=True)
        copy = self._place / "target"
        copy.mkdir(parents=True)
        copy_target(self._origin, copy)
        os.sync()
        return copy

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._place, ignore_errors=True)


def _files(inputs: Inputs) -> Iterator[Path]:
    yield from inputs.target.glob("*.parquet")


def _warm(inputs: Inputs) -> None:
    for path in _files(inputs):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def _chill(inputs: Inputs) -> None:
    """Ask the kernel to drop the cached pages of the files; the pages are clean, so it does."""
    os.sync()
    for path in _files(inputs):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
