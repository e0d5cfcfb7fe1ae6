"""How commands read their source: types, casts, standard input, delimiters; and whether they create a dataset."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.conftest import Fsspeckit
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO


@pytest.fixture(autouse=True)
def orders(place: Path) -> None:
    Path("orders.csv").write_text("id,zip,at\n1,94110,2026-11-01 10:00:00\n")


def table(path: str) -> pa.Table:
    return PyarrowDatasetIO().read_parquet(path)


def test_the_types_of_a_csv_can_be_given(fsspeckit: Fsspeckit) -> None:
    assert fsspeckit("write", "orders.csv", "lake", "--schema", "zip string, at timestamp, id int")[0] == 0
    schema = table("lake").schema
    assert [schema.field(name).type for name in ("id", "zip", "at")] == [pa.int32(), pa.string(), pa.timestamp("us")]


def test_given_types_are_part_of_a_plan(fsspeckit: Fsspeckit) -> None:
    fsspeckit("write", "orders.csv", "lake", "--schema", "zip string")
    Path("new.csv").write_text("id,zip,at\n2,00501,2026-11-02 10:00:00\n")
    plan = ("plan", "merge", "new.csv", "lake", "--key", "id", "--schema", "zip string", "-o", "plan.json")
    assert fsspeckit(*plan)[0] == 0
    assert json.loads(Path("plan.json").read_text())["source"]["schema"] == "zip string"
    assert fsspeckit("apply", "plan.json")[0] == 0
    assert sorted(table("lake")["zip"].to_pylist()) == ["00501", "94110"]


def test_wrong_types_are_refused_before_anything_is_written(fsspeckit: Fsspeckit) -> None:
    listed = "is not a list of columns and types"
    for text, problem in (
        ("zip strin", "unknown type 'strin'"),
        ("zip", listed),
        ("zip string,", listed),
        ("zip string, zip int", "has two types"),
        ("zip int) OR (1", listed),
        ("zap string", "has no column ['zap']"),
        ("zip array<int>", "unknown type"),
        ("", listed),
    ):
        code, _, err = fsspeckit("write", "orders.csv", "lake", "--schema", text)
        assert (code, problem in err, Path("lake").exists()) == (2, True, False), (text, err)


def test_columns_of_parquet_are_cast_without_loss(fsspeckit: Fsspeckit) -> None:
    pq.write_table(pa.table({"id": [1, 2], "amount": ["1.50", "2"]}), "in.parquet")
    assert fsspeckit("write", "in.parquet", "lake", "--cast", "amount decimal(10, 2), id int")[0] == 0
    assert table("lake").schema.types == [pa.int32(), pa.decimal128(10, 2)]
    code, _, err = fsspeckit("write", "in.parquet", "other", "--cast", "amount int")
    assert (code, "'amount' cannot be cast" in err, Path("other").exists()) == (1, True, False)
    code, _, err = fsspeckit("write", "in.parquet", "other", "--cast", "total int")
    assert (code, "--cast names 'total'" in err) == (2, True)
    assert "use --schema" in fsspeckit("write", "orders.csv", "other", "--cast", "id int")[2]


@pytest.mark.parametrize("engine", ["pyarrow", "duckdb"])
def test_a_cast_repairs_files_of_different_types(fsspeckit: Fsspeckit, engine: str) -> None:
    """A folder in which a column is an integer in one file and a number in another has no common type."""
    for day, values in (("mon", pa.array([1, 2])), ("tue", pa.array([1.5, 2.5]))):
        Path(f"messy/day={day}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [1, 2], "amount": values}), f"messy/day={day}/a.parquet")
    code, _, err = fsspeckit("compact", "messy")
    assert (code, '`fsspeckit write PATH NEW --cast "COLUMN TYPE"`' in err) == (1, True), err
    words = ("write", "messy", "clean", "--cast", "amount double", "--partition-by", "day", "--engine", engine)
    assert fsspeckit(*words)[0] == 0
    assert sorted(table("clean")["amount"].to_pylist()) == [1.0, 1.5, 2.0, 2.5]
    code, _, err = fsspeckit("write", "messy", "whole", "--cast", "amount bigint")
    assert (code, "cannot be cast to int64" in err, Path("whole").exists()) == (1, True, False), err


@pytest.mark.parametrize(
    ("format_", "rows"), [("csv", b"id,zip\n1,2\n"), ("json", b'{"id": 1, "zip": 2}\n'), ("parquet", None)]
)
def test_rows_are_read_from_standard_input(fsspeckit: Fsspeckit, format_: str, rows: bytes | None) -> None:
    if rows is None:
        sink = io.BytesIO()
        pq.write_table(pa.table({"id": [1], "zip": [2]}), sink)
        rows = sink.getvalue()
    assert fsspeckit("merge", "-", "lake", "--key", "id", "--format", format_, piped=rows)[0] == 0
    assert table("lake").to_pylist() == [{"id": 1, "zip": 2}]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_one_column_with_another_delimiter_is_questioned(fsspeckit: Fsspeckit, delimiter: str) -> None:
    Path("odd.csv").write_text(f"id{delimiter}zip\n1{delimiter}2\n")
    code, _, err = fsspeckit("write", "odd.csv", "lake")
    assert (code, "has one column" in err, "--delimiter" in err) == (1, True, True)
    assert not Path("lake").exists()
    assert fsspeckit("write", "odd.csv", "lake", "--delimiter", delimiter)[0] == 0
    assert table("lake").column_names == ["id", "zip"]
    assert fsspeckit("write", "odd.csv", "one", "--delimiter", ",")[0] == 0
    assert table("one").num_columns == 1


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("id;amount\n1;2,5\n", "--delimiter ';' and --decimal-comma"),
        ('"id";"amount"\n"1";"-1.234,5"\n', "--delimiter ';' and --decimal-comma"),
        ("id\tamount\n1\t2,5\n", "--delimiter '\\t' and --decimal-comma"),
        ("id;note\n1;one, two\n", "--delimiter ';', else"),
    ],
)
def test_a_comma_in_a_value_does_not_hide_another_delimiter(fsspeckit: Fsspeckit, text: str, options: str) -> None:
    Path("odd.csv").write_text(text)
    code, _, err = fsspeckit("write", "odd.csv", "lake", "--schema", "id int")
    assert (code, f"pass {options}" in err, "Expected 1 columns" in err) == (1, True, False), err
    assert not Path("lake").exists()
    delimiter = "\\t" if "\t" in text else ";"
    types = "id int" if "note" in text else "id int, amount decimal(9, 2)"
    assert fsspeckit("write", "odd.csv", "lake", "--schema", types, "--delimiter", delimiter, "--decimal-comma")[0] == 0
    assert table("lake").num_columns == 2


def test_a_delimiter_that_was_given_is_not_questioned(fsspeckit: Fsspeckit) -> None:
    Path("odd.csv").write_text("id;note\n1;one, two\n")
    _, _, err = fsspeckit("write", "odd.csv", "lake", "--delimiter", ",")
    assert "Expected 1 columns, got 2" in err
    Path("odd.tsv").write_text("id,note\n1,one\n")
    _, _, err = fsspeckit("write", "odd.tsv", "lake")
    assert "pass --delimiter ',', else pass --delimiter '\\t'" in err, err


def test_a_new_dataset_is_announced_and_can_be_refused(fsspeckit: Fsspeckit) -> None:
    code, _, err = fsspeckit("merge", "orders.csv", "lake", "--key", "id", "--must-exist")
    assert (code, "there is no dataset at lake" in err, Path("lake").exists()) == (1, True, False)
    code, out, _ = fsspeckit("merge", "orders.csv", "lake", "--key", "id", "--strategy", "update")
    assert (code, out.splitlines()[0]) == (0, "there is no dataset, so nothing was done")
    assert fsspeckit("write", "orders.csv", "lake")[1].splitlines()[0] == "new dataset"
    assert "new dataset" not in fsspeckit("write", "orders.csv", "lake", "--must-exist")[1]
    facts: dict[str, Any] = json.loads(fsspeckit("merge", "orders.csv", "other", "--key", "id", "--json")[1])
    assert facts["new_dataset"] is True


def test_the_format_that_is_named_counts_not_the_ending(fsspeckit: Fsspeckit) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), "rows.csv")
    assert fsspeckit("write", "rows.csv", "lake", "--format", "parquet")[0] == 0
    assert table("lake")["id"].to_pylist() == [1, 2]
    code, _, said = fsspeckit("write", "orders.csv", "other", "--format", "parquet")
    assert (code, "cannot be read as Parquet" in said, Path("other").exists()) == (1, True, False)


def test_a_date_format_without_a_date_is_questioned(fsspeckit: Fsspeckit) -> None:
    Path("days.csv").write_text("id,day\n1,03.11.2026\n")
    code, _, said = fsspeckit("write", "days.csv", "lake", "--date-format", "%d.%m.%Y")
    assert (code, Path("lake").exists()) == (2, False)
    assert "--date-format %d.%m.%Y has no effect" in said
    assert "pass --schema 'day date'" in said
    assert fsspeckit("write", "days.csv", "lake", "--date-format", "%d.%m.%Y", "--schema", "day date")[0] == 0


def test_a_source_of_hive_needs_no_ending_and_no_format(fsspeckit: Fsspeckit) -> None:
    Path("hive/day=1").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), "hive/day=1/000000_0")
    Path("hive/notes.txt").write_text("not rows")
    for number, source in enumerate(("hive", "hive/day=1/000000_0")):
        assert fsspeckit("write", source, f"lake{number}")[0] == 0
        assert table(f"lake{number}")["id"].to_pylist() == [1, 2]
