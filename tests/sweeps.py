"""How much of a sweep runs, from the variable `SWEEP`: `quick`, `ci` (the default), `more` or `full`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sweep:
    """How much of a sweep to run: all of it, or a bounded sample that spans the whole range.

    Tests name how many random examples and how many faults they would like; ``examples`` and ``faults`` are the
    shares of these that they get. ``variations`` is how many variations of one conformance test an engine runs, for
    engines that do not run all of them. ``hypothesis`` is the number of examples of other random tests.
    """

    full: bool = False
    quick: bool = False
    hypothesis: int = 25
    examples: float = 1.0
    faults: float = 1.0
    variations: Mapping[str, int] = field(default_factory=dict)

    def sample(self, points: Sequence[T], limit: int) -> list[T]:
        """Every point when full or few; else `limit` points, evenly spread, the first and the last among them."""
        if self.full or len(points) <= limit:
            return list(points)
        if limit == 1:
            return [points[0]]
        last = len(points) - 1
        return [points[round(i * last / (limit - 1))] for i in range(limit)]

    def some(self, points: Sequence[T], *, quick: int) -> list[T]:
        """Every point, or in a quick run ``quick`` points, evenly spread."""
        return self.sample(points, quick if self.quick else len(points))

    def size(self, *, ci: int, full: int) -> int:
        """Choose between two sizes."""
        return full if self.full else ci


SIZES = {
    "quick": Sweep(
        quick=True,
        hypothesis=8,
        examples=0.3,
        faults=0.2,
        variations={"pyarrow": 2, "pyarrow-exchange": 1, "duckdb": 1, "spark": 1, "spark-exchange": 1},
    ),
    "ci": Sweep(hypothesis=20, examples=0.4, faults=0.12, variations={"duckdb": 1, "spark": 1, "spark-exchange": 1}),
    "more": Sweep(hypothesis=20, examples=0.4, faults=0.35, variations={"duckdb": 1, "spark": 1, "spark-exchange": 1}),
    "full": Sweep(full=True, hypothesis=1000, examples=20),
}


def sweep_size() -> Sweep:
    """Read the size of sweeps from `SWEEP`; for use in parametrisation, where no fixture reaches."""
    name = os.environ.get("SWEEP", "ci")
    if name not in SIZES:
        raise pytest.UsageError(f"SWEEP={name!r}: use one of {', '.join(SIZES)}")
    return SIZES[name]
