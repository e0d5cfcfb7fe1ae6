"""Partition values survive the way through folder names, for us and for readers who know nothing of us."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.common.errors import PartitionError
from fsspeckit.common.partitions import (
    HIVE_NULL,
    encode_column,
    parse_hive_partition_path,
    partition_folder,
    partition_folders,
    render,
    typed_values,
)

ODD = [
    *(" leading", "trailing ", "ü", "e\u0301", "😀", "a%b", "%41", "a=b", ".", "..", "../up", "a/b", "/", "a\\b"),
    *("it's", '"quoted"', "a:b#c?d*e", "{x}[y]^", "tab\tnew\nline", "\x01\x7f", "a+b", "a&b;c,d|e<f>", "01", "-0"),
    *("null", "NULL", "~", "_under", "x" * 250, "ü" * 125),
]


@pytest.mark.scenario("UP-45")
@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/data/year=2024/month=12/file.parquet", {"year": "2024", "month": "12"}),
        ("day=1/sub/x=2.parquet", {"day": "1"}),
        ("s3://bucket/t/day=01/x.parquet", {"day": "01"}),
        ("k=a=b/x.parquet", {"k": "a=b"}),
        ("k=a%2Fb%20c/x.parquet", {"k": "a/b c"}),
        ("k=100%/x.parquet", {"k": "100%"}),
        (f"k={HIVE_NULL}/x.parquet", {"k": None}),
        ("k=/x.parquet", {"k": ""}),
        ("=v/x.parquet", {}),
        ("a%3Db=1/x.parquet", {"a=b": "1"}),
    ],
)
def test_folders_become_texts(path: str, values: dict[str, str | None]) -> None:
    assert parse_hive_partition_path(path) == values
    assert parse_hive_partition_path(path, [*reversed(values), "other"]) == values


@pytest.mark.parametrize(("path", "message"), [("k=1/k=2/x.parquet", "'k'"), ("k=%FF/x.parquet", "UTF-8")])
def test_folders_that_have_no_value_are_refused(path: str, message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        parse_hive_partition_path(path)


@pytest.mark.parametrize("value", ["", "a\0b", HIVE_NULL, "x" * 254, "/" * 85, b"bytes", [1], dt.time(1)], ids=repr)
def test_values_that_could_not_be_read_back_are_refused(value: object) -> None:
    with pytest.raises(PartitionError):
        partition_folder(["k"], [value])
    if isinstance(value, str):
        with pytest.raises(PartitionError):
            partition_folders({"k": pa.array(["fine", None, value])})


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=60))
def test_every_text_comes_back_and_is_one_harmless_component(text: str) -> None:
    folder = partition_folder(["k"], [text])
    assert "\\" not in folder
    assert Path(folder).name == folder
    assert parse_hive_partition_path(f"{folder}/x.parquet") == {"k": text}


@pytest.mark.parametrize(
    ("array", "folder"),
    [
        (pa.array(["ü/=%", None, "a"], pa.dictionary(pa.int8(), pa.large_string())), "ü%2F%3D%25"),
        (pa.array([2**64 - 1, None], pa.uint64()), "18446744073709551615"),
        (pa.array([True, None]), "true"),
        (pa.array([0.1, None, 3e38], pa.float32()), "0.1"),
        (pa.array([100.0, None, 5e-324, 1e20]), "100.0"),
        (pa.array([dt.date(1, 1, 1), None], pa.date32()), "0001-01-01"),
        (pa.array([1_500_000, 0, None], pa.timestamp("us")), "1970-01-01 00%3A00%3A01.5"),
        (pa.array([0, 1, None], pa.timestamp("ns", "Europe/Berlin")), "1970-01-01 00%3A00%3A00Z"),
        (pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)), "1.50"),
        (pa.nulls(2), HIVE_NULL),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_values_of_every_type_come_back(array: pa.Array, folder: str) -> None:
    folders = encode_column(array).to_pylist()
    assert folders[0] == folder
    assert partition_folders({"a=b": array, "c": array}).to_pylist() == [f"a%3Db={f}/c={f}" for f in folders]
    decoded = [parse_hive_partition_path(f"k={each}/x.parquet")["k"] for each in folders]
    assert decoded == render(array).to_pylist()
    assert typed_values(decoded, array.type).to_pylist() == array.to_pylist()


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("01", pa.int8(), 1),
        ("2024-01-02 03:04:05+00", pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)),
        ("1.5", pa.decimal128(5, 2), Decimal("1.50")),
        ("300", pa.int8(), None),
        ("2024-01-02 03:04:05", pa.timestamp("us", "UTC"), None),
        ("2024-01-02 03:04:05.5", pa.timestamp("s"), None),
        ("1.555", pa.decimal128(5, 2), None),
        ("x", pa.list_(pa.string()), None),
    ],
    ids=str,
)
def test_texts_of_other_writers_are_read_or_an_error(text: str, type_: pa.DataType, value: object) -> None:
    if value is not None:
        assert typed_values([text, None], type_).to_pylist() == [value, None]
        return
    with pytest.raises(PartitionError, match="partition column 'day' cannot be read"):
        typed_values([text], type_, "day")


LAYOUT = ds.partitioning(pa.schema([("k", pa.string())]), flavor="hive")


def test_other_readers_find_odd_values(tmp_path: Path) -> None:
    expected = set(enumerate([*ODD, None]))
    for number, value in expected:
        folder = tmp_path / partition_folder(["k"], [value])
        folder.mkdir()
        pq.write_table(pa.table({"n": [number]}), folder / "x.parquet")
    table = ds.dataset(tmp_path, partitioning=LAYOUT, format="parquet").to_table()
    assert set(zip(table["n"].to_pylist(), table["k"].to_pylist(), strict=True)) == expected
    query = "select n, k from read_parquet(?, hive_partitioning=true, hive_types={'k': varchar})"
    assert set(duckdb.connect().execute(query, [f"{tmp_path}/*/*.parquet"]).fetchall()) == expected


def test_folders_of_other_writers_are_read(tmp_path: Path) -> None:
    values = [*ODD[:-2], None]
    odd = pa.table({"k": values, "n": range(len(values))})
    ds.write_dataset(odd, tmp_path / "pyarrow", format="parquet", partitioning=LAYOUT)
    duckdb.sql(f"copy odd to '{tmp_path}/duckdb' (format parquet, partition_by (k))")
    for writer in ("pyarrow", "duckdb"):
        files = [path.relative_to(tmp_path / writer).as_posix() for path in (tmp_path / writer).rglob("*.parquet")]
        assert {parse_hive_partition_path(file)["k"] for file in files} == set(values)
