"""Convert between Arrow and numpy by sharing buffers, without pandas.

pyarrow imports pandas, if it is installed, at its first conversion from or to numpy or Python lists. The import takes a
quarter of a second, more than a small merge, so the common operations convert with this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_DTYPES = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
_OFFSETS: dict[pa.DataType, type[np.int32 | np.int64]] = {
    pa.string(): np.int32,
    pa.binary(): np.int32,
    pa.large_string(): np.int64,
    pa.large_binary(): np.int64,
}
_FLOATS = {16: np.float16, 32: np.float32, 64: np.float64}


def to_numpy(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return the values of a fixed-width array; the value at a null is arbitrary. Temporal types become integers."""
    if isinstance(array, pa.ChunkedArray):
        parts = [to_numpy(chunk) for chunk in array.chunks]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, dtype=_dtype(array.type))
    data, start, stop = array.buffers()[1], array.offset, array.offset + len(array)
    if pa.types.is_boolean(array.type):
        if len(array) == 0:
            return np.empty(0, dtype=bool)
        return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[start:stop].view(bool)
    dtype = _dtype(array.type)
    return np.frombuffer(data, dtype)[start:stop] if len(array) else np.empty(0, dtype=dtype)


def _dtype(type_: pa.DataType) -> Any:
    if pa.types.is_boolean(type_):
        return np.bool_
    if pa.types.is_floating(type_):
        return _FLOATS[type_.bit_width]
    return (_UNSIGNED if pa.types.is_unsigned_integer(type_) else _DTYPES)[type_.bit_width]


def single(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; a single chunk is not copied."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def valid_mask(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return a mask of the elements that are not null."""
    if array.null_count == 0:
        return np.ones(len(array), dtype=bool)
    return to_numpy(array.is_valid())


def to_arrow(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return a numpy array of numbers or booleans as an Arrow array; numbers share their memory."""
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    if values.dtype == np.bool_:
        packed = pa.py_buffer(np.packbits(values, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(values), [bits, packed])
    plain = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(plain.dtype), len(plain), [bits, pa.py_buffer(plain)])


def text_blocks(texts: pa.Array) -> npt.NDArray[np.void] | None:
    """Return texts of equal length as fixed-size byte blocks that share their memory, or None for other texts."""
    if texts.type not in _OFFSETS or texts.null_count or not len(texts):
        return None
    _, offset_buffer, data = texts.buffers()
    offsets = np.frombuffer(offset_buffer, _OFFSETS[texts.type])[texts.offset : texts.offset + len(texts) + 1]
    start, stop, width = int(offsets[0]), int(offsets[-1]), int(offsets[1] - offsets[0])
    if not width or stop - start != width * len(texts) or bool((np.diff(offsets) != width).any()):
        return None
    return np.frombuffer(data, np.uint8)[start:stop].view(f"V{width}")


def from_blocks(blocks: npt.NDArray[np.void], type_: pa.DataType) -> pa.Array:
    """Return fixed-size byte blocks as an array of a text, binary or fixed-size binary type."""
    if pa.types.is_fixed_size_binary(type_):
        return pa.Array.from_buffers(type_, len(blocks), [None, pa.py_buffer(blocks)])
    offsets = np.arange(0, blocks.nbytes + 1, blocks.dtype.itemsize, dtype=_OFFSETS[type_])
    return pa.Array.from_buffers(type_, len(blocks), [None, pa.py_buffer(offsets), pa.py_buffer(blocks)])


def binary_array(values: Sequence[bytes | None], type_: pa.DataType) -> pa.Array:
    """Return Python bytes as a ``binary`` or ``string`` array."""
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum([len(value or b"") for value in values], out=offsets[1:])
    valid = None if None not in values else np.array([value is not None for value in values])
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    data = pa.py_buffer(b"".join(value or b"" for value in values))
    large = pa.large_binary() if pa.types.is_binary(type_) else pa.large_string()
    return pa.Array.from_buffers(large, len(values), [bits, pa.py_buffer(offsets), data]).cast(type_)


def text_array(values: Sequence[str | None]) -> pa.Array:
    """Return Python texts as a ``string`` array."""
    return binary_array([None if value is None else value.encode() for value in values], pa.string())


def scalar(value: bool | float | str | bytes) -> pa.Scalar:
    """Return a Python value as a scalar of type bool, int64, float64, string or binary."""
    if isinstance(value, str):
        return text_array([value])[0]
    if isinstance(value, bytes):
        return binary_array([value], pa.binary())[0]
    return to_arrow(np.array([value]))[0]


def null_scalar(type_: pa.DataType) -> pa.Scalar:
    """Return the null of a type."""
    return pa.nulls(1, type_)[0]


def scalars_array(scalars: Sequence[pa.Scalar], type_: pa.DataType) -> pa.Array:
    """Return scalars of a type as an array."""
    return pa.concat_arrays([pa.nulls(0, type_), *(pa.repeat(each, 1) for each in scalars)])


def empty_table(schema: pa.Schema) -> pa.Table:
    """Return a table without rows."""
    return pa.table([pa.nulls(0, field.type) for field in schema], schema=schema)
