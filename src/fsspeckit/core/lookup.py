"""Where each of many texts stands among many others.

Arrow's own search keeps all values in one hash table, and past the size of a processor's cache each step of it waits
for memory. Here both sides are first dealt out by hash into parts whose tables fit the cache. Texts of one length, such
as most identifiers are, are moved as blocks of bytes.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import from_blocks, single, text_blocks, to_arrow, to_numpy, valid_mask
from fsspeckit.core.hashing import hash_keys
from fsspeckit.core.rows import in_parts

Positions = npt.NDArray[np.int64]
_FEWEST = 100_000
_PART_VALUES = 32_768
_MOST_PARTS = 1 << 12
_MOST_BYTES = 1 << 30  # offsets of plain texts have 32 bits


def codes_of(array: pa.Array | pa.ChunkedArray) -> Positions:
    """Integers of an array, -1 where null."""
    numbers = to_numpy(array).astype(np.int64)
    return np.where(valid_mask(array), numbers, -1) if array.null_count else numbers


def positions_in(column: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray) -> Positions:
    """The position of each element of a column among distinct values, -1 for what is not there."""
    return codes_of(pc.index_in(column, value_set=values))


class TextTable:
    """Many distinct texts, ready to be searched."""

    def __init__(self, values: pa.Array | pa.ChunkedArray) -> None:
        self._parts = min(_MOST_PARTS, 1 << (len(values) // _PART_VALUES).bit_length())
        self._order, self._values, self._ends = self._dealt(_chunked(values))

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
        found = np.full(len(column), -1, dtype=np.int64)
        order, texts, ends = self._dealt(column)
        values = self._values
        if texts.type != values.type:
            texts, values = _as_texts(texts), self._texts
        starts, own_starts = np.append(0, ends[:-1]), np.append(0, self._ends[:-1])
        for low, high, own_low, own_high in zip(starts, ends, own_starts, self._ends, strict=True):
            if low == high or own_low == own_high:
                continue
            at = positions_in(texts.slice(low, high - low), values.slice(own_low, own_high - own_low))
            found[order[low:high]] = np.where(at >= 0, self._order[own_low + at], -1)
        return found

    @cached_property
    def _texts(self) -> pa.Array:
        """The values for a column whose texts are not all of their length."""
        return _as_texts(self._values)

    def _dealt(self, column: pa.ChunkedArray) -> tuple[Positions, pa.Array, Positions]:
        """The order in which texts of one part stand together, the texts in it, and where each part ends."""
        bits = self._parts.bit_length() - 1
        part = (
            (hash_keys([column]) >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(column), np.int64)
        )
        order = in_parts(part)
        return (
            order,
            _as_blocks(single(column)).take(to_arrow(order)),
            np.cumsum(np.bincount(part, minlength=self._parts)),
        )


def _chunked(values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])


def _as_blocks(texts: pa.Array) -> pa.Array:
    """Texts of one length as binary values of fixed size, others as they are."""
    blocks = text_blocks(texts)
    return texts if blocks is None else from_blocks(blocks, pa.binary(blocks.dtype.itemsize))


def _as_texts(blocks: pa.Array) -> pa.Array:
    return blocks if pa.types.is_large_binary(blocks.type) else blocks.cast(pa.large_binary())
