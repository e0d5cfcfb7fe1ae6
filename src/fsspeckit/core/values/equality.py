"""Row-wise equality of two columns of one type, for every Arrow type.

Null equals null, NaN equals NaN and -0.0 equals 0.0, at any depth, so a merge that turns one into the other changes
nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import single, to_arrow, to_numpy, valid_mask
from fsspeckit.core.values.take import one_dictionary

Mask = npt.NDArray[np.bool_]


def columns_equal(left: pa.Table, right: pa.Table) -> list[Mask]:
    """Return for each column which rows of two tables are equal. The tables have one length and one schema."""
    return [
        values_equal(single(a).indices, single(b).indices)
        if one_dictionary(a, b) and not _has_floats(a.type)
        else values_equal(single(a), single(b))
        for a, b in zip(left.columns, right.columns, strict=True)
    ]


def _has_floats(type_: pa.DataType) -> bool:
    """Return whether one dictionary of the type can contain both zeros."""
    if pa.types.is_dictionary(type_):
        return _has_floats(type_.value_type)
    return pa.types.is_floating(type_) or any(_has_floats(type_.field(i).type) for i in range(type_.num_fields))


def values_equal(a: pa.Array, b: pa.Array) -> Mask:
    """Compare two arrays of one type element by element."""
    type_ = a.type
    if isinstance(type_, pa.BaseExtensionType):
        return values_equal(a.storage, b.storage)
    if pa.types.is_dictionary(type_):
        return values_equal(a.cast(type_.value_type), b.cast(type_.value_type))
    if pa.types.is_null(type_):
        return np.ones(len(a), dtype=bool)
    if not pa.types.is_floating(type_) and not pa.types.is_nested(type_) and a.equals(b):
        return np.ones(len(a), dtype=bool)
    valid_a, valid_b = valid_mask(a), valid_mask(b)
    equal = _content_equal(a, b, valid_a & valid_b)
    return np.where(valid_a & valid_b, equal, valid_a == valid_b)


def _content_equal(a: pa.Array, b: pa.Array, both: Mask) -> Mask:
    type_ = a.type
    if pa.types.is_struct(type_):
        return _structs_equal(a, b)
    if pa.types.is_map(type_) or _is_list(type_):
        return _lists_equal(a, b, both)
    if pa.types.is_floating(type_):
        return _floats_equal(a, b)
    if pa.types.is_string_view(type_) or pa.types.is_binary_view(type_):
        a, b = a.cast(pa.large_binary()), b.cast(pa.large_binary())
    elif pa.types.is_decimal(type_) and type_.bit_width < 128:
        wide = pa.decimal128(type_.precision, type_.scale)
        a, b = a.cast(wide), b.cast(wide)
    return to_numpy(pc.equal(a, b))


def _floats_equal(a: pa.Array, b: pa.Array) -> Mask:
    left, right = to_numpy(a), to_numpy(b)
    return np.asarray((left == right) | (np.isnan(left) & np.isnan(right)))


def _structs_equal(a: pa.StructArray, b: pa.StructArray) -> Mask:
    equal = np.ones(len(a), dtype=bool)
    for left, right in zip(a.flatten(), b.flatten(), strict=True):
        equal &= values_equal(left, right)
    return equal


def _is_list(type_: pa.DataType) -> bool:
    checks = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(type_) for check in (*checks, pa.types.is_list_view, pa.types.is_large_list_view))


def _lists_equal(a: pa.Array, b: pa.Array, both: Mask) -> Mask:
    """Compare lists: they are equal if they have the same length and equal elements."""
    lengths_a, lengths_b = _lengths(a), _lengths(b)
    comparable = both & (lengths_a == lengths_b)
    rows = np.flatnonzero(comparable)
    left, right = _elements(a, rows), _elements(b, rows)
    differing = np.repeat(rows, lengths_a[rows])[~values_equal(left, right)]
    equal = comparable.copy()
    equal[differing] = False
    return np.asarray(equal)


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    if pa.types.is_fixed_size_list(array.type):
        return np.full(len(array), int(array.type.list_size), dtype=np.int64)
    if pa.types.is_map(array.type):
        return np.asarray(np.diff(to_numpy(array.offsets)), dtype=np.int64)
    return np.where(valid_mask(array), to_numpy(pc.list_value_length(array)), 0).astype(np.int64)


def _elements(array: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    taken = array.take(to_arrow(rows))
    if pa.types.is_map(array.type):
        start, stop = taken.offsets[0].as_py(), taken.offsets[-1].as_py()
        pairs = [taken.keys.slice(start, stop - start), taken.items.slice(start, stop - start)]
        return pa.StructArray.from_arrays(pairs, names=["key", "value"])
    return taken.flatten()
