"""Rows that are in one table and not in the other, for every kind of type, against a multiset of Python values."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from fsspeckit.core.values import row_difference as module
from fsspeckit.core.values.row_difference import row_difference

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [1, 2, None]),
    "unsigned": (pa.uint64(), [2**64 - 1, 0, None]),
    "float": (pa.float64(), [0.0, -0.0, float("nan"), 1.5, None]),
    "text": (pa.string(), ["", "a", "ä" * 20, None]),
    "bytes": (pa.binary(), [b"", b"\0", b"\0\0", None]),
    "coded": (pa.dictionary(pa.int8(), pa.string()), ["x", "y", None]),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.10"), Decimal("-1.10"), None]),
    "time": (pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, tzinfo=UTC), None]),
    "flag": (pa.bool_(), [True, False, None]),
    "list": (pa.list_(pa.int64()), [[1], [1, 2], [], [None], None]),
    "struct": (
        pa.struct([("a", pa.string()), ("b", pa.list_(pa.float64()))]),
        [{"a": "x", "b": [1.0]}, {"a": "x", "b": [0.0]}, {"a": "x", "b": [-0.0]}, {"a": None, "b": []}, None],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [[("k", 1)], [], None]),
    "null": (pa.null(), [None]),
}


def table_of(names: list[str], rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = [pa.array([row[i] for row in rows], VALUES[name][0]) for i, name in enumerate(names)]
    table = pa.Table.from_arrays(columns, names=names)
    return pa.concat_tables([table.slice(0, len(rows) // 2), table.slice(len(rows) // 2)])


def multiset(table: pa.Table, positions: Any) -> Counter[str]:
    rows = table.to_pylist()
    return Counter(repr(rows[position]).replace("-0.0", "0.0") for position in positions)


@pytest.mark.parametrize("collide", [False, True])
def test_random_tables(rng: random.Random, collide: bool) -> None:
    """Also if all hashes are equal: then fewer rows cancel, and never a row that is not in both tables."""
    for _ in range(60):
        names = rng.sample(sorted(VALUES), rng.randint(1, 4))
        old, new = (
            table_of(names, [tuple(rng.choice(VALUES[name][1]) for name in names) for _ in range(rng.randint(0, 12))])
            for _ in range(2)
        )
        hashes = (lambda table: np.zeros(table.num_rows, np.uint64)) if collide else module._hashes
        with mock.patch.object(module, "_hashes", hashes):
            gone, come = row_difference(old, new)
        before, after = multiset(old, range(old.num_rows)), multiset(new, range(new.num_rows))
        assert before - multiset(old, gone) + multiset(new, come) == after
        if not collide:
            assert multiset(old, gone) == before - after
            assert multiset(new, come) == after - before


def test_rows_without_columns() -> None:
    table = pa.table({"x": [1, 2]}).select([])
    assert [len(rows) for rows in row_difference(table, table)] == [0, 0]
