"""CSV and JSON files as sources: parsed with the types of the dataset, without changing a value."""

from __future__ import annotations

import datetime as dt
import functools
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conformance.effort import for_each
from fsspeckit import KeyColumnError, PartitionError, SourceFileError, TextFiles
from kit import by_day, data_files, look, put, tree_of

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("zip", pa.string()),
        ("day", pa.date32()),
        ("price", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us")),
        ("flag", pa.bool_()),
        ("x", pa.float64()),
    ]
)
FIRST = {
    "id": 1,
    "zip": "98765",
    "day": dt.date(2024, 1, 1),
    "price": Decimal("1.50"),
    "at": dt.datetime.fromisoformat("2024-01-01 10:00:00"),
    "flag": True,
    "x": 1.0,
}
CSV = "x,flag,at,price,day,zip,id\n1,1,2024-01-01T10:00:00,1.5,2024-01-01,98765,1\n0.5,false,,2,2024-01-02,01234,2\n"
JSON = [
    {"id": 1, "zip": "98765", "day": "2024-01-01", "price": 1.5, "at": "2024-01-01 10:00", "flag": True, "x": 1},
    {"id": 2, "zip": "01234", "day": "2024-01-02", "price": "2", "at": None, "flag": False, "x": 0.5},
]
MERGE: dict[str, Any] = {"strategy": "upsert", "key_columns": ["id"]}


def write_csv(folder: Path) -> str:
    (folder / "s.csv").write_text(CSV)
    return str(folder / "s.csv")


def write_json(folder: Path) -> str:
    (folder / "s.json").write_text(json.dumps(JSON))
    return str(folder / "s.json")


def write_packed(folder: Path) -> str:
    """Two compressed files behind one pattern."""
    head, *rows = CSV.splitlines(keepends=True)
    for number, row in enumerate(rows):
        (folder / f"s{number}.csv.gz").write_bytes(gzip.compress(f"{head}{row}".encode()))
    return str(folder / "s*.csv.gz")


def write_other(folder: Path) -> TextFiles:
    """A name without a known extension, another delimiter and another encoding."""
    (folder / "s.dat").write_bytes(CSV.replace(",", ";").encode("utf-16"))
    return TextFiles(str(folder / "s.dat"), "csv", delimiter=";", encoding="utf-16")


@pytest.mark.parametrize("write", [write_csv, write_json, write_packed, write_other])
def test_a_merge_parses_with_the_types_of_the_dataset(io: Any, tmp_path: Path, write: Any) -> None:
    put(tmp_path / "d" / "a.parquet", pa.Table.from_pylist([FIRST], SCHEMA))
    result = io.merge(write(tmp_path), str(tmp_path / "d"), **MERGE)
    assert (result.inserted, result.updated, result.unchanged, result.rewritten_files) == (1, 1, 1, [])
    new = pq.read_table(result.inserted_files[0])
    assert new.schema.equals(SCHEMA)
    assert new.to_pylist() == [
        {
            "id": 2,
            "zip": "01234",
            "day": dt.date(2024, 1, 2),
            "price": Decimal("2.00"),
            "at": None,
            "flag": False,
            "x": 0.5,
        }
    ]


@pytest.mark.parametrize("write", [write_csv, write_json])
@pytest.mark.parametrize("mode", ["append", "overwrite_partitions"])
def test_a_write_parses_with_the_types_of_the_dataset(io: Any, tmp_path: Path, write: Any, mode: str) -> None:
    path = str(tmp_path / "d")
    io.write_dataset(pa.Table.from_pylist([FIRST, FIRST | {"zip": "00501"}], SCHEMA), path, partition_by=["zip"])
    io.write_dataset(write(tmp_path), path, mode=mode)
    assert {pq.read_schema(file).field("day").type for file in data_files(tmp_path / "d")} == {pa.date32()}
    assert {file.parent.name for file in data_files(tmp_path / "d")} == {"zip=98765", "zip=01234", "zip=00501"}


def test_overwriting_a_dataset_infers_types_again(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", pa.table({"id": ["x"]}))
    (tmp_path / "s.csv").write_text("id,zip\n1,01234\n")
    io.write_dataset(tmp_path / "s.csv", str(tmp_path / "d"), mode="overwrite")
    assert pq.read_schema(data_files(tmp_path / "d")[0]).types == [pa.int64(), pa.string()]


@pytest.mark.parametrize("operation", ["merge", "write"])
@for_each(
    "name, text, said",
    [
        ("s.csv", "id,n\n1,5\n2,5x\n", "s.csv, row 2, column 'n': '5x' is not a value of the type int8"),
        ("s.csv", "id,n\n1,5\n2,+5\n", "row 2, column 'n': '+5' is not a value of the type int8: text with leading"),
        ("s.csv", "id,n\n1,5\n2,05\n", "row 2, column 'n': '05' is not a value of the type int8: text with leading"),
        ("s.csv", "id,n\n1,5\n2,1.5\n", "row 2, column 'n': '1.5' is not a value of the type int8: the column holds"),
        ("s.json", '{"id": 1, "n": 1.5}', "row 1, column 'n': 1.5 is not a value of the type int8: the column holds"),
        ("s.json", 'null\n{"id": 1, "n": 1}', "s.json, line 1: the record is null and not an object"),
        ("s.csv", "id,n\n1,5\n2,300\n", "s.csv, row 2, column 'n': '300' is not a value of the type int8"),
        ("s.json", '{"id": 1, "n": 5}\n{"id": 2, "n": "5"}', "s.json, row 2, column 'n': '5' is not a value"),
    ],
)
def test_a_value_that_does_not_fit_changes_nothing(
    io: Any, tmp_path: Path, operation: str, name: str, text: str, said: str
) -> None:
    put(tmp_path / "d" / "a.parquet", pa.table({"id": [1], "n": pa.array([5], pa.int8())}))
    (tmp_path / name).write_text(text)
    before = tree_of(tmp_path / "d")
    call = functools.partial(io.merge, **MERGE) if operation == "merge" else io.write_dataset
    with pytest.raises(SourceFileError) as caught:
        call(str(tmp_path / name), str(tmp_path / "d"))
    assert said in str(caught.value)
    assert tree_of(tmp_path / "d") == before


def test_bytes_that_are_not_text_change_nothing(io: Any, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_bytes("id,v\n1,x\n2,Köln\n".encode("latin-1"))
    with pytest.raises(SourceFileError, match=r"s\.csv, line 3: the byte 0xF6 is not utf-8 text"):
        io.merge(str(tmp_path / "s.csv"), str(tmp_path / "d"), **MERGE)
    assert not (tmp_path / "d").exists()
    source = TextFiles(str(tmp_path / "s.csv"), "csv", encoding="latin-1")
    io.merge(source, str(tmp_path / "d"), **MERGE)
    assert look(tmp_path / "d") == [(1, "x"), (2, "Köln")]


def test_the_types_of_columns_that_only_some_files_have(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", pa.table({"id": [1]}))
    put(tmp_path / "d" / "b.parquet", pa.table({"id": [2], "zip": ["01234"]}))
    (tmp_path / "s.csv").write_text("id,zip\n3,98765\n")
    result = io.merge(str(tmp_path / "s.csv"), str(tmp_path / "d"), **MERGE)
    assert pq.read_table(result.inserted_files[0]).to_pylist() == [{"id": 3, "zip": "98765"}]


@for_each(
    "folders, cell, folder",
    [
        (("01", "02"), "01", "day=01"),
        (("01", "02"), "1", "day=01"),
        (("1", "2"), "1", "day=1"),
        (("mon", "tue"), "mon", "day=mon"),
        (("2024-01-01", "2024-01-02"), "2024-01-01", "day=2024-01-01"),
    ],
)
def test_partition_columns_that_are_only_in_folder_names(
    io: Any, tmp_path: Path, folders: tuple[str, str], cell: str, folder: str
) -> None:
    by_day(tmp_path / "d", **{day: [number] for number, day in enumerate(folders)})
    (tmp_path / "s.csv").write_text(f"id,v,day\n7,new,{cell}\n")
    io.merge(str(tmp_path / "s.csv"), str(tmp_path / "d"), **MERGE)
    io.write_dataset(str(tmp_path / "s.csv"), str(tmp_path / "d"))
    holders = [file.parent.name for file in data_files(tmp_path / "d") if 7 in pq.read_table(file)["id"].to_pylist()]
    assert holders == [folder, folder]


@pytest.mark.parametrize("operation", ["merge", "append", "overwrite_partitions"])
@for_each(
    "name, text, said",
    [
        ("s.csv", "id,v,day\n7,new,01\n", "row 1, column 'day': '01' is not a value of the type int32"),
        ("s.csv", "id,v,day\n7,new,A1\n", "row 1, column 'day': 'A1' is not a value of the type int32"),
        ("s.json", '{"id": 7, "v": "new", "day": "01"}', "row 1, column 'day': '01' is not a value of the type int32"),
    ],
)
def test_text_does_not_change_the_type_of_a_numeric_partition(
    io: Any, tmp_path: Path, operation: str, name: str, text: str, said: str
) -> None:
    by_day(tmp_path / "d", **{"1": [1], "2": [2]})
    (tmp_path / name).write_text(text)
    before = tree_of(tmp_path / "d")
    with pytest.raises(SourceFileError) as caught:
        change(io, tmp_path / name, tmp_path / "d", operation)
    assert said in str(caught.value)
    assert tree_of(tmp_path / "d") == before


@pytest.mark.parametrize("operation", ["merge", "append", "overwrite_partitions"])
@for_each("kind", ["json", "int", "float", "dictionary"])
def test_a_number_does_not_go_where_its_text_has_leading_zeros(
    io: Any, tmp_path: Path, operation: str, kind: str
) -> None:
    by_day(tmp_path / "d", **{"01": [1], "abc": [2]})
    (tmp_path / "s.json").write_text('{"id": 1, "v": "new", "day": 1}')
    days = pa.array([1], pa.float64() if kind == "float" else pa.int32())
    days = days.dictionary_encode() if kind == "dictionary" else days
    source = tmp_path / "s.json" if kind == "json" else pa.table({"id": [1], "v": ["new"], "day": days})
    before = tree_of(tmp_path / "d")
    with pytest.raises(
        PartitionError, match=r"the dataset has the text of 'day=01'.* Pass the partition column as text"
    ):
        change(io, source, tmp_path / "d", operation)
    assert tree_of(tmp_path / "d") == before


def test_a_number_goes_to_the_folder_of_its_text(io: Any, tmp_path: Path) -> None:
    by_day(tmp_path / "d", **{"01": [1], "1": [2], "true": [3]})
    (tmp_path / "s.json").write_text('{"id": 7, "v": "new", "day": 1}')
    (tmp_path / "t.json").write_text('{"id": 8, "v": "new", "day": true}')
    for name in ("s.json", "t.json"):
        change(io, tmp_path / name, tmp_path / "d", "overwrite_partitions")
    holders = {file.parent.name: pq.read_table(file)["id"].to_pylist() for file in data_files(tmp_path / "d")}
    assert holders == {"day=01": [1], "day=1": [7], "day=true": [8]}


def test_true_does_not_go_to_the_folder_of_one(io: Any, tmp_path: Path) -> None:
    by_day(tmp_path / "d", **{"1": [1], "abc": [2]})
    before = tree_of(tmp_path / "d")
    with pytest.raises(PartitionError, match=r"the value of 'day=true'.* the text of 'day=1'"):
        change(io, pa.table({"id": [1], "v": ["new"], "day": [True]}), tmp_path / "d", "overwrite_partitions")
    assert tree_of(tmp_path / "d") == before


def change(io: Any, source: Any, path: Path, operation: str) -> None:
    if operation == "merge":
        io.merge(source, str(path), **MERGE)
    else:
        io.write_dataset(source, str(path), mode=operation)


def test_a_source_without_columns_is_told_as_such(io: Any, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("")
    with pytest.raises(KeyColumnError, match="It has no columns: check that its files are not empty"):
        io.merge(tmp_path / "s.csv", str(tmp_path / "d"), **MERGE)


def test_a_header_alone_makes_text_columns(io: Any, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("id,v")
    io.write_dataset(tmp_path / "s.csv", str(tmp_path / "d"))
    assert pq.read_schema(data_files(tmp_path / "d")[0]).types == [pa.string(), pa.string()]


def test_a_new_dataset_gets_the_types_in_which_the_file_is_written(io: Any, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("id,zip,day,price,big\n1,01234,2024-01-01,1.50,12345678901234567890\n")
    io.merge(tmp_path / "s.csv", str(tmp_path / "d"), **MERGE)
    schema = pq.read_schema(data_files(tmp_path / "d")[0])
    assert schema.types == [pa.int64(), pa.string(), pa.date32(), pa.decimal128(18, 2), pa.string()]
    again = io.merge(tmp_path / "s.csv", str(tmp_path / "d"), **MERGE)
    assert (again.unchanged, again.rewritten_files, again.inserted) == (1, [], 0)
