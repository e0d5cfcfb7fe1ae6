"""Traps of row changes on every engine: what other systems get wrong, and invalid input that must change nothing."""

from __future__ import annotations

import decimal
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conformance.effort import for_each
from fsspeckit.common.errors import ExpressionError, KeyColumnError
from kit import look, numbers, put, tree_of

FEED = {"key_columns": "id", "sequence_by": "lsn", "delete_when": "op = 'd'", "except_columns": ["op"]}

NAMES = ["id", "v", "lsn", "op"]


def feed(*changes: tuple[Any, ...]) -> pa.Table:
    """Changes of the columns id, v, lsn and op."""
    columns = list(zip(*changes, strict=True)) if changes else [()] * 4
    types = (pa.int64(), pa.string(), pa.int64(), pa.string())
    return pa.table([pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)], NAMES)


def test_nan_is_above_all_numbers_whatever_the_statistics(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", pa.table({"id": [1, 2, 3], "f": [1.0, math.nan, None]}))
    put(tmp_path / "d" / "b.parquet", pa.table({"id": [4, 5], "f": [-0.0, 2.0]}))
    assert io.delete(str(tmp_path / "d"), where="f > 100").deleted == 1
    assert io.update(str(tmp_path / "d"), set={"f": "f + 7"}, where="f = 0").updated == 1
    assert look(tmp_path / "d", "id", "f") == [(1, 1.0), (3, None), (4, 7.0), (5, 2.0)]


@for_each(
    "folder, other, where",
    [
        ("day=01", "day=2", "day = 1"),
        ("day=01", "day=x", "day = '01'"),
        ("day=1", "day=2", "day BETWEEN 1 AND 1"),
        ("day=S%C3%A3o%20Paulo", "day=Sao Paulo", "day = 'São Paulo'"),
        ("day=São Paulo", "day=Sao Paulo", "day LIKE 'São%'"),
        ("day=a%2Fb", "day=a", "day = 'a/b'"),
        ("day=2026-01-02", "day=2026-01-03", "day = '2026-01-02'"),
        ("day=__HIVE_DEFAULT_PARTITION__", "day=2", "day IS NULL"),
    ],
)
def test_a_partition_value_is_compared_as_readers_see_it(
    io: Any, tmp_path: Path, folder: str, other: str, where: str
) -> None:
    put(tmp_path / "d" / folder / "a.parquet", numbers([1, 2]))
    put(tmp_path / "d" / other / "b.parquet", numbers([3]))
    seen = {row["id"] for row in io.read_parquet(str(tmp_path / "d"), filters=where).to_pylist()}
    assert seen == {1, 2}
    result = io.delete(str(tmp_path / "d"), where=where)
    assert (result.deleted, len(result.rewritten_files)) == (2, 0)
    assert [row[0] for row in look(tmp_path / "d")] == [3]
    assert not (tmp_path / "d" / folder).exists()


@pytest.mark.parametrize("change", ["update", "partial merge", "feed"])
def test_a_change_of_a_sort_column_drops_the_sort_note(io: Any, tmp_path: Path, change: str) -> None:
    path = str(tmp_path / "d")
    io.write_dataset(numbers(list(range(12)), n=list(range(12))), path, max_rows_per_file=4)
    io.optimize_parquet_dataset(path, zorder_columns=["n"], target_rows_per_file=4)
    if change == "update":
        io.update(path, set={"n": "100 - n"}, where="id % 2 = 0")
    elif change == "partial merge":
        source = pa.table({"id": list(range(0, 12, 2)), "n": list(range(100, 88, -2))})
        io.merge(source, path, strategy="update", key_columns="id", update_columns="n")
    else:
        rows = numbers(list(range(0, 12, 2)), "old", n=list(range(100, 88, -2)))
        io.merge(rows, path, strategy="upsert", key_columns="id", newer_by="n")
    assert not any(part.sorting_columns for file in Path(path).glob("*.parquet") for part in _changed_groups(file))
    io.optimize_parquet_dataset(path, zorder_columns=["n"], target_rows_per_file=4)
    files = [pq.ParquetFile(file).read()["n"].to_pylist() for file in Path(path).glob("*.parquet")]
    assert [n for values in sorted(files) for n in values] == sorted([*range(1, 12, 2), *range(100, 88, -2)])


def _changed_groups(file: Path) -> list[Any]:
    meta = pq.ParquetFile(file).metadata
    groups = [meta.row_group(number) for number in range(meta.num_row_groups)]
    values = pq.ParquetFile(file).read()["n"].to_pylist()
    return groups if values != sorted(values) else []


@pytest.mark.parametrize("last", ["u", "d"])
def test_ignored_nulls_need_one_change_per_key(io: Any, tmp_path: Path, last: str) -> None:
    put(tmp_path / "d" / "a.parquet", feed((1, "old", 1, "c")).drop_columns("op"))
    before = tree_of(tmp_path)
    changes = feed((1, "new", 2, "u"), (1, None, 3, last), (7, "new", 2, "c"))
    with pytest.raises(KeyColumnError, match=r"1 duplicate key.*1 \(2 times\).*one change per key.*scd_type=2"):
        io.apply_changes(changes, str(tmp_path / "d"), ignore_null_updates=True, **FEED)
    assert tree_of(tmp_path) == before
    for number in range(2):
        io.apply_changes(changes.slice(number, 1), str(tmp_path / "d"), ignore_null_updates=True, **FEED)
    assert look(tmp_path / "d", "id", "v", "lsn") == ([(1, "new", 3)] if last == "u" else [])


DECIMAL = decimal.Decimal
WIDER = {
    "integers": (pa.int32(), pa.int64(), [1, 5], 2**40),
    "timestamps": (pa.timestamp("ms"), pa.timestamp("us"), [1000, 5000], 9_000_001),
    "decimals": (pa.decimal128(5, 1), pa.decimal128(10, 3), [DECIMAL("1.0"), DECIMAL("5.0")], DECIMAL("123456.789")),
    "dictionaries": (pa.dictionary(pa.int8(), pa.string()), pa.large_string(), ["a", "c"], "dd"),
}


@pytest.mark.parametrize("name", WIDER)
@for_each("call", ["merge", "feed"])
def test_sequences_are_compared_in_a_type_of_both_sides(io: Any, tmp_path: Path, name: str, call: str) -> None:
    narrow, wide, old, new = WIDER[name]
    put(tmp_path / "d" / "a.parquet", numbers([1, 2], lsn=pa.array(old, narrow)))
    known = pa.array(old, narrow).cast(narrow.value_type if pa.types.is_dictionary(narrow) else narrow)
    late = known.cast(wide)[0].as_py()
    source = numbers([1, 2], "new", lsn=pa.array([new, late], wide))
    if call == "merge":
        options = {"strategy": "upsert", "key_columns": "id", "newer_by": "lsn", "schema_mode": "widen"}
        result = io.merge(source, str(tmp_path / "d"), **options)
    else:
        options = {"key_columns": "id", "sequence_by": "lsn", "schema_mode": "widen"}
        result = io.apply_changes(source, str(tmp_path / "d"), **options)
    assert (result.updated, result.stale) == (1, 1)
    assert look(tmp_path / "d") == [(1, "new"), (2, "old")]


@for_each("name", [name for name in WIDER if name != "dictionaries"])
def test_a_scope_is_compared_in_a_type_of_both_sides(io: Any, tmp_path: Path, name: str) -> None:
    narrow, wide, old, new = WIDER[name]
    put(tmp_path / "d" / "a.parquet", numbers([1, 2], n=pa.array(old, narrow)))
    source = numbers([1], "new", n=pa.array([new], wide))
    scope = "n > TIMESTAMP '1970-01-01 00:00:02'" if name == "timestamps" else "n > 2"
    options = {"strategy": "full_merge", "key_columns": "id", "scope": scope, "schema_mode": "widen"}
    result = io.merge(source, str(tmp_path / "d"), **options)
    assert (result.updated, result.deleted) == (1, 1)
    outside = numbers([1], "out", n=pa.array([old[0]], narrow).cast(wide))
    with pytest.raises(ExpressionError, match=r"1 source row.* outside the condition scope"):
        io.merge(outside, str(tmp_path / "d"), **options)


@pytest.mark.parametrize("scope", ["day = 1", "true", "day = 1 AND v IS NOT NULL"])
def test_rows_that_delete_may_be_outside_the_scope(io: Any, tmp_path: Path, scope: str) -> None:
    put(tmp_path / "d" / "a.parquet", numbers([1, 2, 3], day=[1, 1, 2]))
    changes = pa.table({"id": [1, 3, 2], "v": [None, None, "new"], "day": [None, None, 1], "op": ["d", "d", "u"]})
    options = {"strategy": "full_merge", "key_columns": "id", "delete_when": "op = 'd'", "scope": scope}
    assert io.merge(changes, str(tmp_path / "d"), **options).deleted == 2
    assert look(tmp_path / "d") == [(2, "new")]
    with pytest.raises(ExpressionError, match=r"1 source row.* outside"):
        io.merge(changes, str(tmp_path / "d"), **options | {"scope": "day = 2"})
    with pytest.raises(ExpressionError, match=r"1 source row.* outside"):
        io.merge(changes, str(tmp_path / "d"), **options | {"scope": "1 = 2"})
    every = options | {"delete_when": "true", "scope": "1 = 2"}
    assert io.merge(changes.drop_columns("op"), str(tmp_path / "d"), **every).deleted == 1


@pytest.mark.names_stay
def test_an_update_has_the_type_of_the_dataset_in_every_file(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "a.parquet", numbers([1, 2], n=pa.array([1, 2], pa.int32())))
    put(tmp_path / "d" / "b.parquet", numbers([3], n=pa.array([2**40], pa.int64())))
    result = io.update(str(tmp_path / "d"), set={"n": "n + 5000000000"}, where="id <> 2")
    assert result.updated == 2
    assert look(tmp_path / "d", "id", "n") == [(1, 5000000001), (2, 2), (3, 2**40 + 5000000000)]
    assert pq.read_schema(tmp_path / "d" / "a.parquet").field("n").type == pa.int64()
    again = io.update(str(tmp_path / "d"), set={"n": "n"}, where="true")
    assert (again.unchanged, again.rewritten_files) == (3, [])
