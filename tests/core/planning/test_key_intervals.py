"""Ranges of keys leave out a row group only if it has none of the keys."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.core.planning.exchange.key_intervals import KeyIntervals
from fsspeckit.core.planning.statistics import KeySet, ordered
from fsspeckit.core.values.key_ranges import key_ranges

VALUES: dict[pa.DataType, Any] = {
    pa.int64(): lambda n: n * n - 900,
    pa.uint64(): lambda n: 2**63 + n * n,
    pa.float64(): lambda n: n / 3 - 5,
    pa.decimal128(9, 2): lambda n: Decimal(n * n) / 4,
    pa.string(): lambda n: f"customer-{n * n:09d}" if n % 7 else "customer-",
    pa.string_view(): lambda n: f"{n:03d}" if n % 7 else "",
    pa.binary(): lambda n: bytes([n % 256] * (n % 12)),
    pa.binary(4): lambda n: (n * n).to_bytes(4, "big"),
}


@pytest.mark.parametrize("type_", VALUES, ids=str)
@pytest.mark.parametrize("most", [1, 2, 5, 1000])
def test_no_row_group_with_a_key_is_left_out(type_: pa.DataType, most: int) -> None:
    draw, value = random.Random(most), VALUES[type_]
    for _ in range(20):
        parts = [[value(draw.randrange(200)) for _ in range(draw.randrange(1, 30))] for _ in range(3)]
        columns = [pa.chunked_array([pa.array([*part, None], type_)]) for part in parts]
        found = KeyIntervals.union([key_ranges(column, most) for column in columns], type_)
        assert found.has_null
        pairs = [sorted((value(draw.randrange(200)), value(draw.randrange(200)))) for _ in range(100)]
        low, high = (ordered(pa.array([pair[end] for pair in pairs], type_), type_) for end in (0, 1))
        exact = KeySet.of(pa.chunked_array([chunk for column in columns for chunk in column.chunks])).hits(low, high)
        covered = found.hits(low, high)
        assert not (exact & ~covered).any()
        if most == 1000 and not pa.types.is_binary(type_):
            assert covered.tolist() == exact.tolist()


def test_gaps_between_keys_are_left_out() -> None:
    type_ = pa.string()
    column = pa.chunked_array([pa.array([f"order-{n}" for n in (1000, 1001, 5000, 9000)])])
    found = KeyIntervals.union([key_ranges(column, 3)], type_)
    ranges = [(1500, 1999), (1002, 4999), (4000, 6000)]
    low, high = (ordered(pa.array([f"order-{pair[end]}" for pair in ranges]), type_) for end in (0, 1))
    assert found.hits(low, high).tolist() == [False, False, True]


def test_ranges_of_nan_and_of_the_highest_bytes_are_unknown() -> None:
    assert key_ranges(pa.chunked_array([pa.array([1.0, float("nan")])]), 5).has_nan
    highest = key_ranges(pa.chunked_array([pa.array([b"\xff" * 9, b"a"])]), 5)
    assert highest.lower is None
    assert KeyIntervals.union([highest], pa.binary()).bounds is None
