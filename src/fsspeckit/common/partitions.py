"""Convert partition values to hive folder names and back.

Text is escaped as in Hive and Spark: ASCII characters that are special in paths become percent codes. Values that would
be read back as another value, or that file systems do not accept, are refused. No function accesses a storage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from fsspeckit.common.arrow_versions import cast_text
from fsspeckit.common.bridge import text_array
from fsspeckit.common.casting import exact_cast
from fsspeckit.common.errors import PartitionError, SchemaMismatchError
from fsspeckit.common.types import is_narrow_decimal, is_number, is_text, unwrapped

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

_SPECIAL = [*map(chr, range(1, 32)), *"\"#%'*/:=?\\{}[]^", chr(127)]
_ESCAPES = str.maketrans({char: f"%{ord(char):02X}" for char in _SPECIAL})
_LONGEST_NAME = 255  # bytes of one path component on every common file system
_SHOWN = 60
_INTEGER = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?|Infinity)|NaN")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?")
_INT32, _INT64 = range(-(2**31), 2**31), range(-(2**63), 2**63)
_MOST_DIGITS = 38
_DIGITS = {pa.int32(): 10, pa.int64(): 20}
"""Digits that Spark gives to an integer beside a decimal number."""


def parse_hive_partition_path(file_path: str, partition_columns: Sequence[str] | None = None) -> dict[str, str | None]:
    """Read the partition values from the folders of a file's path.

    Only `name=value` folders are read, not the file name. Values are URL-decoded text; Hive's null marker is None. To
    exclude folders above the dataset, pass the path relative to the dataset.

    Args:
        file_path: Path of a file, separated by `/`.
        partition_columns: Return only these columns, in this order; columns that are not in the path are omitted.

    Raises:
        PartitionError: A column has two different values, or a percent code is not UTF-8.

    Examples:
        >>> parse_hive_partition_path("/data/year=2024/month=12/file.parquet")
        {'year': '2024', 'month': '12'}
        >>> parse_hive_partition_path("city=K%C3%B6ln/day=__HIVE_DEFAULT_PARTITION__/x.parquet", ["day"])
        {'day': None}
    """
    values: dict[str, str | None] = {}
    for folder in file_path.split("/")[:-1]:
        encoded, separator, text = folder.partition("=")
        if not separator or not encoded:
            continue
        name, value = _decode(encoded, file_path), None if text == HIVE_NULL else _decode(text, file_path)
        if values.setdefault(name, value) != value:
            raise PartitionError(
                f"Partition column {name!r} has two values in {file_path!r}. Move the file to a folder with one value."
            )
    if partition_columns is None:
        return values
    return {name: values[name] for name in partition_columns if name in values}


def encode_value(value: Any) -> str:
    """Return the folder text of one partition value: `None`, text, number, boolean, date, timestamp or decimal.

    Raises:
        PartitionError: The value cannot be a folder name, or would be read back as another value.

    Examples:
        >>> encode_value("a/b"), encode_value(None), encode_value(True)
        ('a%2Fb', '__HIVE_DEFAULT_PARTITION__', 'true')
    """
    if value is None or isinstance(value, str):
        return _encode_text(value)
    try:
        array = pa.array([value])
    except pa.ArrowException as error:
        raise PartitionError(f"{type(value)} cannot be a partition value. Use text, numbers or dates.") from error
    return _encode_text(render(array)[0].as_py())


def partition_folder(names: Sequence[str], values: Sequence[Any]) -> str:
    """Return the relative folder of one combination of partition values.

    Raises:
        PartitionError: A value or name cannot be part of a path.

    Examples:
        >>> partition_folder(["year", "city"], [2024, "Köln / Süd"])
        'year=2024/city=Köln %2F Süd'
    """
    pairs = zip(names, values, strict=True)
    return "/".join(_component(_encode_name(name), encode_value(value)) for name, value in pairs)


def partition_folders(columns: Mapping[str, pa.Array | pa.ChunkedArray] | pa.Table) -> pa.Array:
    """Return the folder of every row of the given partition columns, as a string array.

    Each distinct value is encoded once.

    Examples:
        >>> import pyarrow as pa
        >>> partition_folders(pa.table({"a": [1, 2], "b": ["x", None]})).to_pylist()
        ['a=1/b=x', 'a=2/b=__HIVE_DEFAULT_PARTITION__']
    """
    names = list(columns.column_names if isinstance(columns, pa.Table) else columns)
    if not names:
        raise ValueError("partition_folders needs at least one column. Pass the partition columns.")
    parts = []
    for name in names:
        try:
            encoded = encode_column(columns[name]).dictionary_encode()
        except PartitionError as error:
            raise PartitionError(f"partition column {name!r}: {error}") from error
        prefix = _encode_name(name)
        components = text_array([_component(prefix, text) for text in encoded.dictionary.to_pylist()])
        parts.append(components.take(encoded.indices))
    return pc.binary_join_element_wise(*parts, "/") if len(parts) > 1 else parts[0]


def encode_column(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the folder text of every value of a column, as a string array without nulls.

    Raises:
        PartitionError: A value cannot be a folder name, or would be read back as another value.

    Examples:
        >>> import pyarrow as pa
        >>> encode_column(pa.array(["a=b", None])).to_pylist()
        ['a%3Db', '__HIVE_DEFAULT_PARTITION__']
    """
    encoded = _distinct(array)
    folders = text_array([_encode_text(text) for text in render(encoded.dictionary).to_pylist()])
    return folders.take(encoded.indices)


def distinct_texts(array: pa.Array | pa.ChunkedArray) -> list[str | None]:
    """Return the distinct values of a column as plain text, before escaping.

    Raises:
        PartitionError: Values of this type cannot be partition values.

    Examples:
        >>> import pyarrow as pa
        >>> distinct_texts(pa.array([2, 2, None]))
        ['2', None]
    """
    texts: list[str | None] = render(_distinct(array).dictionary).to_pylist()
    return texts


def render(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return partition values as plain text, before escaping; null stays null.

    Timestamps are written without trailing zeros of the fraction, so that equal times of different units have the same
    folder. Timestamps with a zone are written in UTC.

    Raises:
        PartitionError: Values of this type cannot be partition values.

    Examples:
        >>> import pyarrow as pa
        >>> render(pa.array([1_500_000], pa.timestamp("us", "UTC"))).to_pylist()
        ['1970-01-01 00:00:01.5Z']
    """
    plain = _plain(array)
    type_ = plain.type
    if pat.is_floating(type_):
        return pa.array([_float_text(number) for number in plain], pa.string())
    if pat.is_decimal(type_):
        return pa.array([None if number is None else format(number, "f") for number in plain.to_pylist()], pa.string())
    if pat.is_date64(type_):
        return exact_cast(plain, pa.date32()).cast(pa.string())
    if pat.is_timestamp(type_):
        return _timestamp_text(plain)
    if is_text(type_) or pat.is_integer(type_) or pat.is_boolean(type_) or pat.is_date32(type_) or pat.is_null(type_):
        return plain.cast(pa.string())
    raise PartitionError(f"A column of type {array.type} cannot be a partition column. Use text, numbers or dates.")


def partition_type(values: Iterable[str | None]) -> pa.DataType:
    """Return the type of a partition column from the texts of its folders, by the rules of Spark.

    Texts are int32, int64, decimal numbers without a fraction, float64, dates or timestamps if all are; texts of
    several types have the wider type where Spark has one, else they are text. So ``01`` is the number 1, and ``true``
    is text. A timestamp has no time zone, because its folder has none.

    Examples:
        >>> partition_type(["2023", None, "2024"]), partition_type(["2026-11-02"]), partition_type(["1", "x"])
        (DataType(int32), DataType(date32[day]), DataType(string))
    """
    texts = list(dict.fromkeys(value for value in values if value is not None))
    if not texts:
        return pa.string()
    found = _joint_type({_inferred(text) for text in texts})
    return found if reads_all(texts, found) else pa.string()


def reads_all(texts: Sequence[str | None], type_: pa.DataType) -> bool:
    """Return whether all decoded partition texts are values of a type."""
    try:
        typed_values(texts, type_)
    except PartitionError:
        return False
    return True


def typed_values(texts: Sequence[str | None], type_: pa.DataType, name: str = "") -> pa.Array:
    """Convert decoded partition texts to values of a type; errors name the column ``name``.

    Raises:
        PartitionError: A text is not a value of this type.

    Examples:
        >>> import pyarrow as pa
        >>> typed_values(["2024-01-31", None], pa.date32()).to_pylist()
        [datetime.date(2024, 1, 31), None]
    """
    array = text_array(texts)
    if array.null_count == len(array):
        return pa.nulls(len(array), type_)
    plain = unwrapped(type_)
    try:
        parsed = array if is_text(plain) else cast_text(array, pa.date32() if pat.is_date(plain) else plain)
        return exact_cast(parsed, type_)
    except pa.ArrowException as error:
        what = f"Values of the partition column {name!r}" if name else "Partition values"
        raise PartitionError(
            f"{what} cannot be read as {type_}: {error}. Pass the type of the column, or read it as text."
        ) from error


def as_read_from_folders(array: pa.Array | pa.ChunkedArray, type_: pa.DataType, name: str = "") -> pa.Array:
    """Return partition values as readers get them from the names of folders.

    Raises:
        PartitionError: A value cannot be a partition value, or its text is not a value of the type.

    Examples:
        >>> import datetime, pyarrow as pa
        >>> as_read_from_folders(pa.array([datetime.date(2026, 11, 2)]), pa.string()).to_pylist()
        ['2026-11-02']
    """
    encoded = _distinct(array)
    return typed_values(render(encoded.dictionary).to_pylist(), type_, name).take(encoded.indices)


def has_own_texts(texts: Sequence[str | None], type_: pa.DataType) -> bool:
    """Return whether decoded partition texts are exactly those with which values of a type are written."""
    try:
        return bool(render(typed_values(texts, type_)).to_pylist() == list(texts))
    except PartitionError:
        return False


def distinct_values(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the distinct values of a column, without dictionary encoding.

    Raises:
        PartitionError: Values of this type cannot be partition values.
    """
    return _distinct(array).dictionary


def plain_partition_type(type_: pa.DataType) -> pa.DataType:
    """Return the type that a partition column written from a type has: without dictionaries, one kind of text.

    Examples:
        >>> plain_partition_type(pa.dictionary(pa.int8(), pa.large_string())), plain_partition_type(pa.date64())
        (DataType(string), DataType(date32[day]))
    """
    plain = unwrapped(type_)
    if pat.is_date(plain):
        return pa.date32()
    if is_narrow_decimal(plain):
        return pa.decimal128(plain.precision, plain.scale)
    if pat.is_timestamp(plain) and plain.unit in ("s", "ms"):
        return pa.timestamp("us", plain.tz)
    if pat.is_integer(plain) or pat.is_boolean(plain) or pat.is_decimal(plain) or pat.is_timestamp(plain):
        return plain
    return plain if pat.is_float32(plain) or pat.is_float64(plain) else pa.string()


def as_partition_values(array: pa.Array | pa.ChunkedArray, type_: pa.DataType, name: str) -> pa.Array:
    """Return values of a partition column in the type of the dataset. None changes.

    Numbers become numbers, dates and timestamps each other. Text is accepted where a folder with it has the value.

    Raises:
        SchemaMismatchError: A value cannot be converted. The message has the column and the value.

    Examples:
        >>> import pyarrow as pa
        >>> as_partition_values(pa.array(["2026-11-02"]), pa.date32(), "day").to_pylist()
        [datetime.date(2026, 11, 2)]
    """
    encoded = _distinct(array)
    values = encoded.dictionary
    try:
        return _exact_values(values, type_).take(encoded.indices)
    except (PartitionError, pa.ArrowException):
        wrong = next((value for value in values if not _is_exact(value, type_)), values[0])
    is_time = pat.is_timestamp(values.type) or (pat.is_timestamp(type_) and is_text(values.type))
    shifts = is_time and (pat.is_timestamp(type_) or pat.is_date(type_))
    how = "with an explicit time zone: a cast takes the zone of the session" if shifts else f"to {type_}"
    raise SchemaMismatchError(
        f"the partition column {name!r} is {type_} in the dataset, and the source has {wrong.as_py()!r}, which is "
        f"{array.type} and not exactly a value of it. Convert the column of the source {how}."
    )


def _is_exact(value: pa.Scalar, type_: pa.DataType) -> bool:
    try:
        _exact_values(pa.array([value.as_py()], value.type), type_)
    except (PartitionError, pa.ArrowException):
        return False
    return True


def _exact_values(values: pa.Array, type_: pa.DataType) -> pa.Array:
    if values.null_count == len(values):
        return pa.nulls(len(values), type_)
    if is_text(type_):
        return render(values)
    if is_text(values.type):
        return typed_values(values.to_pylist(), type_)
    kinds = (is_number, _is_time, _is_instant)
    if values.type != type_ and not any(test(values.type) and test(type_) for test in kinds):
        raise PartitionError("another kind of values")
    return exact_cast(values, type_)


def _is_time(type_: pa.DataType) -> bool:
    return bool(pat.is_date(type_) or (pat.is_timestamp(type_) and type_.tz is None))


def _is_instant(type_: pa.DataType) -> bool:
    return bool(pat.is_timestamp(type_) and type_.tz is not None)


def _inferred(text: str) -> pa.DataType:
    """Return the type that Spark infers for one folder."""
    if _INTEGER.fullmatch(text):
        number = int(text)
        if number in _INT32:
            return pa.int32()
        return pa.int64() if number in _INT64 else _integral_decimal(text)
    if _REAL.fullmatch(text):
        return _integral_decimal(text)
    if _DATE.fullmatch(text):
        return pa.date32()
    return pa.timestamp("us") if _TIMESTAMP.fullmatch(text) else pa.string()


def _integral_decimal(text: str) -> pa.DataType:
    """Return the decimal type of a number without a fraction, such as 1e3, or float64."""
    parts = Decimal(text).as_tuple()
    if not isinstance(parts.exponent, int) or parts.exponent < 0:
        return pa.float64()
    digits = len(parts.digits) + parts.exponent
    return pa.decimal128(digits, 0) if digits <= _MOST_DIGITS else pa.float64()


def _joint_type(types: set[pa.DataType]) -> pa.DataType:
    """Return the type that Spark gives to folders of several types."""
    if len(types) == 1:
        return next(iter(types))
    if types <= {pa.date32(), pa.timestamp("us")}:
        return pa.timestamp("us")
    if types == {pa.int32(), pa.float64()}:
        return pa.float64()
    if all(pat.is_integer(type_) or pat.is_decimal(type_) for type_ in types):
        if all(map(pat.is_integer, types)):
            return pa.int64()
        digits = max(_DIGITS[type_] if pat.is_integer(type_) else type_.precision for type_ in types)
        return pa.decimal128(digits, 0)
    return pa.string()


def _decode(text: str, path: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise PartitionError(f"The folder text {text!r} in {path!r} is not UTF-8. Rename the folder.") from error


def _encode_text(text: str | None) -> str:
    if text is None:
        return HIVE_NULL
    if text in ("", HIVE_NULL):
        raise PartitionError(
            f"The partition value {text!r} would be read back as null. Replace it with null or another text."
        )
    if "\0" in text:
        raise PartitionError(f"The partition value {text[:_SHOWN]!r} contains a NUL character. Remove it.")
    return text.translate(_ESCAPES)


def _encode_name(name: str) -> str:
    if not name or "\0" in name:
        raise PartitionError(f"The partition column {name!r} cannot be a folder name. Rename the column.")
    return name.translate(_ESCAPES)


def _component(name: str, text: str) -> str:
    component = f"{name}={text}"
    if len(component.encode()) > _LONGEST_NAME:
        raise PartitionError(
            f"The partition folder {component[:_SHOWN]!r}... is longer than {_LONGEST_NAME} bytes. "
            "Partition by a shorter value."
        )
    return component


def _plain(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return one array without dictionary or run-end encoding."""
    type_ = unwrapped(array.type)
    if is_narrow_decimal(type_):  # pyarrow has no dictionary_encode kernel for them
        type_ = pa.decimal128(type_.precision, type_.scale)
    elif pat.is_string_view(type_):  # dictionary_encode returns their nulls as empty text
        type_ = pa.large_string()
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    return pa.concat_arrays([exact_cast(chunk, type_) for chunk in chunks] or [pa.nulls(0, type_)])


def _distinct(array: pa.Array | pa.ChunkedArray) -> pa.DictionaryArray:
    """Return a column as codes and distinct values, null among them."""
    return _plain(array).dictionary_encode(null_encoding="encode")


def _timestamp_text(array: pa.Array) -> pa.Array:
    if array.type.tz is not None:
        array = array.cast(pa.timestamp(array.type.unit, "UTC"))
    text = pc.replace_substring_regex(array.cast(pa.string()), r"\.0+(Z?)$", r"\1")
    return pc.replace_substring_regex(text, r"(\.\d*[1-9])0+(Z?)$", r"\1\2")


def _float_text(number: pa.Scalar) -> str | None:
    if not number.is_valid:
        return None
    # Equal values have one folder, so -0.0 is written as 0.0. The shortest exact text depends on the width.
    if number.as_py() == 0:
        return "0.0"
    if number.type.bit_width == 64:
        return repr(number.as_py())
    narrow = np.float32 if number.type.bit_width == 32 else np.float16
    return str(narrow(number.as_py()))
