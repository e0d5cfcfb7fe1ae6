"""Cast Arrow arrays exactly: all values stay equal, or the cast raises an error.

pyarrow's own cast ignores some losses (``float64`` to ``float32``), does not support some lossless casts (string view
to dictionary, anything to a list view) and builds invalid arrays for others (list view to list). This module casts
nested and encoded types recursively, uses pyarrow only for plain values, and verifies narrowing casts by casting back.
Failures are raised as ``pa.ArrowException``; `fsspeckit.common.schema` adds the name of the column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from fsspeckit.common.arrow_versions import cast_view
from fsspeckit.common.types import (
    common_type,
    converts_extension,
    extension_name,
    is_any_list,
    is_bytes,
    is_narrow_decimal,
    is_text,
    is_view,
    unwrapped,
)

UUID_STORAGE = pa.binary(16)
_UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
Leaf = Callable[[pa.Array, pa.DataType], pa.Array]


@dataclass(frozen=True, slots=True)
class _Rules:
    """How missing struct fields and plain leaves are handled, at every depth."""

    fill_missing: bool
    leaf: Leaf


def exact_cast(
    array: pa.Array, target: pa.DataType, *, fill_missing: bool = False, leaf: Leaf | None = None
) -> pa.Array:
    """Cast one array to a type without changing a value.

    Args:
        array: The values.
        target: The type of the result.
        fill_missing: Fill missing struct fields with null, if the target allows null.
        leaf: Casts arrays that are neither nested nor encoded; `cast_leaf` by default.

    Raises:
        pa.ArrowException: A value, or the type itself, cannot be cast without loss.

    Examples:
        >>> import pyarrow as pa
        >>> exact_cast(pa.array([1, None], pa.int8()), pa.decimal128(5, 2)).to_pylist()
        [Decimal('1.00'), None]
    """
    return _cast(array, target, _Rules(fill_missing, leaf or cast_leaf))


def _cast(array: pa.Array, target: pa.DataType, rules: _Rules) -> pa.Array:
    source = array.type
    if source.equals(target):
        return array
    if pat.is_null(source) or (pat.is_null(target) and array.null_count == len(array)):
        return pa.nulls(len(array), target)
    if isinstance(source, pa.BaseExtensionType) and source.storage_type.equals(target):
        return array.storage
    if isinstance(source, pa.BaseExtensionType) or isinstance(target, pa.BaseExtensionType):
        return _cast_extension(array, target, rules)
    if pat.is_run_end_encoded(source):
        return _cast(pc.run_end_decode(array), target, rules)
    if pat.is_run_end_encoded(target):
        plain = _cast(array, target.value_type, rules)
        return pc.run_end_encode(plain, run_end_type=target.run_end_type)
    if pat.is_dictionary(source):
        return _from_dictionary(array, target, rules)
    if pat.is_dictionary(target):
        return _to_dictionary(array, target, rules)
    return _cast_plain(array, target, rules)


def _cast_extension(array: pa.Array, target: pa.DataType, rules: _Rules) -> pa.Array:
    """Cast texts or bytes to JSON or UUID, or the reverse."""
    source = array.type
    if not converts_extension(target, source):
        raise pa.ArrowInvalid("extension types are cast only to themselves, and JSON and UUID from texts and bytes")
    if isinstance(source, pa.BaseExtensionType):
        is_uuid_text = extension_name(source) == "arrow.uuid" and is_text(unwrapped(target))
        return _cast(_uuid_texts(array) if is_uuid_text else array.storage, target, rules)
    storage = target.storage_type
    if pat.is_fixed_size_binary(storage) and is_text(unwrapped(source)):
        plain = uuid_bytes(_cast(array, pa.string(), rules))
    elif pat.is_fixed_size_binary(storage):
        plain = _cast(_cast(array, pa.binary(), rules), storage, rules)
    elif is_text(unwrapped(source)):
        plain = _cast(array, storage, rules)
    else:
        plain = _cast(array, pa.binary(), rules).cast(storage)
    return pa.ExtensionArray.from_storage(target, plain)


def uuid_bytes(texts: pa.Array) -> pa.Array:
    """Parse UUIDs in their canonical text form."""
    is_uuid = pc.match_substring_regex(texts, _UUID, ignore_case=True)
    if pc.any(pc.invert(is_uuid)).as_py():
        raise pa.ArrowInvalid(f"{texts.filter(pc.invert(is_uuid))[0].as_py()!r} is not a UUID")
    digits = pc.replace_substring(texts, "-", "").fill_null("0" * 32)
    values = pa.py_buffer(bytes.fromhex("".join(digits.to_pylist())))
    found = pa.FixedSizeBinaryArray.from_buffers(UUID_STORAGE, len(texts), [None, values])
    return pc.if_else(texts.is_valid(), found, pa.scalar(None, UUID_STORAGE))


def _uuid_texts(array: pa.Array) -> pa.Array:
    return pa.array(
        [None if value is None else str(UUID(bytes=value)) for value in array.storage.to_pylist()], pa.string()
    )


def _cast_plain(array: pa.Array, target: pa.DataType, rules: _Rules) -> pa.Array:
    source = array.type
    if is_any_list(source) and is_any_list(target):
        return _cast_list(array, target, rules)
    if pat.is_map(source) and pat.is_map(target):
        return _cast_map(array, target, rules)
    if pat.is_struct(source) and pat.is_struct(target):
        return _cast_struct(array, target, rules)
    return rules.leaf(array, target)


def _from_dictionary(array: pa.Array, target: pa.DataType, rules: _Rules) -> pa.Array:
    if pat.is_dictionary(target):
        try:
            values = _cast(array.dictionary, target.value_type, rules)
            indices = array.indices.cast(target.index_type)
        except pa.ArrowException:
            # A dictionary may contain values that no row uses. Only used values must be castable.
            return _to_dictionary(_decoded(array), target, rules)
        return pa.DictionaryArray.from_arrays(indices, values, ordered=target.ordered)
    return _cast(_decoded(array), target, rules)


def _decoded(array: pa.Array) -> pa.Array:
    values = array.dictionary
    if is_view(values.type):  # views have no take kernel
        values = cast_view(values, pa.string() if pat.is_string_view(values.type) else pa.binary())
    return values.take(array.indices)


def _to_dictionary(array: pa.Array, target: pa.DataType, rules: _Rules) -> pa.Array:
    values = _cast(array, target.value_type, rules)
    if is_narrow_decimal(values.type):  # no dictionary_encode kernel
        values = values.cast(_as_decimal128(values.type))
    encoded = values.dictionary_encode()
    dictionary = encoded.dictionary.cast(target.value_type)
    return pa.DictionaryArray.from_arrays(encoded.indices.cast(target.index_type), dictionary, ordered=target.ordered)


def _cast_list(array: pa.Array, target: pa.DataType, rules: _Rules) -> pa.Array:
    values = _cast(array.flatten(), target.value_type, rules)
    _refuse_nulls(values, target.value_field)
    offsets, mask = _extents(array)
    if pat.is_large_list(target):
        return pa.LargeListArray.from_arrays(offsets, values, type=target, mask=mask)
    if pat.is_list_view(target) or pat.is_large_list_view(target):
        index = pa.int32() if pat.is_list_view(target) else pa.int64()
        sizes = pa.array(np.diff(offsets)).cast(index)
        build = pa.ListViewArray if pat.is_list_view(target) else pa.LargeListViewArray
        return build.from_arrays(pa.array(offsets[:-1]).cast(index), sizes, values, type=target, mask=mask)
    if pat.is_list(target):
        return pa.ListArray.from_arrays(pa.array(offsets).cast(pa.int32()), values, type=target, mask=mask)
    return _fixed_size_list(values, offsets, mask, target)


def _fixed_size_list(values: pa.Array, offsets: np.ndarray, mask: pa.Array | None, target: pa.DataType) -> pa.Array:
    size = target.list_size
    empty = np.zeros(len(offsets) - 1, dtype=bool) if mask is None else mask.to_numpy(zero_copy_only=False)
    if size == 0 or np.any(np.diff(offsets)[~empty] != size):
        raise pa.ArrowInvalid(f"not every list has the size {size}")
    # A null slot also has `size` values.
    pieces, start = [], 0
    for slot in np.flatnonzero(empty):
        pieces += [values.slice(start, offsets[slot] - start), pa.nulls(size, values.type)]
        start = offsets[slot]
    padded = pa.concat_arrays([*pieces, values.slice(start)])
    return pa.FixedSizeListArray.from_arrays(padded, type=target, mask=mask)


def _extents(array: pa.Array) -> tuple[np.ndarray, pa.Array | None]:
    """Return offsets into the flattened values, and the mask of null slots."""
    lengths = pc.list_value_length(array).fill_null(0)
    offsets = np.zeros(len(array) + 1, dtype=np.int64)
    np.cumsum(lengths.to_numpy(zero_copy_only=False), out=offsets[1:])
    return offsets, array.is_null() if array.null_count else None


def _cast_map(array: pa.Array, target: pa.DataType, rules: _Rules) -> pa.Array:
    fields = [array.type.key_field.with_name("key"), array.type.item_field.with_name("value")]
    entries = array.cast(pa.list_(pa.struct(fields)))
    offsets, mask = _extents(entries)
    flat = entries.flatten()
    keys = _cast(flat.field(0), target.key_type, rules)
    items = _cast(flat.field(1), target.item_type, rules)
    _refuse_nulls(items, target.item_field)
    return pa.MapArray.from_arrays(pa.array(offsets).cast(pa.int32()), keys, items, target, mask=mask)


def _cast_struct(array: pa.Array, target: pa.DataType, rules: _Rules) -> pa.Array:
    position = {field.name: index for index, field in enumerate(array.type)}
    extra = [name for name in position if target.get_field_index(name) < 0]
    if extra or len(position) != array.type.num_fields:
        raise pa.ArrowInvalid(f"the struct has fields that the target lacks, or duplicates: {extra or list(position)}")
    # Flattening adds nulls where the parent is null, so fields that are not nullable use the unflattened child.
    flattened = array.flatten()
    children = []
    for field in target:
        index = position.get(field.name)
        if index is None:
            children.append(_missing(field, len(array), rules))
            continue
        if not field.nullable and flattened[index].null_count > array.null_count:
            raise pa.ArrowInvalid(f"field {field.name!r} contains nulls but the target allows none")
        child = flattened[index] if field.nullable else array.field(index)
        children.append(_cast(child, field.type, rules))
    return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())


def _missing(field: pa.Field, length: int, rules: _Rules) -> pa.Array:
    if not rules.fill_missing or not field.nullable:
        raise pa.ArrowInvalid(f"the struct lacks the field {field.name!r}")
    return pa.nulls(length, field.type)


def _refuse_nulls(values: pa.Array, field: pa.Field) -> None:
    if values.null_count and not field.nullable:
        raise pa.ArrowInvalid(f"nested field {field.name!r} contains nulls but the target allows none")


def cast_leaf(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast an array that is neither nested nor encoded without changing a value."""
    source = array.type
    if pat.is_timestamp(source) and pat.is_timestamp(target) and (source.tz is None) != (target.tz is None):
        raise pa.ArrowInvalid("a timestamp with a zone cannot be cast to one without, or the reverse")
    if is_text(source) and target.equals(UUID_STORAGE):  # no other values of 16 bytes are compared with texts
        return uuid_bytes(_arrow_cast(array, pa.string()))
    cast = _arrow_cast(array, target)
    if common_type(target, source) != target and not _same_values(_arrow_cast(cast, source), array):
        raise pa.ArrowInvalid(f"some values would change between {source} and {target}")
    return cast


def parse_decimals(texts: Any, type_: pa.DataType) -> Any:
    """Cast texts, or one text, to a decimal type; Arrow lets too many digits before the decimal point wrap around."""
    found = texts.cast(type_)
    limit = 10.0 ** (type_.precision - type_.scale) * (1 + 1e-9)  # Arrow refuses what is only just too large
    is_beyond = pc.greater(pc.abs(texts.cast(pa.float64())), limit)
    if (is_beyond if isinstance(texts, pa.Scalar) else pc.any(is_beyond)).as_py():
        raise pa.ArrowInvalid(f"a text is not in the range of {type_}")
    return found


def _arrow_cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast with the checks of pyarrow, through a third type if pyarrow has no direct cast."""
    source = array.type
    if pat.is_integer(source) and (pat.is_float32(target) or pat.is_float64(target)):
        return array.cast(target, safe=False)  # pyarrow refuses large integers that the float has; `cast_leaf` compares
    if pat.is_integer(source) and pat.is_decimal(target):
        # pyarrow requires a precision for every int64; a cast from decimal to decimal checks the values instead.
        array = array.cast(pa.decimal128(20, 0))
        source = array.type
    if pat.is_decimal(source) and pat.is_decimal(target):
        if source.bit_width > target.bit_width:
            # pyarrow truncates the bits before it changes the scale; change the scale first.
            array = array.cast(pa.decimal256(76, target.scale))
    elif pat.is_decimal(source):
        if is_narrow_decimal(source):
            array = array.cast(_as_decimal128(source))
        if pat.is_float16(target):
            array = array.cast(pa.float64())
    elif pat.is_float16(source) and pat.is_decimal(target):
        array = array.cast(pa.float32())
    elif pat.is_string_view(target) and not (is_text(source) or is_bytes(source)):
        array = array.cast(pa.string())
    return cast_view(array, target) if is_view(source) else array.cast(target)


def _as_decimal128(type_: pa.DataType) -> pa.DataType:
    return pa.decimal128(type_.precision, type_.scale)


def _same_values(a: pa.Array, b: pa.Array) -> bool:
    """Compare arrays, with NaN equal to NaN."""
    if not pat.is_floating(a.type):
        return bool(a.equals(b))
    wide_a, wide_b = a.cast(pa.float64()), b.cast(pa.float64())
    nan_a, nan_b = pc.is_nan(wide_a), pc.is_nan(wide_b)
    if not nan_a.equals(nan_b):
        return False
    null = pa.scalar(None, pa.float64())
    return bool(pc.if_else(nan_a, null, wide_a).equals(pc.if_else(nan_b, null, wide_b)))
