"""Files that others wrote: other libraries, old formats, unusual encodings. A merge treats them like its own."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conformance.builders import look, put
from conformance.rows import bag, duckdb_rows, rows_of, second_reader
from conformance.tree import data_files

UPSERT: dict[str, Any] = {"strategy": "upsert", "key_columns": ["id"]}
OLD = pa.table(
    {
        "id": ["a", "b", "c" * 100],
        "n": pa.array([1, None, 3], pa.int64()),
        "at": pa.array([dt.datetime(2024, 1, 1), None, dt.datetime(1969, 12, 31)], pa.timestamp("us")),  # noqa: DTZ001
        "tags": pa.array([["x"], [], None], pa.list_(pa.string())),
    }
)
NEW = OLD.slice(1, 2).set_column(1, "n", pa.array([20, 30], pa.int64()))


def _polars(path: Path) -> None:
    pl.DataFrame(pl.from_arrow(OLD)).write_parquet(path)


def _duckdb(path: Path) -> None:
    second_reader().register("old", OLD)
    second_reader().sql(f"copy (select * from old) to '{path}' (format parquet)")


def _pyarrow(**options: Any) -> Callable[[Path], None]:
    return lambda path: pq.write_table(OLD, path, **options)


WRITERS: dict[str, Callable[[Path], None]] = {
    "polars": _polars,
    "duckdb": _duckdb,
    "no arrow schema": _pyarrow(store_schema=False),
    "spark flavour": _pyarrow(flavor="spark"),
    "int96": _pyarrow(use_deprecated_int96_timestamps=True),
    "format 1.0": _pyarrow(version="1.0"),
    "old list names": _pyarrow(use_compliant_nested_type=False),
    "delta encodings": _pyarrow(
        use_dictionary=False, column_encoding={"id": "DELTA_BYTE_ARRAY", "n": "DELTA_BINARY_PACKED"}
    ),
    "byte stream split": _pyarrow(use_dictionary=False, column_encoding={"n": "BYTE_STREAM_SPLIT"}),
    "bloom filters": _pyarrow(bloom_filter_options={"id": {"ndv": 10}}),
    "codec per column": _pyarrow(compression={"id": "zstd", "n": "none", "at": "gzip"}),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_of_another_writer(io: Any, tmp_path: Path, writer: str) -> None:
    (tmp_path / "d").mkdir()
    path = tmp_path / "d" / "a.parquet"
    WRITERS[writer](path)
    before = pq.read_schema(path)
    result = io.merge(NEW, str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated, result.unchanged) == (0, 2, 0)
    expected = [*rows_of(OLD)[:1], *rows_of(NEW)]
    assert rows_of(pq.read_table(path)) == expected
    assert duckdb_rows([path], OLD.column_names) == expected
    assert pq.read_schema(path).equals(before, check_metadata=False)
    again = io.merge(NEW, str(tmp_path / "d"), **UPSERT)
    assert (again.updated, again.unchanged, again.rewritten_files) == (2, 2, [])


def test_a_codec_per_column_is_kept(io: Any, tmp_path: Path) -> None:
    path = put(tmp_path / "d" / "a.parquet", OLD, compression={"id": "zstd", "n": "none", "at": "gzip"})
    before = [pq.read_metadata(path).row_group(0).column(i).compression for i in range(3)]
    io.merge(NEW, str(tmp_path / "d"), **UPSERT)
    assert [pq.read_metadata(path).row_group(0).column(i).compression for i in range(3)] == before


def test_one_dataset_of_many_writers(io: Any, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for i, writer in enumerate(WRITERS.values()):
        writer(tmp_path / "d" / f"{i}.parquet")
    more = NEW.set_column(0, "id", pa.array(["b", "zz"]))
    result = io.merge(more, str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated) == (1, len(WRITERS))
    expected = [row for _ in WRITERS for row in (rows_of(OLD)[0], rows_of(more)[0], rows_of(OLD)[2])]
    expected.append(rows_of(more)[1])
    assert bag(duckdb_rows(data_files(tmp_path / "d"), OLD.column_names)) == bag(expected)
    assert bag(rows_of(io.read_parquet(str(tmp_path / "d")))) == bag(expected)


@pytest.mark.parametrize("source", ["us", "ns", "ms"])
def test_int96_timestamps_as_keys(io: Any, tmp_path: Path, source: str) -> None:
    """Their statistics are in no useful order, and old writers have none at all."""
    days = [dt.datetime(2024, 1, day) for day in (1, 2, 3)]  # noqa: DTZ001
    table = pa.table({"id": pa.array(days, pa.timestamp("ns")), "v": ["old"] * 3})
    put(tmp_path / "d" / "a.parquet", table, use_deprecated_int96_timestamps=True)
    update = pa.table({"id": pa.array([days[1]], pa.timestamp(source)), "v": ["new"]})
    result = io.merge(update, str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated) == (0, 1)
    assert [row[1] for row in sorted(look(tmp_path / "d"))] == ["old", "new", "old"]


def test_decimals_stored_as_integers(io: Any, tmp_path: Path) -> None:
    table = pa.table({"id": pa.array([Decimal("1.50"), Decimal("-2.25")], pa.decimal128(9, 2)), "v": ["old"] * 2})
    put(tmp_path / "d" / "a.parquet", table, store_decimal_as_integer=True)
    update = pa.table({"id": pa.array([Decimal("-2.25")], pa.decimal128(5, 2)), "v": ["new"]})
    result = io.merge(update, str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated) == (0, 1)
    assert pq.read_schema(tmp_path / "d" / "a.parquet").field("id").type == pa.decimal128(9, 2)


def test_unsigned_keys_in_an_old_file(io: Any, tmp_path: Path) -> None:
    """Format 1.0 has no unsigned 32-bit integers and stores them as int64."""
    table = pa.table({"id": pa.array([1, 2**32 - 1], pa.uint32()), "v": ["old"] * 2})
    put(tmp_path / "d" / "a.parquet", table, version="1.0")
    update = pa.table({"id": pa.array([2**32 - 1], pa.uint32()), "v": ["new"]})
    result = io.merge(update, str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated) == (0, 1)


@pytest.mark.parametrize("kind", ["uuid", "json", "bool8"])
def test_extension_types_as_values(io: Any, tmp_path: Path, kind: str) -> None:
    make: dict[str, tuple[pa.DataType, list[Any]]] = {
        "uuid": (pa.uuid(), [b"a" * 16, None, b"b" * 16]),
        "json": (pa.json_(), ['{"a": 1}', None, "[]"]),
        "bool8": (pa.bool8(), [1, None, 0]),
    }
    type_, values = make[kind]
    column = pa.ExtensionArray.from_storage(type_, pa.array(values, type_.storage_type))
    put(tmp_path / "d" / "a.parquet", pa.table({"id": [1, 2, 3], "x": column}))
    source = pa.table({"id": [2, 9], "x": pa.concat_arrays([column[2:], column[1:2]])})
    result = io.merge(source, str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated) == (1, 1)
    read = io.read_parquet(str(tmp_path / "d")).sort_by("id")
    assert read.schema.field("x").type == type_
    assert [v.value.as_py() if v.is_valid else None for v in read["x"]] == [values[0], values[2], values[2], None]
