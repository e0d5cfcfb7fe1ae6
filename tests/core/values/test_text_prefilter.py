"""The text filter has no false negatives, for all lengths and slices."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.core.values.keys import KeyIndex
from fsspeckit.core.values.text_prefilter import TextFilter

_TEXTS = st.one_of(st.binary(max_size=3), st.binary(min_size=7, max_size=10), st.sampled_from([b"", b"a" * 36]))
_WIDE = st.sampled_from([pa.binary(), pa.large_binary()])


def _cut(values: list[bytes], type_: pa.DataType, at: int) -> pa.ChunkedArray:
    padded = pa.array([b"zz", b"", *values, b"q"], type_)
    return pa.chunked_array([padded.slice(2, at), padded.slice(2 + at, len(values) - at)], type_)


@given(keys=st.lists(_TEXTS, max_size=6), others=st.lists(_TEXTS, max_size=30), type_=_WIDE, data=st.data())
def test_every_key_is_a_candidate(keys, others, type_, data):
    values = data.draw(st.permutations(keys + others))
    column = _cut(values, type_, data.draw(st.integers(0, len(values))))
    found = set(TextFilter(_cut(keys, type_, 0)).candidates(column).tolist())
    assert {row for row, value in enumerate(values) if value in keys} <= found


@given(keys=st.lists(_TEXTS, unique=True, max_size=6), others=st.lists(st.none() | _TEXTS, max_size=30), type_=_WIDE)
def test_lookup_finds_exactly_the_rows_with_a_key(keys, others, type_):
    values = [*others, *keys]
    positions, found = KeyIndex([pa.chunked_array([pa.array(keys, type_)])]).lookup(
        [pa.chunked_array([pa.array(values, type_)])]
    )
    expected = [(row, keys.index(value)) for row, value in enumerate(values) if value in keys]
    assert list(zip(positions.tolist(), found.tolist(), strict=True)) == expected


def test_false_positives_are_rare():
    keys = pa.chunked_array([pa.array([f"{i:036d}".encode() for i in range(1000)])])
    others = pa.chunked_array([pa.array([f"{i:036d}".encode() for i in range(10_000, 110_000)])])
    assert len(TextFilter(keys).candidates(others)) < 3000
