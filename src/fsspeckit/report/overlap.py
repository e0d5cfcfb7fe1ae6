"""Measure the overlap of the value ranges of files, by column, from footers.

A reader that searches one value opens every file whose range contains it. The depth at a value is the number of such
files: 1 is ideal; if it equals the number of files, no file can be skipped.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsspeckit.core.model import ColumnStats, DataFile

Range = tuple[Any, Any]
_COMPARED = 32
"""Bytes of a text that are compared after the common prefix of all texts."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Depths within each partition; ``files`` is how many files have bounds.

    ``mean_depth`` is the mean over files of the depth in the middle of their range, which is where most values are.
    ``max_depth`` is the depth of the value that most files can contain.
    """

    files: int
    mean_depth: float
    max_depth: int


def overlap(partitions: Iterable[Sequence[Range]]) -> Overlap | None:
    """Return the overlap of ranges within each partition, or None if there is no range.

    Examples:
        >>> overlap([[(1, 5), (6, 9)], [(1, 5), (2, 3)]])
        Overlap(files=4, mean_depth=1.5, max_depth=2)
    """
    filled = [ranges for ranges in partitions if ranges]
    if not filled:
        return None
    numbers = as_numbers([bound for ranges in filled for bounds in ranges for bound in bounds])
    middles = [depth for ranges in filled for depth in _middle_depths(ranges, numbers)]
    most = max(depth for ranges in filled for depth in _depths(ranges, [low for low, _ in ranges]))
    return Overlap(len(middles), round(sum(middles) / len(middles), 3), most)


def _depths(ranges: Sequence[Range], values: Sequence[Any]) -> list[int]:
    lowers, uppers = sorted(low for low, _ in ranges), sorted(high for _, high in ranges)
    return [bisect_right(lowers, value) - bisect_left(uppers, value) for value in values]


def _middle_depths(ranges: Sequence[Range], numbers: Mapping[Any, int | float]) -> list[int]:
    known = [(numbers[low], numbers[high]) for low, high in ranges]
    return _depths(known, [_middle(low, high) for low, high in known])


def _middle(low: float, high: float) -> int | float:
    if isinstance(low, int) and isinstance(high, int):
        return (low + high) // 2
    middle = low / 2 + high / 2
    return middle if math.isfinite(middle) else low


def as_numbers(bounds: Iterable[Any]) -> dict[Any, int | float]:
    """Return a number for each bound, in the same order. Whole numbers are doubled, so that they have a middle.

    Texts are compared by the bytes after their common prefix.

    Examples:
        >>> as_numbers([1, 4]), as_numbers([1.5])
        ({1: 2, 4: 8}, {1.5: 1.5})
    """
    known = list(bounds)
    if known and isinstance(known[0], bytes):
        first, last = min(known), max(known)
        start = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
        return {each: int.from_bytes(each[start : start + _COMPARED].ljust(_COMPARED, b"\0"), "big") for each in known}
    whole = all(isinstance(bound, int) for bound in known)
    return {bound: 2 * bound if whole else float(bound) for bound in known}


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
