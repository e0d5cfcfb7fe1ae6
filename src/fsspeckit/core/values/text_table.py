"""Find the positions of many texts among many others.

Arrow's `index_in` builds a hash table of all values on every call, and each step waits for memory if the table does
not fit into the CPU cache. Here the hashes are sorted once and looked up for many rows at a time, and only texts with
equal hashes are compared. Texts of one length, such as most identifiers, are processed as fixed-size values.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import from_blocks, single, text_blocks, to_arrow, to_numpy, valid_mask
from fsspeckit.core.values.hashing import Hashes, hash_keys, in_blocks

Positions = npt.NDArray[np.int64]
_MIN_VALUES = 100_000
_BLOCK_ROWS = 1 << 17  # rows that fit into the CPU cache
_MAX_BYTES = 1 << 30  # offsets of plain texts have 32 bits


def codes_of(array: pa.Array | pa.ChunkedArray) -> Positions:
    """Return the integers of an array, with -1 for nulls."""
    numbers = to_numpy(array).astype(np.int64)
    return np.where(valid_mask(array), numbers, -1) if array.null_count else numbers


def positions_in(column: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray) -> Positions:
    """Return the position of each element of a column among distinct values, or -1."""
    return codes_of(pc.index_in(column, value_set=values))


class TextTable:
    """A search index of many distinct texts.

    Each entry is one number: the high bits of the hash, then the position of the text. Entries are sorted, and the
    highest bits of a hash select a bucket of entries.
    """

    def __init__(self, values: pa.Array | pa.ChunkedArray) -> None:
        column = _chunked(values)
        bits = len(column).bit_length()
        self._low, self._top = np.uint64(bits), np.uint64(64 - bits)
        self._position = ~(~np.uint64(0) << self._low)
        with ThreadPoolExecutor(1) as pool:  # joining texts is limited by memory, hashing by the CPU
            joined = pool.submit(lambda: _as_blocks(single(column)))
            self._entries = hash_keys([column])
            self._entries &= ~self._position
            self._entries |= np.arange(len(column), dtype=np.uint64)
            self._entries.sort()
            self._starts = np.zeros((1 << bits) + 1, dtype=np.int32)
            np.cumsum(np.bincount(self._bucket(self._entries), minlength=1 << bits), out=self._starts[1:])
            self._values = joined.result()

    @staticmethod
    def supports(values: pa.Array | pa.ChunkedArray) -> bool:
        """Return whether the values are texts without nulls, and their number and size are in the supported range."""
        kind = values.type
        text = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
        return bool(text and len(values) >= _MIN_VALUES and values.null_count == 0 and values.nbytes <= _MAX_BYTES)

    def find(self, column: pa.ChunkedArray) -> Positions:
        """Return the position of each text of a column among the values, or -1. The column has no nulls."""
        return np.concatenate([np.empty(0, dtype=np.int64), *map(self._find, in_blocks(column, _BLOCK_ROWS))])

    def _find(self, texts: pa.Array) -> Positions:
        result = np.full(len(texts), -1, dtype=np.int64)
        hashes, texts = hash_keys([_chunked(texts)]), _as_blocks(texts)
        bucket = self._bucket(hashes)
        at, end = self._starts.take(bucket), self._starts[1:].take(bucket)
        left = np.flatnonzero(at < end)
        while len(left):
            entries = self._entries.take(at.take(left))
            same_hash = np.flatnonzero((entries ^ hashes.take(left)) >> self._low == 0)
            rows, positions = left.take(same_hash), (entries.take(same_hash) & self._position).astype(np.int64)
            same = _equal(texts.take(to_arrow(rows)), self._values.take(to_arrow(positions)))
            result[rows] = np.where(same, positions, -1)
            at[left] += 1
            left = left.take(np.flatnonzero((at < end).take(left) & (result.take(left) < 0)))
        return result

    def _bucket(self, hashes: Hashes) -> Positions:
        return (hashes >> self._top).astype(np.int64)


def _equal(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    if left.type != right.type:
        left, right = _as_texts(left), _as_texts(right)
    return to_numpy(pc.equal(left, right))


def _chunked(values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])


def _as_blocks(texts: pa.Array) -> pa.Array:
    """Return texts of one length as fixed-size binary values, and other texts unchanged."""
    blocks = text_blocks(texts)
    return texts if blocks is None else from_blocks(blocks, pa.binary(blocks.dtype.itemsize))


def _as_texts(blocks: pa.Array) -> pa.Array:
    return blocks if pa.types.is_large_binary(blocks.type) else blocks.cast(pa.large_binary())
