"""Measure the cost of a plan on the driver by number of files and of source rows, for `docs/scale.md`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.cases import changes
from benchmarks.data import Size, build_parquet_source, build_small_files, build_target, rows, save_source, uuids
from benchmarks.spark.driver import measure

_SMALL_ROWS = 20
_FILES = (1_000, 10_000, 50_000)
_ROWS = (250_000, 2_000_000)
_TARGET = Size(50, 100_000)
MEMORY_LIMIT_MB = 1_000


@dataclass(frozen=True, slots=True)
class Plan:
    """One measured plan: the number of files or source rows, and its cost."""

    what: str
    number: int
    facts: dict[str, Any]

    @property
    def memory_mb(self) -> float:
        """Return the peak memory of Python and Java together."""
        return float(self.facts["python_mb"] + self.facts["java_mb"])


def measure_plans(data: Path, scale: float, say: Callable[[str], None]) -> list[Plan]:
    """Measure plans with an increasing number of files, then of source rows, shared and exchanged."""
    found = []
    for number in _FILES:
        count = max(20, round(number * scale))
        target, source = _small_files(data, count)
        found.append(Plan("files", count, measure(target, source)))
        say(f"driver: {count} files {found[-1].facts['wall']:.3f} s {found[-1].memory_mb:.0f} MB")
    for number in _ROWS:
        count = max(100, round(number * scale))
        target, source = _uuid_source(data, scale, count)
        for way, limit in (("shared", None), ("exchanged", 0)):
            found.append(Plan(f"source rows, {way}", count, measure(target, source, share_limit=limit)))
            say(f"driver: {count} rows {way} {found[-1].facts['wall']:.3f} s {found[-1].memory_mb:.0f} MB")
    return found


def _small_files(data: Path, count: int) -> tuple[Path, Path]:
    target = data / f"small-{count}x{_SMALL_ROWS}"
    build_small_files(target, count, _SMALL_ROWS)
    source = data / f"small-{count}x{_SMALL_ROWS}-ten"
    first = count // 2
    save_source(source, lambda: changes(np.arange(first * _SMALL_ROWS, (first + 10) * _SMALL_ROWS), 6))
    return target, _as_files(source)


def _uuid_source(data: Path, scale: float, count: int) -> tuple[Path, Path]:
    size = _TARGET.scaled(scale)
    target = data / f"uuids-{size.files}x{size.rows_per_file}"
    build_target(target, size, uuids)
    source = data / f"{target.name}-first-{count}"

    def make() -> pa.Table:
        taken = np.random.default_rng(5).permutation(size.rows)[:count]
        return rows(uuids(0, size.rows).take(pa.array(taken)), 1_000_011)

    save_source(source, make)
    return target, _as_files(source)


def _as_files(source: Path) -> Path:
    files = source.with_name(source.name + "-parquet")
    build_parquet_source(files, source, 4)
    return files
