"""Hash keys with 128 bits and a secret, so that hashes can be compared instead of keys.

A key is a sequence of 32-bit words: for each column its null flag, its length and its zero-padded bytes, so different
keys have different sequences. The hash is multilinear: each of four independent sums of a random number and of words
times random 64-bit multipliers, modulo 2**64, contributes its upper 32 bits. For two different keys that do not depend
on the secret, each sum has equal upper bits with a probability of 2**-32 (Lemire and Kaser, Strongly universal string
hashing is fast), so the hashes are equal with a probability of 2**-128: about 10**-19 for any two of ten billion keys.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import binary_array, single, to_numpy, valid_mask
from fsspeckit.core.values.hashing import Hashes, mix, value_starts

_SUMS = 4
_UPPER = np.uint64(0xFFFFFFFF00000000)
_HALF = np.uint64(32)
_WORD = 4
_LONG_BYTES = 1024  # longer values are replaced by a keyed digest
_BLOCK_WORDS = 1 << 19
_BLOCK_ROWS = 1 << 14
_NO_COLUMN = 1 << 31
_FIRST_WORDS = 3  # length of a long value, null flag, length


@dataclass(frozen=True, slots=True)
class KeyHasher:
    """Hashes keys with a secret."""

    secret: bytes

    @classmethod
    def random(cls) -> Self:
        """Return a hasher with a new secret."""
        return cls(secrets.token_bytes(32))

    def hash(self, columns: Sequence[pa.ChunkedArray]) -> tuple[Hashes, Hashes]:
        """Return two numbers of 64 bits for each row of key columns in comparable form."""
        rows = len(columns[0])
        high, low = np.empty(rows, np.uint64), np.empty(rows, np.uint64)
        for start in range(0, rows, _BLOCK_ROWS):
            block = slice(start, min(start + _BLOCK_ROWS, rows))
            sums = np.tile(_random_numbers(self.secret, _NO_COLUMN)[0], (block.stop - start, 1))
            for number, column in enumerate(columns):
                self._add(sums, single(column.slice(start, _BLOCK_ROWS)), number)
            high[block] = mix((sums[:, 0] & _UPPER) | (sums[:, 1] >> _HALF))
            low[block] = (sums[:, 2] & _UPPER) | (sums[:, 3] >> _HALF)
        return high, low

    def _add(self, sums: npt.NDArray[np.uint64], block: pa.Array, number: int) -> None:
        valid = None if block.null_count == 0 else valid_mask(block)
        if pa.types.is_int64(block.type):
            halves = to_numpy(block).view(np.uint32).reshape(-1, 2).astype(np.uint64)
            _add_words(sums, halves, np.full(len(block), 8), valid, self._multipliers(number, 2))
            return
        starts, lengths, data = value_starts(block)
        if len(lengths) and int(lengths.max()) > _LONG_BYTES:
            self._add(sums, self._digests(block, lengths), number)
            is_long = lengths > _LONG_BYTES
            sums[is_long] += lengths[is_long].astype(np.uint64)[:, None] * self._multipliers(number, 0)[0]
            return
        longest = int(lengths.max(initial=0))
        count = -(-longest // _WORD)
        factors = self._multipliers(number, count)
        step = max(1, min(len(block), _BLOCK_WORDS // max(1, count)))
        for at in range(0, len(block), step):
            part = slice(at, at + step)
            words = _words(starts[part], lengths[part], data, count)
            _add_words(sums[part], words, lengths[part], None if valid is None else valid[part], factors)

    def _multipliers(self, column: int, words: int) -> npt.NDArray[np.uint64]:
        """Return the multipliers of a column: of the length of long values, the null flag, the length, and words."""
        return _random_numbers(self.secret, column)[: _FIRST_WORDS + words]

    def _digests(self, block: pa.Array, lengths: npt.NDArray[np.int64]) -> pa.Array:
        """Return a block in which long values are replaced by digests."""
        values: list[bytes | None] = block.to_pylist()
        for row in np.flatnonzero(lengths > _LONG_BYTES).tolist():
            value = values[row]
            if value is not None:
                values[row] = hashlib.blake2b(value, key=self.secret, digest_size=32).digest()
        return binary_array(values, pa.large_binary())


@lru_cache(maxsize=64)
def _random_numbers(secret: bytes, column: int) -> npt.NDArray[np.uint64]:
    seed = [*np.frombuffer(secret, np.uint32).tolist(), column]
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    count = _FIRST_WORDS + _LONG_BYTES // _WORD
    return random.integers(0, 2**64, (count, _SUMS), np.uint64, endpoint=False)


def _words(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], count: int
) -> npt.NDArray[np.uint64]:
    """Return the bytes of values as rows of words; bytes behind the end are zero."""
    if len(lengths) and int(lengths.min()) == int(lengths.max()) == count * _WORD:
        first, width = int(starts[0]), count * _WORD
        whole: npt.NDArray[np.uint32] = np.ndarray((len(lengths), count), "<u4", data.data, first, (width, _WORD))
        return whole.astype(np.uint64)
    everywhere: npt.NDArray[np.uint32] = np.ndarray((len(data) - _WORD + 1,), "<u4", data.data, 0, (1,))
    offsets = np.arange(0, count * _WORD, _WORD)
    left = np.clip(lengths[:, None] - offsets, 0, _WORD)
    at = np.minimum(starts[:, None] + offsets, len(everywhere) - 1)
    masks = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF], np.uint64)
    return np.asarray(everywhere[at].astype(np.uint64) & masks[left])


def _add_words(
    sums: npt.NDArray[np.uint64],
    words: npt.NDArray[np.uint64],
    lengths: npt.NDArray[np.int64],
    valid: npt.NDArray[np.bool_] | None,
    factors: npt.NDArray[np.uint64],
) -> None:
    """Add words, lengths and null flags times their multipliers."""
    added = words @ factors[_FIRST_WORDS:] if words.shape[1] else np.zeros((len(words), _SUMS), np.uint64)
    size = lengths.astype(np.uint64)
    if len(size) and size.min() == size.max():
        added += size[0] * factors[2]
    else:
        added += size[:, None] * factors[2]
    if valid is not None:
        added[~valid] = factors[1]
    sums += added
