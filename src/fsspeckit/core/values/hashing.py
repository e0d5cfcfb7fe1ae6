"""Hash keys to distribute rows over partitions. A hash is the same in every process.

Equal keys have equal hashes; different keys can have equal hashes too. Key columns must be in the comparable form of
`fsspeckit.core.values.keys`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import to_numpy, valid_mask
from fsspeckit.core.values.take import in_parts, take_rows

Hashes = npt.NDArray[np.uint64]
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MIX_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)
_NULL = np.uint64(0x5851F42D4C957F2D)
_WORD = 8
_BLOCK_ROWS = 1 << 16  # rows that fit into the CPU cache


def hash_keys(columns: Sequence[pa.ChunkedArray]) -> Hashes:
    """Return one hash per row of the key columns."""
    hashes = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        start = 0
        for block in in_blocks(column, _BLOCK_ROWS):
            before = hashes[start : start + len(block)]
            before[:] = mix(before * _MULTIPLIER + _hash_chunk(block))
            start += len(block)
    return hashes


def in_blocks(column: pa.ChunkedArray, rows: int) -> Iterator[pa.Array]:
    """Yield a column in blocks of at most ``rows`` rows."""
    return (chunk.slice(at, rows) for chunk in column.chunks for at in range(0, len(chunk), rows))


def partition_numbers(hashes: Hashes, parts: int) -> npt.NDArray[np.int64]:
    """Return the partition number of each hash."""
    return ((hashes >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)).astype(np.int64)


def cut_by_part(table: pa.Table, part: npt.NDArray[np.int64]) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each partition, in their order. ``part`` has the partition number of each row."""
    if len(part) == 0:
        return
    if bool((part == part[0]).all()):
        yield int(part[0]), table
        return
    order = in_parts(part)
    ordered = take_rows(table, order)
    for number, start, stop in runs_of(part[order]):
        yield number, ordered.slice(start, stop - start)


def runs_of(ordered: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Yield each of some ordered numbers from zero with its first position and the position behind its last one."""
    cuts = np.flatnonzero(np.diff(ordered, prepend=-1)).tolist()
    for start, stop in zip(cuts, [*cuts[1:], len(ordered)][: len(cuts)], strict=True):
        yield int(ordered[start]), start, stop


def mix(values: Hashes) -> Hashes:
    """Distribute the bits of numbers; different numbers stay different."""
    values = (values ^ (values >> np.uint64(31))) * _MIX_MULTIPLIER
    return np.asarray(values ^ (values >> np.uint64(29)))


def _hash_chunk(chunk: pa.Array) -> Hashes:
    hashes = _hash_numbers(chunk) if pa.types.is_int64(chunk.type) else _hash_bytes(chunk)
    return hashes if chunk.null_count == 0 else np.where(valid_mask(chunk), hashes, _NULL)


def _hash_numbers(chunk: pa.Array) -> Hashes:
    return mix(to_numpy(chunk).view(np.uint64) * _MULTIPLIER)


def _hash_bytes(chunk: pa.Array) -> Hashes:
    """Hash eight bytes of every value per step, up to the end of the longest value."""
    starts, lengths, data = _value_words(chunk)
    hashes = mix(lengths.astype(np.uint64) + np.uint64(1))
    if len(lengths) and lengths.min() == lengths.max():
        return _hash_fixed_width(hashes, int(lengths[0]), data)
    rows = np.flatnonzero(lengths > 0)
    for done in range(0, int(lengths.max(initial=0)), _WORD):
        rows = rows[lengths[rows] > done]
        left = np.minimum(lengths[rows] - done, _WORD).astype(np.uint64)
        mask = ~np.uint64(0) >> (np.uint64(64) - np.uint64(8) * left)
        words = data[starts[rows] + done] & mask
        hashes[rows] = mix(hashes[rows] * _MULTIPLIER + words)
    return hashes


def _hash_fixed_width(hashes: Hashes, width: int, data: Hashes) -> Hashes:
    """Hash values of one width, which need no lookup of their offsets."""
    for done in range(0, width, _WORD):
        left = min(width - done, _WORD)
        words = data[done::width][: len(hashes)] & (~np.uint64(0) >> np.uint64(64 - 8 * left))
        hashes = mix(hashes * _MULTIPLIER + words)
    return hashes


def _value_words(chunk: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Hashes]:
    """Return the start and the length of each value, and the eight bytes at every position of the data."""
    starts, lengths, padded = value_starts(chunk)
    return starts, lengths, np.ndarray((len(padded) - _WORD + 1,), "<u8", padded.data, 0, (1,))


def value_starts(chunk: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the start and the length of each value of a binary array, and the data with eight more bytes."""
    buffers = chunk.buffers()
    if pa.types.is_fixed_size_binary(chunk.type):
        width = int(chunk.type.byte_width)
        starts = (np.arange(len(chunk)) + chunk.offset) * width
        lengths = np.full(len(chunk), width)
    else:
        kind = np.int64 if pa.types.is_large_binary(chunk.type) else np.int32
        offsets = np.frombuffer(buffers[1], kind)[chunk.offset : chunk.offset + len(chunk) + 1].astype(np.int64)
        starts, lengths = offsets[:-1], np.diff(offsets)
    low = int(starts[0]) if len(starts) else 0
    high = int(starts[-1] + lengths[-1]) if len(starts) else 0
    padded = np.zeros(high - low + _WORD, dtype=np.uint8)
    if high > low:
        padded[: high - low] = np.frombuffer(buffers[-1], np.uint8)[low:high]
    return starts - low, lengths, padded


def position_sums(positions: npt.NDArray[np.int64] | npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """Return two numbers for each row position. Their sums identify a set of positions, in any order."""
    numbers = positions.astype(np.uint64)
    first = mix(numbers * _MULTIPLIER + _NULL)
    return np.stack([first, mix(first * _MULTIPLIER + _MIX_MULTIPLIER)], axis=1)
