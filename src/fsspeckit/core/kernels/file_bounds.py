"""Bounds of rows: the first and the last row in the linear order; for a curve, the lowest and highest value per column.

Values are in sortable form (`values/keys.py`), so NaN is above all numbers, and null is above all values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow.compute as pc

from fsspeckit.common.bridge import scalar, to_numpy
from fsspeckit.core.model import BoundValue, DataFile, FileBounds, RowNumbers
from fsspeckit.core.parquet.batches import read_batches
from fsspeckit.core.parquet.damage import report_damage
from fsspeckit.core.parquet.reader import open_parquet
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.curves import Ordering, SortColumn


def bounds_of(forms: Sequence[SortColumn], *, linear: bool) -> FileBounds:
    """Return the bounds of one or more rows."""
    if not linear:
        spans = [_span(form) for form in forms]
        return tuple(low for low, _ in spans), tuple(high for _, high in spans)
    return _extreme(forms, 0), _extreme(forms, 1)


def _extreme(forms: Sequence[SortColumn], side: int) -> tuple[BoundValue, ...]:
    """Return the first row (side 0) or the last row (side 1), column by column among rows that are equal so far."""
    values: list[BoundValue] = []
    rows: RowNumbers | None = None
    for form in forms:
        rest = form if rows is None else form.take(rows)
        values.append(_span(rest)[side])
        same = np.flatnonzero(_equal(rest, values[-1]))
        rows = same if rows is None else rows[same]
    return tuple(values)


def _span(form: SortColumn) -> tuple[BoundValue, BoundValue]:
    """Return the lowest and highest value of a column."""
    known = form if form.valid is None else form.take(np.flatnonzero(form.valid))
    if len(known) == 0:
        return None, None
    if isinstance(known.values, np.ndarray):
        low, high = int(known.values.min()), int(known.values.max())
    else:
        low, high = pc.min_max(known.values).as_py().values()
    return low, None if len(known) < len(form) else high


def _equal(form: SortColumn, value: BoundValue) -> Any:
    valid = np.ones(len(form), dtype=bool) if form.valid is None else form.valid
    if value is None:
        return ~valid
    if isinstance(form.values, np.ndarray):
        return valid & (form.values == value)
    return valid & to_numpy(pc.equal(form.values, value).fill_null(scalar(False)))


def union_of_bounds(one: FileBounds | None, other: FileBounds, *, linear: bool) -> FileBounds:
    """Return the bounds of the rows of both."""
    if one is None:
        return other
    if linear:
        return min(one[0], other[0], key=_row_rank), max(one[1], other[1], key=_row_rank)
    lows, highs = zip(one[0], other[0], strict=True), zip(one[1], other[1], strict=True)
    return tuple(min(pair, key=_rank) for pair in lows), tuple(max(pair, key=_rank) for pair in highs)


def _rank(value: BoundValue) -> tuple[bool, Any]:
    return value is None, 0 if value is None else value


def _row_rank(row: tuple[BoundValue, ...]) -> list[tuple[bool, Any]]:
    return [_rank(value) for value in row]


@dataclass(frozen=True, slots=True)
class ReadFileBounds:
    """Reads the bounds of a file that has rows."""

    storage: Storage
    ordering: Ordering

    def __call__(self, file: DataFile) -> FileBounds:
        """Return the bounds of one file. One batch is decoded at a time."""
        linear = self.ordering.is_linear
        names = [name for name in self.ordering.columns if name in file.schema.names]
        filled = [group for group, rows in enumerate(file.row_groups) if rows]
        with (
            report_damage("reading", file.path),
            open_parquet(self.storage, file, verify=True, partial=True) as reader,
        ):
            tables = (table for group in filled for table in read_batches(reader, group, names))
            bounds = [bounds_of(self.ordering.raw_forms(table), linear=linear) for table in tables]
        return reduce(lambda one, other: union_of_bounds(one, other, linear=linear), bounds)
