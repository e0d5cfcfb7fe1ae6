"""A cheap first look at text keys: which rows may have a key of the source, told by the last bytes of each value.

Hashing whole texts is the larger part of matching random keys. Eight bytes and a bitmap tell most rows apart at a
fifth of the cost; what remains is looked up exactly. It never misses a key, and only ever saves work.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_Words = npt.NDArray[np.uint64]
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_BITS_PER_KEY = 128  # of the bitmap: fewer than one row in a hundred passes by chance


class TextFilter:
    """A bitmap over the ends of the source's keys, given as ``binary`` or ``large_binary`` without nulls."""

    def __init__(self, keys: pa.ChunkedArray) -> None:
        bits = max(12, (_BITS_PER_KEY * len(keys)).bit_length() - 1)
        self._shift = np.uint64(64 - bits)
        self._map = np.zeros(1 << bits, dtype=bool)
        for chunk in keys.chunks:
            self._map[self._slots(chunk)] = True

    def candidates(self, column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
        """Rows that may hold a key, ascending; rows with null are as good as random."""
        found, start = [], 0
        for chunk in column.chunks:
            found.append(np.flatnonzero(self._map[self._slots(chunk)]) + start)
            start += len(chunk)
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)

    def _slots(self, chunk: pa.Array) -> _Words:
        return (_ends(chunk) * _SPREAD) >> self._shift


def _ends(values: pa.Array) -> _Words:
    """The last eight bytes of each value as a number; shorter values as they are."""
    if len(values) == 0:
        return np.empty(0, dtype=np.uint64)
    _, index, data = values.buffers()
    width_of = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    offsets = np.frombuffer(index, width_of)[values.offset : values.offset + len(values) + 1]
    lengths = np.diff(offsets)
    width = int(lengths[0])
    if width >= 8 and bool((lengths == width).all()):
        return np.ndarray((len(values),), "<u8", data, int(offsets[0]) + width - 8, (width,))
    if data is None or data.size < 8:
        return _padded(offsets, lengths, b"" if data is None else data.to_pybytes())
    stops, lengths = offsets[1:].astype(np.int64), lengths.astype(np.int64)
    words = np.ndarray((data.size - 7,), "<u8", data, 0, (1,))[np.maximum(stops - 8, 0)]
    words = words << (8 * np.maximum(8 - stops, 0)).astype(np.uint64)  # values that end within the first eight bytes
    kept = words >> (8 * np.clip(8 - lengths, 0, 7)).astype(np.uint64)
    return np.where(lengths == 0, np.uint64(0), kept)


def _padded(offsets: npt.NDArray[Any], lengths: npt.NDArray[Any], data: bytes) -> _Words:
    """The same for a buffer that is itself shorter than eight bytes."""
    texts = [data[start : start + length] for start, length in zip(offsets.tolist(), lengths.tolist(), strict=False)]
    return np.array([int.from_bytes(text, "little") for text in texts], dtype=np.uint64)
