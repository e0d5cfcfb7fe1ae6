"""Text lookup agrees with a Python dict, independent of storage and chunks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsspeckit.core.values import text_table
from fsspeckit.core.values.hashing import hash_keys
from fsspeckit.core.values.take import take_rows
from fsspeckit.core.values.text_table import TextTable


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.data())
@settings(deadline=None)
def test_rows_are_taken_across_chunks(sizes, data):
    total = sum(sizes)
    texts, numbers = [f"text {i}" for i in range(total)], list(range(total))
    cuts = np.cumsum([0, *sizes]).tolist()

    def column(values: list, kind: pa.DataType) -> pa.ChunkedArray:
        return pa.chunked_array([pa.array(values[a:b], kind) for a, b in pairwise(cuts)], kind)

    codes = pa.chunked_array([pa.array(texts[a:b], pa.string()).dictionary_encode() for a, b in pairwise(cuts)])
    lists = [[n] * (n % 3) for n in numbers]
    table = pa.table(
        {
            "text": column(texts, pa.string()),
            "list": column(lists, pa.list_(pa.int64())),
            "code": codes,
            "whole": pa.array(numbers, pa.int64()),
            "number": column(numbers, pa.uint16()),
            "time": column(numbers, pa.timestamp("ns", "UTC")),
            "odd": column([n if n % 2 else None for n in numbers], pa.float32()),
            "span": column([(n, 0, 0) for n in numbers], pa.month_day_nano_interval()),
        }
    )
    rows = data.draw(st.lists(st.integers(0, total - 1), max_size=max(1, total // 4))) if total else []
    taken = take_rows(table, np.array(rows, dtype=np.int64))
    taken.validate(full=True)
    assert taken.schema == table.schema
    assert taken["text"].to_pylist() == taken["code"].to_pylist() == [texts[row] for row in rows]
    assert taken["whole"].to_pylist() == taken["number"].to_pylist() == rows
    assert taken["time"].cast(pa.int64()).to_pylist() == rows
    assert taken["odd"].to_pylist() == [row if row % 2 else None for row in rows]
    assert [span.months for span in taken["span"].to_pylist()] == rows
    assert taken["list"].to_pylist() == [[row] * (row % 3) for row in rows]


@pytest.mark.parametrize("kind", ["of one length", "of many lengths"])
def test_texts_with_equal_hashes_are_distinguished(monkeypatch, kind):
    """No texts with equal hashes are known, so hashes are truncated to a few bits."""
    monkeypatch.setattr(text_table, "hash_keys", lambda columns: hash_keys(columns) % np.uint64(50) << np.uint64(50))
    texts = [f"{n:06d}" if kind == "of one length" else str(n) for n in range(3000)]
    values = pa.array([text.encode() for text in texts[:2000]])
    column = pa.chunked_array([[text.encode() for text in texts[part::3]] for part in range(3)])
    numbers = [texts.index(value.decode()) for value in column.to_pylist()]
    expected = [number if number < len(values) else -1 for number in numbers]
    assert TextTable(values).find(column).tolist() == expected
