"""Text lookup agrees with a Python dict, independent of storage and chunks."""

from __future__ import annotations

import uuid
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsspeckit.core.values import text_table
from fsspeckit.core.values.hashing import hash_keys
from fsspeckit.core.values.keys import KeyIndex
from fsspeckit.core.values.take import take_rows
from fsspeckit.core.values.text_table import TextTable

KINDS = [pa.binary(), pa.large_binary()]
TEXTS = st.one_of(st.binary(max_size=12), st.binary(min_size=5, max_size=5))


def chunked(values: list[bytes], kind: pa.DataType, cut: int) -> pa.ChunkedArray:
    """Return values in two chunks that are slices of larger arrays."""
    padded = pa.array([b"before", *values, b"after"], kind).slice(1, len(values))
    return pa.chunked_array([padded.slice(0, cut), padded.slice(cut)], kind)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("width", [None, 5])
@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_texts_are_found_at_their_positions(monkeypatch, kind, width, data):
    monkeypatch.setattr(text_table, "_BLOCK_ROWS", data.draw(st.integers(1, 50)))
    texts = TEXTS if width is None else st.binary(min_size=width, max_size=width)
    values = data.draw(st.lists(texts, min_size=1, max_size=40, unique=True))
    asked = data.draw(st.lists(st.sampled_from(values) | TEXTS, max_size=40))
    table = TextTable(chunked(values, kind, data.draw(st.integers(0, len(values)))))
    found = table.find(chunked(asked, kind, data.draw(st.integers(0, len(asked)))))
    place = {value: number for number, value in enumerate(values)}
    assert found.tolist() == [place.get(text, -1) for text in asked]


def test_fixed_size_values_are_found():
    values = pa.array([number.to_bytes(16, "big") for number in range(100)], pa.binary(16))
    asked = pa.chunked_array([values.take(pa.array([7, 3, 99])), pa.array([b"x" * 16], pa.binary(16))])
    assert TextTable(values).find(asked).tolist() == [7, 3, 99, -1]


@pytest.mark.parametrize("ragged", [False, True])
def test_index_of_many_texts_agrees_with_a_dict(ragged):
    rng = np.random.default_rng(1)
    keys = [str(uuid.UUID(bytes=rng.bytes(16))).encode() + (b"x" * (i % 3) if ragged else b"") for i in range(120_000)]
    values = pa.chunked_array([pa.array(keys[:50_000], pa.binary()), pa.array(keys[50_000:], pa.binary())])
    assert TextTable.supports(values)
    asked = [keys[i] for i in rng.integers(0, len(keys), 5_000).tolist()] + [b"absent", b""]
    positions, rows = KeyIndex([values]).lookup([pa.chunked_array([pa.array(asked, pa.binary())])])
    place = {key: number for number, key in enumerate(keys)}
    assert positions.tolist() == list(range(5_000))
    assert rows.tolist() == [place[key] for key in asked[:5_000]]


def test_nulls_are_found_beside_many_texts():
    many = pa.array([b"%d" % i for i in range(100_000)])
    assert TextTable.supports(many)
    assert not TextTable.supports(many.slice(1))
    assert not TextTable.supports(pa.concat_arrays([many, pa.nulls(1, pa.binary())]))
    assert not TextTable.supports(pa.array(range(100_000)))
    index = KeyIndex([pa.chunked_array([many])])
    asked = [pa.chunked_array([pa.array([None, b"99999", b"no"], pa.binary())])]
    positions, rows = index.lookup(asked)
    assert (positions.tolist(), rows.tolist()) == ([1], [99999])
    with_null = KeyIndex([pa.chunked_array([pa.nulls(1, pa.binary()), many])])
    positions, rows = with_null.lookup(asked)
    assert (positions.tolist(), rows.tolist()) == ([0, 1], [0, 100000])


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
