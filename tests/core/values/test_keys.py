"""Keys are compared by value and found as in a dict, also by the code for very many keys, reached with a few."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsspeckit.core.kernels import match_keys
from fsspeckit.core.planning import statistics
from fsspeckit.core.planning.statistics import KeySet
from fsspeckit.core.values import keys, text_table
from fsspeckit.core.values.keys import KeyEncoder, KeyIndex, comparable, key_type, last_of_each, order_rank

SMALL = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
KEYS = st.tuples(st.integers(-9, 9), st.binary(max_size=2), st.none() | st.binary(min_size=1, max_size=1))


@pytest.fixture(params=["few", "many"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The limits as they are, and so low that every key set is above them."""
    if request.param == "many":
        monkeypatch.setattr(keys, "_MAX_CODE", 3)
        monkeypatch.setattr(keys, "FEW_TEXTS", 0)
        monkeypatch.setattr(match_keys, "FEW_TEXTS", 0)
        monkeypatch.setattr(text_table, "_MIN_VALUES", 1)
        monkeypatch.setattr(text_table, "_BLOCK_ROWS", 3)
        monkeypatch.setattr(statistics, "_MAX_SORTED_TEXTS", 1)
    name: str = request.param
    return name


def columns(rows: list[tuple[Any, ...]]) -> list[pa.ChunkedArray]:
    types = [pa.int64(), pa.binary(), pa.binary()]
    return [pa.chunked_array([pa.array([row[i] for row in rows], type_)]) for i, type_ in enumerate(types)]


@SMALL
@given(st.lists(KEYS, min_size=1, unique=True), st.lists(KEYS, min_size=1))
def test_composite_keys_are_found(size: str, source: list[Any], target: list[Any]) -> None:
    index = KeyIndex(columns(source))
    wanted = target + source[::2]
    positions, rows = index.lookup(columns(wanted))
    expected = [(at, source.index(key)) for at, key in enumerate(wanted) if key in source]
    assert list(zip(positions.tolist(), rows.tolist(), strict=True)) == expected


@SMALL
@given(st.lists(KEYS, min_size=1))
def test_codes_are_equal_where_keys_are(size: str, rows: list[Any]) -> None:
    codes = KeyEncoder(columns(rows)).codes
    first = np.array([rows.index(row) for row in rows])
    assert np.array_equal(codes[:, None] == codes[None, :], first[:, None] == first[None, :])


def test_codes_of_columns_with_more_combinations_than_a_code_has_bits() -> None:
    """Five columns of 2**16 values have 2**80 combinations: in 64 bits the first column would count for nothing."""
    count = 2**16
    numbers = np.arange(count + 2)
    first, others = numbers % count, np.minimum(numbers, count) % count
    parts = [pa.chunked_array([pa.array(part)]) for part in (first, others, others, others, others)]
    encoder = KeyEncoder(parts)
    assert len(np.unique(encoder.codes)) == count + 1
    found, known = encoder.transform([part.slice(count - 1) for part in parts])
    assert (found.tolist(), known) == (encoder.codes[count - 1 :].tolist(), pytest.approx([True] * 3))


@SMALL
@given(
    st.lists(st.text("abc", max_size=3), min_size=2, unique=True),
    st.lists(st.tuples(st.text("abc", max_size=3), st.text("abc", max_size=3)), min_size=1),
)
def test_a_range_that_holds_a_key_is_hit(size: str, source: list[str], ends: list[tuple[str, str]]) -> None:
    """Of very many texts only the first and the last are kept: more ranges are hit, and none too few."""
    ranges = [(min(pair), max(pair)) for pair in ends]
    key_set = KeySet.of(pa.chunked_array([pa.array(source)]))
    low, high = (pa.array([r[i].encode() for r in ranges], pa.large_binary()) for i in range(2))
    hits = key_set.hits(low, high).tolist()
    exact = [any(lower <= key <= upper for key in source) for lower, upper in ranges]
    around = [lower <= max(source) and upper >= min(source) for lower, upper in ranges]
    assert hits == (exact if size == "few" else around)


NAN = float("nan")


def column(values: Any, type_: pa.DataType | None = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, type_)])


def pairs(source: pa.ChunkedArray, target: pa.ChunkedArray) -> list[tuple[int, int]]:
    """Pairs of target position and source row."""
    index = KeyIndex([comparable(source, key_type(source.type))])
    positions, rows = index.lookup([comparable(target, key_type(source.type))])
    return list(zip(positions.tolist(), rows.tolist(), strict=True))


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
def test_keys_are_compared_by_value(source: pa.ChunkedArray, target: pa.ChunkedArray) -> None:
    values = [None if v != v else v for v in (source.to_pylist())]
    wanted = [None if v != v else v for v in (target.cast(source.type).to_pylist())]
    expected = [(i, values.index(v)) for i, v in enumerate(wanted) if v in values]
    assert pairs(source, target) == expected


def test_order_has_nulls_lowest_and_nan_highest() -> None:
    ranks = order_rank(column([1.0, None, NAN, -0.0, 0.0, -5.0])).tolist()
    assert ranks == [2, -1, 3, 1, 1, 0]
    days = order_rank(column([dt.date(2026, 1, 2), None, dt.date(2025, 1, 1)])).tolist()
    assert days == [1, -1, 0]


def test_row_with_the_highest_rank_is_kept_and_ties_keep_the_later_row() -> None:
    codes = np.array([7, 8, 7, 7, 8])
    ranks = np.array([5, 1, 9, 9, 0])
    assert last_of_each(codes, [ranks]).tolist() == [1, 3]
    assert last_of_each(codes, []).tolist() == [3, 4]
