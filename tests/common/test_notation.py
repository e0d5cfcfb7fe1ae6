"""Numbers with a decimal comma and dates of other formats: only what is written so is read, and nothing changes."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.common.errors import SourceFileError
from fsspeckit.core.ext import read_csv

MONEY, DAY = pa.decimal128(12, 2), pa.date32()


@pytest.mark.parametrize(
    ("text", "type_", "expected"),
    [
        ("-1.234,56", MONEY, Decimal("-1234.56")),
        ("1.234.567,80", MONEY, Decimal("1234567.80")),
        ("1.234", pa.int64(), 1234),
        (" 7 ", pa.int64(), 7),
        ("31.03.2026", DAY, datetime.date(2026, 3, 31)),
        ("1.4.2026", DAY, datetime.date(2026, 4, 1)),
        ("31.03.2026", pa.timestamp("us"), datetime.datetime(2026, 3, 31)),  # noqa: DTZ001 - a column without a zone
        ("1.234,56", pa.string(), "1.234,56"),
        ("", MONEY, None),
    ],
)
def test_values_that_are_written_so(text: str, type_: pa.DataType, expected: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"id;v\n1;{text}\n")
    options: dict[str, Any] = {"delimiter": ";", "decimal_comma": True, "date_format": "%d.%m.%Y"}
    table = read_csv(tmp_path / "a.csv", types={"v": type_}, **options)
    assert table["v"].to_pylist() == [expected]
    assert table["v"].type == type_


@pytest.mark.parametrize(
    ("text", "type_"), [("1,234.56", MONEY), ("0012,5", MONEY), ("1,555", MONEY), ("31.02.2026", DAY)]
)
def test_values_that_are_not(text: str, type_: pa.DataType, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"id;v\n1;\n2;{text}\n")
    with pytest.raises(SourceFileError, match=r"row 2, column 'v': "):
        read_csv(tmp_path / "a.csv", types={"v": type_}, delimiter=";", decimal_comma=True, date_format="%d.%m.%Y")


def test_types_of_other_columns_are_inferred_in_the_same_notation(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a;b;c;d;e\n1.234;1,5;1.5;2026-03-01;007\n;-2;2.25;2026-03-02;008\n")
    table = read_csv(tmp_path / "a.csv", delimiter=";", decimal_comma=True, date_format="%d.%m.%Y")
    assert table.to_pylist() == [
        {"a": 1234, "b": 1.5, "c": "1.5", "d": datetime.date(2026, 3, 1), "e": "007"},
        {"a": None, "b": -2.0, "c": "2.25", "d": datetime.date(2026, 3, 2), "e": "008"},
    ]


def test_an_error_says_how_the_values_may_be_meant(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n;d\n1,5;31.03.2026\n")
    with pytest.raises(SourceFileError, match="pass decimal_comma=True"):
        read_csv(tmp_path / "a.csv", types={"n": MONEY}, delimiter=";")
    with pytest.raises(SourceFileError, match=r"pass date_format='%d\.%m\.%Y'"):
        read_csv(tmp_path / "a.csv", types={"d": DAY}, delimiter=";")
