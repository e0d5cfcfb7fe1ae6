"""Skip row groups whose Bloom filter proves that they contain none of the source keys.

The module probes Parquet's split-block filters, which pyarrow writes but does not read. Filters are used only for few
keys: every key may be a false positive, so with a few hundred keys almost every group is read. A group is also read if
its filter cannot be interpreted.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.core.model import DataFile
from fsspeckit.core.parquet.damage import open_file
from fsspeckit.core.planning.statistics import KeySet, Ordered
from fsspeckit.core.storage import Storage

_MAX_KEYS = 256
_KNOWN_FILTER = 3 * b"\x1c\x1c\x00\x00" + b"\x00"  # the end of a header: split blocks, xxHash, no compression
_BLOCK_WORDS = 8
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], dtype=np.uint32
)
_MASK = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def drop_by_bloom(
    storage: Storage, file: DataFile, row_groups: tuple[int, ...], keys: Mapping[str, KeySet]
) -> tuple[int, ...]:
    """Return the row groups that may contain a key. A group without a filter is always kept."""
    for name, filters in file.blooms.items():
        hashes = _hashes(keys[name], file.stats[name].native) if name in keys else None
        if hashes is None or not any(filters[i] for i in row_groups):
            continue
        with open_file(storage, file) as source:
            row_groups = tuple(i for i in row_groups if _may_contain(source, filters[i], hashes))
    return row_groups


def _hashes(keys: KeySet, native: pa.DataType | None) -> npt.NDArray[np.uint64] | None:
    """Return the hashes of all keys as stored in the file, or ``None`` if the stored form is not certain."""
    if native is None or keys.values is None or keys.has_null or keys.has_nan or len(keys.values) > _MAX_KEYS:
        return None
    stored = _stored(keys.values, keys.type, native)
    return None if stored is None else np.array([xxh64(value) for value in stored], dtype=np.uint64)


def _stored(values: Ordered, type_: pa.DataType, native: pa.DataType) -> Sequence[bytes] | None:
    if pa.types.is_binary(native):
        return None if isinstance(values, np.ndarray) else list(values.to_pylist())
    integers = pa.types.is_integer(native) or pa.types.is_temporal(native)
    if not integers or not isinstance(values, np.ndarray) or values.dtype.kind not in "iu":
        return None
    try:
        typed = _typed(values, type_).cast(native)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    width = native.bit_width // 8
    raw = typed.view(pa.int32() if width == 4 else pa.int64()).to_numpy()
    return [struct.pack("<i" if width == 4 else "<q", int(value)) for value in raw]


def _typed(values: npt.NDArray[np.int64], type_: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(type_):
        return pa.array(values).cast(pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)
    return pa.array(values).cast(type_)


def _may_contain(source: pa.NativeFile, position: tuple[int, int] | None, hashes: npt.NDArray[np.uint64]) -> bool:
    if position is None:
        return True
    offset, length = position
    source.seek(offset)
    blocks = _bitset(source.read(length))
    return blocks is None or bool(_probe(blocks, hashes).any())


def _bitset(data: bytes) -> npt.NDArray[np.uint32] | None:
    """Return the blocks of a filter. Its header is a Thrift struct whose first field is the size of the bitset."""
    if not data or data[0] != 0x15:
        return None
    size = shift = 0
    for byte in data[1:6]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    size >>= 1
    if size <= 0 or size % (4 * _BLOCK_WORDS) or data[1 + shift // 7 : len(data) - size] != _KNOWN_FILTER:
        return None
    return np.frombuffer(data, dtype="<u4", count=size // 4, offset=len(data) - size).reshape(-1, _BLOCK_WORDS)


def _probe(blocks: npt.NDArray[np.uint32], hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Return for each hash whether all of its eight bits are set in its block."""
    high, low = hashes >> np.uint64(32), (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    block = ((high * np.uint64(len(blocks))) >> np.uint64(32)).astype(np.int64)
    bits = np.uint32(1) << ((low[:, None] * _SALTS[None, :]) >> np.uint32(27))
    return np.asarray(((blocks[block] & bits) != 0).all(axis=1))


def _rotate(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _MASK


def _round(state: int, lane: int) -> int:
    return _rotate((state + lane * _P2) & _MASK, 31) * _P1 & _MASK


def xxh64(data: bytes) -> int:
    """Return the 64-bit xxHash of some bytes, with seed 0."""
    at, size = 0, len(data)
    if size >= 32:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while at <= size - 32:
            lanes = [
                _round(state, lane) for state, lane in zip(lanes, struct.unpack_from("<4Q", data, at), strict=True)
            ]
            at += 32
        state = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            state = ((state ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        state = _P5
    state = (state + size) & _MASK
    while at <= size - 8:
        state = (_rotate(state ^ _round(0, struct.unpack_from("<Q", data, at)[0]), 27) * _P1 + _P4) & _MASK
        at += 8
    if at <= size - 4:
        state = (_rotate(state ^ (struct.unpack_from("<I", data, at)[0] * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        state = _rotate(state ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    state = (state ^ (state >> 33)) * _P2 & _MASK
    state = (state ^ (state >> 29)) * _P3 & _MASK
    return state ^ (state >> 32)
