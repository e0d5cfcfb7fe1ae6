"""One array of telling values for every Arrow type a Parquet dataset can hold."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa

from installed import HAS_NARROW_DECIMALS


def _integers(type_: pa.DataType) -> pa.Array:
    bits = type_.bit_width
    low, high = (0, 2**bits - 1) if str(type_).startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return pa.array([low, None, 1, high], type_)


def _floats(type_: pa.DataType, numpy_type: type) -> pa.Array:
    info = np.finfo(numpy_type)
    values = [info.max, info.tiny, float("nan"), float("-inf"), -0.0, 0.1]
    return pa.array(np.array(values, numpy_type), type_, mask=np.array([False] * 5 + [True]))


def _decimals(type_: pa.DataType) -> pa.Array:
    unit = Decimal(1).scaleb(-type_.scale)
    low, high = (Decimal((sign, (9,) * type_.precision, -type_.scale)) for sign in (1, 0))
    return pa.array([high, None, low, unit, unit * 0], type_)


_MOMENT = dt.datetime(2024, 2, 29, 12, 30, 15)  # noqa: DTZ001 - the tests are about values with and without a zone
_TEXT = ["", "a", None, "ü😀", "same", "same"]
_BYTES = [b"abc", None, b"\0\xff\x01", b"abc"]
_LISTS = [[1, 2], None, [3, None], [4, 5]]

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
DECIMALS = [
    *([pa.decimal32(7, 2), pa.decimal64(15, 3)] if HAS_NARROW_DECIMALS else []),
    pa.decimal128(10, 0),
    pa.decimal128(38, 4),
    pa.decimal256(60, 5),
    pa.decimal256(76, 70),
]
UNITS = ["s", "ms", "us", "ns"]

LEAVES: list[pa.Array] = [
    pa.nulls(3),
    pa.array([True, None, False]),
    *map(_integers, INTEGERS),
    _floats(pa.float16(), np.float16),
    _floats(pa.float32(), np.float32),
    _floats(pa.float64(), np.float64),
    *map(_decimals, DECIMALS),
    pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)], pa.date32()),
    pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)], pa.date64()),
    *(pa.array([_MOMENT, None], pa.timestamp(unit, zone)) for unit in UNITS for zone in (None, "UTC", "Europe/Berlin")),
    *(pa.array([dt.time(23, 59, 58), None], pa.time32(unit)) for unit in ("s", "ms")),
    *(pa.array([dt.time(23, 59, 58), None], pa.time64(unit)) for unit in ("us", "ns")),
    *(pa.array([dt.timedelta(days=-3, seconds=1), None], pa.duration(unit)) for unit in UNITS),
    pa.array(_TEXT, pa.string()),
    pa.array(_TEXT, pa.large_string()),
    pa.array(_TEXT, pa.string_view()),
    pa.array(_TEXT, pa.dictionary(pa.int8(), pa.string())),
    pa.array(_TEXT, pa.dictionary(pa.int64(), pa.large_string())),
    pa.array(_TEXT, pa.string_view()).dictionary_encode(),
    pa.array(_BYTES, pa.binary()),
    pa.array(_BYTES, pa.large_binary()),
    pa.array(_BYTES, pa.binary_view()),
    pa.array(_BYTES, pa.binary(3)),
    pa.array(_BYTES, pa.dictionary(pa.int32(), pa.binary())),
    pa.array([7, None, 7], pa.dictionary(pa.int32(), pa.int32())),
    pa.array([2**40, None], pa.dictionary(pa.int32(), pa.int64())),
    pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([5, None], pa.int16())),
]

NESTED: list[pa.Array] = [
    pa.array(_LISTS, pa.list_(pa.int16())),
    pa.array([*_LISTS, []], pa.large_list(pa.int32())),
    pa.array([*_LISTS, []], pa.list_view(pa.int64())),
    pa.array([*_LISTS, []], pa.large_list_view(pa.uint8())),
    pa.array(_LISTS, pa.list_(pa.int32(), 2)),
    pa.array([["a", None], None, []], pa.list_(pa.string_view())),
    pa.array([["a", None], None, []], pa.large_list(pa.dictionary(pa.int32(), pa.string()))),
    pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}], pa.struct([("a", pa.int8()), ("b", pa.string())])),
    pa.array([[("k", 1)], None, [], [("k", None)]], pa.map_(pa.string(), pa.int32())),
    pa.array([[{"x": [1, None]}], None], pa.list_(pa.struct([("x", pa.list_(pa.int8()))]))),
    pa.array([[{"x": [2**40]}], [None]], pa.large_list(pa.struct([("x", pa.list_view(pa.int64()))]))),
]

ARRAYS = LEAVES + NESTED
TYPES = [array.type for array in ARRAYS]
