"""CSV of its own kinds: several files read like one, compression, quoting, emptiness."""

from __future__ import annotations

import datetime as dt
import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.common.errors import SourceFileError
from fsspeckit.core.ext import read_csv


def _files(folder: Path, *texts: str) -> Path:
    for number, text in enumerate(texts):
        (folder / f"{number}.csv").write_bytes(text.encode())
    return folder


@pytest.mark.parametrize(
    "bodies",
    [
        ["1\n", "2.5\n"],
        ["01\n", "x\n"],
        ["1\n", "x\n", "2024-01-01\n"],
        ["true\n", "7\n"],
        ["\n", "5\n"],
        ["2024-01-01\n", "2024-01-02\n"],
    ],
    ids=str,
)
def test_files_read_like_the_one_file_they_would_make(tmp_path: Path, bodies: list[str]) -> None:
    texts = ["a,n\n" + "".join(f"{line},1\n" for line in body.splitlines()) for body in bodies]
    whole = "a,n\n" + "".join(text.removeprefix("a,n\n") for text in texts)
    expected = pacsv.read_csv(pa.BufferReader(whole.encode()))
    assert read_csv(_files(tmp_path, *texts)).equals(expected)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["01234", "98765"], ["01234", "98765"]),
        (["+5"], ["+5"]),
        (["1e5"], ["1e5"]),
        (["12345678901234567890"], ["12345678901234567890"]),
        (["NA", "NULL", "nan"], ["NA", "NULL", "nan"]),
        (["1", "NA"], ["1", "NA"]),
        (["True"], ["True"]),
        ([" 1"], [" 1"]),
        (["10:00:00"], ["10:00:00"]),
        (["2024-01-01T10:00:00+02:00"], ["2024-01-01T10:00:00+02:00"]),
        (["12.50", "3.25"], [Decimal("12.50"), Decimal("3.25")]),
        (['"7"', "8"], [7, 8]),
        (["", "5"], [None, 5]),
        (["", '""', "x"], [None, "", "x"]),
        (['""', "5"], [None, 5]),
        (["", ""], [None, None]),
        (["2024-01-01", ""], [dt.date(2024, 1, 1), None]),
        (["2024-01-01 10:00:00"], [dt.datetime.fromisoformat("2024-01-01 10:00")]),
    ],
    ids=str,
)
def test_no_value_changes_when_its_type_is_inferred(tmp_path: Path, cells: list[str], expected: list[Any]) -> None:
    table = read_csv(_files(tmp_path, "a,n\n" + "".join(f"{cell},1\n" for cell in cells)))
    assert table["a"].to_pylist() == expected


SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("x", pa.float64()),
        ("m", pa.decimal128(20, 3)),
        ("d", pa.date32()),
        ("at", pa.timestamp("us")),
        ("utc", pa.timestamp("ms", "UTC")),
        ("b", pa.bool_()),
        ("t", pa.string()),
    ]
)
MILLISECONDS = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC)).map(  # noqa: DTZ001
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-(2**63), 2**63 - 1),
    "x": st.floats(),
    "m": st.decimals(-(10**15), 10**15, places=3),
    "d": st.dates(),
    "at": st.datetimes(),
    "utc": MILLISECONDS,
    "b": st.booleans(),
    "t": st.text(st.characters(codec="utf-8", exclude_characters="\r\0")),
}


@given(st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), min_size=1))
def test_what_arrow_writes_is_read_back(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    path = tmp_path_factory.getbasetemp() / "back.csv"
    table = pa.Table.from_pylist(rows, SCHEMA)
    pacsv.write_csv(table, path)
    found = read_csv(path, types=dict(zip(SCHEMA.names, SCHEMA.types, strict=True)))
    assert repr(found.to_pylist()) == repr(table.to_pylist())  # which tells NaN from nothing
    guessed = read_csv(path)
    for name in SCHEMA.names:
        type_ = guessed.schema.field(name).type
        assert pa.types.is_null(type_) or pa.types.is_string(type_) or guessed[name].cast(type_).equals(guessed[name])


def test_named_types_are_parsed_and_other_columns_inferred(tmp_path: Path) -> None:
    text = 'zip,day,price,n,more\n12345,2024-01-01,1.5, 7,9\n,,,"",\n'
    types = {"zip": pa.large_string(), "day": pa.date32(), "price": pa.decimal128(9, 2), "n": pa.int8(), "x": pa.int8()}
    table = read_csv(_files(tmp_path, text), types=types)
    assert table.to_pylist() == [
        {"zip": "12345", "day": dt.date(2024, 1, 1), "price": Decimal("1.50"), "n": 7, "more": 9},
        {"zip": None, "day": None, "price": None, "n": None, "more": None},
    ]
    assert table.schema.types == [*(types[name] for name in table.column_names[:4]), pa.int64()]
    with pytest.raises(ValueError, match="schema or types"):
        read_csv(tmp_path, types=types, schema=table.schema)


@pytest.mark.parametrize(
    ("cell", "type_", "said"),
    [
        ("12x", pa.int64(), "'12x' is not a value of the type int64"),
        ("300", pa.int8(), "'300' is not a value of the type int8"),
        ("9007199254740993", pa.float64(), "'9007199254740993' is not a value of the type double"),
        ("1.555", pa.decimal128(9, 2), "'1.555' is not a value of the type decimal128(9, 2)"),
        ("2024-13-01", pa.date32(), "'2024-13-01' is not a value of the type date32[day]"),
        (
            "2024-01-01 10:00",
            pa.timestamp("us", "UTC"),
            "'2024-01-01 10:00' is not a value of the type timestamp[us, tz=UTC], which needs a zone such as Z",
        ),
        (
            "2024-01-01T10:00:00Z",
            pa.timestamp("us"),
            "'2024-01-01T10:00:00Z' is not a value of the type timestamp[us] without a zone",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_named(tmp_path: Path, cell: str, type_: pa.DataType, said: str) -> None:
    path = _files(tmp_path, 'x,a\n"two\nlines",\n\ny,\n' + f"z,{cell}\nz,{cell}\n") / "0.csv"
    with pytest.raises(SourceFileError) as caught:
        read_csv(path, types={"a": type_})
    assert f"{path}, row 3, column 'a': {said}" in str(caught.value)
    assert str(caught.value).endswith(". Correct the value.")


@pytest.mark.parametrize(
    ("data", "line", "byte"),
    [(b"a,b\n1,x\n2,K\xf6ln\n", 3, "F6"), (b"K\xf6ln,b\r\n1,2\r\n", 1, "F6"), (b"a\r1\r\xff\r", 3, "FF")],
)
def test_bytes_that_are_not_text_are_named(tmp_path: Path, data: bytes, line: int, byte: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    with pytest.raises(SourceFileError, match=rf"a\.csv, line {line}: the byte 0x{byte} is not utf-8 text"):
        read_csv(path)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8-sig", "cp1252"])
def test_another_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress("Stadt,n\nKöln,1\n".encode(encoding)))
    assert read_csv(path, encoding=encoding).to_pylist() == [{"Stadt": "Köln", "n": 1}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n1,2,3\n", "row 2: 'Expected 2 columns, got 3: 1,2,3'"),
        ('a,b\n1,2\n3,"x\n4,y\n', "line 3: a quotation mark is opened and not closed"),
        ('a,b\n1,2\n3,"x', "line 3: a quotation mark is opened and not closed"),
        ('a,b\n1,2\n"3"x,4\n', "line 3: text follows a closing quotation mark"),
        ('a,b\r\n"1\r\n" ,2\r\n', "line 3: text follows a closing quotation mark"),
        ('a\n""x"\n', "line 2: text follows a closing quotation mark"),
    ],
)
def test_a_file_that_is_not_csv_names_the_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SourceFileError) as caught:
        read_csv(_files(tmp_path, text))
    assert f"{tmp_path}/0.csv, {said}" in str(caught.value)


@pytest.mark.parametrize("delimiter", ["", ";;", "\n", "\r", '"', "\0", "§"])
def test_a_delimiter_that_cannot_separate_values(tmp_path: Path, delimiter: str) -> None:
    with pytest.raises(ValueError, match="cannot separate values"):
        read_csv(_files(tmp_path, "a,b\n1,2\n"), delimiter=delimiter)


def test_empty_files_and_files_of_a_header_add_no_rows(tmp_path: Path) -> None:
    folder = _files(tmp_path, "", "id,name\n", "id,name\n1,x\n", "  \n")
    table = read_csv(folder)
    assert table.to_pylist() == [{"id": 1, "name": "x"}]
    assert table.schema.types == [pa.int64(), pa.string()]
    empty = read_csv(folder / "0.csv", schema=pa.schema([("id", pa.int8())]))
    assert empty.num_rows == 0
    assert empty.schema.types == [pa.int8()]


def test_a_row_larger_than_a_block_is_read(tmp_path: Path) -> None:
    long = "x" * (40 * 2**20)
    table = read_csv(_files(tmp_path, f"id,text\n1,a\n2,{long}\n3,b\n"))
    assert table.column("id").to_pylist() == [1, 2, 3]
    assert len(table.column("text")[1].as_py()) == len(long)
