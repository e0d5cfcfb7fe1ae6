"""Equal keys get equal codes, independent of their type; lookups agree with a Python dict."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.core.values.keys import KeyIndex, comparable, key_type, last_of_each, order_rank

NAN = float("nan")


def column(values, type_=None):
    return pa.chunked_array([pa.array(values, type_)])


def found(source, target, *more):
    """Return pairs of target position and source row for columns given as (source, target)."""
    pairs = [(source, target), *more]
    index = KeyIndex([comparable(a, key_type(a.type)) for a, _ in pairs])
    positions, rows = index.lookup([comparable(b, key_type(a.type)) for a, b in pairs])
    return list(zip(positions.tolist(), rows.tolist(), strict=True))


small = st.integers(-6, 6)


@settings(max_examples=200)
@given(
    st.lists(st.tuples(small, st.text("ab", max_size=2)), unique=True),
    st.lists(st.tuples(small, st.text("ab", max_size=2))),
)
def test_composite_keys_are_tuples(source, target):
    numbers = (column([a for a, _ in source], pa.int64()), column([a for a, _ in target], pa.int64()))
    texts = (column([b for _, b in source], pa.string()), column([b for _, b in target], pa.string()))
    expected = [(i, source.index(value)) for i, value in enumerate(target) if value in source]
    assert found(*numbers, texts) == expected


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (column([1.0, NAN, 0.0]), column([NAN, -0.0, 2.0, 1.0])),
        (column(["b", "a"]), column(["a", "x", "b"], pa.large_string())),
        (column(["b", "a"]), pa.chunked_array([pa.array(["a", "x", "b"]).dictionary_encode()])),
        (
            column([Decimal("1.50"), Decimal("2")], pa.decimal128(9, 2)),
            column([Decimal("2.0"), Decimal("1.5")], pa.decimal64(9, 1)),
        ),
        (column([1_000_000, 2_000_000], pa.timestamp("us")), column([2_000, 1_000], pa.timestamp("ms"))),
        (column([2**64 - 1, 5], pa.uint64()), column([5, 2**64 - 1], pa.uint64())),
    ],
)
def test_keys_are_compared_by_value(source, target):
    values = [None if v != v else v for v in (source.to_pylist())]
    wanted = [None if v != v else v for v in (target.cast(source.type).to_pylist())]
    expected = [(i, values.index(v)) for i, v in enumerate(wanted) if v in values]
    assert found(source, target) == expected


def test_null_equals_null_over_many_chunks():
    source = pa.chunked_array([["a", None], ["b"]])
    target = pa.chunked_array([["b", None], [None, "x"]])
    assert found(source, target) == [(0, 2), (1, 1), (2, 1)]


def test_nested_keys_are_rejected():
    with pytest.raises(SchemaMismatchError, match="flat columns"):
        key_type(pa.list_(pa.int64()))


def test_order_has_nulls_lowest_and_nan_highest():
    ranks = order_rank(column([1.0, None, NAN, -0.0, 0.0, -5.0])).tolist()
    assert ranks == [2, -1, 3, 1, 1, 0]
    days = order_rank(column([dt.date(2026, 1, 2), None, dt.date(2025, 1, 1)])).tolist()
    assert days == [1, -1, 0]


def test_row_with_the_highest_rank_is_kept_and_ties_keep_the_later_row():
    codes = np.array([7, 8, 7, 7, 8])
    ranks = np.array([5, 1, 9, 9, 0])
    assert last_of_each(codes, [ranks]).tolist() == [1, 3]
    assert last_of_each(codes, []).tolist() == [3, 4]
