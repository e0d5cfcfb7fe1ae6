"""Filter text keys by their last eight bytes before the exact lookup.

Hashing whole texts is most of the cost of matching random keys. A bitmap of the last eight bytes excludes most rows at
a fifth of the cost; the other rows are looked up exactly. The filter has no false negatives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_Words = npt.NDArray[np.uint64]
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_BITS_PER_KEY = 128  # fewer than one row in a hundred is a false positive


class TextFilter:
    """A bitmap of the last bytes of keys, which are ``binary`` or ``large_binary`` without nulls."""

    def __init__(self, keys: pa.ChunkedArray) -> None:
        bits = max(12, (_BITS_PER_KEY * len(keys)).bit_length() - 1)
        self._shift = np.uint64(64 - bits)
        self._bitmap = np.zeros(1 << bits, dtype=bool)
        for chunk in keys.chunks:
            self._bitmap[self._slots(chunk)] = True

    def candidates(self, column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
        """Return the rows that may have a key, ascending. Null rows may or may not be included."""
        rows, start = [], 0
        for chunk in column.chunks:
            rows.append(np.flatnonzero(self._bitmap[self._slots(chunk)]) + start)
            start += len(chunk)
        return np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)

    def _slots(self, chunk: pa.Array) -> _Words:
        return (_last_words(chunk) * _MULTIPLIER) >> self._shift


def _last_words(values: pa.Array) -> _Words:
    """Return the last eight bytes of each value as a number; shorter values have fewer bytes."""
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
        return _words_of_short_buffer(offsets, lengths, b"" if data is None else data.to_pybytes())
    stops, lengths = offsets[1:].astype(np.int64), lengths.astype(np.int64)
    words = np.ndarray((data.size - 7,), "<u8", data, 0, (1,))[np.maximum(stops - 8, 0)]
    words = words << (8 * np.maximum(8 - stops, 0)).astype(np.uint64)  # values that end within the first eight bytes
    kept = words >> (8 * np.clip(8 - lengths, 0, 7)).astype(np.uint64)
    return np.where(lengths == 0, np.uint64(0), kept)


def _words_of_short_buffer(offsets: npt.NDArray[Any], lengths: npt.NDArray[Any], data: bytes) -> _Words:
    """Return the same numbers for a data buffer of fewer than eight bytes."""
    texts = [data[start : start + length] for start, length in zip(offsets.tolist(), lengths.tolist(), strict=False)]
    return np.array([int.from_bytes(text, "little") for text in texts], dtype=np.uint64)
