"""The types of a dataset stay: source values are converted without loss or refused; files get new types as asked."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conformance.effort import for_each
from fsspeckit.common.errors import SchemaMismatchError
from kit import data_files, look, put, tree_of

UTC = dt.UTC
STORED = pa.schema(
    [
        ("id", pa.int32()),
        ("n", pa.int16()),
        ("f", pa.float32()),
        ("money", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("name", pa.string()),
        ("code", pa.dictionary(pa.int32(), pa.string())),
        ("items", pa.list_(pa.int32())),
        ("point", pa.struct([("x", pa.int32()), ("at", pa.timestamp("ms"))])),
        ("lsn", pa.int64()),
    ]
)
GIVEN = {
    "id": pa.decimal128(20, 2),
    "n": pa.float64(),
    "f": pa.float64(),
    "money": pa.int64(),
    "at": pa.timestamp("ns", "Europe/Berlin"),
    "day": pa.date64(),
    "name": pa.dictionary(pa.int8(), pa.large_string()),
    "code": pa.large_string(),
    "items": pa.large_list(pa.int64()),
    "point": pa.struct([("at", pa.timestamp("us")), ("x", pa.decimal128(9, 1))]),
    "lsn": pa.uint8(),
}
MISFITS: dict[str, Any] = {
    "id": Decimal("3.50"),
    "n": 0.5,
    "f": 0.1,
    "money": 10**9,
    "at": 1_001,
    "items": [1, 2**40],
    "point": {"x": Decimal("1.5"), "at": None},
    "lsn": 2**63,
}
WIDER = {"money": pa.int64(), "lsn": pa.uint64()}


def row(key: int, lsn: int = 0) -> dict[str, Any]:
    at = dt.datetime(2026, 11, 2, 10, tzinfo=UTC)
    point = {"x": key, "at": dt.datetime(2026, 11, 2)}  # noqa: DTZ001 - without a zone
    plain = {"n": key, "f": key / 2, "money": Decimal(key), "at": at, "day": at.date(), "name": f"n{key}"}
    return {"id": key, **plain, "code": "c", "items": [key], "point": point, "lsn": lsn}


def stored(dataset: Path) -> Path:
    for number in range(3):
        rows = [row(10 * number + i) for i in range(3)]
        put(dataset / f"{number}.parquet", pa.Table.from_pylist(rows, STORED))
    return dataset


def given(*keys: int, **columns: Any) -> pa.Table:
    """The rows in other types; ``columns`` replaces one value of the last row."""
    rows = [row(key, 1) for key in keys]
    table = {name: pa.array([each[name] for each in rows], STORED.field(name).type).to_pylist() for name in GIVEN}
    for name, value in columns.items():
        table[name][-1] = value
    types = GIVEN | {name: WIDER[name] for name in columns if name in WIDER}
    return pa.table({name: pa.array(values, types[name]) for name, values in table.items()})


Call = Callable[..., Any]
VERBS: dict[str, Call] = {
    "merge": lambda io, rows, path, **options: io.merge(rows, path, key_columns="id", **options),
    "full_merge": lambda io, rows, path: io.merge(rows, path, key_columns="id", strategy="full_merge", scope="id < 3"),
    "append": lambda io, rows, path: io.write_dataset(rows, path),
    "replace_where": lambda io, rows, path: io.write_dataset(rows, path, mode="overwrite", replace_where="id < 3"),
    "feed": lambda io, rows, path: io.apply_changes(rows, path, key_columns="id", sequence_by="lsn"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_values_of_other_types_are_stored_in_the_types_of_the_dataset(io: Any, tmp_path: Path, verb: str) -> None:
    path = stored(tmp_path / "d")
    before = {file.name: file.read_bytes() for file in data_files(path)}
    VERBS[verb](io, given(1, 2), str(path))
    files = data_files(path)
    assert all(pq.read_schema(file).equals(STORED) for file in files)
    kept = {file.name for file in files if before.get(file.name) == file.read_bytes()}
    assert kept >= {"1.parquet", "2.parquet"}, "a file without a changed row was rewritten"
    found = io.read_parquet(str(path), filters="id < 3 AND lsn = 1").sort_by("id")
    assert found.cast(STORED).equals(pa.Table.from_pylist([row(1, 1), row(2, 1)], STORED))


@for_each("verb, column", list(itertools.product(VERBS, MISFITS)))
def test_a_value_that_does_not_fit_is_named_with_its_row(io: Any, tmp_path: Path, verb: str, column: str) -> None:
    path = stored(tmp_path / "d")
    before = tree_of(path)
    type_ = str(STORED.field(column).type).partition("<")[0]
    with pytest.raises(SchemaMismatchError, match=f"of column '{column}' .* source row 1, .* as {re.escape(type_)}"):
        VERBS[verb](io, given(1, 2, **{column: MISFITS[column]}), str(path))
    assert tree_of(path) == before


def test_partitions_are_overwritten_in_the_types_of_the_dataset(io: Any, tmp_path: Path) -> None:
    path = tmp_path / "d"
    for day in ("a", "b"):
        put(path / f"p={day}" / "0.parquet", pa.table({"n": pa.array([1], pa.int16())}))
    rows = pa.table({"n": [2**14, 3.0], "p": ["a", "a"]})
    io.write_dataset(rows, str(path), mode="overwrite_partitions")
    assert {pq.read_schema(file).field("n").type for file in data_files(path)} == {pa.int16()}
    assert look(path, "p", "n") == [("a", 16384), ("a", 3), ("b", 1)]
    with pytest.raises(SchemaMismatchError, match=r"2\.5 of column 'n' .* source row 1"):
        io.write_dataset(pa.table({"n": [1, 2.5], "p": ["a", "a"]}), str(path), mode="overwrite_partitions")


def test_text_and_numbers_and_zones_are_never_converted(io: Any, tmp_path: Path) -> None:
    path = stored(tmp_path / "d")
    before = tree_of(path)
    for column, values in {"n": ["1"], "name": [1], "at": [dt.datetime(2026, 1, 1)], "money": [1.5]}.items():  # noqa: DTZ001
        rows = given(1)
        rows = rows.set_column(rows.schema.get_field_index(column), column, pa.array(values))
        for call in (VERBS["merge"], VERBS["append"]):
            for options in ({}, {"schema_mode": "widen"}) if call is VERBS["merge"] else ({},):
                with pytest.raises(SchemaMismatchError, match=f"'{column}'"):
                    call(io, rows, str(path), **options)
    assert tree_of(path) == before


@pytest.mark.parametrize("key", [pa.int64(), pa.int32(), pa.uint64(), pa.decimal128(9, 1)], ids=str)
def test_keys_are_compared_by_value(io: Any, tmp_path: Path, key: pa.DataType) -> None:
    path = tmp_path / "d"
    put(path / "0.parquet", pa.table({"id": pa.array([4, 5, 6], key), "v": ["old"] * 3}))
    source = pa.table({"id": [Decimal("5.00"), Decimal("5.25")], "v": ["new"] * 2})
    result = io.merge(source, str(path), key_columns="id", strategy="update")
    assert (result.updated, result.total) == (1, 3)
    assert look(path, "id", "v")[1][1] == "new"
    gone = source.append_column("op", pa.array(["d", "d"]))
    assert io.merge(gone, str(path), key_columns="id", delete_when="op = 'd'").deleted == 1
    with pytest.raises(SchemaMismatchError, match=r"5\.25'\) of column 'id' .* source row 1"):
        io.merge(source, str(path), key_columns="id")
    assert {pq.read_schema(file).field("id").type for file in data_files(path)} == {key}
    assert io.merge(source.slice(0, 1), str(path), key_columns="id").inserted == 1


def test_keys_of_a_finer_unit_beside_years_that_it_cannot_hold(io: Any, tmp_path: Path) -> None:
    last = dt.datetime(9999, 12, 31)  # noqa: DTZ001 - without a zone
    put(tmp_path / "d" / "0.parquet", pa.table({"at": pa.array([last, dt.datetime(2026, 1, 1)]), "v": [1, 1]}))  # noqa: DTZ001
    source = pa.table({"at": pa.array([dt.datetime(2026, 1, 1)], pa.timestamp("ns")), "v": [2]})  # noqa: DTZ001
    result = io.merge(source, str(tmp_path / "d"), key_columns="at")
    assert (result.updated, result.inserted) == (1, 0)


EVOLVED = pa.table({"id": pa.array([1, 99]), "n": pa.array([2**40, 7]), "new": ["a", "b"]})


def narrow(dataset: Path, **options: Any) -> Path:
    for number in range(3):
        ids = range(10 * number, 10 * number + 4)
        rows = pa.table({"id": ids, "n": pa.array([number] * 4, pa.int16()), "s": ["x"] * 4})
        put(dataset / f"{number}.parquet", rows, row_group_size=2, **options)
    return dataset


def evolved(io: Any, path: Path, **options: Any) -> Any:
    return io.merge(EVOLVED, str(path), key_columns="id", schema_mode="evolve", **options)


CHANGES = [
    {"column": "n", "change": "widened", "old": "int16", "new": "int64"},
    {"column": "new", "change": "added", "old": "", "new": "string"},
]


def test_only_touched_files_get_new_columns_and_types(io: Any, tmp_path: Path) -> None:
    """Every verb works on files of which some lack a column, or have it in a narrower type."""
    path = narrow(tmp_path / "d")
    before = {file.name: file.read_bytes() for file in data_files(path)}
    plan = evolved(io, path, evolve_files="touched", dry_run=True)
    assert [entry.action for entry in plan.entries if entry.action != "insert"].count("rewrite") == 1
    result = evolved(io, path, evolve_files="touched", plan=plan)
    assert plan["schema_changes"] == result["schema_changes"] == [each | {"files": "touched"} for each in CHANGES]
    kept = {file.name for file in data_files(path) if before.get(file.name) == file.read_bytes()}
    assert kept == {"1.parquet", "2.parquet"}
    assert evolved(io, path, evolve_files="touched").rewritten_files == []

    rows: dict[int, tuple[int, str | None]] = {10 * f + i: (f, None) for f in range(3) for i in range(4)}
    rows |= {1: (2**40, "a"), 99: (7, "b")}
    check(io, path, rows)
    assert io.read_parquet(str(path), filters="new IS NULL").num_rows == 11
    assert io.read_parquet(str(path), filters="n > 100").num_rows == 1
    assert io.delete(str(path), where="n = 1 AND new IS NULL AND id > 12").deleted == 1
    del rows[13]
    assert io.update(str(path), set={"new": "'u'"}, where="id = 20").updated == 1
    rows[20] = (2, "u")
    more = pa.table({"id": [21, 50], "n": pa.array([5, 6], pa.int8()), "s": ["x"] * 2, "new": ["m", None]})
    io.merge(more, str(path), key_columns="id")
    io.write_dataset(more.slice(1).set_column(0, "id", pa.array([60])), str(path))
    rows |= {21: (5, "m"), 50: (6, None), 60: (6, None)}
    check(io, path, rows)
    version = io.keep_history(str(path))
    io.write_dataset(more.slice(1), str(path), mode="overwrite", replace_where="id = 50 OR n = 1")
    check(io, path, {key: each for key, each in rows.items() if each[0] != 1})
    changes = io.changes(str(path), since=version)
    assert len(changes.collect() if hasattr(io, "spark") else changes) == 3
    io.restore(str(path), version=version)
    check(io, path, rows)
    io.compact_parquet_dataset(str(path), target_rows_per_file=100)
    io.optimize_parquet_dataset(str(path), "n", target_rows_per_file=5)
    check(io, path, rows)


def test_writes_know_the_columns_of_all_files(io: Any, tmp_path: Path) -> None:
    path = narrow(tmp_path / "d")
    evolved(io, path, evolve_files="touched")
    rows = pa.table({"id": [50], "n": [2**40], "s": ["x"], "new": ["w"]})
    io.write_dataset(rows, str(path))
    (tmp_path / "rows.csv").write_text("id,n,s,new\n51,1099511627776,x,7\n")
    io.write_dataset(str(tmp_path / "rows.csv"), str(path))
    assert look(path, "id", "n", "new")[-3:-1] == [(50, 2**40, "w"), (51, 2**40, "7")]


def check(io: Any, path: Path, rows: dict[int, tuple[int, str | None]]) -> None:
    """Our reader and DuckDB see the rows."""
    found = io.read_parquet(str(path)).sort_by("id")
    assert found.schema.field("n").type == pa.int64()
    seen = zip(found["id"].to_pylist(), found["n"].to_pylist(), found["new"].to_pylist(), strict=True)
    assert list(seen) == [(key, *rows[key]) for key in sorted(rows)]
    query = "SELECT id, n, new FROM read_parquet(?, union_by_name := true) ORDER BY id"
    files = list(map(str, data_files(path)))
    assert duckdb.execute(query, [files]).fetchall() == [(key, *rows[key]) for key in sorted(rows)]


def test_all_files_get_new_columns_and_types_and_keep_the_bytes_of_others(io: Any, tmp_path: Path) -> None:
    path = narrow(tmp_path / "d", write_page_checksum=True)
    chunks = {file.name: chunk(file, "s") for file in data_files(path)}
    assert len(evolved(io, path, dry_run=True).entries) == 4
    result = evolved(io, path)
    assert result["schema_changes"] == [each | {"files": "all"} for each in CHANGES]
    assert len(result.rewritten_files) == 3
    for file in data_files(path):
        assert pq.read_schema(file).names == ["id", "n", "s", "new"]
        assert pq.read_schema(file).field("n").type == pa.int64()
        assert pq.ParquetFile(file, page_checksum_verification=True).read().num_rows in (1, 4)
        name = f"{file.name.partition('-')[0].partition('.')[0]}.parquet"
        if name in ("1.parquet", "2.parquet"):
            assert chunk(file, "s") == chunks[name], "an unchanged column was encoded again"
    assert look(path, "id", "n", "new")[:3] == [(0, 0, None), (1, 2**40, "a"), (10, 1, None)]
    assert evolved(io, path).rewritten_files == []


def chunk(file: Path, column: str) -> bytes:
    """The bytes of the pages of the first chunk of a column."""
    group = pq.read_metadata(file).row_group(0)
    at = next(group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == column)
    start = at.dictionary_page_offset if at.has_dictionary_page else at.data_page_offset
    return file.read_bytes()[start : start + at.total_compressed_size]


def test_files_that_stay_narrow_get_the_type_when_all_are_asked_for(io: Any, tmp_path: Path) -> None:
    path = narrow(tmp_path / "d")
    evolved(io, path, evolve_files="touched")
    again = EVOLVED.slice(1).set_column(1, "n", pa.array([8]))
    io.merge(again, str(path), key_columns="id", schema_mode="evolve", evolve_files="all")
    assert {pq.read_schema(file).field("n").type for file in data_files(path)} == {pa.int64()}


def test_a_change_of_schema_never_rewrites_a_large_dataset_unasked(io: Any, tmp_path: Path) -> None:
    path = narrow(tmp_path / "d")
    inflate(path / "2.parquet", 1_000_000_000)
    before = {file: file.stat().st_mtime_ns for file in data_files(path)}
    for options in ({}, {"dry_run": True}):
        with pytest.raises(SchemaMismatchError) as caught:
            evolved(io, path, **options)
        for part in ("'touched'", "'all'", "2 files", "1 file", "953.7 MB", "n (int16 -> int64)", "new (new, string)"):
            assert part.replace("'", '"') in str(caught.value)
    assert {file: file.stat().st_mtime_ns for file in data_files(path)} == before
    assert len(evolved(io, path, evolve_files="touched").rewritten_files) == 1


def inflate(path: Path, hole: int) -> None:
    """Put a hole before the footer of a file, so that it is large and takes no space."""
    content = path.read_bytes()
    footer = content[-8 - int.from_bytes(content[-8:-4], "little") :]
    with path.open("r+b") as file:
        file.truncate(len(content) - len(footer) + hole)
        file.seek(0, 2)
        file.write(footer)


@pytest.mark.parametrize("scd_type", [1, 2])
def test_feeds_change_the_schema_where_asked(io: Any, tmp_path: Path, scd_type: int) -> None:
    path, options = tmp_path / "d", {"key_columns": "id", "sequence_by": "lsn", "scd_type": scd_type}
    first = pa.table({"id": [1, 2], "n": pa.array([1, 2], pa.int16()), "lsn": [1, 1]})
    io.apply_changes(first, str(path), **options)
    wider = pa.table({"id": [1], "n": [2**40], "lsn": [2], "new": ["a"]})
    for given_mode in ({}, {"schema_mode": "widen"}):
        with pytest.raises(SchemaMismatchError):
            io.apply_changes(wider, str(path), **options, **given_mode)
    result = io.apply_changes(wider, str(path), **options, schema_mode="evolve", evolve_files="touched")
    assert [change.column for change in result.schema_changes] == ["n", "new"]
    found = io.read_parquet(str(path), filters="lsn = 2" if scd_type == 1 else "is_current AND id = 1")
    assert (found["n"].to_pylist(), found["new"].to_pylist()) == ([2**40], ["a"])


def test_which_files_evolve_is_for_modes_that_change_the_schema(io: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="evolve_files is for schema_mode"):
        io.merge(EVOLVED, str(tmp_path / "d"), key_columns="id", evolve_files="all")
    with pytest.raises(ValueError, match="evolve_files='some' is unknown"):
        evolved(io, tmp_path / "d", evolve_files="some")
