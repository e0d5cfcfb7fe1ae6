"""Partition columns keep the type that they were written with; folders of others have the types that Spark infers."""
# ruff: noqa: DTZ001 - timestamps without a zone are meant

from __future__ import annotations

import datetime as dt
import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conformance.effort import for_each
from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.common.partitions import parse_hive_partition_path
from kit import data_files, numbers, put, tree_of

DAYS = [dt.date(2026, 11, day) for day in (1, 2, 3)]


def days(ids: list[int], v: str = "old", start: int = 0) -> pa.Table:
    return numbers(ids, v, day=pa.array([DAYS[(start + at) % 3] for at in range(len(ids))]))


def ids(table: pa.Table) -> list[int]:
    return sorted(table["id"].to_pylist())


@pytest.fixture
def lake(io: Any, tmp_path: Path) -> str:
    """Ids 1, 2 and 3 on one day each."""
    io.write_dataset(days([1, 2, 3]), str(tmp_path / "d"), partition_by=["day"])
    return str(tmp_path / "d")


def kind(io: Any, path: str, name: str = "day") -> pa.DataType:
    return io.read_parquet(path).schema.field(name).type


VERBS: dict[str, tuple[Callable[[Any, str], Any], dict[int, tuple[str, dt.date]]]] = {
    "merge": (
        lambda io, d: io.merge(days([1, 4], "new"), d, key_columns="id"),
        {1: ("new", DAYS[0]), 4: ("new", DAYS[1])},
    ),
    "merge by day": (
        lambda io, d: io.merge(days([1, 4], "new"), d, key_columns=["id", "day"]),
        {1: ("new", DAYS[0]), 4: ("new", DAYS[1])},
    ),
    "merge of the texts of folders": (
        lambda io, d: io.merge(numbers([1, 4], "new", day=["2026-11-01", "2026-11-02"]), d, key_columns="id"),
        {1: ("new", DAYS[0]), 4: ("new", DAYS[1])},
    ),
    "merge of midnights": (
        lambda io, d: io.merge(
            numbers([1, 4], "new", day=pa.array(map(pd.Timestamp, DAYS[:2]), pa.timestamp("ns"))), d, key_columns="id"
        ),
        {1: ("new", DAYS[0]), 4: ("new", DAYS[1])},
    ),
    "move": (
        lambda io, d: io.merge(days([1], "new", start=1), d, key_columns="id", partition_move="move"),
        {1: ("new", DAYS[1])},
    ),
    "scope": (
        lambda io, d: io.merge(
            days([1], "new", start=1),
            d,
            key_columns="id",
            strategy="full_merge",
            scope="day = DATE '2026-11-02'",
            partition_move="unchecked",
        ),
        {1: ("old", DAYS[0]), 2: ("", DAYS[1])},
    ),
    "replace where": (
        lambda io, d: io.write_dataset(
            days([9], "new", start=1), d, mode="overwrite", replace_where="day = DATE '2026-11-02'"
        ),
        {2: ("", DAYS[1]), 9: ("new", DAYS[1])},
    ),
    "overwrite partitions": (
        lambda io, d: io.write_dataset(days([9], "new", start=1), d, mode="overwrite_partitions"),
        {2: ("", DAYS[1]), 9: ("new", DAYS[1])},
    ),
    "append": (lambda io, d: io.write_dataset(days([9], "new"), d), {9: ("new", DAYS[0])}),
    "delete": (
        lambda io, d: io.delete(d, where="day BETWEEN DATE '2026-11-02' AND DATE '2026-11-02'"),
        {2: ("", DAYS[1])},
    ),
    "update": (
        lambda io, d: io.update(d, set={"day": "day + INTERVAL '1' DAY"}, where="id = 1"),
        {1: ("old", DAYS[1])},
    ),
    "conditions": (
        lambda io, d: io.merge(days([1, 2], "new"), d, key_columns="id", update_when="target.day >= DATE '2026-11-02'"),
        {2: ("new", DAYS[1])},
    ),
    "feed": (
        lambda io, d: io.apply_changes(
            days([1], "renewed"),
            d,
            key_columns="id",
            sequence_by="v",
        ),
        {1: ("renewed", DAYS[0])},
    ),
    "compact": (lambda io, d: io.compact_parquet_dataset(d, target_rows_per_file=10), {}),
    "optimize": (lambda io, d: io.optimize_parquet_dataset(d, zorder_columns=["id"]), {}),
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_keeps_dates(io: Any, tmp_path: Path, lake: str, verb: str) -> None:
    change, expected = VERBS[verb]
    change(io, lake)
    found = io.read_parquet(lake)
    assert found.schema.field("day").type == pa.date32()
    rows = {row["id"]: (row["v"], row["day"]) for row in found.to_pylist()}
    before = {number: ("old", day) for number, day in zip((1, 2, 3), DAYS, strict=True)}
    wanted = before | expected
    if verb == "scope":  # the row is in two partitions, because moves were not looked for
        assert sorted(row["day"] for row in found.to_pylist() if row["id"] == 1) == DAYS[:2]
        rows[1] = ("old", DAYS[0])
    assert rows == {number: row for number, row in wanted.items() if row[0]}
    assert {path.parent.name for path in data_files(tmp_path / "d")} <= {f"day={day}" for day in DAYS}


WRITTEN = {
    "bool": pa.array([True, False, None]),
    "int16": pa.array([1, 2, None], pa.int16()),
    "int64": pa.array([1, 2, None], pa.int64()),
    "float": pa.array([1.5, 2.0, None], pa.float32()),
    "decimal": pa.array([Decimal("1.50"), Decimal("2.00"), None], pa.decimal128(9, 2)),
    "date": pa.array([DAYS[0], DAYS[1], None]),
    "timestamp": pa.array([dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, 1, 2, 3, 4), None], pa.timestamp("us")),
    "instant": pa.array([0, 3_600_000_000, None], pa.timestamp("us", "Europe/Berlin")),
    "numbers as text": pa.array(["1", "01", None]),
    "dates as text": pa.array(["2026-11-01", "2026-11-02", None]),
}


@for_each("name", WRITTEN)
def test_the_type_of_the_first_write_stays(io: Any, tmp_path: Path, name: str) -> None:
    path, column = str(tmp_path / "d"), WRITTEN[name]
    table = numbers([1, 2, 3], p=column)
    io.write_dataset(table, path, partition_by=["p"])
    io.merge(table.slice(0, 1), path, key_columns=["id", "p"], null_keys="match")
    found = io.read_parquet(path).sort_by("id")
    assert (found["p"].type, found["p"].to_pylist()) == (column.type, column.to_pylist())
    io.delete(path, where="true")
    assert kind(io, path, "p") == column.type


def test_a_source_that_does_not_fit_is_refused(io: Any, tmp_path: Path, lake: str) -> None:
    before = tree_of(tmp_path)
    wrong: list[Any] = ["2026-11", 20261101, dt.datetime(2026, 11, 1, 12)]
    for value in wrong:
        for change in (io.merge, io.write_dataset):
            options = {"key_columns": "id"} if change == io.merge else {}
            with pytest.raises(SchemaMismatchError, match="partition column 'day' is date32") as caught:
                change(numbers([1], "new", day=[value]), lake, **options)
            assert repr(value) in str(caught.value)
    assert tree_of(tmp_path) == before


SPARK_NAMES = {
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp",
}
FOLDERS: dict[tuple[str, ...], tuple[pa.DataType, list[Any]]] = {
    ("1", "-7", "10"): (pa.int32(), [1, -7, 10]),
    ("01", "2"): (pa.int32(), [1, 2]),
    ("1", "2147483648"): (pa.int64(), [1, 2**31]),
    ("1", "9223372036854775808"): (pa.decimal128(19, 0), [Decimal(1), Decimal(2**63)]),
    ("1.0", "2"): (pa.float64(), [1.0, 2.0]),
    ("1.0", "2147483648"): (pa.string(), ["1.0", "2147483648"]),
    ("2026-11-02", "__HIVE_DEFAULT_PARTITION__"): (pa.date32(), [DAYS[1], None]),
    ("2026-11-02", "2026-11-02 10%3A00%3A00"): (
        pa.timestamp("us"),
        [dt.datetime(2026, 11, 2), dt.datetime(2026, 11, 2, 10)],
    ),
    ("2026-02-30",): (pa.string(), ["2026-02-30"]),
    ("2026-1-2",): (pa.string(), ["2026-1-2"]),
    ("true",): (pa.string(), ["true"]),
    ("1", "x"): (pa.string(), ["1", "x"]),
    ("1", "2026-11-02"): (pa.string(), ["1", "2026-11-02"]),
}


@for_each("folders", list(FOLDERS))
def test_folders_of_others_are_read_as_spark_reads_them(io: Any, tmp_path: Path, folders: tuple[str, ...]) -> None:
    for number, folder in enumerate(folders):
        put(tmp_path / "d" / f"p={folder}" / "a.parquet", numbers([number]))
    found = io.read_parquet(str(tmp_path / "d")).sort_by("id")["p"]
    assert (found.type, found.to_pylist()) == FOLDERS[folders]
    if "Spark" in type(io).__name__:
        plain = io.spark.read.parquet(str(tmp_path / "d")).schema["p"].dataType
        assert plain.simpleString() == SPARK_NAMES.get(found.type, str(found.type)).replace(", ", ",").replace(
            "128", ""
        )


def test_a_folder_keeps_its_name(io: Any, tmp_path: Path) -> None:
    """The number 1 goes to the folder `01`, new numbers to folders of their own text."""
    put(tmp_path / "d" / "month=01" / "a.parquet", numbers([1, 2]))
    path = str(tmp_path / "d")
    io.merge(numbers([2, 3, 4], "new", month=pa.array([1, 1, 2], pa.int64())), path, key_columns=["id", "month"])
    assert kind(io, path, "month") == pa.int32()
    assert {file.parent.name for file in data_files(tmp_path / "d")} == {"month=01", "month=2"}
    assert ids(io.read_parquet(path, filters="month = 1")) == [1, 2, 3]
    io.update(path, set={"month": "1"}, where="id = 4")
    assert {file.parent.name for file in data_files(tmp_path / "d")} == {"month=01"}
    assert parse_hive_partition_path("month=01/a.parquet") == {"month": "01"}


@pytest.mark.parametrize(
    ("folder", "value", "type_"),
    [
        ("p=2026-11-01", "2026-11-01", pa.date32()),
        ("p=01", "01", pa.string()),
        ("p=1", "A", pa.string()),
        ("p=1", 2**40, pa.int64()),
        ("p=true", True, pa.bool_()),
        ("p=2026-11-01", dt.datetime(2026, 11, 1), pa.date32()),
    ],
)
def test_the_first_write_records_the_types_of_a_dataset_without_them(
    io: Any, tmp_path: Path, folder: str, value: Any, type_: pa.DataType
) -> None:
    put(tmp_path / "d" / folder / "a.parquet", numbers([1]))
    path = str(tmp_path / "d")
    done = io.merge(numbers([5], p=[value]), path, key_columns=["id"])
    assert done.partition_types == [str(type_)]
    assert f"recorded: {type_}" in str(done)
    assert kind(io, path, "p") == type_
    put(tmp_path / "d" / folder / "b.parquet", numbers([6]))  # by another program
    assert kind(io, path, "p") == type_


def test_an_overwrite_can_change_the_type_and_a_restore_brings_it_back(io: Any, lake: str) -> None:
    io.keep_history(lake, retain="7d")
    version = io.write_dataset(days([4]), lake).commit_seq
    io.write_dataset(numbers([9], day=["x"]), lake, mode="overwrite")
    assert kind(io, lake) == pa.string()
    assert io.read_parquet(lake, version=version).schema.field("day").type == pa.date32()
    io.restore(lake, version=version)
    assert (kind(io, lake), ids(io.read_parquet(lake))) == (pa.date32(), [1, 2, 3, 4])


def test_a_history_by_is_current(io: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    options = {"key_columns": "id", "sequence_by": "n", "scd_type": 2, "partition_by": "is_current"}
    io.apply_changes(pa.table({"id": [1, 2], "v": ["a", "b"], "n": [1, 1]}), path, **options)
    io.apply_changes(pa.table({"id": [1], "v": ["c"], "n": [2]}), path, **options)
    assert kind(io, path, "is_current") == pa.bool_()
    assert ids(io.read_parquet(path, filters="is_current")) == [1, 2]
    assert io.read_parquet(path, filters="NOT is_current")["v"].to_pylist() == ["a"]


def test_dry_runs_and_plans_compare_the_same_types(io: Any, lake: str) -> None:
    options = {"key_columns": ["id", "day"]}
    plan = io.merge(days([1, 2], "new"), lake, dry_run=True, **options)
    done = io.merge(days([1, 2], "new"), lake, **options)
    assert (plan.inserted, plan.updated) == (done.inserted, done.updated) == (0, 2)
    assert io.delete(lake, where="day = DATE '2026-11-03'", dry_run=True).deleted == 1


@pytest.mark.parametrize("enemy", ["garbage", "other type", "of other columns", "later slot"])
def test_types_in_the_journal_are_checked(io: Any, tmp_path: Path, lake: str, enemy: str) -> None:
    log = tmp_path / ".d.fsspeckit" / "log"
    (mark,) = log.glob("types-*")
    slot, digest, _ = re.fullmatch(r"types-(\d{20})-([0-9a-f]{8})-(.*)", mark.name).groups()  # type: ignore[union-attr]
    mark.unlink()
    text = {"garbage": "struct<x: int>", "other type": "int64", "later slot": "decimal128(99, 3)"}.get(enemy, "string")
    digest = "0" * 8 if enemy == "of other columns" else digest
    (log / f"types-{slot}-{digest}-{urlsafe_b64encode(text.encode()).decode().rstrip('=')}").touch()
    assert kind(io, lake) == pa.date32()
    io.merge(days([1], "new"), lake, key_columns="id")
    assert io.read_parquet(lake, filters="v = 'new'")["day"].to_pylist() == DAYS[:1]


def test_a_commit_that_is_not_finished_has_its_types(io: Any, tmp_path: Path, lake: str) -> None:
    log = tmp_path / ".d.fsspeckit" / "log"
    io.write_dataset(numbers([9], day=["2026-11-01"]), lake, mode="overwrite")
    mark = max(log.glob("types-*"))
    mark.unlink()
    max(log.glob("*.done")).unlink()
    assert kind(io, lake) == pa.string()  # as its record says
    io.recover(lake)
    assert mark.exists()
    assert kind(io, lake) == pa.string()


def test_dates_reach_the_tables_of_exports(io: Any, lake: str) -> None:
    io.export(lake, "delta")
    (log,) = Path(lake, "_delta_log").glob("*.json")
    schema = next(
        json.loads(line)["metaData"]["schemaString"] for line in log.read_text().splitlines() if "metaData" in line
    )
    assert {field["name"]: field["type"] for field in json.loads(schema)["fields"]}["day"] == "date"
    assert pq.ParquetFile(data_files(Path(lake))[0]).schema_arrow.names == ["id", "v"]


def test_instants_reach_exports_with_their_zone(io: Any, tmp_path: Path) -> None:
    """Without a zone, Spark would read them in that of its session."""
    path = str(tmp_path / "d")
    at = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)
    io.write_dataset(numbers([1], at=pa.array([at], pa.timestamp("us", "Europe/Berlin"))), path, partition_by=["at"])
    io.export(path, "delta")
    (log,) = Path(path, "_delta_log").glob("*.json")
    (added,) = (json.loads(line)["add"] for line in log.read_text().splitlines() if "add" in json.loads(line))
    assert added["partitionValues"] == {"at": "2026-11-01T12:00:00.000000Z"}
    assert deltalake.DeltaTable(path).to_pyarrow_table()["at"].to_pylist() == [at]
