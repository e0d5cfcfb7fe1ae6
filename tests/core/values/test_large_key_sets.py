"""Code for very many keys, reached with a few: the sizes from which it runs are set to small numbers."""

from __future__ import annotations

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
from fsspeckit.core.values.keys import KeyEncoder, KeyIndex

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
