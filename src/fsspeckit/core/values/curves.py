"""Sort orders over any number of columns of any ordered type: linear, z-order and Hilbert.

A column is converted to numbers or bytes with the order of its values (`sortable` in `keys.py`). For a curve, each
value is replaced by its rank among the quantiles of a sample, so that all columns have the same weight independent of
skew, unit and type; then the bits of the ranks are interleaved. Nulls are last. Sort keys are never stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.arrow_versions import search_sorted
from fsspeckit.common.bridge import single, to_arrow, to_numpy, valid_mask
from fsspeckit.common.choices import Curve
from fsspeckit.core.model import RowNumbers
from fsspeckit.core.values.keys import sortable

Words = npt.NDArray[np.uint64]
Ranks = npt.NDArray[np.uint32]
Values: TypeAlias = Any  # a numpy array of int64, or an Arrow array of large_binary; pyarrow has no types
_WORD_BITS = 62
_MAX_BITS = 12
_MIN_BITS = 4
_BLOCK = 16_384


def is_linear(curve: str, columns: Sequence[str]) -> bool:
    """Return whether rows are compared column by column. A curve over one column is linear too."""
    return curve == "linear" or len(columns) == 1


def bits_for(columns: int) -> int:
    """Return the bits of each column's rank: as many as fit into one word, within limits."""
    return max(_MIN_BITS, min(_MAX_BITS, _WORD_BITS // columns))


def zorder(ranks: Sequence[Ranks], bits: int) -> list[Words]:
    """Return the positions on the z-order curve as words, the most significant first."""
    return _in_blocks(ranks, bits, _interleave)


def hilbert(ranks: Sequence[Ranks], bits: int) -> list[Words]:
    """Return the positions on the Hilbert curve as words, the most significant first."""
    return _in_blocks(ranks, bits, lambda block, bits: _interleave(_hilbert_axes(block, bits), bits))


def _in_blocks(ranks: Sequence[Ranks], bits: int, function: Any) -> list[Words]:
    """Process blocks of rows that fit into the CPU cache."""
    count = len(ranks[0])
    result = [np.empty(count, dtype=np.uint64) for _ in range(-(-len(ranks) * bits // _WORD_BITS))]
    for start in range(0, count, _BLOCK):
        block = function([rank[start : start + _BLOCK] for rank in ranks], bits)
        for whole, part in zip(result, block, strict=True):
            whole[start : start + _BLOCK] = part
    return result


def _interleave(ranks: Sequence[Ranks], bits: int) -> list[Words]:
    if len(ranks) * bits <= _WORD_BITS:
        return [_interleave_in_one_word(ranks, bits)]
    order = [(column, bit) for bit in range(bits - 1, -1, -1) for column in range(len(ranks))]
    words = []
    for start in range(0, len(order), _WORD_BITS):
        word: Words = np.zeros(len(ranks[0]), dtype=np.uint64)
        for column, bit in order[start : start + _WORD_BITS]:
            word = (word << np.uint64(1)) | ((ranks[column] >> np.uint32(bit)) & np.uint32(1)).astype(np.uint64)
        words.append(word)
    return words


def _interleave_in_one_word(ranks: Sequence[Ranks], bits: int) -> Words:
    """Interleave with a lookup table that has the spread bits of each rank."""
    step = len(ranks)
    numbers = np.arange(2**bits, dtype=np.uint64)
    table: Words = np.zeros(2**bits, dtype=np.uint64)
    for bit in range(bits):
        table |= ((numbers >> np.uint64(bit)) & np.uint64(1)) << np.uint64(bit * step)
    word: Words = np.zeros(len(ranks[0]), dtype=np.uint64)
    for column, rank in enumerate(ranks):
        word |= table[rank] << np.uint64(step - 1 - column)
    return word


def _hilbert_axes(ranks: Sequence[Ranks], bits: int) -> list[Ranks]:
    """Rotate and mirror the coordinates level by level, so that their interleaved bits follow the Hilbert curve."""
    axes = [rank.copy() for rank in ranks]
    first, last = axes[0], axes[-1]
    for level in range(bits - 1, 0, -1):
        lower = np.uint32(2**level - 1)
        for axis in axes:
            is_set = np.uint32(0) - ((axis >> np.uint32(level)) & np.uint32(1))
            swap = (first ^ axis) & lower & ~is_set
            first ^= swap | (lower & is_set)
            if axis is not first:
                axis ^= swap  # noqa: PLW2901 - in place
    for before, axis in pairwise(axes):
        axis ^= before  # noqa: PLW2901 - in place
    flips = np.zeros_like(first)
    for level in range(bits - 1, 0, -1):
        is_set = np.uint32(0) - ((last >> np.uint32(level)) & np.uint32(1))
        flips ^= np.uint32(2**level - 1) & is_set
    for axis in axes:
        axis ^= flips  # noqa: PLW2901 - in place
    return axes


@dataclass(frozen=True, slots=True, eq=False)
class SortColumn:
    """A column in sortable form: numbers or bytes, and a mask of valid rows (``None``: all are valid)."""

    values: Values
    valid: npt.NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> SortColumn:
        """Wrap a column that already is in sortable form."""
        array = single(column)
        valid = valid_mask(array) if array.null_count else None
        return cls(to_numpy(array) if pa.types.is_int64(array.type) else array, valid)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: RowNumbers) -> SortColumn:
        """Return the given rows."""
        values = self.values[rows] if isinstance(self.values, np.ndarray) else self.values.take(to_arrow(rows))
        return SortColumn(values, None if self.valid is None else self.valid[rows])

    def ranks(self) -> tuple[Words, int]:
        """Return numbers from zero in the order of the values, nulls last, and the bits of the largest one."""
        if len(self) == 0:
            return np.empty(0, dtype=np.uint64), 0
        if isinstance(self.values, np.ndarray):
            ranks, top = _number_ranks(self.values, self.valid)
        else:
            ranks, top = _binary_ranks(self.values)
        if self.valid is not None:
            top += 1
            ranks = np.where(self.valid, ranks, np.uint64(top))
        return ranks, top.bit_length()


def _number_ranks(values: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_] | None) -> tuple[Words, int]:
    known = values if valid is None else values[valid]
    if len(known) == 0:
        return np.zeros(len(values), dtype=np.uint64), 0
    low, high = int(known.min()), int(known.max())
    if valid is not None and high - low + 1 == 2**64:
        distinct = np.unique(known)
        return np.searchsorted(distinct, values).astype(np.uint64), len(distinct) - 1
    with np.errstate(over="ignore"):
        return values.view(np.uint64) - np.uint64(low % 2**64), high - low


def _binary_ranks(values: pa.Array) -> tuple[Words, int]:
    encoded = values.dictionary_encode()
    order = to_numpy(pc.sort_indices(encoded.dictionary))
    ranks = np.empty(len(order) + 1, dtype=np.uint64)
    ranks[order] = np.arange(len(order))
    codes = to_numpy(encoded.indices)
    return ranks[codes if encoded.null_count == 0 else np.where(valid_mask(encoded), codes, 0)], max(0, len(order) - 1)


def sort_order(forms: Sequence[SortColumn]) -> RowNumbers:
    """Return the row numbers in sort order. Columns are packed into one 64-bit number if their ranges fit."""
    ranked = [form.ranks() for form in forms]
    if sum(bits for _, bits in ranked) <= 64:
        packed = ranked[0][0]
        for ranks, bits in ranked[1:]:
            packed = (packed << np.uint64(bits)) | ranks
        return np.argsort(packed)
    return np.lexsort([ranks for ranks, _ in reversed(ranked)])


@dataclass(frozen=True, slots=True, eq=False)
class QuantileScale:
    """Quantiles of a column, to replace a value by the share of rows below it, as a rank of some bits."""

    bounds: Values
    ranks: Ranks
    null_rank: int

    @classmethod
    def of(cls, form: SortColumn, bits: int) -> QuantileScale:
        """Compute the quantiles of a sample."""
        top = 2**bits - 1
        known = form if form.valid is None else form.take(np.flatnonzero(form.valid))
        count = len(known)
        if count == 0:
            return cls(known.values, np.zeros(1, dtype=np.uint32), top)
        ordered = known.take(sort_order([SortColumn(known.values)])).values
        at = np.unique(np.linspace(0, count - 1, min(count, top)).astype(np.int64))
        if isinstance(ordered, np.ndarray):
            bounds: Values = np.unique(ordered[at])
        else:
            bounds = ordered.take(to_arrow(at)).unique()
        below = _search(ordered, bounds, "left")
        ranks = np.concatenate([[0], below * top // len(form)]).astype(np.uint32)
        return cls(bounds, ranks, max(int(ranks[-1]) + 1, count * top // len(form)))

    def rank(self, form: SortColumn) -> Ranks:
        """Return the ranks of values."""
        ranks = self.ranks[_search(self.bounds, form.values, "right")]
        return ranks if form.valid is None else np.where(form.valid, ranks, np.uint32(self.null_rank))


def _search(ordered: Values, wanted: Values, side: Any) -> npt.NDArray[np.int64]:
    if isinstance(ordered, np.ndarray):
        return np.asarray(np.searchsorted(ordered, wanted, side))
    if len(ordered) == 0:
        return np.zeros(len(wanted), dtype=np.int64)
    positions = search_sorted(ordered, wanted, side)
    numbers = to_numpy(positions).astype(np.int64)
    return np.where(valid_mask(positions), numbers, 0) if positions.null_count else numbers


@dataclass(frozen=True, slots=True, eq=False)
class Ordering:
    """A sort order. ``scales`` are the quantiles of a curve's columns; the linear order has none."""

    curve: Curve
    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    scales: tuple[QuantileScale, ...] = ()

    @property
    def is_linear(self) -> bool:
        """Return whether rows are compared column by column."""
        return is_linear(self.curve, self.columns)

    def raw_forms(self, table: pa.Table) -> list[SortColumn]:
        """Return the columns of the order in sortable form. A missing column is null."""
        return [
            SortColumn.of(sortable_column(table, name, t)) for name, t in zip(self.columns, self.types, strict=True)
        ]

    def forms(self, table: pa.Table) -> list[SortColumn]:
        """Return the sort keys of a table, the most significant first."""
        return self.on_curve(self.raw_forms(table))

    def on_curve(self, raw: Sequence[SortColumn]) -> list[SortColumn]:
        """Return the columns unchanged for the linear order, or their positions on the curve."""
        if not self.scales:
            return list(raw)
        ranks = [scale.rank(form) for scale, form in zip(self.scales, raw, strict=True)]
        function = zorder if self.curve == "zorder" else hilbert
        return [SortColumn(word.view(np.int64)) for word in function(ranks, bits_for(len(ranks)))]

    def learned(self, raw: Sequence[SortColumn]) -> Ordering:
        """Return the same order with the scales of a sample. A linear order needs none."""
        if self.is_linear:
            return self
        scales = tuple(QuantileScale.of(form, bits_for(len(raw))) for form in raw)
        return Ordering(self.curve, self.columns, self.types, scales)


def sortable_column(table: pa.Table, name: str, type_: pa.DataType) -> pa.ChunkedArray:
    """Return a column of a table in sortable form, independent of its width and encoding in the file."""
    if name not in table.column_names:
        return sortable(pa.chunked_array([pa.nulls(table.num_rows, type_)]))
    column = table[name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return sortable(column if isinstance(column.type, pa.BaseExtensionType) else column.cast(type_))


@dataclass(frozen=True, slots=True, eq=False)
class RangeCuts:
    """The first rows of all ranges of the order except the first range, ascending."""

    forms: tuple[SortColumn, ...]

    def locate(self, forms: Sequence[SortColumn]) -> npt.NDArray[np.int64]:
        """Return for each row the number of its range: the number of cuts that are not above it."""
        rows = len(forms[0])
        if not self.forms or len(self.forms[0]) == 0:
            return np.zeros(rows, dtype=np.int64)
        return self._locate(0, 0, len(self.forms[0]), forms, None)

    def _locate(
        self, level: int, low: int, high: int, forms: Sequence[SortColumn], rows: RowNumbers | None
    ) -> npt.NDArray[np.int64]:
        """Compare one column. Only rows that are equal to a cut in it are compared by the next column."""
        form = forms[level] if rows is None else forms[level].take(rows)
        first, after = _span(self.forms[level], low, high, form)
        if level + 1 == len(self.forms):
            return after
        result = first
        for start in np.unique(first[first < after]).tolist():
            equal = np.flatnonzero((first == start) & (after > start))
            stop = int(after[equal[0]])
            inner = equal if rows is None else rows[equal]
            result[equal] = self._locate(level + 1, start, stop, forms, inner)
        return result


def _span(
    cuts: SortColumn, low: int, high: int, form: SortColumn
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return for each value the first of the cuts ``low`` to ``high`` that is not below it, and the first above it."""
    known = high if cuts.valid is None else low + int(np.count_nonzero(cuts.valid[low:high]))
    values = cuts.values[low:known]
    first, after = low + _search(values, form.values, "left"), low + _search(values, form.values, "right")
    if form.valid is not None:
        first, after = np.where(form.valid, first, known), np.where(form.valid, after, high)
    return first, after
