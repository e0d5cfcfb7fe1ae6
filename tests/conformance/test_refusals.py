"""What every verb refuses: the class of error, a message that says what is wrong, and no changed file.

A table of each verb has the dataset, what is wrong with the call, the error, and words of its message.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import (
    DamagedFileError,
    DatasetExistsError,
    DatasetNotFoundError,
    ExpressionError,
    FsspeckitError,
    KeyColumnError,
    PartitionError,
    SchemaMismatchError,
    TableFormatError,
    UnsupportedDataError,
)
from kit import by_day, contents, flip_page, numbers, put, three_files, tree_of

STRATEGIES = ("upsert", "insert", "update", "full_merge", "deduplicate")
UPSERT: dict[str, Any] = {"strategy": "upsert", "key_columns": ["id"]}
WRITES: dict[str, Callable[[Any, Any, str], Any]] = {
    "append": lambda io, data, path: io.write_dataset(data, path),
    "overwrite": lambda io, data, path: io.write_dataset(data, path, mode="overwrite"),
    "merge": lambda io, data, path: io.merge(data, path, **UPSERT),
    "dry run": lambda io, data, path: io.merge(data, path, dry_run=True, **UPSERT),
}
CHANGES: dict[str, Callable[[Any, str], Any]] = {
    **{name: lambda io, path, write=write: write(io, numbers([1], "new"), path) for name, write in WRITES.items()},
    "delete": lambda io, path: io.delete(path, where="id = 5"),
    "delete all": lambda io, path: io.delete(path, where="true"),
    "update": lambda io, path: io.update(path, set={"v": "'x'"}, where="id < 25"),
    "feed": lambda io, path: io.apply_changes(
        numbers([5], "new", n=[1]), path, key_columns="id", sequence_by="n", columns=["v"]
    ),
}
TABLE = pa.table({"a": [2, 1], "id": [1, 1], "flag": [True, False], "list": [[1], [2]]})
FEED = pa.table({"id": [1], "v": ["new"], "lsn": [2], "op": ["u"]})
HISTORY = pa.table(
    {"id": [1, 1], "v": ["a", "b"], "valid_from": [1, 5], "valid_to": pa.array([5, None]), "is_current": [False, True]}
)
DATASETS: dict[str, Callable[[Path], Any]] = {
    "none": lambda path: None,
    "ids": three_files,
    "days": lambda path: by_day(path, mon=[1, 2], tue=[3]),
    "nulls": lambda path: [three_files(path), put(path / "z.parquet", numbers([7, None]))],
    "nulls without statistics": lambda path: [
        three_files(path),
        put(path / "z.parquet", numbers([7, None]), write_statistics=False),
    ],
    "list": lambda path: put(path / "day=1" / "a.parquet", TABLE),
    "required": lambda path: put(
        path / "a.parquet",
        numbers([1], "x").cast(pa.schema([("id", pa.int64()), pa.field("v", pa.string(), nullable=False)])),
    ),
    "two layouts": lambda path: [
        put(path / "day=mon" / "a.parquet", numbers([1])),
        put(path / "week=1" / "a.parquet", numbers([2])),
    ],
    "feed": lambda path: put(path / "a.parquet", FEED.drop_columns("op")),
    "history": lambda path: put(path / "a.parquet", HISTORY),
}


@contextmanager
def refused(
    parent: Path, error: type[Exception] | tuple[type[Exception], ...], *words: str
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """The block raises the error with the given words, and nothing below the parent folder changes."""
    before = tree_of(parent)
    with pytest.raises(error) as caught:
        yield caught
    message = str(caught.value)
    missing = [word for word in words if word.lower() not in message.lower()]
    assert not missing, f"the message does not speak of {missing}: {message}"
    assert len(message) > 20, message
    assert tree_of(parent) == before, "something was written"


Wrong = tuple[str, Any, dict[str, Any], Any, str]
"""The dataset, the source or nothing, the options of the call, the error, and a pattern of its message."""


def check(io: Any, base: Path, method: str, wrong: list[Wrong], **usual: Any) -> None:
    """Every call is refused, in a dry run too."""
    for number, (name, source, options, error, words) in enumerate(wrong):
        parent = base / str(number)
        parent.mkdir()
        DATASETS[name](parent / "d")
        data = () if source is None else (source,)
        for dry_run in (True, False):
            with refused(parent, error) as caught:
                getattr(io, method)(*data, str(parent / "d"), dry_run=dry_run, **usual | options)
            assert re.search(f"(?is){words}", str(caught.value)), (options, str(caught.value))


NEW, DAY = numbers([1, 99], "new"), TABLE.append_column("day", pa.array([1, 1]))
MERGES: list[Wrong] = [
    ("ids", NEW, {"key_columns": ["fresh"]}, ValueError, "fresh.*source"),
    ("ids", numbers([1], fresh=[1]), {"key_columns": ["fresh"]}, ValueError, "fresh.*target"),
    ("ids", NEW, {"key_columns": []}, ValueError, "key"),
    ("ids", NEW, {"key_columns": ["id", "id"]}, ValueError, "key"),
    ("ids", NEW, {"key_columns": ""}, ValueError, "key"),
    ("ids", NEW, {"key_columns": {"id"}}, ValueError, "key"),
    ("days", numbers([1], day=["mon"]), {"key_columns": ["day"]}, KeyColumnError, "key.*partition|partition.*key"),
    ("list", DAY, {"key_columns": ["list"]}, ValueError, "'list'.*key"),
    ("none", numbers([1], k=pa.array([None], pa.string())), {"key_columns": ["id", "k"]}, KeyColumnError, "k.*null"),
    ("ids", numbers([1000 + i % 50 for i in range(100)]), {}, ValueError, "^(?!(.*10[0-4][0-9]){6}).*50 duplicate"),
    ("ids", NEW, {"strategy": "replace"}, ValueError, "upsert.*insert.*update.*full_merge.*deduplicate"),
    ("ids", NEW, {"strategy": None}, ValueError, "strategy"),
    ("ids", NEW, {"on_duplicate_source": "any"}, ValueError, "on_duplicate_source"),
    ("ids", NEW, {"null_keys": "ignore"}, ValueError, "null_keys"),
    ("ids", NEW, {"schema_mode": "loose"}, ValueError, "schema_mode"),
    ("ids", NEW, {"partition_move": "maybe"}, ValueError, "partition_move"),
    ("ids", NEW, {"compression": "zip"}, ValueError, "compression"),
    ("ids", NEW, {"max_rows_per_file": 0}, ValueError, "max_rows_per_file"),
    ("ids", NEW, {"row_group_size": -1}, ValueError, "row_group_size"),
    ("ids", NEW, {"batch_rows": 0}, ValueError, "batch_rows"),
    ("ids", NEW, {"memory_limit": 0}, ValueError, "memory_limit"),
    ("ids", NEW, {"strategy": "deduplicate", "dedup_order_by": ["nowhere"]}, ValueError, "nowhere"),
    ("list", DAY, {"strategy": "deduplicate", "dedup_order_by": "list"}, ValueError, "dedup_order_by names 'list'"),
    ("ids", NEW, {"update_columns": ["nope"]}, ValueError, "nope"),
    ("ids", NEW, {"update_columns": []}, ValueError, "update_columns"),
    ("ids", NEW, {"update_columns": ["id"]}, ValueError, "id"),
    ("ids", NEW, {"newer_by": "nope"}, ValueError, "nope"),
    ("ids", NEW, {"delete_when": "nope = 1"}, ValueError, "delete_when: .*nope"),
    ("ids", NEW, {"delete_when": "id + 1"}, ValueError, "not a condition"),
    ("ids", NEW, {"delete_when": "id = 1; id = 2"}, ValueError, "one expression"),
    ("ids", NEW, {"update_when": "target.nope = 1"}, ValueError, "nope"),
    ("ids", NEW, {"update_when": "v = 'x'"}, ValueError, "prefix"),
    ("ids", NEW, {"update_when": "source.id = target.v"}, ValueError, "compare"),
    ("ids", NEW, {"insert_when": "target.id = 1"}, ValueError, "target"),
    ("ids", NEW, {"scope": "id < 5"}, ValueError, "scope"),
    ("ids", NEW, {"strategy": "full_merge", "scope": "id > 1"}, ExpressionError, "1 source row.* outside.*scope"),
    ("ids", NEW, {"strategy": "insert", "update_when": "source.id = 1"}, ValueError, "update_when"),
    ("ids", NEW, {"strategy": "update", "insert_when": "source.id = 1"}, ValueError, "insert_when"),
    ("days", numbers([1], "new", day=["mon"]), {"partition_by": ["v"]}, ValueError, "partition"),
    ("days", numbers([1], "new", day=["mon"]), {"partition_columns": ["day", "v"]}, ValueError, "partition"),
    ("days", numbers([1], day=["mon"]), {"partition_by": ["day"], "partition_columns": ["v"]}, ValueError, "partition"),
    ("days", numbers([1], "new", day=["mon"]), {"partition_by": ["nowhere"]}, ValueError, "partition"),
    ("days", NEW, {}, ValueError, "day"),
    ("ids", numbers([2], day=["tue"]), {"partition_by": ["day"]}, ValueError, "partition"),
    ("two layouts", numbers([1], day=["mon"]), {}, PartitionError, "week"),
    ("required", numbers([1], pa.array([None], pa.string())), {}, SchemaMismatchError, "'?v'?.*null"),
    ("none", pa.table([[1], ["a"], ["b"]], ["id", "v", "v"]), {}, ValueError, "v"),
]  # fmt: skip


@pytest.mark.scenario("UP-03", "UP-16", "UP-17", "PM-04")
def test_merges(io: Any, tmp_path: Path) -> None:
    check(io, tmp_path, "merge", MERGES, **UPSERT)


@pytest.mark.scenario("UP-03", "UP-16", "UP-17", "UP-41", "PM-04")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_keys_of_every_strategy(io: Any, tmp_path: Path, strategy: str) -> None:
    wrong: list[Wrong] = [
        ("ids", NEW, {"key_columns": ["id", "nowhere"]}, KeyColumnError, "nowhere.*source"),
        ("ids", numbers([1, None]), {}, KeyColumnError, "id.*source.*null|null.*source"),
        ("nulls", NEW, {}, KeyColumnError, "id.*target.*null|null.*target"),
        ("nulls without statistics", NEW, {}, KeyColumnError, "id.*target.*null|null.*target"),
    ]
    if strategy != "deduplicate":
        twice = numbers([1, 1, 1, 70, 70, 3], "new")
        wrong.append(("ids", twice, {}, KeyColumnError, "2 duplicate key.*3.*70.*on_duplicate_source"))
    check(io, tmp_path, "merge", wrong, strategy=strategy, key_columns=["id"])


NO_COMMON_TYPE = {
    "int64 and a large uint64": (pa.array([1]), pa.array([2**63], pa.uint64())),
    "uint64 and a negative int64": (pa.array([1], pa.uint64()), pa.array([-1])),
    "string and int": (pa.array(["1"]), pa.array([1])),
    "int and string": (pa.array([1]), pa.array(["1"])),
    "decimal and float": (pa.array([Decimal("1.5")]), pa.array([1.5])),
    "float and decimal": (pa.array([1.5]), pa.array([Decimal("1.5")])),
    "zoned and plain timestamps": (pa.array([1], pa.timestamp("us", "UTC")), pa.array([1], pa.timestamp("us"))),
    "list and struct": (pa.array([[1]]), pa.array([{"a": 1}])),
    "bool and int": (pa.array([True]), pa.array([1])),
}


@pytest.mark.scenario("UP-04", "UP-35", "UP-61", "PM-05")
def test_types_without_a_common_type(io: Any, tmp_path: Path) -> None:
    for name, (target, source) in NO_COMMON_TYPE.items():
        put(tmp_path / name / "a.parquet", pa.table({"id": [1], "amount": target}))
        with refused(tmp_path, SchemaMismatchError, "amount") as caught:
            io.merge(pa.table({"id": [1], "amount": source}), str(tmp_path / name), **UPSERT)
        for kind in (FsspeckitError, pa.ArrowInvalid, pa.ArrowTypeError, ValueError, TypeError):
            assert isinstance(caught.value, kind)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_new_column_that_differs_only_in_case(io: Any, tmp_path: Path, strategy: str) -> None:
    """Spark takes both for one column, and then cannot read the dataset."""
    given: dict[str, Any] = {"strategy": strategy, "key_columns": ["id"], "schema_mode": "evolve"}
    rows = pa.table({"id": [1], "day": ["mon"], "name": ["a"], "place": [{"zip": "1"}]})
    io.write_dataset(rows, str(tmp_path / "d"), partition_by=["day"])
    twins = {
        "Name": rows.append_column("Name", pa.array(["b"])),
        "place.Zip": rows.set_column(3, "place", pa.array([{"zip": "1", "Zip": "2"}])),
        "Day": rows.append_column("Day", pa.array(["tue"])),
        "Ab": rows.append_column("ab", pa.array([1])).append_column("Ab", pa.array([1])),
    }
    for name, source in twins.items():
        for dry_run in (True, False):
            with refused(tmp_path, SchemaMismatchError, f"the new column {name!r}", "only in case", "rename"):
                io.merge(source, str(tmp_path / "d"), dry_run=dry_run, **given)
    io.merge(rows.append_column("other", pa.array([1])), str(tmp_path / "d"), **given)


WHERE = {"mode": "overwrite", "replace_where": "day = 'mon'"}
MON = numbers([1], day=["mon"])
WRITE_CALLS: list[Wrong] = [
    ("ids", NEW, {"mode": "replace"}, ValueError, "mode"),
    ("ids", NEW, {"max_rows_per_file": 0}, ValueError, "max_rows_per_file"),
    ("ids", NEW, {"row_group_size": 0}, ValueError, "row_group_size"),
    ("ids", NEW, {"compression": "zip"}, ValueError, "compression"),
    ("ids", NEW, {"mode": "error"}, DatasetExistsError, "already has 3 data file"),
    ("none", NEW, {"partition_by": ["nowhere"]}, ValueError, "nowhere"),
    ("none", pa.table({"day": ["mon"]}), {"partition_by": ["day"]}, ValueError, "partition"),
    ("ids", NEW, {"mode": "overwrite_partitions"}, ValueError, '^(?!.*partition_by).*mode="overwrite"'),
    ("none", NEW, {"mode": "overwrite_partitions"}, ValueError, "pass partition_by"),
    ("none", pa.table([[1], ["a"], ["b"]], ["id", "v", "v"]), {}, ValueError, "v"),
    ("ids", pa.table({"id": [1], "v": [1.5]}), {}, SchemaMismatchError, "v"),
    ("none", pa.table({}), {}, ValueError, "column"),
    ("ids", numbers([99], more=[1]), {}, FsspeckitError, "^(?!.*schema_mode).*columns of the source differ"),
    ("days", numbers([1], day=["mon"], more=[1]), WHERE, SchemaMismatchError, "^(?!.*schema_mode).*columns of the sou"),
    ("days", MON.drop_columns("v"), WHERE, SchemaMismatchError, "v"),
    ("days", numbers([1], [2.5], day=["mon"]), WHERE, SchemaMismatchError, "v"),
    ("days", numbers([1]), WHERE, SchemaMismatchError, "day"),
    ("days", MON, WHERE | {"partition_by": "v"}, PartitionError, "partitioned by"),
    *(("days", MON, WHERE | {"mode": mode}, ValueError, 'replace_where needs mode="overwrite"')
      for mode in ("append", "overwrite_partitions", "error", "ignore")),
    ("days", MON, WHERE | {"replace_where": "nope = 1"}, ExpressionError, "^replace_where: .*(did you mean|choose)"),
    ("days", MON, WHERE | {"replace_where": "id = 'x'"}, ExpressionError, "^replace_where: .*compare"),
    *(("days", MON, WHERE | {"replace_where": text}, ExpressionError, "^replace_where: ")
      for text in ("id", "", "id = 1; id = 2")),
    *(("days", numbers([30, 4, None], day=["mon"] * 3), WHERE | {"replace_where": where}, ExpressionError,
       r"source row\(s\) are outside.*replace_where.*such as.*'id'")
      for where in ("id >= 10", "NOT id < 10", [("id", ">=", 10)], pc.field("id") >= 10)),
    *(("none", numbers([1, 2]), {"basename_template": template, "max_rows_per_file": 1}, ValueError, "basename_temp")
      for template in ("fixed.parquet", "x-{i}", "../x-{i}.parquet", "a/{i}.parquet", "_{i}.parquet", "x\0{i}.parquet",
                       "\ud800{i}.parquet", 5, b"{i}.parquet")),
]  # fmt: skip


def test_writes(io: Any, tmp_path: Path) -> None:
    check(io, tmp_path, "write_dataset", WRITE_CALLS)


DELETES: list[Wrong] = [
    *(("ids", None, {"where": where}, ExpressionError, "where")
      for where in ("nope = 1", "id = 'x'", "id", "", "id = 1; id = 2", "sum(id) > 1", "id IN (SELECT 1)", "f(id) = 1",
                    None)),
    ("ids", None, {"where": pc.field(1) == 2}, ExpressionError, "by its number"),
    *(("ids", None, option, ValueError, next(iter(option)))
      for option in ({"row_group_size": 0}, {"compression": "nope"}, {"memory_limit": "much"})),
    ("none", None, {}, DatasetNotFoundError, "d"),
]  # fmt: skip
VALUES = [{}, {"nope": "1"}, {"v": "1"}, {"id": "'x'"}, {"id": "1.5"}, {"v": 3}, {"id": "id / 0"}, {"v": "v +"}, None]


def test_deletes_and_updates(io: Any, tmp_path: Path) -> None:
    (tmp_path / "delete").mkdir()
    check(io, tmp_path / "delete", "delete", DELETES, where="id = 5")
    values: list[Wrong] = [("ids", None, {"set": value, "where": "true"}, ExpressionError, "") for value in VALUES]
    (tmp_path / "update").mkdir()
    check(io, tmp_path / "update", "update", [*DELETES, *values], set={"v": "'x'"}, where="id = 5")


def fed(name: str, values: Any) -> pa.Table:
    """The feed with another column in the place of one."""
    column = values if isinstance(values, pa.Array) else pa.array(values)
    return FEED.set_column(FEED.column_names.index(name), name, column)


FEEDS: list[Wrong] = [
    ("feed", FEED, {"sequence_by": None}, ValueError, "sequence_by"),
    ("feed", FEED, {"sequence_by": "nope"}, ValueError, "nope"),
    ("feed", FEED, {"key_columns": "nope"}, ValueError, "nope"),
    ("feed", FEED, {"columns": ["nope"], "except_columns": None}, ValueError, "nope"),
    ("feed", FEED, {"except_columns": ["nope"]}, ValueError, "nope"),
    ("feed", FEED, {"except_columns": ["id"]}, ValueError, "id"),
    ("feed", FEED, {"delete_when": "nope = 'd'"}, ValueError, "nope"),
    ("feed", FEED, {"delete_when": "op"}, ValueError, "op"),
    ("feed", FEED, {"delete_when": "op = 1"}, ValueError, "compare"),
    ("feed", fed("lsn", pa.array([None], pa.int64())), {}, KeyColumnError, "lsn"),
    ("feed", fed("lsn", [float("nan")]), {}, FsspeckitError, "lsn"),
    ("feed", fed("lsn", ["x"]), {}, SchemaMismatchError, "lsn|valid_from"),
    ("feed", fed("lsn", [[2]]), {}, SchemaMismatchError, "lsn"),
    ("feed", fed("id", pa.array([None], pa.int64())), {}, KeyColumnError, "NULL value.*Remove these rows or replace"),
    ("feed", fed("v", [3]), {}, SchemaMismatchError, "v"),
    ("feed", FEED.append_column("more", pa.array([3])), {}, SchemaMismatchError,
     "^(?!.*schema_mode).*apply_changes of .* leave additional ones out with except_columns"),
    ("feed", FEED.drop_columns("v"), {}, SchemaMismatchError, "^(?!.*schema_mode).*Add missing columns"),
    ("feed", pa.table([[1], ["new"], ["new"], [2], ["u"]], ["id", "v", "v", "lsn", "op"]), {}, ValueError, "v"),
    ("feed", FEED, {"scd_type": 3}, ValueError, "scd_type"),
    ("feed", FEED, {"scd_type": True}, ValueError, "scd_type"),
    ("feed", FEED, {"scd_type": "2"}, ValueError, "scd_type"),
]  # fmt: skip
OF_HISTORIES: list[Wrong] = [
    ("history", FEED, {"sequence_by": "id"}, KeyColumnError, "id"),
    ("none", FEED, {"partition_by": "valid_from"}, PartitionError, "valid_from"),
    ("history", FEED.append_column("valid_to", pa.array([1])), {}, SchemaMismatchError, "valid_to"),
    ("none", FEED.append_column("Valid_From", pa.array([1])), {}, SchemaMismatchError, "Valid_From.*rename"),
]


def test_feeds(io: Any, tmp_path: Path) -> None:
    usual = {"key_columns": "id", "sequence_by": "lsn", "delete_when": "op = 'd'", "except_columns": ["op"]}
    (tmp_path / "feed").mkdir()
    check(io, tmp_path / "feed", "apply_changes", FEEDS, **usual)
    (tmp_path / "history").mkdir()
    same: list[Wrong] = [("history", *each[1:]) for each in FEEDS if "scd_type" not in each[2]]
    check(io, tmp_path / "history", "apply_changes", [*same, *OF_HISTORIES], **usual, scd_type=2)


WRONG_NUMBERS: dict[str, list[Any]] = {
    "target_mb_per_file": [0, -1, float("nan"), "128", True, float("inf")],
    "target_rows_per_file": [0, -5, 1.5, float("inf"), np.True_],
    "max_files": [True, 0],
    "max_bytes": [-1],
    "max_groups_per_commit": [0],
    "row_group_size": [True, 0],
    "compression": [5, "zip"],
    "partition_filter": [5, [5], "../other", ["/etc"], "", "a//b"],
}
MISSING = FileNotFoundError, "no matching|partition_filter"
COMPACTIONS: list[Wrong] = [
    *(("none", None, {name: value}, ValueError, "") for name, values in WRONG_NUMBERS.items() for value in values),
    ("none", None, {"target_mb_per_file": None}, ValueError, "target"),
    ("none", None, {}, FileNotFoundError, "no matching parquet files"),
    *(("days", None, {"partition_filter": wanted}, *MISSING) for wanted in ("day=wed", "day=mo/", "ay=mon", [])),
]
A = {"zorder_columns": ["a"]}
OPTIMIZATIONS: list[Wrong] = [
    ("list", None, {}, ValueError, "zorder_columns"),
    ("list", None, {"zorder_columns": []}, ValueError, "at least one"),
    ("list", None, {"zorder_columns": ["a", "a"]}, ValueError, "only once"),
    ("list", None, {"zorder_columns": ["nowhere"]}, ValueError, "nowhere"),
    ("list", None, {"zorder_columns": ["day"]}, ValueError, "partition column"),
    ("list", None, {"zorder_columns": ["list"]}, SchemaMismatchError, "no order"),
    ("list", None, {"zorder_columns": 5}, ValueError, "neither a name"),
    ("list", None, A | {"curve": "peano"}, ValueError, "peano"),
    ("list", None, A | {"target_mb_per_file": 0}, ValueError, "above zero"),
    ("list", None, A | {"target_rows_per_file": -1}, ValueError, "above zero"),
    ("list", None, A | {"partition_filter": "day=1/../.."}, ValueError, "inside"),
    ("list", None, A | {"partition_filter": "day=3"}, *MISSING),
    ("list", None, A | {"bloom_filter_columns": ["flag"]}, ValueError, "Bloom"),
    ("list", None, A | {"bloom_filter_columns": ["list"]}, ValueError, "list"),
    ("list", None, A | {"bloom_filter_columns": ["nowhere"]}, ValueError, "nowhere"),
    ("list", None, A | {"deduplicate_key_columns": ["nowhere"]}, KeyColumnError, "nowhere"),
    ("list", None, A | {"dedup_order_by": ["a"]}, ValueError, "deduplicate_key_columns"),
    ("list", None, A | {"null_keys": "match"}, ValueError, "deduplicate_key_columns"),
    ("list", None, {"deduplicate_key_columns": []}, KeyColumnError, "deduplicate_key_columns is empty"),
    ("list", None, {"deduplicate_key_columns": [None]}, KeyColumnError, "deduplicate_key_columns contains None"),
    ("list", None, {"deduplicate_key_columns": "a", "dedup_order_by": "list"}, SchemaMismatchError, "dedup_order_by"),
    (
        "list",
        None,
        {"deduplicate_key_columns": "a", "bloom_filter_columns": ["nowhere"]},
        ValueError,
        "bloom_filter_co",
    ),
    ("list", None, {"deduplicate_key_columns": "a", "force": True}, ValueError, "force"),
    ("list", None, {"deduplicate_key_columns": "a", "curve": "hilbert"}, ValueError, "curve"),
]
DEDUPLICATIONS: list[Wrong] = [
    ("list", None, {"key_columns": []}, ValueError, "key_columns is empty"),
    ("list", None, {"key_columns": None}, ValueError, "no key is recorded"),
    ("list", None, {"key_columns": [1]}, ValueError, "key_columns contains 1, which is not the name"),
    ("list", None, {"key_columns": 1}, ValueError, "key_columns contains 1, which is not the name"),
    ("list", None, {"key_columns": {"id", "a"}}, KeyColumnError, "key_columns=.*is a set, which has no order"),
    ("list", None, {"dedup_order_by": {"id", "a"}}, ValueError, "is a set, which has no order"),
    ("list", None, {"key_columns": ["nowhere"]}, KeyColumnError, "nowhere.*not found in the dataset"),
    ("list", None, {"dedup_order_by": "nowhere"}, KeyColumnError, "dataset does not have.*nowhere"),
    ("list", None, {"null_keys": "maybe"}, ValueError, "null_keys"),
    ("list", None, {"partition_filter": "../d"}, ValueError, "partition_filter"),
    ("list", None, {"max_files": 0}, ValueError, "max_files"),
    ("list", None, {"key_columns": "list"}, SchemaMismatchError, "'list' of type .* cannot be a key.*key_columns"),
    ("list", None, {"dedup_order_by": "-list"}, SchemaMismatchError, "dedup_order_by names 'list'"),
    ("list", None, {"partition_filter": "day=7"}, *MISSING),
    ("none", None, {}, FileNotFoundError, "no matching parquet files"),
]


@pytest.mark.scenario("UP-10", "UP-11", "MD-5.1")
def test_maintenance(io: Any, tmp_path: Path) -> None:
    for name in ("compact", "optimize", "deduplicate"):
        (tmp_path / name).mkdir()
    check(io, tmp_path / "compact", "compact_parquet_dataset", COMPACTIONS, target_mb_per_file=1)
    check(io, tmp_path / "optimize", "optimize_parquet_dataset", OPTIMIZATIONS)
    check(io, tmp_path / "deduplicate", "deduplicate_parquet_dataset", DEDUPLICATIONS, key_columns="id")


# Sources, folders and files


def test_data_of_unsupported_types(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    for data, write in itertools.product(([{"id": 1, "v": "x"}], {"id": [1]}, None, 5, [], "no/such/path"), WRITES):
        path = isinstance(data, str)
        error, word = (FileNotFoundError, str(data)) if path else (UnsupportedDataError, type(data).__name__)
        with refused(tmp_path, error, word):
            WRITES[write](io, data, str(tmp_path / "d"))


@pytest.mark.parametrize("write", WRITES)
def test_partition_values_that_cannot_be_stored(io: Any, tmp_path: Path, write: str) -> None:
    by_day(tmp_path / "d", mon=[1, 2])
    for value, word in (("a\x00b", "NUL"), ("__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__")):
        with refused(tmp_path, PartitionError, "day", word):
            WRITES[write](io, numbers([2, 3], "new", day=["mon", value]), str(tmp_path / "d"))
    if write == "dry run":
        return
    before = tree_of(tmp_path / "d")
    with pytest.raises((OSError, ValueError), match="day"):
        WRITES[write](io, numbers([1, 3], "new", day=["mon", "x" * 300]), str(tmp_path / "d"))
    assert tree_of(tmp_path / "d") == before
    assert not [path for path in tree_of(tmp_path) if "staging" in path or path.endswith(".staged")]
    io.merge(numbers([1], "later", day=["mon"]), str(tmp_path / "d"), **UPSERT)


@pytest.mark.parametrize("change", CHANGES)
def test_damaged_files_table_formats_and_links(io: Any, tmp_path: Path, change: str) -> None:
    """What is in the folder is no data of ours: files that are no Parquet, logs of table formats, and links."""
    whole = put(tmp_path / "outside" / "x.parquet", numbers(list(range(10)))).read_bytes()
    noises = [b"", b"PAR1", b"not parquet at all" * 9, b"PAR1" + b"\xff" * 90 + b"PAR1"]
    noises += [whole[:keep] for keep in (3, 60, -1, -9)]
    path = str(tmp_path / "d")
    three_files(tmp_path / "d")
    for noise in noises if change not in ("append", "overwrite") else ():
        (tmp_path / "d" / "noise.parquet").write_bytes(noise)
        with refused(tmp_path, DamagedFileError, "noise.parquet"):
            CHANGES[change](io, path)
        (tmp_path / "d" / "noise.parquet").unlink()
    tables = {"_delta_log/00000000000000000000.json": "Delta", ".hoodie/hoodie.properties": "Hudi"}
    for made, name in (tables | {"metadata/v1.metadata.json": "Iceberg"}).items():
        (tmp_path / "d" / made).parent.mkdir()
        (tmp_path / "d" / made).write_text("{}")
        with refused(tmp_path, TableFormatError, name):
            CHANGES[change](io, path)
        (tmp_path / "d" / made).unlink()
        (tmp_path / "d" / made).parent.rmdir()
    for link, target in (("link.parquet", "outside/x.parquet"), ("link", "outside")):
        (tmp_path / "d" / link).symlink_to(tmp_path / target)
        with refused(tmp_path, (OSError, ValueError), "link", "symbolic"):
            CHANGES[change](io, path)
        (tmp_path / "d" / link).unlink()
    with refused(tmp_path, (OSError, ValueError), "x.parquet"):
        CHANGES[change](io, str(tmp_path / "outside" / "x.parquet"))


def test_damaged_pages(io: Any, tmp_path: Path) -> None:
    """One flipped bit in a page of a file that is read or rewritten is an error if the page has a checksum."""
    options: dict[str, Any] = {"write_page_checksum": True, "compression": "none", "use_dictionary": False}
    table = numbers(list(range(100)), [f"text {i}" for i in range(100)])
    for column, strategy in itertools.product(["id", "v"], ["upsert", "full_merge"]):
        folder = tmp_path / f"{column} {strategy}"
        flip_page(put(folder / "a.parquet", table, **options), column)
        assert pq.read_table(folder / "a.parquet").num_rows == 100, "the default reader does not notice"
        before = contents(folder)
        with pytest.raises(DamagedFileError, match=r"a\.parquet"):
            io.merge(numbers([5], "new"), str(folder), strategy=strategy, key_columns=["id"])
        assert contents(folder) == before
    for filters in (None, [("id", ">=", 0)]):
        with pytest.raises(DamagedFileError, match=r"a\.parquet"):
            io.read_parquet(str(tmp_path / "v upsert"), filters=filters)
    assert io.read_parquet(str(tmp_path / "v upsert"), columns=["id"]).num_rows == 100


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_damaged_key_pages(io: Any, tmp_path: Path, strategy: str) -> None:
    """A damaged key has another value; without the checksum, the row would be inserted again."""
    table = pa.table({"id": ["aaaa", "bbbb", "cccc"], "v": ["old"] * 3})
    options = {"write_page_checksum": True, "compression": "none", "use_dictionary": False}
    path = put(tmp_path / "d" / "a.parquet", table, write_statistics=False, **options)
    path.write_bytes(path.read_bytes().replace(b"bbbb", b"bbba", 1))
    before = contents(tmp_path / "d")
    source = pa.table({"id": ["bbbb"], "v": ["new"]})
    with pytest.raises(DamagedFileError, match=r"a\.parquet"):
        io.merge(source, str(tmp_path / "d"), strategy=strategy, key_columns=["id"])
    assert contents(tmp_path / "d") == before


def test_a_template_that_gives_the_name_of_an_existing_file(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")[0].unlink()
    with refused(tmp_path, (FileExistsError, ValueError), "part-1.parquet"):
        io.write_dataset(
            numbers([1, 2]), str(tmp_path / "d"), basename_template="part-{i}.parquet", max_rows_per_file=1
        )


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder, whatever its permissions")
def test_an_unreadable_folder_on_disk(io: Any, tmp_path: Path) -> None:
    by_day(tmp_path / "d", mon=[1], tue=[2])
    (tmp_path / "d" / "day=tue").chmod(0)
    try:
        with pytest.raises(OSError, match="day=tue"):
            io.merge(numbers([1], "new", day=["mon"]), str(tmp_path / "d"), **UPSERT)
    finally:
        (tmp_path / "d" / "day=tue").chmod(0o755)


# Columns, types and keys of which an operation and its dataset are named

NULL_KEY = numbers([1, None])
IN_CONTEXT: dict[str, tuple[Callable[..., Any], str]] = {
    "merge: key missing in the source": (lambda io, path: merge(io, path, numbers([1]), "nowhere"), "nowhere"),
    "merge: key missing in the target": (lambda io, path: merge(io, path, numbers([1], fresh=[1]), "fresh"), "fresh"),
    "merge: NULL key in the source": (lambda io, path: merge(io, path, NULL_KEY), "id"),
    "merge: NULL key in the target": (lambda io, path: merge(io, path, numbers([1]), "v"), "v"),
    "merge: key twice": (lambda io, path: merge(io, path, numbers([1, 1])), "id"),
    "merge: missing order column": (
        lambda io, path: merge(io, path, numbers([1]), strategy="deduplicate", dedup_order_by="nowhere"),
        "nowhere",
    ),
    "merge: other columns": (lambda io, path: merge(io, path, pa.table({"id": [1]})), "v"),
    "merge: other type": (lambda io, path: merge(io, path, pa.table({"id": [1], "v": [[1]]})), "v"),
    "optimize: missing column": (lambda io, path: io.optimize_parquet_dataset(path, ["nowhere"]), "nowhere"),
    "optimize: missing column of filters": (
        lambda io, path: io.optimize_parquet_dataset(path, ["id"], bloom_filter_columns=["nowhere"]),
        "nowhere",
    ),
    "optimize: missing key": (
        lambda io, path: io.optimize_parquet_dataset(path, ["id"], deduplicate_key_columns=["nowhere"]),
        "nowhere",
    ),
    "optimize: NULL key": (
        lambda io, path: io.optimize_parquet_dataset(path, ["id"], deduplicate_key_columns=["v"]),
        "v",
    ),
    "deduplicate: missing key": (lambda io, path: io.deduplicate_parquet_dataset(path, ["nowhere"]), "nowhere"),
    "deduplicate: missing order column": (
        lambda io, path: io.deduplicate_parquet_dataset(path, ["id"], dedup_order_by=["nowhere"]),
        "nowhere",
    ),
    "deduplicate: NULL key": (lambda io, path: io.deduplicate_parquet_dataset(path, ["v"]), "v"),
}


def merge(io: Any, path: str, source: pa.Table, key: str = "id", strategy: str = "upsert", **options: Any) -> Any:
    return io.merge(source, path, strategy=strategy, key_columns=[key], **options)


@pytest.mark.scenario("UP-61")
@pytest.mark.parametrize("case", IN_CONTEXT)
def test_errors_of_columns_and_keys_name_the_operation_and_the_dataset(
    io: Any, tmp_path: Path, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "d" / "a.parquet", numbers([1, 2], ["one", None]))
    (call, column), operation = IN_CONTEXT[case], case.partition(":")[0]
    with refused(tmp_path, pa.ArrowInvalid, f"{operation} of {tmp_path / 'd'}: ", repr(column)) as caught:
        call(io, str(tmp_path / "d"))
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, FsspeckitError)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.scenario("UP-61")
@pytest.mark.parametrize("operation", ["compact", "optimize", "deduplicate"])
def test_files_without_a_common_type_name_the_operation_and_the_dataset(
    io: Any, tmp_path: Path, operation: str
) -> None:
    put(tmp_path / "d" / "a.parquet", numbers([1]))
    put(tmp_path / "d" / "b.parquet", pa.table({"id": ["text"], "v": ["x"]}))
    call = getattr(io, f"{operation}_parquet_dataset")
    with refused(tmp_path, pa.ArrowInvalid, operation, str(tmp_path / "d"), "'id'"):
        call(str(tmp_path / "d"), 128 if operation == "compact" else ["id"])
