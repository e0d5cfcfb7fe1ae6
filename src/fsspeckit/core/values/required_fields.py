"""Fill required fields of null structs, because pyarrow's Parquet writer rejects nulls in a required field.

The fields of a null struct are never written, so any value is correct there. Arrow's readers and `pa.nulls` leave
nulls there. They are replaced by arbitrary values. A null in a struct that is not null stays, and raises an error when
it is written.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import valid_mask


def fill_required(table: pa.Table) -> pa.Table:
    """Return a table in which required fields of null structs have values."""
    for at, field in enumerate(table.schema):
        if _has_required(field.type):
            chunks = [_fill(chunk) for chunk in table.column(at).chunks]
            table = table.set_column(at, field, pa.chunked_array(chunks, field.type))
    return table


def _has_required(type_: pa.DataType) -> bool:
    """Return whether a type contains a struct with a required field."""
    if not pa.types.is_nested(type_):
        return False
    fields = [type_.field(i) for i in range(type_.num_fields)]
    required = pa.types.is_struct(type_) and any(not field.nullable for field in fields)
    return required or any(_has_required(field.type) for field in fields)


def _fill(array: pa.Array) -> pa.Array:
    if not _has_required(array.type) or not len(array):
        return array
    if not pa.types.is_struct(array.type):
        return _fill_list(array)
    valid, children = valid_mask(array), []
    for i, field in enumerate(array.type):
        child = _fill(array.field(i))
        if not field.nullable and child.null_count and not (valid & ~valid_mask(child)).any():
            child = _without_nulls(child)
        children.append(child)
    mask = pa.array(~valid) if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)


def _fill_list(array: pa.Array) -> pa.Array:
    """Fill the values of a list or map. Its offsets and nulls stay."""
    if array.offset:
        array = pa.concat_arrays([array, array.slice(0, 0)])
    if pa.types.is_map(array.type):
        values = pa.StructArray.from_arrays(
            [array.keys, array.items], fields=[array.type.key_field, array.type.item_field]
        )
    else:
        values = array.values
    own = array.buffers()[: 1 if pa.types.is_fixed_size_list(array.type) else 2]
    return pa.Array.from_buffers(array.type, len(array), own, children=[_fill(values)])


def _without_nulls(array: pa.Array) -> pa.Array:
    """Return an array in which nulls are replaced by arbitrary values."""
    if pa.types.is_dictionary(array.type):
        codes = _without_nulls(array.indices)
        values = array.dictionary if len(array.dictionary) else _one_value(array.type.value_type)
        return pa.DictionaryArray.from_arrays(codes, values, ordered=array.type.ordered)
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(array.type, _without_nulls(array.storage))
    if pa.types.is_struct(array.type):
        children = [array.field(i) for i in range(array.type.num_fields)]
        filled = [c if f.nullable else _without_nulls(c) for c, f in zip(children, array.type, strict=True)]
        return pa.StructArray.from_arrays(filled, fields=list(array.type))
    rows = np.where(valid_mask(array), np.arange(len(array)), len(array))
    return pa.concat_arrays([array, _one_value(array.type)]).take(pa.array(rows))


def _one_value(type_: pa.DataType) -> pa.Array:
    """Return an array with one arbitrary value of a type."""
    if pa.types.is_nested(type_):
        return pa.array([[]] if not pa.types.is_fixed_size_list(type_) else [[None] * type_.list_size], type_)
    if pa.types.is_fixed_size_binary(type_):
        return pa.array([bytes(type_.byte_width)], type_)
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.array([b""], type_)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.array([""], type_)
    if pa.types.is_boolean(type_):
        return pa.array([False])
    if pa.types.is_decimal(type_):
        return pa.array([Decimal(0)], type_)
    if pa.types.is_float16(type_):
        return pa.array(np.zeros(1, np.float16))
    zero = pa.array([0], pa.int64() if type_.bit_width == 64 else pa.int32())
    return zero.cast(type_) if type_.bit_width < 32 else zero.view(type_)
