"""How much of a sweep runs: `SWEEP=ci` (the default) for a bounded sample, `full` for every point."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import pytest

T = TypeVar("T")

VARIATIONS = {"duckdb": 12, "spark": 2, "spark-exchange": 1}
"""How many variations of one conformance test an engine runs in a bounded sweep; PyArrow always runs all of them."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """How much of a sweep to run: all of it, or a bounded sample that spans the whole range."""

    full: bool

    def sample(self, points: Sequence[T], limit: int) -> list[T]:
        """Every point when full or few; else `limit` points, evenly spread, the first and the last among them."""
        if self.full or len(points) <= limit:
            return list(points)
        if limit == 1:
            return [points[0]]
        last = len(points) - 1
        return [points[round(i * last / (limit - 1))] for i in range(limit)]

    def size(self, *, ci: int, full: int) -> int:
        """Choose between two sizes."""
        return full if self.full else ci


def sweep_size() -> Sweep:
    """Read the size of sweeps from `SWEEP`; for use in parametrisation, where no fixture reaches."""
    name = os.environ.get("SWEEP", "ci")
    if name not in ("ci", "full"):
        raise pytest.UsageError(f"SWEEP={name!r}: use 'ci' or 'full'")
    return Sweep(full=name == "full")
