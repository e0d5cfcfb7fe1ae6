"""Delete, update and the conditions of merges: examples on every engine, and random sequences against an oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import (
    CommitConflictError,
    ExpressionError,
    KeyColumnError,
    PartitionError,
    SchemaMismatchError,
)
from kit import look, numbers, put, three_files, tree_of

Row = dict[str, Any]
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("lsn", pa.int64()), ("v", pa.float64())])


def stats(result: Any) -> dict[str, int]:
    return {name: result[name] for name in ("inserted", "updated", "deleted", "total")}


def test_delete_touches_only_files_with_matching_rows(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    before = tree_of(tmp_path / "d")
    plan = io.delete(str(tmp_path / "d"), where="id BETWEEN 5 AND 19", dry_run=True)
    assert tree_of(tmp_path / "d") == before
    result = io.delete(str(tmp_path / "d"), where="id BETWEEN 5 AND 19")
    assert stats(plan) == stats(result) == {"inserted": 0, "updated": 0, "deleted": 15, "total": 15}
    assert [entry.action for entry in plan.entries] == ["rewrite", "delete", "keep"]
    assert (len(result.rewritten_files), len(result.deleted_files), len(result.preserved_files)) == (1, 1, 1)
    assert sorted(row[0] for row in look(tmp_path / "d")) == [*range(5), *range(20, 30)]


def test_a_file_in_which_every_row_matches_is_not_read(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "day=1" / "a.parquet", numbers([1, 2]))
    put(tmp_path / "d" / "day=2" / "b.parquet", numbers([3]))
    data = bytearray((tmp_path / "d" / "day=1" / "a.parquet").read_bytes())
    data[4:40] = bytes(36)  # the pages of the first column
    (tmp_path / "d" / "day=1" / "a.parquet").write_bytes(data)
    assert io.delete(str(tmp_path / "d"), where="day = 1").deleted == 2
    assert not (tmp_path / "d" / "day=1").exists()
    assert [row[0] for row in look(tmp_path / "d")] == [3]


@pytest.mark.names_stay
def test_delete_keeps_other_row_groups_as_bytes(io: Any, tmp_path: Path) -> None:
    path = put(tmp_path / "d" / "a.parquet", numbers(list(range(9))), row_group_size=3, write_page_checksum=True)
    before = pq.ParquetFile(path).metadata
    io.delete(str(tmp_path / "d"), where="id = 4")
    after = pq.ParquetFile(path).metadata
    assert [after.row_group(i).num_rows for i in range(3)] == [3, 2, 3]
    for group in (0, 2):
        old, new = (meta.row_group(group).column(1) for meta in (before, after))
        assert (old.total_compressed_size, old.statistics) == (new.total_compressed_size, new.statistics)


def test_update_computes_values_from_the_row(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "day=1" / "a.parquet", numbers([1, 2], n=[10, None]))
    put(tmp_path / "d" / "day=2" / "b.parquet", numbers([3], n=[30]))
    before = tree_of(tmp_path / "d")
    values = {"n": "coalesce(n, 0) + id * day", "v": "upper(v)"}
    result = io.update(str(tmp_path / "d"), set=values, where="day = 1")
    assert stats(result) == {"inserted": 0, "updated": 2, "deleted": 0, "total": 3}
    assert look(tmp_path / "d", "id", "v", "n") == [(1, "OLD", 11), (2, "OLD", 2), (3, "old", 30)]
    after = tree_of(tmp_path / "d")
    assert after["day=2/b.parquet"] == before["day=2/b.parquet"]
    again = io.update(str(tmp_path / "d"), set={"v": "upper(v)"}, where="day = 1")
    assert (again.updated, again.unchanged, again.rewritten_files) == (2, 2, [])


def test_a_delete_in_a_feed_needs_only_its_key(io: Any, tmp_path: Path) -> None:
    put(tmp_path / "d" / "day=1" / "a.parquet", numbers([1, 2], lsn=[5, 5]))
    put(tmp_path / "d" / "day=2" / "b.parquet", numbers([3], lsn=[9]))
    feed = pa.table(
        {
            "id": [1, 3, 2, 7],
            "day": pa.array([None, None, 1, 2], pa.int64()),
            "v": pa.array([None, None, "new", "new"]),
            "lsn": [6, 6, 6, 6],
            "op": ["d", "d", "u", "c"],
        }
    )
    result = io.merge(
        feed, str(tmp_path / "d"), strategy="upsert", key_columns="id", delete_when="op = 'd'", newer_by="lsn"
    )
    assert stats(result) == {"inserted": 1, "updated": 1, "deleted": 1, "total": 3}
    assert result.stale == 1
    assert look(tmp_path / "d", "id", "v", "lsn") == [(2, "new", 6), (3, "old", 9), (7, "new", 6)]


def test_rows_that_delete_may_have_nulls_in_required_columns(io: Any, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string(), nullable=False)])
    put(tmp_path / "d" / "a.parquet", numbers([1, 2]).cast(schema))
    feed = pa.table({"id": [1, 2], "v": ["new", None], "op": ["u", "d"]})
    options = {"strategy": "upsert", "key_columns": "id", "delete_when": "op = 'd'"}
    assert stats(io.merge(feed, str(tmp_path / "d"), **options))["deleted"] == 1
    assert look(tmp_path / "d", "id", "v") == [(1, "new")]
    before = tree_of(tmp_path / "d")
    with pytest.raises(ValueError, match="must not be null"):
        io.merge(feed.set_column(2, "op", pa.array(["u", "u"])), str(tmp_path / "d"), **options)
    assert tree_of(tmp_path / "d") == before


def test_a_feed_is_applied_by_its_sequence(io: Any, tmp_path: Path) -> None:
    """Changes as Debezium's unwrap transform writes them: the row, op and the log sequence number."""
    path = str(tmp_path / "d")
    options = {
        "key_columns": "id",
        "sequence_by": "lsn",
        "delete_when": "op = 'd'",
        "except_columns": ["op"],
        "partition_by": "day",
    }
    first = [
        {"id": 1, "day": "a", "v": 1.0, "lsn": 10, "op": "c"},
        {"id": 2, "day": "a", "v": 2.0, "lsn": 11, "op": "c"},
        {"id": 1, "day": "b", "v": 1.5, "lsn": 12, "op": "u"},
        {"id": 3, "day": "b", "v": 3.0, "lsn": 13, "op": "c"},
    ]
    second = [
        {"id": 3, "day": None, "v": None, "lsn": 15, "op": "d"},
        {"id": 2, "day": "c", "v": 2.5, "lsn": 14, "op": "u"},
        {"id": 1, "day": "a", "v": 0.0, "lsn": 9, "op": "u"},
    ]
    schema = pa.schema([*SCHEMA, ("op", pa.string())])
    result = io.apply_changes(pa.Table.from_pylist(first, schema), path, **options)
    assert stats(result) == {"inserted": 3, "updated": 0, "deleted": 0, "total": 3}
    plan = io.apply_changes(pa.Table.from_pylist(second, schema), path, dry_run=True, **options)
    result = io.apply_changes(pa.Table.from_pylist(second, schema), path, plan=plan, **options)
    assert stats(plan) == stats(result) == {"inserted": 0, "updated": 1, "deleted": 1, "total": 2}
    assert (result.stale, result.moved) == (1, 1)
    again = io.apply_changes(pa.Table.from_pylist(second, schema), path, **options)
    assert stats(again) == {"inserted": 0, "updated": 0, "deleted": 0, "total": 2}
    found = io.read_parquet(path)
    assert found.column_names == ["id", "lsn", "v", "day"]
    assert sorted(tuple(row[name] for name in SCHEMA.names) for row in found.to_pylist()) == [
        (1, "b", 12, 1.5),
        (2, "c", 14, 2.5),
    ]


@pytest.mark.parametrize("type_", [pa.string_view(), pa.binary_view(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_nulls_of_a_feed_can_be_ignored_in_views_and_codes(io: Any, tmp_path: Path, type_: pa.DataType) -> None:
    """Arrow has no kernel that takes the first known value of two views."""
    path, values = str(tmp_path / "d"), [b"a", b"b", b"c"] if type_ == pa.binary_view() else ["a", "b", "c"]
    io.write_dataset(pa.table({"id": [1, 2, 3], "v": pa.array(values, type_), "lsn": [1, 1, 1]}), path)
    feed = pa.table({"id": [1, 2, 3], "v": pa.array([None, values[0], None], type_), "lsn": [2, 2, 2]})
    io.apply_changes(feed, path, key_columns="id", sequence_by="lsn", ignore_null_updates=True)
    found = io.read_parquet(path, columns=["id", "v"]).to_pylist()
    assert sorted(map(tuple, map(dict.values, found))) == [(1, values[0]), (2, values[0]), (3, values[2])]


DAY_CONDITIONS = {
    "is null": (pc.field("day").is_null(), 0),
    "equal": (pc.field("day") == "a", 2),
    "not one of": (~pc.field("day").isin(["a", "b"]), 0),
    "day and column": ((pc.field("day") == "b") & (pc.field("id") > 3), 1),
    "nothing but a value": (pc.scalar(True), 4),
}


@pytest.mark.parametrize("case", DAY_CONDITIONS)
def test_an_expression_of_pyarrow_sees_partition_values(io: Any, tmp_path: Path, case: str) -> None:
    condition, count = DAY_CONDITIONS[case]
    path, table = str(tmp_path / "d"), pa.table({"id": [1, 2, 3, 4], "v": [0, 0, 0, 0], "day": ["a", "a", "b", "b"]})
    io.write_dataset(table, path, partition_by="day")
    assert io.read_parquet(path, filters=condition).num_rows == count
    assert io.delete(path, where=condition, dry_run=True).deleted == count
    assert io.update(path, set={"v": "1"}, where=condition).updated == count
    assert sum(io.read_parquet(path)["v"].to_pylist()) == count
    assert io.delete(path, where=condition).deleted == count


def test_an_expression_of_pyarrow_limits_what_is_replaced(io: Any, tmp_path: Path) -> None:
    path, table = str(tmp_path / "d"), pa.table({"id": [1, 2, 3, 4], "day": ["a", "a", "b", "b"]})
    io.write_dataset(table, path, partition_by="day")
    new = pa.table({"id": [9], "day": ["a"]})
    result = io.write_dataset(new, path, mode="overwrite", replace_where=pc.field("day") == "a")
    assert (result.replaced, sorted(io.read_parquet(path)["id"].to_pylist())) == (2, [3, 4, 9])
    options = {"strategy": "full_merge", "key_columns": "id", "scope": pc.field("day") == "b"}
    assert io.merge(pa.table({"id": [4], "day": ["b"]}), path, **options).deleted == 1
    feed = pa.table({"id": [9, 5], "day": ["a", "b"], "op": ["d", "c"]})
    options = {"strategy": "upsert", "key_columns": "id", "delete_when": pc.field("op") == "d"}
    assert io.merge(feed, path, **options).stats() == {"inserted": 1, "updated": 0, "deleted": 1, "total": 2}


def test_a_plan_pins_the_rows_and_the_values(io: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    io.write_dataset(pa.table({"id": [1, 2, 3], "v": [0, 0, 0]}), path)
    before = tree_of(tmp_path / "d")
    delete = io.delete(path, where="id = 1", dry_run=True)
    update = io.update(path, set={"v": "1"}, where="id = 1", dry_run=True)
    upsert = {"strategy": "upsert", "key_columns": "id"}
    merge = io.merge(pa.table({"id": [1], "v": [7]}), path, **upsert, dry_run=True)
    lists = [", ".join(str(number) for number in range(99) if number != left_out) for left_out in (50, 51)]
    one, other = ({"v": f"CASE WHEN id IN ({items}) THEN 1 ELSE 0 END"} for items in lists)
    long_list = io.update(path, set=one, where="true", dry_run=True)
    calls = [
        lambda: io.update(path, set=other, where="true", plan=long_list),
        lambda: io.delete(path, where="id = 2", plan=delete),
        lambda: io.update(path, set={"v": "1"}, where="id = 2", plan=update),
        lambda: io.update(path, set={"v": "2"}, where="id = 1", plan=update),
        lambda: io.merge(pa.table({"id": [2], "v": [7]}), path, **upsert, plan=merge),
        lambda: io.merge(pa.table({"id": [1], "v": [7]}), path, **upsert | {"strategy": "update"}, plan=merge),
    ]
    for call in calls:
        with pytest.raises(CommitConflictError, match="make a new plan"):
            call()
    assert tree_of(tmp_path / "d") == before
    assert io.update(path, set={"v": "1"}, where="id = 1", plan=update).updated == 1
    long_list = io.update(path, set=one, where="true", dry_run=True)
    assert io.update(path, set=one, where="true", plan=long_list).updated == 3


FAULTS: dict[str, tuple[type[Exception], str]] = {
    "values": (SchemaMismatchError, "of column 't' .*cannot be stored"),
    "source nulls": (KeyColumnError, "key column 'id' of the source has 1 NULL"),
    "duplicates": (KeyColumnError, r"1 duplicate key\(s\) for \['id'\]: 0 \(2 times\)"),
    "target nulls": (KeyColumnError, "key column 'id' of the target"),
    "folder values": (PartitionError, "has rows with p='7', but its folder is for p='0'"),
    "spelling": (PartitionError, "Pass the partition column as text"),
    "moves": (PartitionError, "partition columns cannot change for existing keys: .*'id': 3"),
    "scope": (ExpressionError, r"1 source row\(s\) are outside the condition scope"),
    "conditions": (ExpressionError, "update_when: an expression cannot be computed: .*divide by zero"),
}
"""The faults of a merge and their errors, in the order in which they are reported."""


@pytest.mark.parametrize("first", range(len(FAULTS)))
def test_of_several_faults_the_first_in_a_fixed_order_is_reported(io: Any, tmp_path: Path, first: int) -> None:
    faults = set(list(FAULTS)[first:])
    if "folder values" in faults:  # a partition column that is in the rows has no other spelling in folders
        faults -= {"spelling"}
    for number in range(2):
        ids = pa.array([number, number + 2, None if "target nulls" in faults else number + 4], pa.int64())
        rows = pa.table({"id": ids, "v": [1, 1, 1], "t": pa.array([0, 0, 0], pa.timestamp("us"))})
        rows = rows.append_column("p", pa.array([number, number, 7])) if "folder values" in faults else rows
        put(tmp_path / "d" / f"p={'0' * ('spelling' in faults)}{number}" / "a.parquet", rows)
    if "spelling" in faults:
        put(tmp_path / "d" / "p=x" / "a.parquet", rows.slice(0, 0))
    source = [(0, 0, 1), (1, 1, 1), (2, 0, 1), (3, 0 if "moves" in faults else 1, 1), (8, 0, 1)]
    source += [(0, 0, 1)] if "duplicates" in faults else []
    source += [(None, 0, 1)] if "source nulls" in faults else []
    source += [(30, 0, 9)] if "scope" in faults else []
    ids, parts, values = (pa.array(column, pa.int64()) for column in zip(*source, strict=True))
    times = pa.array([*range(len(source) - 1), 10**18 if "values" in faults else 0], pa.int64()).cast(pa.timestamp("s"))
    before, (error, message) = tree_of(tmp_path / "d"), list(FAULTS.values())[first]
    for dry_run in (True, False):
        with pytest.raises(error, match=message):
            io.merge(
                pa.table({"id": ids, "p": parts, "v": values, "t": times}),
                str(tmp_path / "d"),
                strategy="full_merge",
                key_columns="id",
                scope="v < 9",
                update_when="10 / (target.v - 1) > 0",
                dry_run=dry_run,
            )
        assert tree_of(tmp_path / "d") == before


@pytest.mark.parametrize("matched", [False, True])
def test_a_sequence_that_does_not_fit_counts_only_in_matched_rows(io: Any, tmp_path: Path, matched: bool) -> None:
    path, moments = str(tmp_path / "d"), pa.array([1, 2, 3], pa.timestamp("us"))
    io.write_dataset(pa.table({"id": [1, 2, 3], "v": [1, 2, 3], "at": moments}), path)
    late = pa.array([10**18, 10**17, 1000], pa.int64()).cast(pa.timestamp("s"))
    source = pa.table({"id": [2, 1, 3] if matched else [8, 9, 3], "v": [7, 8, 9], "at": late})
    options: dict[str, Any] = {"strategy": "update", "key_columns": "id", "update_columns": ["v"], "newer_by": "at"}
    if not matched:
        assert io.merge(source, path, **options).updated == 1
        return
    with pytest.raises(SchemaMismatchError, match=r"newer_by of the source.* 100000000000000000\."):
        io.merge(source, path, **options)  # of the two that do not fit, the row that is first in the dataset


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"delete_when": "CAST(w AS TINYINT) > 0 OR 10 / (v - 1) > 0"}, "divide by zero"),
        ({"update_when": "CAST(source.w AS TINYINT) > 0 OR 10 / (source.v - 1) > 0"}, "divide by zero"),
        ({"update_when": "CAST(source.w AS TINYINT) >= 0"}, "Float value 500"),
        ({"strategy": "insert", "insert_when": "CAST(source.w AS TINYINT) >= 0"}, "Float value 400"),
    ],
)
def test_of_rows_for_which_a_condition_fails_the_first_is_reported(
    io: Any, tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    """The first one in the dataset for rows with a match, otherwise the first one of the source."""
    path, ids = str(tmp_path / "d"), list(range(29, -1, -1))
    io.write_dataset(pa.table({"id": range(30), "v": [0] * 30, "w": [0.0] * 30}), path, max_rows_per_file=10)
    odd = {21: 300.0, 11: 400.0, 8: 500.0, 9: 600.0}
    source = pa.table({"id": ids, "v": [int(n == 4 or n > 27) for n in ids], "w": [odd.get(n, 0.0) for n in ids]})
    if "insert_when" in options:
        source = source.set_column(0, "id", pa.array([100 + n for n in ids])).slice(12)
    with pytest.raises(ExpressionError, match=reason):
        io.merge(source, path, key_columns="id", **({"strategy": "upsert"} | options))
