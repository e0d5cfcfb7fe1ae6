"""Files of other writers: other libraries, old formats, unusual encodings. A merge treats them like its own."""

from __future__ import annotations

import datetime as dt
import json
import os
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from conformance.effort import for_each
from conformance.rows import bag, duckdb_rows, rows_of, second_reader
from fsspeckit.common.errors import DamagedFileError, PartitionError, SchemaMismatchError
from inside import (
    I32,
    I64,
    ChunkField,
    FileField,
    GroupField,
    MetaField,
    StatisticsField,
    Struct,
    read_struct,
    write_struct,
)
from installed import HAS_BLOOM_FILTERS, has_duckdb
from kit import contents, data_files, edit_footer, look, numbers, put, tree_of

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
    "spark flavour": _pyarrow(flavor="spark", use_deprecated_int96_timestamps=False),
    "format 1.0": _pyarrow(version="1.0"),
    "old list names": _pyarrow(use_compliant_nested_type=False),
    "delta encodings": _pyarrow(
        use_dictionary=False, column_encoding={"id": "DELTA_BYTE_ARRAY", "n": "DELTA_BINARY_PACKED"}
    ),
    "codec per column": _pyarrow(compression={"id": "zstd", "n": "none", "at": "gzip"}),
}
if has_duckdb("2.0"):  # older versions cannot read integers in this encoding
    WRITERS["byte stream split"] = _pyarrow(use_dictionary=False, column_encoding={"n": "BYTE_STREAM_SPLIT"})
if HAS_BLOOM_FILTERS:
    WRITERS["bloom filters"] = _pyarrow(bloom_filter_options={"id": {"ndv": 10}})


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.names_stay
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


@pytest.mark.names_stay
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
    update = pa.table({"id": pa.array([days[1]], pa.timestamp(source, "UTC")), "v": ["new"]})
    result = io.merge(update, str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated) == (0, 1)
    assert [row[1] for row in sorted(look(tmp_path / "d"))] == ["old", "new", "old"]


@pytest.mark.names_stay
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


def tell_no_rows(path: Path) -> None:
    """Write a footer like parquet-rs 0.3.0: its row count is zero, but its row groups have rows."""
    edit_footer(path, lambda tree: tree.update({FileField.rows: (I64, 0)}))


def test_a_footer_with_a_row_count_of_zero(io: Any, tmp_path: Path) -> None:
    """Every reader returns the rows of the row groups, so all operations count them."""
    for name in "abc":
        tell_no_rows(put(tmp_path / "d" / f"{name}.parquet", numbers([ord(name), 1, 2]), row_group_size=2))
    assert io.read_parquet(str(tmp_path / "d")).num_rows == 9
    compacted = io.compact_parquet_dataset(str(tmp_path / "d"), target_rows_per_file=100)
    assert (compacted["before_row_count"], compacted["after_row_count"]) == (9, 9)
    assert sorted(id_ for id_, _ in look(tmp_path / "d")) == sorted([97, 98, 99, 1, 1, 1, 2, 2, 2])


@pytest.mark.names_stay
def test_rows_that_a_footer_does_not_count_are_merged_and_deleted(io: Any, tmp_path: Path) -> None:
    path = put(tmp_path / "d" / "a.parquet", numbers([1, 2, 3]))
    tell_no_rows(path)
    updated = io.merge(numbers([2], "new"), str(tmp_path / "d"), strategy="update", key_columns=["id"])
    assert (updated.updated, updated.total, look(tmp_path / "d")) == (1, 3, [(1, "old"), (2, "new"), (3, "old")])
    tell_no_rows(path)
    full = io.merge(numbers([2], "newer"), str(tmp_path / "d"), strategy="full_merge", key_columns=["id"])
    assert (full.deleted, full.total, look(tmp_path / "d")) == (2, 1, [(2, "newer")])


CHANGES: dict[str, Callable[[Any, str], Any]] = {
    "read": lambda io, path: io.read_parquet(path),
    "append": lambda io, path: io.write_dataset(numbers([7]), path),
    "merge": lambda io, path: io.merge(numbers([1], "new"), path, **UPSERT),
    "compact": lambda io, path: io.compact_parquet_dataset(path, target_rows_per_file=100),
    "optimize": lambda io, path: io.optimize_parquet_dataset(path, zorder_columns=["id"]),
    "deduplicate": lambda io, path: io.deduplicate_parquet_dataset(path, key_columns=["id"]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@for_each("rows", [1, 7])
def test_a_footer_whose_row_count_differs_from_its_row_groups_is_damaged(
    io: Any, tmp_path: Path, change: Callable[[Any, str], Any], rows: int
) -> None:
    """A row group may be missing, and a rewrite would lose its rows."""
    path = put(tmp_path / "d" / "a.parquet", numbers([1, 2, 3]))
    edit_footer(path, lambda tree: tree.update({FileField.rows: (I64, rows)}))
    before = tree_of(tmp_path)
    with pytest.raises(DamagedFileError, match=rf"a\.parquet.*{rows} rows.*3"):
        change(io, str(tmp_path / "d"))
    assert tree_of(tmp_path) == before


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_row_group_with_fewer_rows_than_in_its_footer_is_damaged(
    io: Any, tmp_path: Path, change: Callable[[Any, str], Any]
) -> None:
    """The numbers in the footer are consistent, but the pages have fewer rows."""
    put(tmp_path / "d" / "b.parquet", numbers([1, 2, 3]))
    path = put(tmp_path / "d" / "a.parquet", numbers([1, 2, 3]))

    def add_a_row(tree: Struct) -> None:
        tree[FileField.rows] = (I64, 4)
        group = tree[FileField.groups][1][1][0]
        group[GroupField.rows] = (I64, 4)
        for chunk in group[GroupField.columns][1][1]:
            chunk[ChunkField.meta][1][MetaField.values] = (I64, 4)

    edit_footer(path, add_a_row)
    before = contents(tmp_path / "d")
    if change is CHANGES["append"]:
        return  # looks at no rows of the dataset
    with pytest.raises(DamagedFileError, match=r"a\.parquet"):
        change(io, str(tmp_path / "d"))
    assert contents(tmp_path / "d") == before


def test_bounds_that_contradict_each_other_prune_nothing(io: Any, tmp_path: Path) -> None:
    path = put(tmp_path / "d" / "a.parquet", numbers([1, 2, 3]))

    def swap(tree: Struct) -> None:
        chunk = tree[FileField.groups][1][1][0][GroupField.columns][1][1][0]
        stats = chunk[ChunkField.meta][1][MetaField.statistics][1]
        stats[StatisticsField.min], stats[StatisticsField.max] = stats[StatisticsField.max], stats[StatisticsField.min]

    edit_footer(path, swap)
    result = io.merge(numbers([2], "new"), str(tmp_path / "d"), **UPSERT)
    assert (result.inserted, result.updated) == (0, 1)


def test_the_older_lz4_is_read_and_rewritten_with_the_newer(
    io: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Hadoop writers use an LZ4 framing that current writers do not use."""
    for name in "ab":
        path = put(
            tmp_path / "d" / f"{name}.parquet", numbers([1, 2, 3], name), compression="none", use_dictionary=False
        )
        _as_hadoop_lz4(path)
    assert io.read_parquet(str(tmp_path / "d")).num_rows == 6
    io.merge(numbers([2], "new"), str(tmp_path / "d"), strategy="update", key_columns=["id"])
    assert "deprecated LZ4" in caplog.text
    assert {pq.read_metadata(file).row_group(0).column(1).compression for file in data_files(tmp_path / "d")} == {"LZ4"}
    io.compact_parquet_dataset(str(tmp_path / "d"), target_rows_per_file=100)
    assert look(tmp_path / "d") == [(1, "a"), (1, "b"), (2, "new"), (2, "new"), (3, "a"), (3, "b")]


def _as_hadoop_lz4(path: Path) -> None:
    """Compress the pages of an uncompressed file as Hadoop does: sizes in big-endian before each block."""
    data = path.read_bytes()
    out = bytearray(b"PAR1")

    def move(tree: Struct) -> None:
        for chunk in tree[FileField.groups][1][1][0][GroupField.columns][1][1]:
            meta = chunk[ChunkField.meta][1]
            header, begin = read_struct(data, meta[MetaField.data_offset][1])
            page = data[begin : begin + header[3][1]]
            block = pa.Codec("lz4_raw").compress(page, asbytes=True)
            body = len(page).to_bytes(4, "big") + len(block).to_bytes(4, "big") + block
            words = write_struct(
                {field: value for field, value in header.items() if field != 4} | {3: (I32, len(body))}
            )
            meta |= {
                MetaField.codec: (I32, 5),
                MetaField.data_offset: (I64, len(out)),
                MetaField.compressed_size: (I64, len(words) + len(body)),
            }
            out.extend(words + body)

    length = int.from_bytes(data[-8:-4], "little") + 8
    tree, _ = read_struct(data[-length:-8])
    move(tree)
    words = write_struct(tree)
    path.write_bytes(bytes(out) + words + len(words).to_bytes(4, "little") + b"PAR1")


HIVE_NAMES = ("000000_0", "000000_0_copy_1", "part-00000", "20261119_081500_00012_abcde_bucket-00000", "x.csv")


def _hive_lake(root: Path) -> None:
    """Files of Hive and Trino in two partitions, and what such a folder has besides."""
    for day, start in (("1", 0), ("2", 100)):
        for number, name in enumerate(HIVE_NAMES):
            put(root / f"day={day}" / name, numbers([start + number]))
    put(root / ".hive-staging_hive_1" / "-ext-10000" / "000000_0", numbers([0]))
    put(root / "_temporary" / "0" / "part-00000", numbers([0]))
    half = put(root / "day=1" / "000001_0", numbers([0])).read_bytes()
    (root / "day=1" / "000001_0").write_bytes(half[: len(half) // 2])
    (root / "_SUCCESS").touch()
    (root / "day=1" / ".000000_0.crc").write_bytes(b"crc\0")
    (root / "day=2" / "000002_0").touch()
    (root / "notes.txt").write_text("PAR1 at the start only, in a text of some length")


OTHERS = ["day=1/000001_0", "day=2/000002_0", "notes.txt"]


def test_parquet_files_without_an_ending_are_data_files(io: Any, tmp_path: Path) -> None:
    root, path = tmp_path / "d", str(tmp_path / "d")
    _hive_lake(root)
    found = fsspeckit.Dataset(path).inspect()
    assert (found["files"], found["rows"], list(found["other_files"])) == (10, 10, OTHERS)
    notes = [check.detail for check in fsspeckit.Dataset(path).doctor().checks if check.name == "other files"]
    assert len(notes) == 1
    assert all(name in notes[0] for name in OTHERS)
    others = {name: content for name, content in contents(root).items() if name in OTHERS}

    source = numbers([2, 50], "new", day=["1", "1"])
    result = io.merge(source, path, strategy="upsert", key_columns=["id"])
    assert (result.inserted, result.updated, len(result.rewritten_files)) == (1, 1, 1)
    assert io.delete(path, where="id IN (3, 103)").deleted == 2
    assert io.update(path, set={"v": "'set'"}, where="id = 104").updated == 1
    rows = [(0, "old"), (1, "old"), (2, "new"), (4, "old"), (50, "new"), *((n, "old") for n in (100, 101, 102))]
    rows.append((104, "set"))
    assert look(root) == sorted(rows, key=repr)
    assert sorted(io.read_parquet(path, columns=["id", "v"]).to_pylist(), key=repr) == [
        {"id": id_, "v": v} for id_, v in sorted(rows, key=repr)
    ]
    io.compact_parquet_dataset(path, target_rows_per_file=1000)
    assert len(data_files(root)) == 2
    assert look(root) == sorted(rows, key=repr)
    assert {name: content for name, content in contents(root).items() if name in OTHERS} == others


def test_versions_of_files_without_an_ending_are_kept(io: Any, tmp_path: Path) -> None:
    root, path = tmp_path / "d", str(tmp_path / "d")
    put(root / "000000_0", numbers([1, 2]))
    before = io.keep_history(path)
    io.delete(path, where="id = 1")
    assert look(root) == [(2, "old")]
    assert io.read_parquet(path, version=before).num_rows == 2
    io.restore(path, version=before)
    assert look(root) == [(1, "old"), (2, "old")]


def test_a_file_that_is_complete_now_is_looked_at_again(io: Any, tmp_path: Path) -> None:
    """Another program writes a file piece by piece; half of it is not a data file."""
    root, path = tmp_path / "d", str(tmp_path / "d")
    put(root / "a.parquet", numbers([1]))
    content = put(tmp_path / "x", numbers([2, 3])).read_bytes()
    (root / "000000_0").write_bytes(content[:-4] + b"????")
    os.utime(root / "000000_0", (1, 1))
    assert io.merge(numbers([1], "new"), path, **UPSERT).total == 1
    (root / "000000_0").write_bytes(content)
    result = io.merge(numbers([1, 2], "newer"), path, **UPSERT)
    assert (result.inserted, result.updated, result.total) == (0, 2, 3)


def test_an_encrypted_file_without_an_ending_is_an_error(io: Any, tmp_path: Path) -> None:
    path = put(tmp_path / "d" / "000000_0", numbers([1]))
    content = path.read_bytes()
    path.write_bytes(b"PARE" + content[4:-4] + b"PARE")
    with pytest.raises(OSError, match=r"000000_0.*encrypted"):
        io.merge(numbers([1]), str(tmp_path / "d"), **UPSERT)


def _two_spellings(root: Path) -> None:
    """Most files have `Name`; one has `name`, with a narrower type."""
    for number, id_ in enumerate((1, 2)):
        put(root / f"{number}.parquet", pa.table({"id": [id_], "Name": pa.array([10 * id_], pa.int64())}))
    put(root / "2.parquet", pa.table({"name": pa.array([30], pa.int32()), "id": [3]}))


REFUSED: dict[str, Callable[[Any, str], Any]] = CHANGES | {
    "merge": lambda io, path: io.merge(pa.table({"id": [1], "Name": [1]}), path, **UPSERT),
    "delete": lambda io, path: io.delete(path, where="id = 1"),
    "merge as a source": lambda io, path: io.merge(path, f"{path}-target", **UPSERT),
}
del REFUSED["append"]


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_columns_that_differ_only_in_case_are_refused(
    io: Any, tmp_path: Path, change: Callable[[Any, str], Any]
) -> None:
    _two_spellings(tmp_path / "d")
    before = tree_of(tmp_path)
    with pytest.raises(SchemaMismatchError, match=r"'Name' of 0.parquet and 'name' of 2.parquet differ only in case"):
        change(io, str(tmp_path / "d"))
    assert tree_of(tmp_path) == before


def test_columns_that_differ_only_in_case_are_joined(io: Any, tmp_path: Path) -> None:
    root, path = tmp_path / "d", str(tmp_path / "d")
    _two_spellings(root)
    both = io.read_parquet(path, columns=["id", "Name", "name"]).sort_by("id")
    assert both.to_pydict() == {"id": [1, 2, 3], "Name": [10, 20, None], "name": [None, None, 30]}
    assert sorted(io.read_parquet(path, columns=["id"], filters="id > 1")["id"].to_pylist()) == [2, 3]
    assert set(fsspeckit.Dataset(path).inspect()["schema"]) == {"id", "Name", "name"}

    joining = {"target_rows_per_file": 1, "columns_ignore_case": True}
    plan = io.compact_parquet_dataset(path, dry_run=True, **joining)
    assert [[name.rpartition("/")[2] for name in group] for group in plan["planned_groups"]] == [["2.parquet"]]
    result = io.compact_parquet_dataset(path, **joining)
    assert (result["compacted_file_count"], result["after_row_count"]) == (1, 3)
    assert {name for file in data_files(root) for name in pq.read_schema(file).names} == {"id", "Name"}
    rows = io.read_parquet(path).sort_by("id")
    assert rows.to_pydict() == {"id": [1, 2, 3], "Name": [10, 20, 30]}
    assert bag(duckdb_rows(data_files(root), ["id", "Name"])) == bag(rows_of(rows))
    assert io.compact_parquet_dataset(path, **joining)["compacted_file_count"] == 0


def test_two_columns_of_one_file_that_differ_only_in_case_stay_two(io: Any, tmp_path: Path) -> None:
    root, path = tmp_path / "d", str(tmp_path / "d")
    put(root / "a.parquet", pa.table({"id": [1], "Name": ["a"], "name": ["b"]}))
    put(root / "b.parquet", pa.table({"id": [2], "name": ["c"]}))
    io.compact_parquet_dataset(path, target_rows_per_file=10, columns_ignore_case=True)
    rows = io.read_parquet(path).sort_by("id").to_pydict()
    assert rows == {"id": [1, 2], "Name": ["a", None], "name": ["b", "c"]}
    put(root / "b.parquet", pa.table({"id": [3], "NAME": ["d"]}).slice(0, 0))
    io.compact_parquet_dataset(path, target_rows_per_file=10)
    assert io.read_parquet(path).column_names == ["id", "Name", "name"], "a file without rows adds no column"
    put(root / "c.parquet", pa.table({"id": [3], "NAME": ["d"]}))
    with pytest.raises(SchemaMismatchError, match=r"'NAME' of c\.parquet .*Rename one"):
        io.compact_parquet_dataset(path, target_rows_per_file=10, columns_ignore_case=True)


GEO = {
    "version": "1.1.0",
    "primary_column": "geometry",
    "columns": {
        "geometry": {
            "encoding": "WKB",
            "crs": {"id": {"authority": "EPSG", "code": 25832}, "name": "ETRS89 / UTM zone 32N"},
            "geometry_types": ["Point"],
            "bbox": [0.0, 0.0, 1.0, 1.0],
            "edges": "planar",
        }
    },
}


def _places(ids: list[int], crs: int = 25832) -> pa.Table:
    """A table as geopandas writes it: geometries as WKB, and metadata of GeoParquet and of pandas."""
    points = [b"\x01\x01\0\0\0" + struct.pack("<dd", id_, id_) for id_ in ids]
    geo = json.loads(json.dumps(GEO))
    geo["columns"]["geometry"]["crs"]["id"]["code"] = crs
    kinds = pd.Categorical(["a"] * len(ids))
    frame = pd.DataFrame({"id": ids, "geometry": points, "v": ["old"] * len(ids), "kind": kinds})
    table = pa.Table.from_pandas(frame)
    return table.replace_schema_metadata({**table.schema.metadata, b"geo": json.dumps(geo).encode()})


OF_ROWS: dict[str, Callable[[Any, str], Any]] = {
    "update of one row group": lambda io, path: io.update(path, set={"v": "'new'"}, where="id = 1"),
    "update of all row groups": lambda io, path: io.update(path, set={"v": "'new'"}, where="id < 9"),
    "delete": lambda io, path: io.delete(path, where="id IN (1, 4)"),
    "insert": lambda io, path: io.merge(_places([50]), path, **UPSERT),
    "compact": lambda io, path: io.compact_parquet_dataset(path, target_rows_per_file=100),
    "optimize": lambda io, path: io.optimize_parquet_dataset(path, zorder_columns=["id"], target_rows_per_file=100),
}


@pytest.mark.parametrize("change", OF_ROWS.values(), ids=OF_ROWS)
def test_metadata_that_describes_rows_is_not_kept(io: Any, tmp_path: Path, change: Callable[[Any, str], Any]) -> None:
    root, path = tmp_path / "d", str(tmp_path / "d")
    for number, ids in enumerate(([0, 1, 2, 3], [4, 5, 6, 7])):
        put(root / f"{number}.parquet", _places(ids), row_group_size=2)
    before = contents(root)
    change(io, path)
    changed = [file for file in data_files(root) if before.get(file.name) != file.read_bytes()]
    assert changed
    for file in changed:
        for metadata in (pq.read_schema(file).metadata, pq.read_metadata(file).metadata):
            (column,) = json.loads(metadata[b"geo"])["columns"].values()
            expected = GEO["columns"]["geometry"] | {"geometry_types": []}
            assert column == {key: value for key, value in expected.items() if key != "bbox"}
            pandas = json.loads(metadata[b"pandas"])
            assert pandas["index_columns"] == []
            assert pandas["columns"][3]["metadata"]["num_categories"] == 2**15, "fastparquet cuts codes of fewer off"
        assert pd.read_parquet(file).index.equals(pd.RangeIndex(pq.read_metadata(file).num_rows))


def test_geometries_in_different_coordinate_systems_are_not_joined(io: Any, tmp_path: Path) -> None:
    root, path = tmp_path / "d", str(tmp_path / "d")
    put(root / "0.parquet", _places([0]))
    put(root / "1.parquet", _places([1], crs=4326))
    before = tree_of(tmp_path)
    for name in ("compact", "optimize"):
        with pytest.raises(SchemaMismatchError, match=r"`geo` of .*0\.parquet.* 'geometry' differently"):
            OF_ROWS[name](io, path)
    assert tree_of(tmp_path) == before


def test_a_folder_with_an_empty_value_concerns_only_its_own_rows(io: Any, tmp_path: Path) -> None:
    """Readers have an empty text there; Spark refuses the folder, so no row is written to it."""
    root, path = tmp_path / "d", str(tmp_path / "d")
    for number, folder in enumerate(("p=", "p=a", "p=__HIVE_DEFAULT_PARTITION__")):
        put(root / folder / "a.parquet", numbers([number]))
        put(root / folder / "b.parquet", numbers([number + 10]))
    source = pa.table({"id": [1, 2, 5], "v": ["new"] * 3, "p": ["a", None, "b"]})
    result = io.merge(source, path, **UPSERT)
    assert (result.inserted, result.updated) == (1, 2)
    with pytest.raises(PartitionError, match=r"'p'.*''"):
        io.merge(source.set_column(2, "p", [["a", None, ""]]), path, **UPSERT)
    moved = pa.table({"id": [10], "v": ["moved"], "p": ["a"]})
    with pytest.raises(PartitionError, match=r"p=/b\.parquet"):
        io.merge(moved, path, **UPSERT)
    io.merge(moved, path, partition_move="move", **UPSERT)
    assert io.update(path, set={"v": "'set'"}, where="p = ''").updated == 1
    io.compact_parquet_dataset(path, target_rows_per_file=10)
    rows = [(0, "set", ""), (1, "new", "a"), (2, "new", None), (5, "new", "b"), (10, "moved", "a")]
    rows += [(11, "old", "a"), (12, "old", None)]
    assert sorted(map(tuple, (row.values() for row in io.read_parquet(path).to_pylist()))) == rows
    with pytest.raises(PartitionError, match="the folder p= has an empty text"):
        io.export(path, "delta")
    assert not (root / "_delta_log").exists()
    assert io.delete(path, where="p = ''").deleted == 1
    assert not (root / "p=").exists()
    io.export(path, "delta")
