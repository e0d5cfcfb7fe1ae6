"""Measure the overlap of the value ranges of files, by column, from footers.

A reader that searches one value opens every file whose range contains it. The depth at a value is the number of such
files: 1 is ideal; if it equals the number of files, no file can be skipped.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fsspeckit.core.model import ColumnStats, DataFile

Range = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Overlap:
    """Depths at the lower bounds of files, computed within each partition; ``files`` is how many files have bounds."""

    files: int
    mean_depth: float
    max_depth: int


def overlap(partitions: Iterable[Sequence[Range]]) -> Overlap | None:
    """Return the overlap of ranges within each partition, or None if there is no range.

    Examples:
        >>> overlap([[(1, 5), (6, 9)], [(1, 5), (2, 3)]])
        Overlap(files=4, mean_depth=1.25, max_depth=2)
    """
    depths = [depth for ranges in partitions for depth in _depths(ranges)]
    return Overlap(len(depths), round(sum(depths) / len(depths), 3), max(depths)) if depths else None


def _depths(ranges: Sequence[Range]) -> list[int]:
    lowers, uppers = sorted(low for low, _ in ranges), sorted(high for _, high in ranges)
    return [bisect_right(lowers, low) - bisect_left(uppers, low) for low in lowers]


def file_range(file: DataFile, column: str) -> Range | None:
    """Return the minimum and maximum of a column in a file, or None if a row group with values has no bounds."""
    stats = file.stats.get(column)
    if stats is None or not has_bounds(file, column):
        return None
    known = [(low, high) for low, high in zip(stats.lower, stats.upper, strict=True) if low is not None]
    if not known:
        return None
    bounds = min(_comparable(low, stats) for low, _ in known), max(_comparable(high, stats) for _, high in known)
    return None if any(bound != bound for bound in bounds) else bounds  # NaN


def has_bounds(file: DataFile, column: str) -> bool:
    """Return whether every row group with values of the column has bounds."""
    stats = file.stats.get(column)
    if stats is None:
        return False
    groups = zip(stats.lower, stats.nulls, file.row_groups, strict=True)
    return all(low is not None or nulls == rows for low, nulls, rows in groups)


def _comparable(value: Any, stats: ColumnStats) -> Any:
    """Convert decimal bounds to integers: footers store them as big-endian bytes, which do not sort."""
    if isinstance(value, bytes) and str(stats.native).startswith("decimal"):
        return int.from_bytes(value, "big", signed=True)
    return value
