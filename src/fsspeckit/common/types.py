"""Decide which Arrow types have a lossless common type, and which types are stored as the same Parquet column.

No function reads values. If the answer depends on the values (a ``uint64`` column whose values fit ``int64``), the
result is ``None``, unless the caller passes ``checked`` and checks the values when casting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types as pat

_INDEX_BITS = 32  # of dictionaries
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_FLOATS = ((11, pa.float16()), (24, pa.float32()), (53, pa.float64()))  # mantissa bits, type
_UNITS = ("s", "ms", "us", "ns")
_SIGNED = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


@dataclass(frozen=True, slots=True)
class _Rules:
    evolve: bool = False  # structs may add or lack fields
    loosen: bool = False  # a nested field is nullable if it is nullable on either side
    checked: bool = False  # the caller checks values, so numbers without a common type get one
    keep: bool = False  # the type of the target stays, where its values can be compared with those of the source


def common_type(
    target: pa.DataType,
    source: pa.DataType,
    *,
    evolve: bool = False,
    loosen: bool = False,
    checked: bool = False,
) -> pa.DataType | None:
    """Return the type that holds the values of two types without loss, or None.

    If the types differ only in their Arrow representation (string types, list types, dictionary or plain, zone names),
    the result has the representation of the target.

    Args:
        target: The type whose representation is kept.
        source: The other type.
        evolve: Allow structs to add fields and to lack nullable ones.
        loosen: Make a nested field nullable if it is nullable on either side. Otherwise the nullability of the target
            stays.
        checked: Also combine numbers without a lossless common type: to the type of the target, or with `loosen` to
            float64 if one is a float. The caller must check the values (`cast_schema` does).

    Examples:
        >>> import pyarrow as pa
        >>> common_type(pa.int32(), pa.int64())
        DataType(int64)
        >>> common_type(pa.int64(), pa.string()) is None
        True
    """
    return _common(target, source, _Rules(evolve, loosen, checked))


def stored_type(target: pa.DataType, source: pa.DataType, *, evolve: bool = False) -> pa.DataType | None:
    """Return the type of a stored column that gets values of another type, or None if these cannot be converted.

    It is the type of the column. Only a dictionary may get wider codes, and with `evolve` a struct more fields. The
    caller must check the values (`cast_schema` does).

    Examples:
        >>> import pyarrow as pa
        >>> stored_type(pa.timestamp("us"), pa.timestamp("ns"))
        TimestampType(timestamp[us])
        >>> stored_type(pa.int32(), pa.string()) is None
        True
    """
    return _common(target, source, _Rules(evolve=evolve, checked=True, keep=True))


def key_compare_type(target: pa.DataType, source: pa.DataType) -> tuple[pa.DataType, bool]:
    """Return the type in which keys of two types that can be stored as the first are compared, and if they may not fit.

    All integers fit a decimal. Without a lossless common type it is the type of the target, which the values must fit,
    and so it is for times: the years of a dataset can be beyond the range of a finer unit.

    Examples:
        >>> import pyarrow as pa
        >>> key_compare_type(pa.int64(), pa.decimal128(5, 2))
        (Decimal128Type(decimal128(21, 2)), False)
        >>> key_compare_type(pa.int64(), pa.float64())
        (DataType(int64), True)
    """
    a, b = unwrapped(target), unwrapped(source)
    if pat.is_temporal(a) and a != b:
        return a, True
    common = common_type(a, b)
    if common is None and pat.is_integer(a) and pat.is_integer(b):
        common = pa.decimal128(20, 0)
    return (common, False) if common is not None else (common_type(a, b, checked=True) or a, True)


def same_storage(a: pa.DataType, b: pa.DataType) -> bool:
    """Return whether two Arrow types are stored as the same Parquet column type.

    String types, list types, dictionaries, zone names and nested nullability do not matter, nor do units that Parquet
    stores alike (seconds are stored as milliseconds, `date64` as `date32`).

    Examples:
        >>> import pyarrow as pa
        >>> same_storage(pa.string(), pa.dictionary(pa.int32(), pa.large_string()))
        True
        >>> same_storage(pa.int32(), pa.int64())
        False
    """
    return bool(_stored(a).equals(_stored(b)))


def is_text(type_: pa.DataType) -> bool:
    """Return whether a type is any of the string types."""
    return bool(pat.is_string(type_) or pat.is_large_string(type_) or pat.is_string_view(type_))


def is_bytes(type_: pa.DataType) -> bool:
    """Return whether a type is any of the variable-length binary types."""
    return bool(pat.is_binary(type_) or pat.is_large_binary(type_) or pat.is_binary_view(type_))


def extension_name(type_: pa.DataType) -> str:
    """Return the name of an extension type, or an empty string."""
    return str(type_.extension_name) if isinstance(type_, pa.BaseExtensionType) else ""


def converts_extension(target: pa.DataType, source: pa.DataType) -> bool:
    """Return whether values convert between JSON or UUID and texts or bytes; the caller must check the values."""
    names, plain = {extension_name(target), extension_name(source)}, unwrapped(source)
    plain = unwrapped(target) if extension_name(source) else plain
    if names not in ({"arrow.json", ""}, {"arrow.uuid", ""}):
        return False
    return is_text(plain) or is_bytes(plain) or (pat.is_fixed_size_binary(plain) and "arrow.uuid" in names)


def is_view(type_: pa.DataType) -> bool:
    """Return whether a type is a string or binary view."""
    return bool(pat.is_string_view(type_) or pat.is_binary_view(type_))


def without_view(type_: pa.DataType) -> pa.DataType:
    """Return the large type with the values of a view, for which Arrow has more functions; other types as they are."""
    if pat.is_string_view(type_):
        return pa.large_string()
    return pa.large_binary() if pat.is_binary_view(type_) else type_


def is_narrow_decimal(type_: pa.DataType) -> bool:
    """Return whether a type is a decimal of 32 or 64 bits, for which pyarrow has few functions."""
    return bool(pat.is_decimal(type_) and type_.bit_width < 128)


def is_any_list(type_: pa.DataType) -> bool:
    """Return whether a type is any of the list types, fixed-size lists included."""
    return bool(
        pat.is_list(type_)
        or pat.is_large_list(type_)
        or pat.is_list_view(type_)
        or pat.is_large_list_view(type_)
        or pat.is_fixed_size_list(type_)
    )


def unwrapped(type_: pa.DataType) -> pa.DataType:
    """Return the value type of a dictionary or run-end encoded type, or the type itself."""
    if pat.is_dictionary(type_) or pat.is_run_end_encoded(type_):
        return unwrapped(type_.value_type)
    return type_


def list_like(kind: pa.DataType, value: pa.Field) -> pa.DataType:
    """Return the list type `kind` with another value field."""
    if pat.is_fixed_size_list(kind):
        return pa.list_(value, kind.list_size)
    for test, build in _LIST_KINDS:
        if test(kind):
            return build(value)
    raise TypeError(f"not a list type: {kind}")


_LIST_KINDS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Field], pa.DataType]], ...] = (
    (pat.is_list, pa.list_),
    (pat.is_large_list, pa.large_list),
    (pat.is_list_view, pa.list_view),
    (pat.is_large_list_view, pa.large_list_view),
)


def _common(target: pa.DataType, source: pa.DataType, rules: _Rules) -> pa.DataType | None:
    if target.equals(source) or pat.is_null(source):
        return target
    if pat.is_null(target):
        return target if rules.keep else source
    if isinstance(target, pa.BaseExtensionType) or isinstance(source, pa.BaseExtensionType):
        return target if rules.checked and converts_extension(target, source) else None
    if unwrapped(target) is not target or unwrapped(source) is not source:
        return _common_encoded(target, source, rules)
    if is_number(target) and is_number(source):
        common = _common_number(target, source, rules)
    else:
        common = _common_time(target, source) or _common_bytes(target, source)
    if common is None:
        return _common_nested(target, source, rules)
    return target if rules.keep else common


def _common_encoded(target: pa.DataType, source: pa.DataType, rules: _Rules) -> pa.DataType | None:
    """Return the common type of dictionaries or run-end encoded types, encoded like the target."""
    value = _common(unwrapped(target), unwrapped(source), rules)
    if value is None or not pat.is_dictionary(target):
        return value
    if target.ordered and not rules.loosen:
        return pa.dictionary(target.index_type, value, ordered=True)  # no value is added to ordered ones
    # Both sides together may have more values than a narrow index type can represent.
    wide = any(pat.is_dictionary(t) and t.index_type.bit_width == 64 for t in (target, source))
    ordered = target.ordered and pat.is_dictionary(source) and source.ordered
    index = target.index_type if target.index_type.bit_width == _INDEX_BITS else pa.int32()
    return pa.dictionary(pa.int64() if wide else index, value, ordered)


def _common_number(target: pa.DataType, source: pa.DataType, rules: _Rules) -> pa.DataType | None:
    common: pa.DataType | None
    if pat.is_integer(target) and pat.is_integer(source):
        common = _common_integer(target, source)
    elif pat.is_decimal(target) or pat.is_decimal(source):
        if pat.is_floating(target) or pat.is_floating(source):
            return None
        common = _common_decimal(target, source)
    else:
        common = _common_float(target, source)
    if common is not None or not rules.checked:
        return common
    return pa.float64() if rules.loosen and (pat.is_floating(target) or pat.is_floating(source)) else target


def is_number(type_: pa.DataType) -> bool:
    """Whether values of the type are integers, floats or decimals."""
    return bool(pat.is_integer(type_) or pat.is_floating(type_) or pat.is_decimal(type_))


def _common_integer(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pat.is_signed_integer(a) == pat.is_signed_integer(b):
        return a if a.bit_width >= b.bit_width else b
    signed, unsigned = (a, b) if pat.is_signed_integer(a) else (b, a)
    return _SIGNED.get(max(signed.bit_width, unsigned.bit_width * 2))


def _common_float(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    bits = max(_mantissa(a), _mantissa(b))
    return next((type_ for mantissa, type_ in _FLOATS if mantissa >= bits), None)


def _mantissa(type_: pa.DataType) -> int:
    """Return the mantissa bits that a float needs to represent every value of the type."""
    if pat.is_integer(type_):
        return int(type_.bit_width)
    return next(mantissa for mantissa, float_type in _FLOATS if float_type.equals(type_))


def _common_decimal(target: pa.DataType, source: pa.DataType) -> pa.DataType | None:
    (a_digits, a_scale), (b_digits, b_scale) = _digits(target), _digits(source)
    scale = max(a_scale, b_scale)
    precision = max(a_digits, b_digits) + scale
    if pat.is_decimal(target) and (target.precision, target.scale) == (precision, scale):
        return target
    if precision <= 38:
        return pa.decimal128(precision, scale)
    return pa.decimal256(precision, scale) if precision <= 76 else None


def _digits(type_: pa.DataType) -> tuple[int, int]:
    """Return the digits before the decimal point, and the scale."""
    if pat.is_decimal(type_):
        return type_.precision - type_.scale, type_.scale
    return _INTEGER_DIGITS[type_.bit_width] + type_.equals(pa.uint64()), 0


def _common_time(target: pa.DataType, source: pa.DataType) -> pa.DataType | None:
    if pat.is_date(target) and pat.is_date(source):
        return pa.date64()
    if pat.is_timestamp(target) and pat.is_timestamp(source):
        if (target.tz is None) != (source.tz is None):
            return None
        return pa.timestamp(_finer(target, source), target.tz)
    if pat.is_time(target) and pat.is_time(source):
        unit = _finer(target, source)
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    if pat.is_duration(target) and pat.is_duration(source):
        return pa.duration(_finer(target, source))
    return None


def _finer(a: pa.DataType, b: pa.DataType) -> str:
    return str(max(a.unit, b.unit, key=_UNITS.index))


def _common_bytes(target: pa.DataType, source: pa.DataType) -> pa.DataType | None:
    if is_text(target) and is_text(source):
        return target
    target_fixed, source_fixed = pat.is_fixed_size_binary(target), pat.is_fixed_size_binary(source)
    if not ((is_bytes(target) or target_fixed) and (is_bytes(source) or source_fixed)):
        return None
    if target_fixed and source_fixed:
        return pa.binary()
    return source if target_fixed else target


def _common_nested(target: pa.DataType, source: pa.DataType, rules: _Rules) -> pa.DataType | None:
    if is_any_list(target) and is_any_list(source):
        return _common_list(target, source, rules)
    if pat.is_struct(target) and pat.is_struct(source):
        return _common_struct(target, source, rules)
    if pat.is_map(target) and pat.is_map(source):
        key = _common_field(target.key_field, source.key_field, rules)
        item = _common_field(target.item_field, source.item_field, rules)
        sorted_keys = target.keys_sorted and source.keys_sorted
        return None if key is None or item is None else pa.map_(key, item, sorted_keys)
    return None


def _common_list(target: pa.DataType, source: pa.DataType, rules: _Rules) -> pa.DataType | None:
    value = _common_field(target.value_field, source.value_field, rules)
    if value is None:
        return None
    if rules.keep or not pat.is_fixed_size_list(target):
        return list_like(target, value)
    if not pat.is_fixed_size_list(source):
        return list_like(source, value)
    return pa.list_(value, target.list_size) if target.list_size == source.list_size else pa.list_(value)


def _common_struct(target: pa.DataType, source: pa.DataType, rules: _Rules) -> pa.DataType | None:
    target_fields, source_fields = _by_name(target), _by_name(source)
    if (
        target_fields is None
        or source_fields is None
        or (not rules.evolve and target_fields.keys() != source_fields.keys())
    ):
        return None
    fields: list[pa.Field] = []
    for name, field in target_fields.items():
        other = source_fields.get(name)
        joined = _common_field(field, other, rules) if other is not None else _optional(field, rules)
        if joined is None:
            return None
        fields.append(joined)
    return pa.struct(
        [*fields, *(field.with_nullable(True) for name, field in source_fields.items() if name not in target_fields)]
    )


def _by_name(struct: pa.DataType) -> dict[str, pa.Field] | None:
    """Return the fields of a struct by name, or None if a name is not unique."""
    fields = {field.name: field for field in struct}
    return fields if len(fields) == struct.num_fields else None


def _optional(field: pa.Field, rules: _Rules) -> pa.Field | None:
    """Return a target field that the source lacks, as nullable, or None if it must not be null."""
    if field.nullable or rules.loosen:
        return field.with_nullable(True)
    return None


def _common_field(target: pa.Field, source: pa.Field, rules: _Rules) -> pa.Field | None:
    joined = _common(target.type, source.type, rules)
    if joined is None:
        return None
    return target.with_type(joined).with_nullable(target.nullable or (rules.loosen and source.nullable))


def _stored(type_: pa.DataType) -> pa.DataType:
    """Return the simplest Arrow type of the same Parquet column."""
    type_ = unwrapped(type_)
    if is_text(type_):
        return pa.string()
    if is_bytes(type_):
        return pa.binary()
    if pat.is_decimal(type_):
        return pa.decimal256(type_.precision, type_.scale)
    if pat.is_date(type_):
        return pa.date32()
    if pat.is_timestamp(type_):
        return pa.timestamp(_stored_unit(type_.unit), None if type_.tz is None else "UTC")
    if pat.is_time32(type_):
        return pa.time32("ms")
    return _stored_nested(type_)


def _stored_unit(unit: str) -> str:
    return "ms" if unit == "s" else unit


def _stored_nested(type_: pa.DataType) -> pa.DataType:
    if is_any_list(type_):
        return pa.list_(_stored(type_.value_type))
    if pat.is_struct(type_):
        return pa.struct(_stored_fields(type_))
    if pat.is_map(type_):
        return pa.map_(_stored(type_.key_type), _stored(type_.item_type))
    return type_


def _stored_fields(fields: Iterable[pa.Field]) -> list[pa.Field]:
    return [pa.field(field.name, _stored(field.type)) for field in fields]
