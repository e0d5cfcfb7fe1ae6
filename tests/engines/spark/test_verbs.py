"""Every verb with every option on a real Spark, with a DataFrame as source: what PyArrow does with the same rows."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.common.errors import FsspeckitError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO
from kit import data_files

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("value", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("born", pa.date32()),
        ("tags", pa.list_(pa.string())),
        ("seq", pa.int32()),
        ("day", pa.string()),
    ]
)
VOLATILE = {"seconds", "path", "paths", "timestamp", "route", "share_limit", "engine", "commit_seq"}
COUNTED = (int, bool, type(None))
Rows = Callable[..., Any]


def row(number: int, seq: int | None = 1, day: str | None = None, **values: Any) -> dict[str, Any]:
    """A row whose values follow from its number; values that are given replace them."""
    found = {
        "id": number,
        "name": None if number % 7 == 3 else f"n{number}",
        "value": None if number % 5 == 2 else number / 4,
        "price": Decimal(number) / 4,
        "at": datetime(2026, 3, 1 + number % 28, 12, 30, tzinfo=UTC),
        "born": date(1990, 1, 1 + number % 28),
        "tags": [f"t{number % 3}", None][: number % 3],
        "seq": seq,
        "day": day or f"d{number % 3}",
    }
    return found | values


def table(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    names = [name for name in schema.names if not rows or name in rows[0]]
    extra = {name: pa.array([row[name] for row in rows]) for name in (rows[0] if rows else {}) if name not in names}
    found = pa.table({name: pa.array([row[name] for row in rows], schema.field(name).type) for name in names})
    for name, values in extra.items():
        found = found.append_column(name, values)
    return found


OLD = [row(number) for number in range(30)]
NEW = [row(number, 2, value=-1.0) for number in (1, 5, 8, 29)] + [row(100, 2), row(101, 2)]
TWICE = [*NEW, row(5, 3, value=-5.0)]
MOVED = [*NEW, row(2, 2, day="d0")]
FEED = [
    {**row(1, 5, value=9.0), "op": "u"},
    {**row(1, 4, value=8.0), "op": "u"},
    {**row(2, 0, value=7.0), "op": "u"},
    {**row(4, 3), "op": "d"},
    {**row(200, 1), "op": "c"},
    {**row(5, 2, day="d0"), "op": "u"},
]
MERGE = {"key_columns": ["id"]}
CDC = {"key_columns": "id", "sequence_by": "seq", "delete_when": "op = 'd'", "except_columns": ["op"]}


@dataclass(frozen=True)
class Case:
    """A call, and the rows of its source."""

    name: str
    verb: str
    options: Mapping[str, Any]
    rows: list[dict[str, Any]] | None = None
    dataset: str = "partitioned"

    def call(self, io: Any, source: Any, path: str) -> Any:
        method = getattr(io, self.verb)
        return method(path, **self.options) if self.rows is None else method(source, path, **self.options)


def merges() -> list[Case]:
    def merge(name: str, rows: list[dict[str, Any]] = NEW, dataset: str = "partitioned", **options: Any) -> Case:
        return Case(f"merge {name}", "merge", MERGE | {"strategy": "upsert"} | options, rows, dataset)

    strategies = ("upsert", "insert", "update", "full_merge", "deduplicate")
    less = [{key: value for key, value in row.items() if key != "name"} for row in NEW]
    return [
        *(merge(f"{strategy} {kind}", strategy=strategy, dataset=kind) for strategy in strategies for kind in LAYOUTS),
        merge("full_merge scope", [row(2, 2), row(5, 2), row(104, 2, "d2")], strategy="full_merge", scope="day = 'd2'"),
        merge("full_merge no rows", [], strategy="full_merge"),
        merge("composite key", key_columns=["id", "day"]),
        merge("duplicates error", TWICE),
        merge("duplicates last unordered", TWICE, on_duplicate_source="last"),
        merge("dedup_order_by", TWICE, strategy="deduplicate", dedup_order_by=["seq"]),
        merge("dedup_order_by descending", TWICE, strategy="deduplicate", dedup_order_by=["-seq"]),
        merge("null key", [*NEW, row(6, 2) | {"id": None}]),
        merge("null_keys match", [*NEW, row(6, 2) | {"id": None}], null_keys="match", dataset="null key"),
        merge("evolve", [{**row, "extra": row["id"]} for row in NEW], schema_mode="evolve", evolve_files="touched"),
        merge("evolve lacks", less, schema_mode="evolve"),
        merge("lacks a column", less),
        merge("skip_unchanged", [row(1), row(2)], skip_unchanged=False),
        merge("unchanged", [row(1), row(2)]),
        merge("move check", MOVED),
        merge("move", MOVED, partition_move="move"),
        merge("move unchecked", MOVED, partition_move="unchecked"),
        merge("update_columns", update_columns=["value"]),
        merge("delete_when", [{**row, "op": "du"[row["id"] % 2]} for row in NEW], delete_when="op = 'd'"),
        merge("update_when", update_when="source.value < target.value"),
        merge("insert_when", insert_when="source.id > 100"),
        merge("newer_by", [row(1, 0), row(2, 9), row(300, 0)], newer_by="seq"),
        merge("a condition that fails", update_when="1 / (target.seq - 1) > 0"),
        merge("compression", compression="zstd", max_rows_per_file=1, row_group_size=2, batch_rows=3),
        merge("memory_limit", memory_limit="64MB"),
        merge("new dataset", dataset="none", partition_by=["day"]),
        merge("dry run", dry_run=True),
        merge("dry run full_merge", dry_run=True, strategy="full_merge"),
    ]


def feeds() -> list[Case]:
    def feed(name: str, rows: list[dict[str, Any]] = FEED, dataset: str = "partitioned", **options: Any) -> Case:
        return Case(f"apply_changes {name}", "apply_changes", CDC | options, rows, dataset)

    once = [{**change, "name": None} for change in FEED[2:]]
    return [
        *(feed(f"type 1 {kind}", dataset=kind) for kind in LAYOUTS),
        *(feed(f"type 2 {kind}", dataset="none", scd_type=2, **given) for kind, given in TYPE_2.items()),
        feed("columns", columns=["value", "price"], except_columns=None, dataset="none"),
        feed("ignore_null_updates", once, ignore_null_updates=True),
        feed("a key twice with ignore_null_updates", ignore_null_updates=True),
        feed("null sequence", [*FEED, {**row(7, None), "op": "u"}]),
        feed("dry run", dry_run=True),
        feed("type 2 dry run", dry_run=True, scd_type=2, dataset="none"),
    ]


def writes() -> list[Case]:
    def write(name: str, rows: list[dict[str, Any]] = NEW, dataset: str = "partitioned", **options: Any) -> Case:
        return Case(f"write {name}", "write_dataset", options, rows, dataset)

    modes = ("append", "overwrite", "overwrite_partitions", "error", "ignore")
    some = [row for row in NEW if row["day"] == "d2"]
    return [
        *(write(mode, mode=mode) for mode in modes),
        write("new", dataset="none", partition_by=["day"]),
        write("new on error", dataset="none", mode="error"),
        write("replace_where", some, mode="overwrite", replace_where="day = 'd2' AND id > 3"),
        write("outside replace_where", mode="overwrite", replace_where="day = 'd2'"),
        write("other columns", [{"id": 1, "day": "d1"}]),
        write("no rows", [], mode="overwrite"),
        write(
            "files", OLD, max_rows_per_file=7, row_group_size=3, compression="gzip", basename_template="p-{i}.parquet"
        ),
        write("dry run", dry_run=True, mode="overwrite"),
    ]


def changes() -> list[Case]:
    def delete(name: str, **options: Any) -> Case:
        return Case(f"delete {name}", "delete", options)

    def update(name: str, **options: Any) -> Case:
        return Case(f"update {name}", "update", options)

    return [
        delete("rows", where="id % 4 = 1"),
        delete("of a partition", where="day = 'd1'"),
        delete("all", where="true"),
        delete("unknown column", where="nope = 1"),
        delete("options", where="id = 3", compression="zstd", row_group_size=2, batch_rows=3, memory_limit="64MB"),
        delete("dry run", where="id % 4 = 1", dry_run=True),
        delete("erase_history", where="id = 3", erase_history=True),
        update("rows", set={"value": "value * 2", "name": "upper(name)"}, where="id < 9"),
        update("moves", set={"day": "'d9'"}, where="id % 4 = 1"),
        update("that fails", set={"value": "1 / (seq - 1)"}, where="true"),
        update("options", set={"value": "0"}, where="id = 3", compression="zstd", row_group_size=2, batch_rows=3),
        update("dry run", set={"value": "value * 2"}, where="id < 9", dry_run=True),
    ]


def maintenance() -> list[Case]:
    def compact(name: str, **options: Any) -> Case:
        return Case(f"compact {name}", "compact_parquet_dataset", options)

    def optimize(name: str, columns: list[str] | None, **options: Any) -> Case:
        return Case(f"optimize {name}", "optimize_parquet_dataset", {"zorder_columns": columns} | options)

    def deduplicate(name: str, dataset: str = "twice", **options: Any) -> Case:
        return Case(f"deduplicate {name}", "deduplicate_parquet_dataset", MERGE | options, dataset=dataset)

    return [
        compact("rows", target_rows_per_file=20),
        compact("mb", target_mb_per_file=1),
        compact("partition_filter", target_rows_per_file=20, partition_filter=["day=d1"], compression="zstd"),
        compact("limits", target_rows_per_file=4, max_files=4, max_groups_per_commit=1, row_group_size=2),
        compact("max_bytes", target_rows_per_file=20, max_bytes=20_000),
        compact("dry run", target_rows_per_file=20, dry_run=True),
        *(
            optimize(curve, ["value", "id"], curve=curve, target_rows_per_file=6)
            for curve in ("linear", "zorder", "hilbert")
        ),
        optimize("deduplicate", ["id"], deduplicate_key_columns=["id"], dedup_order_by=["-seq"], target_mb_per_file=1),
        optimize("options", ["id"], partition_filter="day=d1", row_group_size=2, compression="zstd", force=True),
        optimize("bloom filters", ["id"], bloom_filter_columns=["name"], max_groups_per_commit=1),
        optimize("limits", ["id"], max_files=4, max_bytes=1_000_000),
        optimize("unknown column", ["nope"]),
        optimize("dry run", ["id"], dry_run=True),
        deduplicate("by key"),
        deduplicate("dedup_order_by", dedup_order_by=["seq", "-value"], compression="zstd", row_group_size=2),
        deduplicate("null_keys", null_keys="match", partition_filter=["day=d0"], max_files=9, max_groups_per_commit=1),
        deduplicate("null key", dataset="null key"),
        deduplicate("dry run", dry_run=True, max_bytes=1_000_000),
    ]


LAYOUTS = ("flat", "partitioned")
TYPE_2: dict[str, dict[str, Any]] = {"flat": {}, "partitioned": {"partition_by": ["day"]}}
CASES = [*merges(), *feeds(), *writes(), *changes(), *maintenance()]


@pytest.fixture(scope="module")
def engines() -> list[Any]:
    """Spark with a source that tasks share, and with one that is exchanged."""
    return [SparkDatasetIO(), SparkDatasetIO(share_limit=0)]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of each layout."""
    folder, io = tmp_path_factory.mktemp("datasets"), PyarrowDatasetIO()
    kinds = {
        "flat": (OLD, None),
        "partitioned": (OLD, ["day"]),
        "null key": ([*OLD, row(6, 1) | {"id": None}, row(9, 2) | {"id": None}], ["day"]),
        "twice": ([*OLD, *(row(n, 2 + n % 3) for n in range(0, 20, 3))], ["day"]),
    }
    for kind, (rows, partition_by) in kinds.items():
        io.write_dataset(table(rows), str(folder / kind / "lake"), partition_by=partition_by, max_rows_per_file=4)
    return folder


def outcome(case: Case, io: Any, source: Any, folder: Path) -> Any:
    """What a call returns or raises, without what differs from run to run."""
    try:
        result = dict(case.call(io, source, str(folder / "lake")).to_dict())
    except (FsspeckitError, ValueError) as error:
        return type(error), re.sub(r"[^ ]*/lake", "lake", str(error))
    return {key: value for key, value in result.items() if key not in VOLATILE and isinstance(value, COUNTED)}


def state(folder: Path) -> Any:
    """The rows of every file, in order, with its folder and schema; files of the same folder are told apart by rows."""
    files = [(str(path.parent.relative_to(folder)), pq.ParquetFile(path).read()) for path in data_files(folder)]
    return sorted(((where, found.schema.remove_metadata(), found.to_pylist()) for where, found in files), key=repr)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_spark_does_what_pyarrow_does(
    spark: Any, engines: list[Any], datasets: Path, tmp_path: Path, number: int
) -> None:
    case = CASES[number]
    for name in ("spark", "pyarrow"):
        if case.dataset != "none":
            shutil.copytree(datasets / case.dataset, tmp_path / name)
    source = table(case.rows) if case.rows else SCHEMA.empty_table()
    frame = spark.createDataFrame(source.to_pylist(), frame_schema(source.schema)).coalesce(1 + number % 2)
    expected = outcome(case, PyarrowDatasetIO(), source, tmp_path / "pyarrow")
    found = outcome(case, engines[number % 2], frame, tmp_path / "spark")
    assert found == expected
    assert state(tmp_path / "spark" / "lake") == state(tmp_path / "pyarrow" / "lake")


def frame_schema(schema: pa.Schema) -> Any:
    """The Spark schema of a source."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)
