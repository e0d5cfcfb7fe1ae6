"""Curves visit every cell once, neighbours on the Hilbert curve are adjacent, and ranks do not depend on skew."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.core.values.curves import QuantileScale, RangeCuts, SortColumn, hilbert, sort_order, zorder
from fsspeckit.core.values.keys import sortable

GRIDS = [(1, 5), (2, 1), (2, 2), (2, 5), (3, 1), (3, 3), (4, 2), (5, 2), (7, 1)]


def grid(columns: int, bits: int) -> list[Any]:
    cells = np.indices((2**bits,) * columns).reshape(columns, -1).astype(np.uint32)
    return list(cells)


@pytest.mark.parametrize(("columns", "bits"), GRIDS)
@pytest.mark.parametrize("curve", [zorder, hilbert])
def test_every_cell_has_a_unique_position(curve: Any, columns: int, bits: int) -> None:
    (places,) = curve(grid(columns, bits), bits)
    assert sorted(places.tolist()) == list(range(2 ** (columns * bits)))


@pytest.mark.parametrize(("columns", "bits"), GRIDS)
def test_neighbours_on_the_hilbert_curve_are_one_step_apart(columns: int, bits: int) -> None:
    cells = grid(columns, bits)
    (places,) = hilbert(cells, bits)
    path = np.stack(cells, axis=1).astype(np.int64)[np.argsort(places)]
    assert (np.abs(np.diff(path, axis=0)).sum(axis=1) == 1).all()


def test_curves_of_several_words() -> None:
    """Sixteen columns of four bits need two words, which have the same order as one large number."""
    random = np.random.default_rng(3)
    cells = [random.integers(0, 16, 300).astype(np.uint32) for _ in range(16)]
    high, low = zorder(cells, 4)
    whole = [0] * 300
    for bit in range(3, -1, -1):
        for column in cells:
            whole = [(number << 1) | ((int(value) >> bit) & 1) for number, value in zip(whole, column, strict=True)]
    both = [(int(a) << 2) | int(b) for a, b in zip(high, low, strict=True)]
    assert both == whole


def form(values: list[Any], type_: pa.DataType | None = None) -> SortColumn:
    return SortColumn.of(sortable(pa.chunked_array([pa.array(values, type_)])))


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_ranks_follow_the_values_with_nulls_last(values: list[int | None]) -> None:
    _check_ranks(values, form(values, pa.int64()))


def _check_ranks(values: list[Any], found: SortColumn) -> None:
    scale = QuantileScale.of(found, 12)
    ranks = scale.rank(found).tolist()
    order = sort_order([found]).tolist()
    expected = sorted(v for v in values if v is not None)
    assert [values[i] for i in order] == expected + [None] * (len(values) - len(expected))
    ordered = [ranks[i] for i in order]
    assert ordered == sorted(ordered)
    assert max(ranks) < 2**12
    if None in values and expected:
        assert ranks[values.index(None)] > max(r for r, v in zip(ranks, values, strict=True) if v is not None)
    if len({repr(v) for v in values}) == len(values) <= 16:
        assert len(set(ranks)) == len(values)


def test_skewed_values_keep_ranks_for_other_values() -> None:
    """Nine of ten rows have one value; the other rows use a tenth of the ranks."""
    values = [5] * 9000 + list(range(1_000_000, 1_001_000))
    scale = QuantileScale.of(form(values), 12)
    ranks = scale.rank(form(values))
    assert len(set(ranks.tolist())) > 300
    assert ranks.max() > 4000


ROWS = st.lists(
    st.tuples(st.none() | st.integers(0, 3), st.none() | st.sampled_from(["", "a", "b"]), st.integers(0, 3)), min_size=1
)


@given(ROWS, st.integers(1, 8))
def test_cuts_assign_every_row_to_its_range(rows: list[Any], ranges: int) -> None:
    forms = [
        form([row[0] for row in rows], pa.int64()),
        form([row[1] for row in rows], pa.string()),
        SortColumn(np.arange(len(rows))),
    ]
    order = sort_order(forms)
    at = np.unique(np.arange(1, ranges) * len(rows) // ranges)
    cuts = RangeCuts(tuple(column.take(order[at[at > 0]]) for column in forms))
    numbers = pickle.loads(pickle.dumps(cuts)).locate(forms)
    expected = np.searchsorted(at[at > 0], np.arange(len(rows)), "right")
    assert numbers[order].tolist() == expected.tolist()


@given(ROWS)
def test_order_of_several_columns(rows: list[Any]) -> None:
    columns = [[row[i] for row in rows] for i in range(3)]
    types = (pa.int64(), pa.string(), pa.int64())
    found = sort_order([form(column, t) for column, t in zip(columns, types, strict=True)])
    key = [tuple((v is None, v or ("" if isinstance(v, str) else 0)) for v in row) for row in rows]
    clean = [tuple((flag, "" if flag and i == 1 else (0 if flag else v)) for i, (flag, v) in enumerate(k)) for k in key]
    assert [clean[i] for i in found] == sorted(clean)


def test_ranges_too_wide_for_one_number_are_sorted() -> None:
    low, high = -(2**63), 2**63 - 1
    first, second = [high, low, low, high], [1, high, low, 0]
    assert sort_order([form(first), form(second)]).tolist() == [2, 1, 3, 0]
