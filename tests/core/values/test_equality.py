"""Row-wise equality over every kind of type, with offsets, nulls, NaN and signed zeros."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from fsspeckit.core.values.equality import columns_equal, values_equal

NAN = float("nan")
STRUCT = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float32()))])

CASES = [
    (pa.float64(), [1, NAN, None, 0.0], [1, NAN, None, -0.0], [True] * 4),
    (pa.list_(pa.struct([("x", pa.float32())])), [[{"x": 0.0}], [None]], [[{"x": -0.0}], [None]], [True, True]),
    (pa.dictionary(pa.int8(), pa.float64()), [0.0, 1.0, None], [-0.0, 2.0, None], [True, False, True]),
    (pa.float16(), [np.float16(1), None], [np.float16(1), None], [True, True]),
    (
        pa.list_(pa.float64()),
        [[1, NAN], [], None, [1], None],
        [[1, NAN], [], None, [2], [1]],
        [True, True, True, False, False],
    ),
    (pa.large_list(pa.string()), [["a"], ["b", "c"], ["x"]], [["a"], ["b", "d"], ["x", "y"]], [True, False, False]),
    (pa.list_(pa.int64(), 2), [[1, 2], None, [3, 4]], [[1, 2], None, [3, 5]], [True, True, False]),
    (
        pa.map_(pa.string(), pa.int64()),
        [[("a", 1)], None, [("b", 2)], []],
        [[("a", 1)], None, [("b", 3)], []],
        [True, True, False, True],
    ),
    (
        STRUCT,
        [{"a": 1, "b": [NAN]}, None, {"a": None, "b": None}],
        [{"a": 1, "b": [NAN]}, None, {"a": None, "b": []}],
        [True, True, False],
    ),
    (pa.string_view(), ["a", None, "b"], ["a", None, "c"], [True, True, False]),
    (pa.decimal32(5, 2), [1, None], [1, 2], [True, False]),
    (pa.null(), [None, None], [None, None], [True, True]),
]


@pytest.mark.parametrize(("type_", "left", "right", "expected"), CASES, ids=lambda value: str(value)[:40])
def test_values_are_compared_row_by_row(type_, left, right, expected):
    a, b = pa.array(left, type_), pa.array(right, type_)
    assert values_equal(a, b).tolist() == expected
    shifted = [pa.concat_arrays([x, x]).slice(len(x)) for x in (a, b)]
    assert values_equal(*shifted).tolist() == expected


def test_each_column_is_compared_separately():
    left = pa.table({"a": [1, 2, 3], "b": ["x", "y", None]})
    right = pa.table({"a": [1, 0, 3], "b": ["x", "y", "z"]})
    expected = [[True, False, True], [True, True, False]]
    assert [mask.tolist() for mask in columns_equal(left, right)] == expected
