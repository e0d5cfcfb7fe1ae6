"""Text becomes a typed value only where nothing is lost."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.common.text_values import infer_type, parse_text

DECIMAL = pa.decimal128(18, 2)


@pytest.mark.parametrize(
    ("texts", "type_"),
    [
        (["1", None, "-3", "0", ""], pa.int64()),
        (["9223372036854775807", "-9223372036854775808"], pa.int64()),
        (["01234", "98765"], pa.string()),
        (["\u0661"], pa.string()),
        (["1.5", "0.1", None], pa.float64()),
        (["1e-05", "0.5"], pa.float64()),
        (["1e5"], pa.string()),
        (["1.5", "inf"], pa.string()),
        (["9007199254740993", "0.5"], pa.string()),
        (["1.50", "0.25"], DECIMAL),
        (["0.1234567890123456789"], pa.decimal128(38, 19)),
        (["99999999999999999999999999999999999999.5"], pa.string()),
        (["-0.00"], pa.string()),
        (["true", None, "false", ""], pa.bool_()),
        (["NULL", "1"], pa.string()),
        (["2024-02-29", ""], pa.date32()),
        (["2024-02-30"], pa.string()),
        (["2024-02-29 01:02:03"], pa.timestamp("us")),
        (["2024-02-29T01:02:03.500"], pa.timestamp("us")),
        (["2024-02-29 01:02:03.123456789"], pa.timestamp("ns")),
        (["2024-02-29T01:02:03Z"], pa.timestamp("us", "UTC")),
        (["2024-02-29T01:02:03+02:00"], pa.string()),
        ([None, ""], pa.string()),
    ],
    ids=str,
)
def test_a_type_is_inferred_only_where_formatting_gives_the_text_back(
    texts: list[str | None], type_: pa.DataType
) -> None:
    assert infer_type([pa.array(texts, pa.string())]) == type_
    assert infer_type([pa.array([text], pa.string()) for text in texts]) == type_


NUMBERS = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=2).map(str),
    st.from_regex(r"\A[+-]?[0-9]{1,45}(\.[0-9]{0,45})?([eE][+-]?[0-9]{1,3})?\Z"),
)


@given(st.lists(NUMBERS | st.none() | st.dates().map(str) | st.text(max_size=3), max_size=5))
def test_inferred_values_say_what_the_texts_say(texts: list[str | None]) -> None:
    array = pa.array(texts, pa.string())
    type_ = infer_type([array])
    if pa.types.is_null(type_):
        assert not any(texts)
        return
    values = parse_text(pa.array([text or None for text in texts], pa.string()), type_).to_pylist()
    said = {text for text in texts if text}
    assert len({repr(value) for value in values if value is not None}) == len(said), "two texts became one value"
    if pa.types.is_decimal(type_) or pa.types.is_integer(type_):
        assert [str(value) for value in values if value is not None] == [text for text in texts if text]


@given(
    NUMBERS, st.sampled_from([pa.int8(), pa.int64(), pa.uint64(), DECIMAL, pa.decimal256(40, 3), pa.decimal64(9, 1)])
)
def test_a_parsed_number_is_the_number_of_the_text(text: str, type_: pa.DataType) -> None:
    try:
        value = parse_text(pa.array([text]), type_)[0].as_py()
    except pa.ArrowInvalid:
        return
    assert Decimal(text) == value


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        (" -5 ", pa.int32(), -5),
        ("0.10000000000000000555", pa.float64(), 0.1),
        ("1.500", DECIMAL, Decimal("1.50")),
        ("TRUE", pa.bool_(), True),
        ("0", pa.bool_(), False),
        ("2024-02-29 10:00:00.500000", pa.timestamp("ms"), None),
        ("2024-02-29T10:00:00+02:00", pa.timestamp("us", "Europe/Berlin"), None),
        ("x", pa.dictionary(pa.int8(), pa.large_string()), "x"),
        ("{}", pa.json_(), "{}"),
    ],
    ids=str,
)
def test_text_is_parsed_as_a_given_type(text: str, type_: pa.DataType, value: Any) -> None:
    parsed = parse_text(pa.array([text, None]), type_)
    assert parsed.type == type_
    assert not parsed[1].is_valid
    assert parsed[0].is_valid
    assert value is None or parsed[0].as_py() == value


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("007", pa.int64()),
        ("9007199254740993", pa.float64()),
        ("0.1234567890123456789", pa.float64()),
        ("1e-400", pa.float64()),
        ("9" * 39, pa.decimal128(38, 0)),
        ("1e-77", pa.decimal128(38, 38)),
        ("2024-02-29 10:00:00.5", pa.timestamp("s")),
        ("2024-02-29T10:00:00", pa.timestamp("us", "UTC")),
        ("5", pa.duration("s")),
        ("0123456789abcdef", pa.uuid()),
    ],
    ids=str,
)
def test_text_that_the_type_cannot_hold_is_refused(text: str, type_: pa.DataType) -> None:
    with pytest.raises(pa.ArrowException):
        parse_text(pa.array([text]), type_)
