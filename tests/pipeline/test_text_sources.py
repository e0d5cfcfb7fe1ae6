"""Csv and json files as sources of a pipeline: Spark reads them, and no value changes without an error."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.common.errors import SourceFileError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.pipeline import Pipeline, PipelineFileError, StepFailedError

IO = PyarrowDatasetIO()


def pipeline(*between: dict[str, Any], do: str = "merge", **source: Any) -> Pipeline:
    """Files into the dataset `lake`, or by a step in between."""
    steps = [{"from": "raw", "name": "between"} | step for step in between]
    last: dict[str, Any] = {"name": "load", "do": do, "from": "between" if steps else "raw", "into": "lake"}
    last |= {"keys": ["id"]} if do == "merge" else {}
    raw: dict[str, Any] = {"format": "csv", "path": "in/*"} | source
    if raw["format"] == "csv":
        raw["options"] = {"header": True} | raw.get("options", {})
    return Pipeline.of(
        {"name": "p", "sources": {"raw": raw}, "datasets": {"lake": {"path": "lake"}}, "steps": [*steps, last]}
    )


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for source files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def rows() -> list[dict[str, Any]]:
    return sorted(IO.read_parquet("lake").to_pylist(), key=lambda row: row["id"])


def test_a_csv_file_without_types_is_text(files: Path, spark: Any) -> None:
    (files / "a.csv").write_text("id,zip,empty\n1,01234,\n")
    pipeline().run(spark)
    assert rows() == [{"id": "1", "zip": "01234", "empty": None}]


@pytest.mark.parametrize("do", ["merge", "write"])
@pytest.mark.parametrize("between", [(), ({"do": "filter", "where": "id <> 'x'"},)], ids=["straight", "by a step"])
def test_text_is_parsed_with_the_types_of_the_dataset(files: Path, spark: Any, do: str, between: tuple[Any]) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("zip", pa.string()),
            ("day", pa.date32()),
            ("price", pa.decimal128(9, 2)),
            ("a.b", pa.float32()),
        ]
    )
    IO.write_dataset(schema.empty_table(), "lake")
    (files / "a.csv").write_text("zip,id,day,price,a.b\n01234,1,2024-01-01,1.5,0.5\n98765,2,,,\n")
    pipeline(*between, do=do).run(spark)
    assert rows() == [
        {"id": 1, "zip": "01234", "day": dt.date(2024, 1, 1), "price": Decimal("1.50"), "a.b": 0.5},
        {"id": 2, "zip": "98765", "day": None, "price": None, "a.b": None},
    ]
    assert IO.read_parquet("lake").schema.equals(schema)


def test_text_of_json_is_parsed_with_the_types_of_the_dataset(files: Path, spark: Any) -> None:
    IO.write_dataset(pa.table({"id": [1], "day": [dt.date(2024, 1, 1)]}), "lake")
    (files / "a.json").write_text('{"id": 2, "day": "2024-01-02"}\n')
    pipeline(format="json").run(spark)
    assert rows()[1] == {"id": 2, "day": dt.date(2024, 1, 2)}


@pytest.mark.parametrize(
    ("texts", "source", "said"),
    [
        ({"a.csv": "id,n\n1,5\n2,5x\n"}, {}, "column 'n': '5x' is not a value of the type int64"),
        ({"a.csv": "id,n\n1,5\n2,5x\n"}, {"columns": "id int, n int"}, "a.csv: the record [2,null] does not fit"),
        ({"a.csv": "id,n\n1,5,6\n"}, {}, "a.csv: the record [1,5] does not fit"),
        ({"a.csv": "id,n\n1,5\n", "b.csv": "n,id\n5,2\n"}, {}, "the header does not fit the columns"),
        ({"a.csv": "id,n\n1,1.55\n"}, {"columns": "id int, n decimal(9,1)"}, "column 'n': '1.55' is not a value"),
        (
            {"a.csv": "id,n\n1,2024-01-01 10:00:00\n"},
            {"columns": "id int, n date"},
            "column 'n': '2024-01-01 10:00:00'",
        ),
        (
            {"a.json": '{"id": 1, "n": 1.55}'},
            {"columns": "id int, n decimal(9,1)"},
            "column 'n': '1.55' is not a value",
        ),
        ({"a.json": '{"id": 1, "n": 5.5}'}, {"columns": "id int, n int"}, "a.json: the record"),
        ({"a.json": '{"id": 1}\n{"id": \n'}, {}, "a record is not JSON"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error(
    files: Path, spark: Any, texts: dict[str, str], source: dict[str, Any], said: str
) -> None:
    IO.write_dataset(pa.table({"id": [1], "n": [1]}), "lake")
    for name, text in texts.items():
        (files / name).write_text(text)
    with pytest.raises(StepFailedError) as caught:
        pipeline(format=next(iter(texts)).partition(".")[2], **source).run(spark)
    assert said in str(caught.value)
    assert isinstance(caught.value.__cause__, SourceFileError)
    assert rows() == [{"id": 1, "n": 1}]


@pytest.mark.parametrize("data", ["id,town\n1,Köln\n", "id,Köln\n1,2\n"], ids=["value", "header"])
def test_bytes_that_are_not_text_are_an_error(files: Path, spark: Any, data: str) -> None:
    (files / "a.csv").write_bytes(data.encode("latin-1"))
    with pytest.raises(StepFailedError, match=r"bytes that are not UTF-8 text.*options\.encoding") as caught:
        pipeline().run(spark)
    assert isinstance(caught.value.__cause__, SourceFileError)
    pipeline(options={"encoding": "ISO-8859-1"}).run(spark)
    assert "Köln" in str(rows())


@pytest.mark.parametrize("value", [True, "true"])
def test_types_that_spark_would_guess_are_refused(value: Any) -> None:
    with pytest.raises(PipelineFileError, match=r"options\.inferSchema changes values"):
        pipeline(options={"inferSchema": value})


def test_a_format_of_dates_is_left_to_spark(files: Path, spark: Any) -> None:
    (files / "a.csv").write_text("id,day\n1,31.12.2024\n")
    pipeline(columns="id int, day date", options={"dateFormat": "dd.MM.yyyy"}).run(spark)
    assert rows() == [{"id": 1, "day": dt.date(2024, 12, 31)}]
