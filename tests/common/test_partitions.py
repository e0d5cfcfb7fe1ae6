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
    encode_value,
    parse_hive_partition_path,
    partition_folder,
    partition_folders,
    partition_type,
    render,
    typed_values,
)

ODD = [
    "plain",
    " leading",
    "trailing ",
    "in side",
    "ü",
    "e\u0301",
    "😀",
    "a%b",
    "%41",
    "a=b",
    ".",
    "..",
    "../up",
    "a/b",
    "/",
    "a\\b",
    "it's",
    '"quoted"',
    "a:b#c?d*e",
    "{x}[y]^",
    "tab\tnew\nline",
    "\x01\x7f",
    "a+b",
    "a&b;c,d|e<f>",
    "01",
    "-0",
    "null",
    "NULL",
    "~",
    "_under",
    "x" * 250,
    "ü" * 125,
]


@pytest.mark.scenario("UP-45")
class TestParse:
    def test_the_example_of_the_specification(self) -> None:
        parsed = parse_hive_partition_path("/data/year=2024/month=12/file.parquet")
        assert parsed == {"year": "2024", "month": "12"}

    @pytest.mark.parametrize(
        ("path", "values"),
        [
            ("file.parquet", {}),
            ("a/b/file.parquet", {}),
            ("day=1/sub/file.parquet", {"day": "1"}),
            ("day=1/x=2.parquet", {"day": "1"}),
            ("s3://bucket/t/day=1/x.parquet", {"day": "1"}),
            ("day=01/x.parquet", {"day": "01"}),
            ("k=a=b/x.parquet", {"k": "a=b"}),
            ("k=a%2Fb%20c/x.parquet", {"k": "a/b c"}),
            ("k=%C3%BC/x.parquet", {"k": "ü"}),
            ("k=ü/x.parquet", {"k": "ü"}),
            ("k=100%/x.parquet", {"k": "100%"}),
            ("k=a+b/x.parquet", {"k": "a+b"}),
            (f"k={HIVE_NULL}/x.parquet", {"k": None}),
            ("k=/x.parquet", {"k": ""}),
            ("=v/x.parquet", {}),
            ("a%3Db=1/x.parquet", {"a=b": "1"}),
            ("k=1/k=1/x.parquet", {"k": "1"}),
        ],
    )
    def test_folders_become_texts(self, path: str, values: dict[str, str | None]) -> None:
        assert parse_hive_partition_path(path) == values

    def test_columns_choose_and_order_and_a_missing_one_is_left_out(self) -> None:
        path = "year=2024/month=12/x.parquet"
        assert list(parse_hive_partition_path(path, ["month", "year"])) == ["month", "year"]
        assert parse_hive_partition_path(path, ["month", "day"]) == {"month": "12"}

    def test_one_column_with_two_values_is_refused(self) -> None:
        with pytest.raises(PartitionError, match="'k'"):
            parse_hive_partition_path("k=1/k=2/x.parquet")

    def test_a_percent_code_that_is_no_text_is_refused(self) -> None:
        with pytest.raises(PartitionError, match="UTF-8"):
            parse_hive_partition_path("k=%FF/x.parquet")


class TestEncode:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (None, HIVE_NULL),
            ("ü/ö", "ü%2Fö"),
            ("a=b%", "a%3Db%25"),
            (" a ", " a "),
            (7, "7"),
            (-7, "-7"),
            (True, "true"),
            (False, "false"),
            (1.5, "1.5"),
            (100.0, "100.0"),
            (-0.0, "0.0"),
            (float("nan"), "nan"),
            (dt.date(2024, 2, 29), "2024-02-29"),
            (dt.datetime(2024, 2, 29, 1, 2, 3), "2024-02-29 01%3A02%3A03"),  # noqa: DTZ001 - no zone is meant
            (dt.datetime(2024, 2, 29, 1, 2, 3, 500_000, dt.UTC), "2024-02-29 01%3A02%3A03.5Z"),
            (Decimal("1.50"), "1.50"),
            (Decimal("1E-10"), "0.0000000001"),
        ],
        ids=str,
    )
    def test_values_become_folder_text(self, value: object, text: str) -> None:
        assert encode_value(value) == text

    @pytest.mark.parametrize(
        "value", ["", "a\0b", HIVE_NULL, b"bytes", [1], dt.time(1), dt.timedelta(1), {"a": 1}], ids=repr
    )
    def test_what_could_not_be_read_back_is_refused(self, value: object) -> None:
        with pytest.raises(PartitionError):
            partition_folder(["k"], [value])

    def test_a_folder_no_file_system_takes_is_refused(self) -> None:
        assert partition_folder(["k"], ["x" * 253]) == "k=" + "x" * 253
        for value in ("x" * 254, "ü" * 127, "/" * 85):
            with pytest.raises(PartitionError, match="255"):
                partition_folder(["k"], [value])
            with pytest.raises(PartitionError, match="255"):
                partition_folders(pa.table({"k": [value]}))

    def test_names_are_encoded_too(self) -> None:
        folder = partition_folder(["a=b", "c/d"], [1, 2])
        assert folder == "a%3Db=1/c%2Fd=2"
        assert parse_hive_partition_path(f"{folder}/x.parquet") == {"a=b": "1", "c/d": "2"}
        with pytest.raises(PartitionError):
            partition_folder([""], [1])

    def test_as_many_values_as_names(self) -> None:
        with pytest.raises(ValueError, match="zip"):
            partition_folder(["a"], [1, 2])

    @given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=60))
    def test_every_text_comes_back_and_is_one_harmless_component(self, text: str) -> None:
        folder = partition_folder(["k"], [text])
        assert "/" not in folder
        assert "\\" not in folder
        assert Path(folder).name == folder
        assert parse_hive_partition_path(f"{folder}/x.parquet") == {"k": text}


class TestColumns:
    @pytest.mark.parametrize(
        "array",
        [
            pa.array(["a", None, "b/c", "a"]),
            pa.array(["a", None], pa.string_view()),
            pa.array(["a", None, "a"], pa.dictionary(pa.int8(), pa.large_string())),
            pa.chunked_array([["x"], [None, "y"]]),
            pa.chunked_array([], pa.string()),
            pa.array([1, None, 2**64 - 1], pa.uint64()),
            pa.array([True, None]),
            pa.array([0.1, None, 3e38], pa.float32()),
            pa.array([0.1, None, 5e-324, 1e20]),
            pa.array([dt.date(1, 1, 1), None], pa.date32()),
            pa.array([dt.date(2024, 1, 1), None], pa.date64()),
            pa.array([0, 1, 1_500_000, None], pa.timestamp("us")),
            pa.array([0, 1, None], pa.timestamp("ns", "Europe/Berlin")),
            pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
            pa.array([Decimal("1.50"), None], pa.decimal32(5, 2)),
            pa.array([Decimal("1200"), None], pa.decimal256(60, 0)),
            pa.nulls(2),
        ],
        ids=lambda array: str(array.type),
    )
    def test_whole_columns_encode_like_single_values_and_come_back(self, array: pa.Array | pa.ChunkedArray) -> None:
        folders = encode_column(array).to_pylist()
        assert len(folders) == len(array)
        decoded = [parse_hive_partition_path(f"k={folder}/x.parquet")["k"] for folder in folders]
        assert decoded == render(array).to_pylist()
        assert typed_values(decoded, array.type).to_pylist() == array.to_pylist()

    def test_several_columns_become_one_folder_a_row(self) -> None:
        table = pa.table({"year": [2024, 2024, None], "city": ["Köln", "a/b", "x"], "ok": [True, None, False]})
        rows = [tuple(row.values()) for row in table.to_pylist()]
        assert partition_folders(table).to_pylist() == [partition_folder(table.column_names, row) for row in rows]
        assert partition_folders({"k": pa.array([], pa.string())}).to_pylist() == []
        with pytest.raises(ValueError, match="at least one"):
            partition_folders({})

    def test_one_moment_is_one_folder_whatever_its_unit(self) -> None:
        units = [
            pa.array([5 * 10**power], pa.timestamp(unit)) for unit, power in (("s", 0), ("ms", 3), ("us", 6), ("ns", 9))
        ]
        assert {encode_column(array)[0].as_py() for array in units} == {"1970-01-01 00%3A00%3A05"}

    @pytest.mark.parametrize("bad", ["", HIVE_NULL, "a\0"])
    def test_one_bad_value_refuses_the_column(self, bad: str) -> None:
        with pytest.raises(PartitionError):
            encode_column(pa.array(["fine", None, bad]))


class TestTypes:
    @pytest.mark.parametrize(
        ("texts", "type_"),
        [
            (["1", None, "-5"], pa.int64()),
            (["01", "2"], pa.string()),
            (["9223372036854775807"], pa.int64()),
            (["9223372036854775808"], pa.string()),
            (["1", "x"], pa.string()),
            (["1.0"], pa.string()),
            ([""], pa.string()),
            ([None], pa.string()),
            ([], pa.string()),
        ],
        ids=str,
    )
    def test_only_canonical_integers_are_numbers(self, texts: list[str | None], type_: pa.DataType) -> None:
        assert partition_type(texts) == type_

    @pytest.mark.parametrize(
        ("text", "type_", "value"),
        [
            ("01", pa.int8(), 1),
            ("2024-01-02 03:04:05+00", pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)),
            ("2024-01-02", pa.date64(), dt.date(2024, 1, 2)),
            ("1.5", pa.decimal128(5, 2), Decimal("1.50")),
            ("x", pa.dictionary(pa.int32(), pa.string()), "x"),
            ("7", pa.string(), "7"),
        ],
        ids=str,
    )
    def test_texts_of_other_writers_are_read(self, text: str, type_: pa.DataType, value: object) -> None:
        array = typed_values([text, None], type_)
        assert array.type == type_
        assert array.to_pylist() == [value, None]

    @pytest.mark.parametrize(
        ("text", "type_"),
        [
            ("x", pa.int64()),
            ("300", pa.int8()),
            ("1.6", pa.int64()),
            ("2024-13-01", pa.date32()),
            ("2024-01-02 03:04:05", pa.timestamp("us", "UTC")),
            ("2024-01-02 03:04:05.5", pa.timestamp("s")),
            ("1.555", pa.decimal128(5, 2)),
            ("maybe", pa.bool_()),
            ("x", pa.list_(pa.string())),
        ],
        ids=str,
    )
    def test_a_text_that_cannot_be_read_is_an_error(self, text: str, type_: pa.DataType) -> None:
        with pytest.raises(PartitionError, match="cannot be read"):
            typed_values([text], type_)
        with pytest.raises(PartitionError, match="partition column 'day' cannot be read"):
            typed_values([text], type_, "day")


@pytest.fixture
def odd_dataset(tmp_path: Path) -> Path:
    for number, value in enumerate([*ODD, None]):
        folder = tmp_path / partition_folder(["k"], [value])
        folder.mkdir()
        pq.write_table(pa.table({"n": [number]}), folder / "x.parquet")
    return tmp_path


def _expected() -> set[tuple[int, str | None]]:
    return set(enumerate([*ODD, None]))


def test_our_parser_reads_odd_values_from_a_real_disk(odd_dataset: Path) -> None:
    files = [path.relative_to(odd_dataset).as_posix() for path in odd_dataset.rglob("*.parquet")]
    found = {
        (pq.read_table(odd_dataset / file, partitioning=None)["n"][0].as_py(), parse_hive_partition_path(file)["k"])
        for file in files
    }
    assert found == _expected()


def test_pyarrow_reads_odd_values(odd_dataset: Path) -> None:
    layout = ds.partitioning(pa.schema([("k", pa.string())]), flavor="hive")
    table = ds.dataset(odd_dataset, partitioning=layout, format="parquet").to_table()
    assert set(zip(table["n"].to_pylist(), table["k"].to_pylist(), strict=True)) == _expected()


def test_duckdb_reads_odd_values(odd_dataset: Path) -> None:
    query = "select n, k from read_parquet(?, hive_partitioning=true, hive_types={'k': varchar})"
    rows = duckdb.connect().execute(query, [f"{odd_dataset}/*/*.parquet"]).fetchall()
    assert set(rows) == _expected()


def test_folders_that_pyarrow_wrote_are_read(tmp_path: Path) -> None:
    layout = ds.partitioning(pa.schema([("k", pa.string())]), flavor="hive")
    values = [*ODD[:-2], None]
    ds.write_dataset(pa.table({"k": values}), tmp_path, format="parquet", partitioning=layout)
    files = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.parquet")]
    assert {parse_hive_partition_path(file)["k"] for file in files} == set(values)


def test_folders_that_duckdb_wrote_are_read(tmp_path: Path) -> None:
    values = [*ODD[:-2], None]
    connection = duckdb.connect()
    connection.register("odd", pa.table({"k": values, "n": range(len(values))}))
    connection.execute(f"copy odd to '{tmp_path}/out' (format parquet, partition_by (k))")
    files = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.parquet")]
    assert {parse_hive_partition_path(file)["k"] for file in files} == set(values)
