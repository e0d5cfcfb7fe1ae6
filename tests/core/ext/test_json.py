"""JSON of its own kinds: lines, arrays, objects over several lines, exact numbers, emptiness."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fsspeckit.common.errors import SourceFileError
from fsspeckit.core.ext import read_json

ROWS = [{"id": 1, "tags": ["a", None], "who": {"name": "Ü", "age": None}}, {"id": 2, "tags": [], "who": None}]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(json.dumps(row) for row in ROWS),
        "\r\n\n".join(json.dumps(row) for row in ROWS) + "\n\n",
        "\n".join(json.dumps(row, indent=2) for row in ROWS),
        json.dumps(ROWS),
        json.dumps(ROWS, indent=2),
        f"\ufeff  {json.dumps(ROWS)}  \n",
        f"{' ' * 5000}{json.dumps(ROWS)}",
    ],
    ids=["lines", "blank lines", "pretty objects", "array", "pretty array", "byte order mark", "leading space"],
)
def test_every_way_to_write_the_same_rows(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    assert read_json(path).to_pylist() == ROWS


def test_lines_and_arrays_mix_in_one_folder_and_nested_types_join(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": [1], "s": {"x": 1}}\n')
    (tmp_path / "b.json").write_text('[{"a": [0.5], "s": {"y": "z"}}]')
    (tmp_path / "c.ndjson.gz").write_bytes(gzip.compress(b'{"a": null}'))
    assert read_json(tmp_path).to_pylist() == [
        {"a": [1.0], "s": {"x": 1, "y": None}},
        {"a": [0.5], "s": {"x": None, "y": "z"}},
        {"a": None, "s": None},
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (['"2024-01-01"'], ["2024-01-01"]),
        (['"2024-01-01T10:00:00Z"', "null"], ["2024-01-01T10:00:00Z", None]),
        (['"01"', '""'], ["01", ""]),
        (["12345678901234567890"], [Decimal("12345678901234567890")]),
        (["9007199254740993", "0.5"], [Decimal("9007199254740993"), Decimal("0.5")]),
        (["0.1234567890123456789"], [Decimal("0.1234567890123456789")]),
        (["0.30000000000000004", "1234567890123456"], [0.30000000000000004, 1234567890123456.0]),
        (["1e5", "1.50"], [100000.0, 1.5]),
        (["1.5e-300", "0.30000000000000004"], [1.5e-300, 0.30000000000000004]),
        (['{"at": "2024-01-01", "x": [0.5]}'], [{"at": "2024-01-01", "x": [0.5]}]),
        (
            ['{"x": []}', '{"x": [0.5, 12345678901234567890]}'],
            [{"x": []}, {"x": [Decimal("0.5"), Decimal(12345678901234567890)]}],
        ),
    ],
    ids=str,
)
def test_no_value_changes_when_its_type_is_inferred(tmp_path: Path, values: list[str], expected: list[Any]) -> None:
    (tmp_path / "a.json").write_text("".join(f'{{"a": {value}}}\n' for value in values))
    assert read_json(tmp_path)["a"].to_pylist() == expected


LEAVES = {
    "i": st.integers(-(2**63), 2**63 - 1),
    "x": st.floats(allow_nan=False, allow_infinity=False),
    "t": st.text(st.characters(codec="utf-8")) | st.dates().map(str) | st.datetimes().map(str),
    "b": st.booleans(),
}
NESTED = LEAVES | {"s": st.fixed_dictionaries(LEAVES), "l": st.lists(LEAVES["t"]), "n": st.lists(LEAVES["i"])}


@given(st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in NESTED.items()}), min_size=1))
@example([dict.fromkeys(NESTED) | {"x": 1.2422870703515225e38}])  # more digits than the decimal of the comparison
def test_what_python_writes_is_read_back(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    path = tmp_path_factory.getbasetemp() / "back.json"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert read_json(path).to_pylist() == rows
    path.write_text(json.dumps(rows))
    assert read_json(path).to_pylist() == rows


KNOWN = {
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "price": pa.decimal128(9, 2),
    "n": pa.int8(),
    "x": pa.float64(),
    "text": pa.large_string(),
    "raw": pa.binary(),
    "nested": pa.struct([("days", pa.list_(pa.date32())), ("at", pa.timestamp("ms"))]),
}


def test_named_types_are_parsed_and_other_columns_inferred(tmp_path: Path) -> None:
    row = {
        "more": "2024-01-01",
        "nested": {"days": ["2024-01-01"], "at": "2024-01-01 10:00:00"},
        "raw": "ab",
        "text": "01",
        "x": 5,
        "n": 7,
        "price": "1.5",
        "at": "2024-01-01T10:00:00+02:00",
        "day": "2024-01-01",
    }
    (tmp_path / "a.json").write_text(json.dumps([row, dict.fromkeys(row)]))
    table = read_json(tmp_path, types=KNOWN)
    assert {field.name: field.type for field in table.schema} == KNOWN | {"more": pa.string()}
    assert table.to_pylist()[0] == {
        "day": dt.date(2024, 1, 1),
        "at": dt.datetime(2024, 1, 1, 8, tzinfo=dt.UTC),
        "price": Decimal("1.50"),
        "n": 7,
        "x": 5.0,
        "text": "01",
        "raw": b"ab",
        "nested": {"days": [dt.date(2024, 1, 1)], "at": dt.datetime.fromisoformat("2024-01-01 10:00")},
        "more": "2024-01-01",
    }


TOKENS = st.from_regex(r"\A-?(0|[1-9][0-9]{0,45})(\.[0-9]{1,45})?([eE][+-]?[0-9]{1,2})?\Z")


@given(st.lists(TOKENS, min_size=1, max_size=4), st.integers(0, 38), st.booleans())
def test_decimals_hold_just_the_numbers_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, tokens: list[str], scale: int, known: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "decimals.json"
    path.write_text("".join(f'{{"a": {token}}}\n' for token in tokens))
    types = {"a": pa.decimal128(38, scale)} if known else None
    try:
        found = read_json(path, types=types)["a"]
    except SourceFileError:
        return
    for token, value in zip(tokens, found.to_pylist(), strict=True):
        if isinstance(value, float):
            assert Decimal(token) == Decimal(repr(value))
        else:
            assert Decimal(token) == value


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ('"day": 5', "column 'day': 5 is not a value of the type date32[day]"),
        ('"day": "2024-13-01"', "column 'day': '2024-13-01' is not a value of the type date32[day]"),
        ('"at": "2024-01-01"', "column 'at': '2024-01-01' is not a value of the type timestamp[us, tz=UTC]"),
        ('"price": 1.555', "column 'price': 1.555 is not a value of the type decimal128(9, 2)"),
        ('"n": 300', "column 'n': 300 is not a value of the type int8"),
        ('"n": "7"', "column 'n': '7' is not a value of the type int8"),
        ('"x": 9007199254740993', "column 'x': 9007199254740993 has more digits than the type double holds"),
        ('"text": 1234', "column 'text': 1234 is not a value of the type large_string"),
        ('"nested": {"days": ["x"]}', "column 'nested': "),
        ('"other": "x"', "column 'other': the value is string, and number in earlier rows"),
        ('"other": 1, "other": 2', "column 'other': the object has this key twice"),
    ],
)
@pytest.mark.parametrize("layout", ["lines", "array"])
def test_a_value_that_does_not_fit_is_named(tmp_path: Path, cell: str, said: str, layout: str) -> None:
    path = tmp_path / "a.json"
    rows = ['{"other": 1}', '{"other":\n2}', f"{{{cell}}}", f"{{{cell}}}"]
    path.write_text("\n".join(rows) if layout == "lines" else f"[{', '.join(rows)}]")
    with pytest.raises(SourceFileError) as caught:
        read_json(path, types=KNOWN)
    assert f"{path}, row 3, {said}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1}\n{"a": }\n', "line 2: not valid JSON"),
        ('{"a": 1}\n[1]\n', "line 2: the record is an array and not an object"),
        ('[{"a": 1},\n 5]', "line 2: the record is a number and not an object"),
        ('{"a": "\\ud800"}', "row 1"),
        ("[" * 100_000, "line 1: the record is nested more than 100 levels deep"),
        ("null", "line 1: the record is null and not an object"),
        ('\ufeffnull\n{"a": 1}', "line 1: the record is null and not an object"),
        ('{"a": 1}\nnull\n', "line 2: the record is null and not an object"),
        ('[{"a": 1},\nnull]', "line 2: the record is null and not an object"),
        ('[{"a": 1},]', "line 1: not valid JSON"),
        ('{"a": 1}\n{"a": ' + "[" * 500 + "]" * 500 + "}", "line 2: the record is nested more than 100 levels deep"),
        ('{"a": ' + '{"a": ' * 20_000 + "1" + "}" * 20_001, "line 1: the record is nested more than 100 levels deep"),
        ('{"a": ' + "9" * 5000 + "}", "line 1: a number has too many digits"),
    ],
    ids=lambda value: value[:20],
)
def test_a_file_that_is_not_json_names_the_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(SourceFileError) as caught:
        read_json(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
