"""Reading, and which files are data files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from conformance.effort import for_each
from fsspeckit import FilterError, SchemaMismatchError
from kit import by_day, numbers, put, three_files


def ids(table: pa.Table) -> list[int]:
    return sorted(table["id"].to_pylist())


def test_columns_and_filters(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    path = str(tmp_path / "d")
    assert io.read_parquet(path, columns=["v"]).column_names == ["v"]
    assert ids(io.read_parquet(path, filters=pc.field("id") > 27)) == [28, 29]
    assert ids(io.read_parquet(path, filters=[("id", ">", 27)])) == [28, 29]
    assert ids(io.read_parquet(path, filters=[[("id", "=", 3)], [("id", "in", [8, 15]), ("v", "=", "old")]])) == [
        3,
        8,
        15,
    ]
    only = io.read_parquet(path, columns=["v"], filters=pc.field("id") == 4)
    assert only.to_pylist() == [{"v": "old"}]


def test_filters_on_partition_columns(io: Any, tmp_path: Path) -> None:
    by_day(tmp_path / "d", mon=[1, 2], tue=[3])
    read = io.read_parquet(str(tmp_path / "d"), filters=pc.field("day") == "tue")
    assert read.to_pylist() == [{"id": 3, "v": "old", "day": "tue"}]
    assert io.read_parquet(str(tmp_path / "d"), columns=["day"]).column_names == ["day"]


def test_filters_beside_uuids_in_lists_structs_and_maps(io: Any, tmp_path: Path) -> None:
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes([n] * 16) for n in range(3)], pa.binary(16)))
    offsets = pa.array([0, 1, 2, 3], pa.int32())
    rows = {
        "id": pa.array([1, 2, 3]),
        "u": uuids,
        "s": pa.StructArray.from_arrays([uuids, pa.array([1, 2, 3])], names=["u", "n"]),
        "l": pa.ListArray.from_arrays(offsets, uuids),
        "m": pa.MapArray.from_arrays(offsets, pa.array(["a", "b", "c"]), uuids),
    }
    put(tmp_path / "d" / "a.parquet", pa.table(rows))
    whole = io.read_parquet(str(tmp_path / "d"))
    for filters in (pc.field("id") > 1, [("id", ">", 1)], pc.field("s", "n") > 1):
        assert io.read_parquet(str(tmp_path / "d"), filters=filters).equals(whole.slice(1))
    assert io.read_parquet(str(tmp_path / "d"), filters=pc.field("id") > 9).schema.equals(whole.schema)


BAD = {
    "column": pc.field("nope") > 1,
    "operator": [("id", "~", 1)],
    "type": [("id", ">", "x")],
    "uuid": [("u", "=", b"")],
    "empty": [],
    "number": 7,
}


@for_each("what", BAD)
def test_invalid_filters(io: Any, tmp_path: Path, what: str) -> None:
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16)))
    put(tmp_path / "d" / "a.parquet", pa.table({"id": pa.array([1]), "u": uuids}))
    with pytest.raises(FilterError, match=r"\. Pass "):
        io.read_parquet(str(tmp_path / "d"), filters=BAD[what])


def test_timestamps_of_two_units(io: Any, tmp_path: Path) -> None:
    second, year_one = 1_000_000, -62_135_596_800 * 1_000_000
    put(tmp_path / "d" / "a.parquet", pa.table({"id": [1], "t": pa.array([second], pa.timestamp("us"))}))
    put(tmp_path / "d" / "b.parquet", pa.table({"id": [2], "t": pa.array([second * 1000], pa.timestamp("ns"))}))
    read = io.read_parquet(str(tmp_path / "d"))
    assert read["t"].cast(pa.timestamp("us")).cast(pa.int64()).to_pylist() == [second, second]
    put(tmp_path / "d" / "a.parquet", pa.table({"id": [1], "t": pa.array([year_one], pa.timestamp("us"))}))
    with pytest.raises(SchemaMismatchError, match=r"a\.parquet: column 't' cannot be cast .* leave the column out"):
        io.read_parquet(str(tmp_path / "d"))
    assert ids(io.read_parquet(str(tmp_path / "d"), columns=["id"])) == [1, 2]


@pytest.mark.scenario("UP-59")
@pytest.mark.parametrize("columns", [None, ["id"]])
def test_file_path_is_a_string_column(io: Any, tmp_path: Path, columns: list[str] | None) -> None:
    files = three_files(tmp_path / "d")
    read = io.read_parquet(str(tmp_path / "d"), columns=columns, include_file_path=True)
    assert read.schema.field("file_path").type == pa.string()
    paths = {row["id"]: row["file_path"] for row in read.to_pylist()}
    assert len(read) == 30
    assert (paths[3], paths[14], paths[29]) == tuple(str(path) for path in files)


@pytest.mark.scenario("UP-60")
@pytest.mark.parametrize("use_threads", [True, False])
def test_threads_do_not_change_the_result(io: Any, tmp_path: Path, use_threads: bool) -> None:
    three_files(tmp_path / "d")
    read = io.read_parquet(str(tmp_path / "d"), use_threads=use_threads)
    assert read["id"].to_pylist() == list(range(30))


@for_each("name", ["a.parquet", "a.PARQUET", "a.parq", "a.pq", "a.Pq", "_p=1/a.parquet"])
def test_names_that_are_data(io: Any, tmp_path: Path, name: str) -> None:
    put(tmp_path / "d" / "first.parquet" if "=" not in name else tmp_path / "d" / "_p=0" / "f.parquet", numbers([1]))
    put(tmp_path / "d" / name, numbers([2]))
    assert ids(io.read_parquet(str(tmp_path / "d"))) == [1, 2]
    source = numbers([2], "new", **({"_p": [1]} if "=" in name else {}))
    assert io.merge(source, str(tmp_path / "d"), strategy="update", key_columns=["id"]).updated == 1


NOT_DATA = [
    "_a.parquet", ".a.parquet", "_temporary/a.parquet", ".hidden/a.parquet", "sub/_a.parquet",
    "_temporary/0/day=1/a.parquet", "_SUCCESS", "a.parquet.crc",
]  # fmt: skip


@for_each("name", NOT_DATA)
def test_names_that_are_not_data(io: Any, tmp_path: Path, name: str) -> None:
    put(tmp_path / "d" / "first.parquet", numbers([1]))
    strange = put(tmp_path / "d" / name, numbers([2]))
    content = strange.read_bytes()
    assert ids(io.read_parquet(str(tmp_path / "d"))) == [1]
    result = io.merge(numbers([1, 2], "new"), str(tmp_path / "d"), strategy="full_merge", key_columns=["id"])
    assert (result.inserted, result.updated) == (1, 1)
    io.write_dataset(numbers([5]), str(tmp_path / "d"), mode="overwrite")
    assert strange.read_bytes() == content


@pytest.mark.names_stay
def test_hadoop_checksum_files_are_removed_with_their_file(io: Any, tmp_path: Path) -> None:
    """With a stale .crc file, Spark would not read a rewritten file."""
    put(tmp_path / "d" / "a.parquet", numbers([1]))
    put(tmp_path / "d" / "b.parquet", numbers([100]))
    for name in "ab":
        (tmp_path / "d" / f".{name}.parquet.crc").write_bytes(b"crc")
    io.merge(numbers([1], "new"), str(tmp_path / "d"), strategy="update", key_columns=["id"])
    left = sorted(path.name for path in (tmp_path / "d").iterdir())
    assert left == [".b.parquet.crc", "a.parquet", "b.parquet"]


def test_an_empty_dataset_reads_as_empty(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", numbers([]))
    read = io.read_parquet(str(tmp_path / "d"))
    assert (read.num_rows, read.column_names) == (0, ["id", "v"])


@pytest.mark.parametrize("made", [False, True])
def test_a_missing_dataset_is_not_found(io: Any, tmp_path: Path, made: bool) -> None:
    if made:
        (tmp_path / "d").mkdir()
    with pytest.raises(FileNotFoundError, match="d"):
        io.read_parquet(str(tmp_path / "d"))
