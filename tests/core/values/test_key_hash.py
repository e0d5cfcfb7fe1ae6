"""Hashes of keys depend on the values only, and differ for different keys."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa

from fsspeckit.core.values.key_hash import KeyHasher

TEXTS = [b"", b"\0", b"\0\0\0\0", b"a", b"a\0", b"ab", b"abc", b"abcd", b"abcde", None, *(b"x" * n for n in (36, 1023))]
LONG = [b"x" * n for n in (1024, 1025, 1026, 5000)]


def hashes(hasher: KeyHasher, *columns: list[bytes | None] | list[int | None], cut: int = 0) -> list[tuple[int, int]]:
    """The hashes of rows in two chunks."""
    arrays = [pa.array(column, pa.large_binary() if LONG[0] in column else None) for column in columns]
    chunked = [pa.chunked_array([array.slice(0, cut), array.slice(cut)]) for array in arrays]
    return list(zip(*(part.tolist() for part in hasher.hash(chunked)), strict=True))


def test_different_keys_have_different_hashes_wherever_they_are() -> None:
    hasher, texts = KeyHasher.random(), [*TEXTS, *LONG]
    known = dict(zip(texts, hashes(hasher, texts), strict=True))
    assert len(set(known.values())) == len(texts)
    for _ in range(20):
        mixed = random.sample(texts, len(texts))
        assert hashes(hasher, mixed, cut=random.randrange(len(mixed))) == [known[text] for text in mixed]
    assert hashes(hasher, TEXTS) == [known[text] for text in TEXTS]


def test_columns_are_not_joined() -> None:
    one, two = [b"ab", b"a", None, b""], [b"", b"b", b"", None]
    assert len(set(hashes(KeyHasher.random(), one, two))) == 4
    numbers = [0, 1, -1, None, 2**32, 2**63 - 1]
    assert len(set(hashes(KeyHasher.random(), numbers))) == 6


def test_other_secrets_give_other_hashes() -> None:
    assert not set(hashes(KeyHasher.random(), TEXTS)) & set(hashes(KeyHasher.random(), TEXTS))


def test_hashes_of_consecutive_numbers_are_distributed_evenly() -> None:
    high, low = KeyHasher.random().hash([pa.chunked_array([pa.array(range(100_000))])])
    for part in (high, low):
        assert np.bincount((part >> np.uint64(60)).astype(int), minlength=16).min() > 4000
