"""Cover the values of a column with a limited number of ranges: the largest gaps between values are left out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import single, to_arrow, to_numpy
from fsspeckit.common.types import is_bytes, is_text
from fsspeckit.core.values.hashing import value_starts
from fsspeckit.core.values.keys import is_increasing, sortable

_PREFIX = 8


@dataclass(frozen=True, slots=True, eq=False)
class KeyRanges:
    """Ranges that contain all values of a column that are not null.

    ``lower`` and ``upper`` are arrays of the column's type, or lists of bytes whose upper ends are exclusive. They are
    None if the ranges are unknown.
    """

    lower: pa.Array | list[bytes] | None
    upper: pa.Array | list[bytes] | None
    nulls: int
    has_nan: bool = False


def key_ranges(column: pa.ChunkedArray, most: int) -> KeyRanges:
    """Return at most ``most`` ranges that cover a column whose type is that of a key."""
    nulls, type_ = column.null_count, column.type
    if is_text(type_) or is_bytes(type_):
        column = column.cast(pa.large_binary())  # pyarrow cannot filter views
    filled = column.drop_null() if nulls else column
    if len(filled) == 0:
        return KeyRanges(pa.nulls(0, type_), pa.nulls(0, type_), nulls)
    if is_text(type_) or is_bytes(type_) or pa.types.is_fixed_size_binary(type_):
        return _byte_ranges(filled, most, nulls)
    has_nan = pa.types.is_floating(type_) and bool(pc.any(pc.is_nan(filled.cast(pa.float64()))).as_py())
    form = sortable(filled)
    if has_nan or not pa.types.is_int64(form.type):
        return KeyRanges(None, None, nulls, has_nan)
    numbers = to_numpy(form)
    order = None if is_increasing(numbers) else np.argsort(numbers)
    first, last = _ranges((numbers if order is None else numbers[order]).view(np.uint64), most)
    ends = [at if order is None else order[at] for at in (first, last)]
    lower, upper = (single(filled.take(to_arrow(at))) for at in ends)
    return KeyRanges(lower, upper, nulls)


def _ranges(ordered: npt.NDArray[np.uint64], most: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first and the last position of each range of ordered numbers. Differences do not overflow."""
    gaps = ordered[1:] - ordered[:-1]
    wide = np.flatnonzero(gaps > 1)
    left_out = len(wide) - most + 1
    if left_out > 0:
        wide = np.sort(wide[np.argpartition(gaps[wide], left_out - 1)[left_out:]])
    return np.concatenate([[0], wide + 1]), np.concatenate([wide, [len(ordered) - 1]])


def _byte_ranges(column: pa.ChunkedArray, most: int, nulls: int) -> KeyRanges:
    """Return ranges of texts or bytes, by the eight bytes after the prefix that all have in common."""
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    bounds = pc.min_max(column).as_py()
    common = _common_prefix(bounds["min"], bounds["max"])
    words = np.sort(np.concatenate([_words_after(chunk, len(common)) for chunk in column.chunks]))
    if int(words[-1]) == 2**64 - 1:
        return KeyRanges(None, None, nulls)
    first, last = _ranges(words, most)
    lower = [common + int(word).to_bytes(_PREFIX, "big").rstrip(b"\0") for word in words[first]]
    upper = [common + (int(word) + 1).to_bytes(_PREFIX, "big") for word in words[last]]
    return KeyRanges(lower, upper, nulls)


def _common_prefix(low: bytes, high: bytes) -> bytes:
    count = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[:count]


def _words_after(chunk: pa.Array, skipped: int) -> npt.NDArray[np.uint64]:
    """Return the eight bytes behind the first ones of each value as a number; bytes behind the end are zero."""
    starts, lengths, data = value_starts(chunk)
    left = np.clip(lengths - skipped, 0, _PREFIX)
    everywhere: npt.NDArray[np.uint64] = np.ndarray((len(data) - _PREFIX + 1,), ">u8", data.data, 0, (1,))
    words = everywhere[np.minimum(starts + skipped, len(everywhere) - 1)].astype(np.uint64)
    masks = np.array([((1 << 8 * n) - 1) << 8 * (_PREFIX - n) for n in range(_PREFIX + 1)], np.uint64)
    return words & masks[left]
