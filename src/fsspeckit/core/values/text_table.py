"""Where each of many texts stands among many others.

Arrow's own search builds a hash table of all values anew for every column, and past the size of a processor's cache
each step of it waits for memory. Here hashes are sorted once and looked up for many rows at a time, and only texts with
equal hashes are compared. Texts of one length, such as most identifiers are, are moved as blocks of bytes.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import from_blocks, single, text_blocks, to_arrow, to_numpy, valid_mask
from fsspeckit.core.values.hashing import Hashes, hash_keys, in_pieces

Positions = npt.NDArray[np.int64]
_FEWEST = 100_000
_PIECE = 1 << 17  # rows whose numbers stay in the cache from step to step
_MOST_BYTES = 1 << 30  # offsets of plain texts have 32 bits


def codes_of(array: pa.Array | pa.ChunkedArray) -> Positions:
    """Integers of an array, -1 where null."""
    numbers = to_numpy(array).astype(np.int64)
    return np.where(valid_mask(array), numbers, -1) if array.null_count else numbers


def positions_in(column: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray) -> Positions:
    """The position of each element of a column among distinct values, -1 for what is not there."""
    return codes_of(pc.index_in(column, value_set=values))


class TextTable:
    """Many distinct texts, ready to be searched.

    The texts stand in the order of their hashes, each as one number: the first bits of its hash, then its position.
    The very first bits say where to look.
    """

    def __init__(self, values: pa.Array | pa.ChunkedArray) -> None:
        column = _chunked(values)
        bits = len(column).bit_length()
        self._low, self._top = np.uint64(bits), np.uint64(64 - bits)
        self._position = ~(~np.uint64(0) << self._low)
        with ThreadPoolExecutor(1) as pool:  # joining the texts waits for memory, hashing them for the processor
            joined = pool.submit(lambda: _as_blocks(single(column)))
            self._entries = hash_keys([column])
            self._entries &= ~self._position
            self._entries |= np.arange(len(column), dtype=np.uint64)
            self._entries.sort()
            self._starts = np.zeros((1 << bits) + 1, dtype=np.int32)
            np.cumsum(np.bincount(self._bucket(self._entries), minlength=1 << bits), out=self._starts[1:])
            self._values = joined.result()

    @staticmethod
    def suits(values: pa.Array | pa.ChunkedArray) -> bool:
        """Whether the values are texts without nulls, many, and not too large."""
        kind = values.type
        text = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
        return bool(text and len(values) >= _FEWEST and values.null_count == 0 and values.nbytes <= _MOST_BYTES)

    def find(self, column: pa.ChunkedArray) -> Positions:
        """The position of each text of a column without nulls among the values, -1 for what is not there."""
        return np.concatenate([np.empty(0, dtype=np.int64), *map(self._find, in_pieces(column, _PIECE))])

    def _find(self, texts: pa.Array) -> Positions:
        result = np.full(len(texts), -1, dtype=np.int64)
        hashes, texts = hash_keys([_chunked(texts)]), _as_blocks(texts)
        bucket = self._bucket(hashes)
        at, end = self._starts.take(bucket), self._starts[1:].take(bucket)
        left = np.flatnonzero(at < end)
        while len(left):
            entries = self._entries.take(at.take(left))
            alike = np.flatnonzero((entries ^ hashes.take(left)) >> self._low == 0)
            rows, found = left.take(alike), (entries.take(alike) & self._position).astype(np.int64)
            same = _equal(texts.take(to_arrow(rows)), self._values.take(to_arrow(found)))
            result[rows] = np.where(same, found, -1)
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
    """Texts of one length as binary values of fixed size, others as they are."""
    blocks = text_blocks(texts)
    return texts if blocks is None else from_blocks(blocks, pa.binary(blocks.dtype.itemsize))


def _as_texts(blocks: pa.Array) -> pa.Array:
    return blocks if pa.types.is_large_binary(blocks.type) else blocks.cast(pa.large_binary())
