"""Equal keys have equal hashes in any array, and different keys are distributed evenly."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.core.values.hashing import hash_keys, partition_numbers

_KINDS = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.binary(): st.binary(max_size=30),
    pa.large_binary(): st.binary(max_size=30),
    pa.binary(5): st.binary(min_size=5, max_size=5),
}


@pytest.mark.parametrize("type_", _KINDS, ids=str)
@given(data=st.data())
def test_hash_does_not_depend_on_the_array(type_, data):
    values = data.draw(st.lists(st.none() | _KINDS[type_], min_size=1, max_size=20))
    at = data.draw(st.integers(0, len(values)))
    padded = pa.array([*values[-1:], *values, *values[:1]], type_)
    whole = hash_keys([pa.chunked_array([pa.array(values, type_)])])
    cut = hash_keys([pa.chunked_array([padded.slice(1, at), padded.slice(1 + at, len(values) - at)], type_)])
    assert whole.tolist() == cut.tolist()
    assert len(set(whole.tolist())) == len(set(values))


@pytest.mark.parametrize("keys", [np.arange(100_000), np.arange(100_000) * 1024])
def test_parts_have_similar_sizes(keys):
    texts = pa.array([f"customer-{key:010d}-of-the-year" for key in keys.tolist()]).cast(pa.binary())
    for column in (pa.array(keys), texts):
        counts = np.bincount(partition_numbers(hash_keys([pa.chunked_array([column])]), 7), minlength=7)
        assert counts.max() < 1.05 * len(keys) / 7


def test_hash_depends_on_the_order_of_columns():
    a, b = (pa.chunked_array([pa.array(values)]) for values in ([1, 2], [2, 1]))
    hashes = hash_keys([a, b])
    assert hashes[0] != hashes[1]
    assert hash_keys([b, a]).tolist() == hashes[::-1].tolist()
