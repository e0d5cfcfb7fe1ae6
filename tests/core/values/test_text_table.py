"""Texts with equal hashes are different keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from fsspeckit.core.values import text_table
from fsspeckit.core.values.hashing import hash_keys
from fsspeckit.core.values.text_table import TextTable


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
