"""Casts change no value, on any pair of types that has a common type, and refuse what they would have to change."""

from __future__ import annotations

import datetime as dt
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.samples import ARRAYS, TYPES
from fsspeckit.common.casting import exact_cast
from fsspeckit.common.types import common_type

_DIGITS = Context(prec=2000)


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.type))
def test_every_promised_pair_casts_there_and_back(array: pa.Array) -> None:
    for joined in {common_type(*pair) for other in TYPES for pair in ((array.type, other), (other, array.type))}:
        for piece in (array, array.slice(1), array.slice(0, 1), array.slice(len(array))) if joined else ():
            _check_there_and_back(piece, joined)


def _check_there_and_back(array: pa.Array, joined: pa.DataType) -> None:
    there = exact_cast(array, joined)
    there.validate(full=True)
    assert there.type == joined
    assert _shown(there) == _shown(array)
    back = exact_cast(there, array.type)
    back.validate(full=True)
    assert back.type == array.type
    assert _shown(back) == _shown(array)


def _shown(array: pa.Array) -> list[str]:
    """Values as text that takes NaN for NaN and tells zeros apart, numbers by value and structs by field name."""
    return [_text(value) for value in array.to_pylist(maps_as_pydicts="strict")]


def _text(value: object) -> str:
    if isinstance(value, dict):
        return str({key: _text(value[key]) for key in sorted(value)})
    if isinstance(value, list):
        return str([_text(item) for item in value])
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Decimal):
        return format(value.normalize(_DIGITS), "f")
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value and abs(value) != float("inf"):
        sign = "-" if str(value) == "-0.0" else ""
        return sign + format(Decimal(value).normalize(_DIGITS), "f")
    if isinstance(value, dt.timedelta):
        return str(value.total_seconds())
    if hasattr(value, "tzinfo") and hasattr(value, "timestamp") and value.tzinfo is not None:
        return str(value.timestamp())
    return str(value)


@pytest.mark.parametrize(
    ("values", "source", "target"),
    [
        ([2**53 + 1], pa.int64(), pa.float64()),
        ([1.5], pa.float64(), pa.int64()),
        ([0.1], pa.float64(), pa.float32()),
        ([Decimal("1.25")], pa.decimal128(5, 2), pa.decimal128(5, 1)),
        ([253402300799], pa.timestamp("s"), pa.timestamp("ns")),
        ([0], pa.timestamp("us"), pa.timestamp("us", "UTC")),
        ([2**62], pa.duration("s"), pa.duration("ns")),
        ([b"\xff"], pa.binary(), pa.string()),
        (["01"], pa.string(), pa.int64()),
        ([[1], [1, 2]], pa.list_(pa.int8()), pa.list_(pa.int8(), 1)),
        ([[None]], pa.list_(pa.int8()), pa.list_(pa.field("item", pa.int8(), nullable=False))),
        ([{"a": 1}], pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())])),
        ([{"a": 1, "b": 2}], pa.struct([("a", pa.int8()), ("b", pa.int8())]), pa.struct([("a", pa.int8())])),
        ([{"a": None}], pa.struct([("a", pa.int8())]), pa.struct([pa.field("a", pa.int8(), nullable=False)])),
        ([[("k", 300)]], pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int8())),
        (list(map(str, range(200))), pa.string(), pa.dictionary(pa.int8(), pa.string())),
        ([b"0123456789abcde"], pa.binary(), pa.uuid()),
        (["{00000000-0000-0000-0000-000000000001}"], pa.string(), pa.uuid()),
        ([b"0123456789abcdef"], pa.binary(16), pa.json_()),
        ([b"\xff"], pa.binary(), pa.json_()),
    ],
    ids=str,
)
def test_a_cast_that_would_change_a_value_is_refused(
    values: list[object], source: pa.DataType, target: pa.DataType
) -> None:
    with pytest.raises(pa.ArrowException):
        exact_cast(pa.array(values, source), target)


def test_json_and_uuid_from_texts_and_bytes_and_back() -> None:
    texts = pa.array(["00000000-0000-0000-0000-00000000000A", None, "FFFFFFFF-ffff-ffff-ffff-ffffffffffff"])
    raw = [bytes(15) + b"\n", None, b"\xff" * 16]
    for values in (texts, texts.dictionary_encode(), pa.array(raw), pa.array(raw, pa.binary(16))):
        found = exact_cast(values, pa.uuid())
        assert (found.type, found.storage.to_pylist()) == (pa.uuid(), raw)
        lower = [None if text is None else text.lower() for text in texts.to_pylist()]
        assert (exact_cast(found, pa.string()).to_pylist(), exact_cast(found, pa.binary()).to_pylist()) == (lower, raw)
    for json in (pa.array(['{"a": 1}', None]), pa.array([b'{"a": 1}', None], pa.large_binary())):
        found = exact_cast(json, pa.json_())
        assert (found.type, exact_cast(found, json.type)) == (pa.json_(), json)


def test_missing_struct_fields_are_filled_only_when_asked() -> None:
    array = pa.array([[{"a": 1}], None], pa.list_(pa.struct([("a", pa.int8())])))
    target = pa.list_(pa.struct([("b", pa.string()), ("a", pa.int8())]))
    with pytest.raises(pa.ArrowException):
        exact_cast(array, target)
    assert exact_cast(array, target, fill_missing=True).to_pylist() == [[{"b": None, "a": 1}], None]


@given(
    values=st.lists(st.none() | st.integers(-(2**63), 2**64 - 1), max_size=8),
    target=st.sampled_from([type_ for type_ in TYPES if pa.types.is_integer(type_) or pa.types.is_floating(type_)]),
)
def test_integers_arrive_exactly_or_not_at_all(values: list[int | None], target: pa.DataType) -> None:
    signed = all(value is None or value < 2**63 for value in values)
    if not signed and any(value is not None and value < 0 for value in values):
        return
    array = pa.array(values, pa.int64() if signed else pa.uint64())
    try:
        cast = exact_cast(array, target)
    except pa.ArrowException:
        return
    assert [None if value is None else int(value) for value in cast.to_pylist()] == values
