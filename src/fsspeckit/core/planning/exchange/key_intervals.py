"""Prune row groups with ranges that cover the keys of a source, instead of all its keys."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.planning.statistics import KeySet, Mask, Ordered, ordered
from fsspeckit.core.values.key_ranges import KeyRanges


@dataclass(frozen=True, slots=True)
class KeyIntervals(KeySet):
    """Disjoint ranges in ascending order that contain all keys of a column. ``bounds`` has the lower ends.

    ``upper`` has the upper ends: included for numbers, excluded for bytes.
    """

    upper: Any = None

    @classmethod
    def union(cls, parts: Sequence[KeyRanges], type_: pa.DataType) -> KeyIntervals:
        """Join the ranges of the parts of a source."""
        has_null, has_nan = any(part.nulls for part in parts), any(part.has_nan for part in parts)
        known = [(part.lower, part.upper) for part in parts if part.lower is not None and part.upper is not None]
        if len(known) < len(parts):
            return cls(type_, None, None, has_null, has_nan)
        if any(isinstance(lower, list) for lower, _ in known):
            pairs = sorted((a, b) for lower, upper in known for a, b in zip(lower, upper, strict=True))
            lower, upper = _joined(pairs)
            return cls(type_, None, lower, has_null, has_nan, upper)
        sides: list[list[Any]] = [[ordered(ends, type_) for ends in side] for side in zip(*known, strict=True)]
        if any(not isinstance(ends, np.ndarray) for side in sides for ends in side):
            return cls(type_, None, None, has_null, has_nan)
        low, high = (np.concatenate(side) for side in sides)
        order = np.argsort(low, kind="stable")
        low, high = low[order], np.maximum.accumulate(high[order])
        starts = np.flatnonzero(np.concatenate([[True], low[1:] > high[:-1]])[: len(low)])
        ends = np.append(starts[1:], len(low)) - 1
        return cls(type_, None, low[starts], has_null, has_nan, high[ends] if len(low) else high)

    def hits(self, lower: Ordered, upper: Ordered) -> Mask:
        """Return for each closed range whether it may contain a key."""
        if isinstance(self.bounds, np.ndarray):
            begun = np.searchsorted(self.bounds, upper, "right")
            return np.asarray(begun > np.searchsorted(self.upper, lower, "left"))
        pairs, starts = zip(lower.to_pylist(), upper.to_pylist(), strict=True), self.bounds or []
        found = (bisect_right(starts, high) > bisect_right(self.upper, low) for low, high in pairs)
        return np.fromiter(found, dtype=bool)


def _joined(pairs: Iterable[tuple[bytes, bytes]]) -> tuple[list[bytes], list[bytes]]:
    """Join overlapping and adjacent ranges that are sorted by their lower ends."""
    lower: list[bytes] = []
    upper: list[bytes] = []
    for low, high in pairs:
        if upper and low <= upper[-1]:
            upper[-1] = max(upper[-1], high)
        else:
            lower.append(low)
            upper.append(high)
    return lower, upper
