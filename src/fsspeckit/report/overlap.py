"""How far the value ranges of files overlap, column by column, from footers alone.

A reader that looks for one value opens every file whose range holds it. The depth at a value is the number of such
files: 1 everywhere is perfect, as many as there are files means that nothing can be skipped.
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
    """Depths at the lower ends of files' ranges; partitions are looked at one by one. ``files`` have a range."""

    files: int
    mean_depth: float
    max_depth: int


def overlap(partitions: Iterable[Sequence[Range]]) -> Overlap | None:
    """The overlap of ranges within each partition; None where there is no range.

    Example:
        >>> overlap([[(1, 5), (6, 9)], [(1, 5), (2, 3)]])
        Overlap(files=4, mean_depth=1.25, max_depth=2)
    """
    depths = [depth for ranges in partitions for depth in _depths(ranges)]
    return Overlap(len(depths), round(sum(depths) / len(depths), 3), max(depths)) if depths else None


def _depths(ranges: Sequence[Range]) -> list[int]:
    lowers, uppers = sorted(low for low, _ in ranges), sorted(high for _, high in ranges)
    return [bisect_right(lowers, low) - bisect_left(uppers, low) for low in lowers]


def file_range(file: DataFile, column: str) -> Range | None:
    """The least and greatest value of a column in a file; None where no row group that has values tells."""
    stats = file.stats.get(column)
    if stats is None or not has_bounds(file, column):
        return None
    known = [(low, high) for low, high in zip(stats.lower, stats.upper, strict=True) if low is not None]
    if not known:
        return None
    found = min(_comparable(low, stats) for low, _ in known), max(_comparable(high, stats) for _, high in known)
    return None if any(value != value for value in found) else found


def has_bounds(file: DataFile, column: str) -> bool:
    """Whether every row group that has values of the column has bounds for them."""
    stats = file.stats.get(column)
    if stats is None:
        return False
    groups = zip(stats.lower, stats.nulls, file.row_groups, strict=True)
    return all(low is not None or nulls == rows for low, nulls, rows in groups)


def _comparable(value: Any, stats: ColumnStats) -> Any:
    """Decimals stand in footers as big-endian integers, which do not sort as bytes."""
    if isinstance(value, bytes) and str(stats.native).startswith("decimal"):
        return int.from_bytes(value, "big", signed=True)
    return value
