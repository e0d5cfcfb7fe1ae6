"""Csv and json files as sources of a pipeline: the rows and errors of every other way to read them."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.common.errors import SchemaMismatchError, SourceFileError
from fsspeckit.core.ext import read_csv
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.pipeline import Pipeline, PipelineFileError, StepFailedError
from inside import TextFiles, lower

IO = PyarrowDatasetIO()


def pipeline(*between: dict[str, Any], do: str = "merge", **source: Any) -> Pipeline:
    """Files into the dataset `lake`, or by a step in between."""
    steps = [{"from": "raw", "name": "between"} | step for step in between]
    last: dict[str, Any] = {"name": "load", "do": do, "from": "between" if steps else "raw", "into": "lake"}
    last |= {"keys": ["id"]} if do == "merge" else {}
    raw: dict[str, Any] = {"format": "csv", "path": "in/*"} | source
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


@pytest.mark.parametrize("do", ["merge", "write"])
def test_text_is_parsed_with_the_types_of_the_dataset(files: Path, spark: Any, do: str) -> None:
    between = ({"do": "filter", "where": "id <> 7"},) if do == "merge" else ()
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


CSV, JSON = {"format": "csv"}, {"format": "json"}
WRONG: list[tuple[bytes, dict[str, Any], str]] = [
    (b"id,n\n1,5\n2,5x\n", CSV, "a.csv, row 2, column 'n': '5x' is not a value of the type int64"),
    (b"id,n\n1,5\n2,5x\n", CSV | {"columns": "id int, n int"}, "'5x' is not a value of the type int32"),
    (b"id,n\n1,5,6\n", CSV, "a.csv, row 1: 'Expected 2 columns, got 3: 1,5,6'"),
    (b"id,n\n1,5\n", CSV | {"columns": "id int, m int"}, "no file has the columns ['m']"),
    (b"id,n\n1,2024-01-01\n", CSV | {"columns": "id int, n timestamp"}, "needs a zone such as Z"),
    (b"id,n\n1,K\xf6ln\n", CSV, "the byte 0xF6 is not utf-8 text"),
    (b"id;n\n1;2\n", CSV, "a.csv has one column, 'id;n'"),
    (b'{"id": 1, "n": 5.5}', JSON | {"columns": "id int, n int"}, "column 'n': 5.5 is not a value"),
    (b'{"id": 1} garbage', JSON, "a.json"),
]


@pytest.mark.parametrize("is_small", [True, pytest.param(False, marks=pytest.mark.more)], ids=["driver", "executors"])
def test_a_value_that_does_not_fit_is_found_before_the_first_step(
    files: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, is_small: bool
) -> None:
    if not is_small:
        lower(monkeypatch, "bytes of a small file", 0)
    IO.write_dataset(pa.table({"id": [1], "n": [1]}), "lake")
    for number, (text, source, said) in enumerate(WRONG):
        for path in files.iterdir():
            path.unlink()
        (files / f"a.{source['format']}").write_bytes(text)
        between = ({"do": "filter", "where": "id > 0"},) if (number + is_small) % 2 else ()
        with pytest.raises(StepFailedError, match="before the first step") as caught:
            pipeline(*between, **source).run(spark)
        assert said in str(caught.value)
        assert isinstance(caught.value.__cause__, SourceFileError)
    assert rows() == [{"id": 1, "n": 1}]


def test_options_that_the_readers_do_not_have_are_refused() -> None:
    csv_only = "goes with csv files"
    for source, said in (
        ({"options": {"inferSchema": True}}, "inferSchema: this key is unknown; use one of header, delimiter"),
        ({"options": {"multiLine": True}}, "sources.raw.options.multiLine: this key is unknown"),
        ({"options": {"header": False}}, "sources.raw.options.header"),
        ({"options": {"delimiter": "||"}}, "sources.raw.options.delimiter"),
        ({"options": {"date_format": "%d.%m."}}, "'%d.%m.' has no day, month and year"),
        (JSON | {"options": {"delimiter": ";"}}, f"options.delimiter {csv_only}"),
        (JSON | {"options": {"decimal_comma": True}}, f"options.decimal_comma {csv_only}"),
        (JSON | {"options": {"date_format": "%d.%m.%Y"}}, f"options.date_format {csv_only}"),
        ({"format": "parquet", "options": {"encoding": "utf-8"}}, "options go with csv and json files"),
    ):
        with pytest.raises(PipelineFileError, match=re.escape(said)):
            pipeline(**source)


def test_the_options_of_the_readers(files: Path, spark: Any) -> None:
    (files / "a.txt").write_bytes("id;town\n1;Köln\n".encode("utf-16"))
    pipeline(options={"delimiter": ";", "encoding": "utf-16"}).run(spark)
    assert rows() == [{"id": 1, "town": "Köln"}]


BANK = {
    "a.csv": "id;booked;at;amount;fee;note\n1;31.03.2026;31.03.2026;-1.234,56;0,50;1.5\n",
    "b.csv": "id;booked;at;amount;fee;note\n1.000;;01.04.2026;7;;2,5\n",
}


@pytest.mark.parametrize("is_small", [True, pytest.param(False, marks=pytest.mark.more)], ids=["driver", "executors"])
def test_numbers_with_a_comma_and_dates_in_another_form(
    files: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, is_small: bool
) -> None:
    """The same dataset as from Python and the command line: given types, inferred types, and types of the dataset."""
    if not is_small:
        lower(monkeypatch, "bytes of a small file", 0)
    between = () if is_small else ({"do": "filter", "where": "id > 0"},)
    for name, text in BANK.items():
        (files / name).write_text(text)
    options: Any = {"delimiter": ";", "decimal_comma": True, "date_format": "%d.%m.%Y"}
    types = "booked date, at timestamp_ntz, amount decimal(12,2)"
    once = TextFiles("in/*", "csv", types=types.replace("timestamp_ntz", "timestamp"), **options)
    again = TextFiles("in/*", "csv", **options)
    for source, columns in ((once, types), (again, None)):
        IO.merge(source, "own", strategy="upsert", key_columns="id")
        pipeline(*between, options=options, **{} if columns is None else {"columns": columns}).preview(spark)
        pipeline(*between, options=options, **{} if columns is None else {"columns": columns}).run(spark)
        assert sorted(IO.read_parquet("own").select(sorted(rows()[0])).to_pylist(), key=lambda row: row["id"]) == rows()
    found = {row["id"]: row for row in rows()}
    assert (found[1]["amount"], found[1]["booked"]) == (Decimal("-1234.56"), dt.date(2026, 3, 31))
    assert (found[1000]["fee"], found[1000]["note"]) == (None, "2,5")
    without = {name: value for name, value in options.items() if name == "delimiter"}
    with pytest.raises(StepFailedError, match=r"options\.(decimal_comma=true|date_format='%d)"):
        pipeline(*between, options=without).run(spark)


def test_types_of_columns_and_of_the_dataset(files: Path, spark: Any) -> None:
    """The source names types in Spark's words; the dataset has types that Spark lacks, and one more column."""
    schema = pa.schema([("id", pa.uint16()), ("at", pa.timestamp("ns")), ("zip", pa.large_string())])
    IO.write_dataset(schema.empty_table(), "lake")
    (files / "a.csv").write_text("id,at,zip\n1,2024-01-31 10:00:00.123456789,01\n")
    pipeline(columns="at timestamp_ntz, id int").run(spark)
    assert IO.read_parquet("lake").equals(read_csv("in", schema=schema))


def test_types_of_the_dataset_reach_the_source_through_steps(files: Path, spark: Any) -> None:
    """Not those of columns that a step computes: the code of the source is not the code of the dataset."""
    IO.write_dataset(pa.table({"key": ["1"], "code": [1], "zip": ["0"], "n": [1.5]}), "lake")
    (files / "a.csv").write_text("id,code,zip,n\n007,x1,98765,5\n")
    steps = [
        {"name": "named", "do": "rename", "from": "raw", "columns": {"id": "key"}},
        {"name": "picked", "do": "select", "from": "named", "columns": ["key", "`zip`", "ascii(code) as code", "n"]},
        {"name": "typed", "do": "cast", "from": "picked", "columns": {"n": "double"}},
        {"name": "load", "do": "write", "from": "typed", "into": "lake"},
    ]
    sources = {"raw": {"format": "csv", "path": "in/*"}}
    Pipeline.of({"name": "p", "sources": sources, "datasets": {"lake": {"path": "lake"}}, "steps": steps}).run(spark)
    found = IO.read_parquet("lake").sort_by("key").to_pylist()
    assert found[0] == {"key": "007", "code": 120, "zip": "98765", "n": 5.0}


def test_values_that_spark_lacks_are_an_error_of_a_step_in_between(files: Path, spark: Any) -> None:
    (files / "a.csv").write_text("id,at\n1,2024-01-31 10:00:00.123456789\n")
    with pytest.raises(StepFailedError, match=r"a\.csv: column 'at' cannot be cast from timestamp\[ns\]") as caught:
        pipeline({"do": "filter", "where": "id > 0"}).run(spark)
    assert isinstance(caught.value.__cause__, SchemaMismatchError)
