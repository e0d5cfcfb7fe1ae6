"""Where each of many texts stands among many others.

Arrow's own search keeps all values in one hash table, and past the size of a processor's cache each step of it waits
for memory. Here hashes are searched, in parts that fit the cache, and only texts with equal hashes are compared. Texts
of one length, such as most identifiers are, are moved as blocks of bytes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import from_blocks, single, text_blocks, to_arrow, to_numpy, valid_mask
from fsspeckit.core.hashing import Hashes, hash_keys
from fsspeckit.core.rows import in_parts

Positions = npt.NDArray[np.int64]
_FEWEST = 100_000
_PART_VALUES = 4096
_MOST_BITS = 12
_MOST_BYTES = 1 << 30  # offsets of plain texts have 32 bits


def codes_of(array: pa.Array | pa.ChunkedArray) -> Positions:
    """Integers of an array, -1 where null."""
    numbers = to_numpy(array).astype(np.int64)
    return np.where(valid_mask(array), numbers, -1) if array.null_count else numbers


def positions_in(column: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray) -> Positions:
    """The position of each element of a column among distinct values, -1 for what is not there."""
    return codes_of(pc.index_in(column, value_set=values))


class TextTable:
    """Many distinct texts, ready to be searched: their hashes in order, and which text each belongs to."""

    def __init__(self, values: pa.Array | pa.ChunkedArray) -> None:
        column = _chunked(values)
        hashes = hash_keys([column])
        self._order = np.argsort(hashes)
        self._hashes, self._values = hashes[self._order], _as_blocks(single(column))
        self._bits = min(_MOST_BITS, (len(hashes) // _PART_VALUES).bit_length())
        self._ends = np.cumsum(np.bincount(self._part(self._hashes), minlength=1 << self._bits))

    @staticmethod
    def suits(values: pa.Array | pa.ChunkedArray) -> bool:
        """Whether the values are texts without nulls, many, and not too large."""
        kind = values.type
        text = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
        return bool(text and len(values) >= _FEWEST) and TextTable.can_find(values)

    @staticmethod
    def can_find(column: pa.Array | pa.ChunkedArray) -> bool:
        """Whether a column can be looked up."""
        return bool(column.null_count == 0 and column.nbytes <= _MOST_BYTES)

    def find(self, column: pa.ChunkedArray) -> Positions:
        """The position of each text among the values, -1 for what is not there."""
        rows, found = self._with_equal_hash(hash_keys([column]))
        texts = _as_blocks(single(column))
        same = _equal(texts.take(to_arrow(rows)), self._values.take(to_arrow(found)))
        result = np.full(len(column), -1, dtype=np.int64)
        result[rows[same]] = found[same]
        if not same.all():
            clashing = rows[~same]
            result[clashing] = positions_in(_as_texts(texts.take(to_arrow(clashing))), _as_texts(self._values))
        return result

    def _with_equal_hash(self, hashes: Hashes) -> tuple[Positions, Positions]:
        """Rows whose hash a value has too, and the position of the first such value."""
        part = self._part(hashes)
        order = in_parts(part)
        wanted, ends = hashes[order], np.cumsum(np.bincount(part, minlength=1 << self._bits))
        at = np.zeros(len(wanted), dtype=np.int64)
        starts, own_starts = np.append(0, ends[:-1]), np.append(0, self._ends[:-1])
        for low, high, own_low, own_high in zip(starts, ends, own_starts, self._ends, strict=True):
            if low < high and own_low < own_high:
                inside = np.searchsorted(self._hashes[own_low:own_high], wanted[low:high])
                at[low:high] = np.minimum(inside, own_high - own_low - 1) + own_low
        hit = self._hashes[at] == wanted
        return order[hit], self._order[at[hit]]

    def _part(self, hashes: Hashes) -> Positions:
        """The part of each hash, by its first bits: in order, parts are stretches."""
        return (hashes >> np.uint64(63 - self._bits) >> np.uint64(1)).astype(np.int64)


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
