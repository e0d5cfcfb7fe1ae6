"""Filters as text: the same rows and the same errors on every engine."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from fsspeckit import FilterError, SchemaMismatchError
from kit import put, tree_of

NAN, DAY = math.nan, dt.date(2026, 11, 2)
ROWS = pa.table(
    {
        "id": pa.array(range(10), pa.int64()),
        "name": ["a", "B", "c", None, "e", "F", "g", "h", "i", "it's"],
        "x": [None, 0.0, -0.0, NAN, 1.5, -math.inf, math.inf, 2.5, NAN, 3.0],
        "day": pa.array([DAY + dt.timedelta(days=n) if n % 3 else None for n in range(10)], pa.date32()),
        "at": pa.array([n * 3_600_000_000 for n in range(10)], pa.timestamp("us", "Europe/Berlin")),
        "ns": pa.array(range(10), pa.timestamp("ns")),
        "for": pa.array(range(10), pa.duration("ns")),
        "price": pa.array([Decimal(n) / 4 for n in range(10)], pa.decimal256(60, 2)),
        "kind": pa.array(["x", "y"] * 5, pa.dictionary(pa.int8(), pa.string())),
        "point": pa.array([{"x": n, "order no": str(n)} for n in range(10)]),
        "ok": [True, False, None, True, False, None, True, False, None, True],
        "raw": pa.array([bytes([n]) for n in range(10)], pa.binary(1)),
        "part": [n // 4 for n in range(10)],
    }
)
FOUND = {
    "id > 7": [8, 9],
    "id BETWEEN 2 AND 3 OR id = 9 -- a comment": [2, 3, 9],
    "name IS NULL": [3],
    "NOT (name = 'a')": [1, 2, 4, 5, 6, 7, 8, 9],
    "name NOT IN ('a', NULL)": [],
    "name IN ('a', 'it''s')": [0, 9],
    "x > 2.5": [3, 6, 8, 9],
    "x = x": [1, 2, 3, 4, 5, 6, 7, 8, 9],
    "x = 0": [1, 2],
    "is_nan(x)": [3, 8],
    "x IS NOT DISTINCT FROM NULL": [0],
    "day = '2026-11-04'": [2],
    "day < DATE '2026-11-05'": [1, 2],
    "at >= '1970-01-01 07:00:00'": [7, 8, 9],
    "hour(at) = 9": [9],
    "ns > '1970-01-01 00:00:00.000000007'": [8, 9],
    '"for" IS NOT NULL AND id = 1': [1],
    "price = 0.25": [1],
    "kind = 'x' AND part = 2": [8],
    "part = 1": [4, 5, 6, 7],
    "part > 0 AND id <= 4": [4],
    "part = 7": [],
    "point.x = 7": [7],
    "point.\"order no\" = '2'": [2],
    "ok": [0, 3, 6, 9],
    "ok IS NOT TRUE AND id < 3": [1, 2],
    "raw = X'05'": [5],
    "id + part = 10": [8],
    "coalesce(name, 'z') = 'z'": [3],
    "true": list(range(10)),
    "1 = 0": [],
    "NULL": [],
}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A few files with several row groups, in folders by ``part``."""
    rows = ROWS.drop_columns("part")
    for part, start in enumerate(range(0, 10, 4)):
        path = tmp_path / "d" / f"part={part}" / "a.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(rows.slice(start, 4), path, row_group_size=2)
    return str(tmp_path / "d")


@pytest.mark.parametrize("more", [{}, {"columns": ["price", "id"]}, {"use_threads": False}], ids=["", "columns", "one"])
def test_rows_for_which_the_condition_is_true(io: Any, folder: str, more: dict[str, Any]) -> None:
    whole = io.read_parquet(folder, **more)
    for text, ids in FOUND.items():
        found = io.read_parquet(folder, filters=text, **more)
        assert found["id"].to_pylist() == ids, text
        assert found.schema.equals(whole.schema, check_metadata=True), text
        assert str(found.to_pylist()) == str(whole.take(pa.array(ids, pa.int64())).to_pylist()), text


def test_columns_of_the_condition_are_not_in_the_result(io: Any, folder: str) -> None:
    found = io.read_parquet(folder, columns=["name"], filters="x > 2.5 AND part = 2", include_file_path=True)
    assert found.column_names == ["name", "file_path"]
    assert found["name"].to_pylist() == ["i", "it's"]
    assert set(found["file_path"].to_pylist()) == {f"{folder}/part=2/a.parquet"}
    none = io.read_parquet(folder, columns=["name"], filters="part = 9", include_file_path=True)
    assert (none.num_rows, none.schema) == (0, found.schema)


def test_the_function_of_the_package(engine: str, folder: str) -> None:
    found = fsspeckit.read_parquet(folder, engine=engine.partition("-")[0], filters="part = 2 AND name = 'i'")
    assert found["id"].to_pylist() == [8]


ERRORS = {
    "nam = 'a'": "unknown column 'nam' at character 1 .*; did you mean 'name'",
    "ID = 1": "unknown column 'ID' .*did you mean 'id'",
    "point.y = 1": "unknown field of 'point' 'y'",
    "lowercase(name) = 'a'": "unknown function 'lowercase' .*did you mean",
    "read_text('x.csv') = ''": "unknown function 'read_text'",
    "id = 'abc'": "cannot compare a number with a text",
    "name > 5": "cannot compare a text with a number",
    "point = 1": "cannot be compared",
    "part = 'one'": "cannot compare a number with a text",
    "raw = 'a'": "cannot compare a binary with a text .*; write the bytes, as in X'00FF'",
    "id + 1": "is a number, not a condition",
    "id >": r"not an SQL expression at character 4 of 'id >' \(a value is missing\); correct",
    "name = 'x": r"not an SQL expression \"name = 'x\" \(a quotation mark may not be closed\)",
    "id = 1) OR (id = 2": "not an SQL expression",
    "id = 1; DROP TABLE x": "is not one expression",
    "id IN (SELECT 1)": "a subquery is not part",
    "count(*) > 1": "the aggregate count is not part",
    "id = ?": "is not part",
    "": "is not one expression",
    "-- nothing": "is not one expression",
    "id = 1 / 0": "divide by zero",
    "NOT " * 500 + "(id = 1)": "nested too deeply",
    "- " * 400 + "id = 1": "nested too deeply",
    "id" + " + 1" * 900 + " > 0": "nested too deeply",
}


@pytest.mark.parametrize("text", ERRORS, ids=lambda text: text[:20])
def test_text_that_is_not_a_condition(io: Any, folder: str, text: str) -> None:
    before = tree_of(Path(folder))
    with pytest.raises(FilterError, match=ERRORS[text]):
        io.read_parquet(folder, filters=text)
    assert tree_of(Path(folder)) == before


ODD = ["a b", "50%", "x=y", "a/b", "Ü", "'", "", "null", "NULL", "01", ";--"]


def test_partition_values_of_any_text(io: Any, tmp_path: Path) -> None:
    rows = pa.table({"id": range(len(ODD) + 1), "p": [*ODD, None]})
    rows = rows.filter(pa.compute.not_equal(pa.compute.fill_null(rows["p"], "-"), ""))  # no folder can have this name
    path = str(tmp_path / "d")
    io.write_dataset(rows, path, partition_by=["p"])
    for row in rows.to_pylist():
        text = "p IS NULL" if row["p"] is None else "p = '{}'".format(row["p"].replace("'", "''"))
        assert io.read_parquet(path, filters=text)["id"].to_pylist() == [row["id"]], text
    assert sorted(io.read_parquet(path, filters="p IS NOT NULL")["p"].to_pylist()) == sorted(filter(None, ODD))


def test_partitions_by_day(io: Any, tmp_path: Path) -> None:
    days = ["2026-11-01", "2026-11-02", "2026-12-01"]
    for number, day in enumerate(days):
        put(tmp_path / "d" / f"day={day}" / "a.parquet", pa.table({"id": [number]}))
    for text, ids in {"day = '2026-11-02'": [1], "day >= '2026-11-02'": [1, 2], "day = DATE '2026-12-01'": [2]}.items():
        assert io.read_parquet(str(tmp_path / "d"), filters=text)["id"].to_pylist() == ids


def test_columns_that_only_some_files_have(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", pa.table({"id": [1, 2]}))
    put(tmp_path / "d" / "b.parquet", pa.table({"id": [3, 4], "new": ["x", None], "s": [{"n": 1}, None]}))
    put(tmp_path / "d" / "c.parquet", pa.table({"id": pa.array([], pa.int64()), "new": pa.array([], pa.string())}))
    found = {"new IS NULL": [1, 2, 4], "new = 'x'": [3], "new <> 'x'": [], "s.n IS NULL": [1, 2, 4], "s.n = 1": [3]}
    for text, ids in found.items():
        assert io.read_parquet(str(tmp_path / "d"), filters=text)["id"].to_pylist() == ids, text


def test_files_of_other_widths(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", pa.table({"id": [1], "v": pa.array([300], pa.int16())}))
    put(tmp_path / "d" / "b.parquet", pa.table({"id": [2], "v": pa.array([2**40], pa.int64())}))
    assert io.read_parquet(str(tmp_path / "d"), filters="v = 300 OR v > 1000000")["id"].to_pylist() == [1, 2]


def test_bit_rot_is_found_in_row_groups_that_are_read(io: Any, tmp_path: Path) -> None:
    path = tmp_path / "d" / "a.parquet"
    path.parent.mkdir()
    options = {"row_group_size": 500, "write_page_checksum": True, "use_dictionary": False, "compression": "none"}
    pq.write_table(pa.table({"id": range(1000)}), path, **options)
    data = bytearray(path.read_bytes())
    data[pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset + 2000] ^= 1
    path.write_bytes(data)
    assert io.read_parquet(str(tmp_path / "d"), filters="id < 500").num_rows == 500
    with pytest.raises(OSError, match=r"a\.parquet"):
        io.read_parquet(str(tmp_path / "d"), filters="id >= 500")


def test_values_that_the_common_type_cannot_hold(io: Any, tmp_path: Path) -> None:
    year_one = -62_135_596_800 * 1_000_000
    put(tmp_path / "d" / "a.parquet", pa.table({"id": [1], "t": pa.array([year_one], pa.timestamp("us"))}))
    put(tmp_path / "d" / "b.parquet", pa.table({"id": [2], "t": pa.array([0], pa.timestamp("ns"))}))
    with pytest.raises(SchemaMismatchError, match=r"a\.parquet: column 't' cannot be cast"):
        io.read_parquet(str(tmp_path / "d"), columns=["id"], filters="hour(t) = 0")
    assert io.read_parquet(str(tmp_path / "d"), columns=["id"], filters="id = 1").num_rows == 1


def test_uuids_are_compared_with_their_bytes(io: Any, tmp_path: Path) -> None:
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes([n] * 16) for n in range(3)], pa.binary(16)))
    put(tmp_path / "d" / "a.parquet", pa.table({"id": [0, 1, 2], "u": uuids}))
    found = io.read_parquet(str(tmp_path / "d"), filters=f"u = X'{'01' * 16}'")
    assert (found["id"].to_pylist(), found.schema.field("u").type) == ([1], pa.uuid())
