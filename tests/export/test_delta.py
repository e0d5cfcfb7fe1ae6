"""Delta export: delta-rs reads what fsspeckit reads, after every operation, and plain readers continue to work."""

from __future__ import annotations

import os
import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from export.changes import CHANGES, ROWS, rows_of
from fsspeckit import PartitionError, TableFormatError, UnsupportedDataError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import commit_without_export


def exported(path: str, **options: Any) -> list[dict[str, Any]]:
    return rows_of(pa.table(DeltaTable(path, **options).to_pyarrow_dataset().to_table()))


@pytest.fixture
def io() -> PyarrowDatasetIO:
    return PyarrowDatasetIO()


@pytest.fixture
def path(io: PyarrowDatasetIO, tmp_path: Path) -> str:
    folder = str(tmp_path / "events")
    io.write_dataset(ROWS, folder, partition_by="day")
    io.write_dataset(ROWS.slice(0, 2).set_column(0, "id", [[5, 6]]), folder)
    return folder


@pytest.mark.parametrize("change", CHANGES)
def test_a_kept_export_follows_every_operation(io: PyarrowDatasetIO, path: str, change: str) -> None:
    assert io.export(path, "delta", keep_exported=True).version == 0
    assert exported(path) == rows_of(io.read_parquet(path))
    CHANGES[change](io, path)
    left = [] if change == "delete all" else rows_of(io.read_parquet(path))
    assert exported(path) == left
    assert DeltaTable(path).version() >= 1


def test_one_export_describes_one_state_until_the_next(io: PyarrowDatasetIO, path: str) -> None:
    first = io.export(path)
    io.write_dataset(ROWS.slice(0, 1), path)
    assert len(exported(path)) == 6
    second = io.export(path)
    assert (first.version, second.version, second.changed) == (0, 1, True)
    assert len(exported(path)) == 7
    assert not io.export(path).changed


def test_rewritten_files_get_new_names_while_there_is_an_export(path: str) -> None:
    io = PyarrowDatasetIO(publish="replace")

    def files() -> set[str]:
        return {str(file) for file in Path(path).rglob("*.parquet")}

    before = files()
    io.update(path, set={"v": "'kept name'"}, where="id = 3")
    assert files() == before
    io.export(path)
    io.update(path, set={"v": "'new name'"}, where="id = 3")
    assert len(files() - before) == 1
    assert io.remove_export(path)
    changed = files()
    io.update(path, set={"v": "'kept name again'"}, where="id = 3")
    assert files() == changed


def test_plain_readers_continue_to_work(io: PyarrowDatasetIO, path: str) -> None:
    for number in range(12):  # more than the versions after which Delta writers add a checkpoint, a Parquet file
        io.export(path, keep_exported=True)
        io.write_dataset(ROWS.slice(0, 1).set_column(0, "id", [[100 + number]]), path)
    pattern = f"{path}/**/*.parquet"
    assert ds.dataset(path, partitioning="hive").count_rows() == 18
    assert duckdb.sql(f"SELECT count(*) FROM read_parquet('{pattern}')").fetchall() == [(18,)]
    assert pl.scan_parquet(pattern).select(pl.len()).collect().item() == 18
    assert io.read_parquet(path).num_rows == len(exported(path)) == 18


def test_statistics_and_partitions_let_readers_skip_files(io: PyarrowDatasetIO, tmp_path: Path) -> None:
    folder = str(tmp_path / "types")
    noon = datetime(2026, 11, 2, 12, 0, 0, 1500, tzinfo=UTC)
    table = pa.table(
        {
            "id": pa.array([1, 2], pa.int32()),
            "text": ["a", "z" * 200],
            "short": ["a", "z"],
            "ratio": [0.5, float("nan")],
            "price": pa.array([Decimal("1.25"), Decimal("9.75")], pa.decimal128(9, 2)),
            "day": [date(2026, 11, 1), date(2026, 11, 2)],
            "at": pa.array([noon, noon], pa.timestamp("us", "UTC")),
            "tags": [["x"], None],
            "part": [1, 1],
        }
    )
    io.write_dataset(table, folder, partition_by="part")
    io.export(folder)
    [action] = pa.table(DeltaTable(folder).get_add_actions(flatten=True)).to_pylist()
    assert (action["num_records"], action["partition.part"]) == (2, 1)
    assert (action["min.id"], action["max.id"], action["null_count.id"]) == (1, 2, 0)
    assert (action["min.price"], action["max.price"]) == (Decimal("1.25"), Decimal("9.75"))
    assert (action["min.day"], action["max.at"]) == (date(2026, 11, 1), noon)
    assert (action["min.short"], action["max.short"]) == ("a", "z")
    assert not {"min.text", "max.text", "min.ratio", "max.ratio", "min.tags"} & action.keys(), "no exact bounds"
    reader = DeltaTable(folder).to_pyarrow_dataset()
    for condition in (ds.field("ratio") > 0.1, ds.field("text") == "a", ds.field("short") > "a", ds.field("id") < 2):
        assert reader.to_table(filter=condition).num_rows == 1
    assert reader.to_table(filter=ds.field("id") > 2).num_rows == 0


def test_a_column_loses_its_statistics_with_the_first_file_without_exact_bounds(
    io: PyarrowDatasetIO, tmp_path: Path
) -> None:
    folder = str(tmp_path / "texts")
    io.write_dataset(pa.table({"id": [1], "text": ["a"]}), folder)
    io.export(folder, keep_exported=True)
    io.write_dataset(pa.table({"id": [2], "text": ["b" * 100]}), folder)
    io.merge(pa.table({"id": [3], "text": ["c"], "new": [7]}), folder, key_columns="id", schema_mode="evolve")
    reader = DeltaTable(folder).to_pyarrow_dataset()
    assert [reader.to_table(filter=ds.field("text") == text).num_rows for text in ("a", "b" * 100, "c")] == [1, 1, 1]
    assert reader.to_table(filter=ds.field("new") == 7).num_rows == 1
    assert reader.to_table(filter=ds.field("new").is_null()).num_rows == 2


def test_times_without_a_zone_need_a_feature_that_the_log_names(io: PyarrowDatasetIO, tmp_path: Path) -> None:
    folder = str(tmp_path / "times")
    io.write_dataset(pa.table({"id": [1], "at": pa.array([10**15], pa.timestamp("us"))}), folder)
    io.export(folder)
    assert DeltaTable(folder).protocol().reader_features == ["timestampNtz"]
    assert exported(folder) == rows_of(io.read_parquet(folder))


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (pa.array([1], pa.time64("us")), "time64"),
        (pa.array([1], pa.timestamp("ns")), "microseconds"),
        (pa.array([1], pa.uint32()), "uint32"),
        (pa.array([1], pa.duration("s")), "duration"),
        (pa.array([{"a": 1}], pa.struct([("a", pa.uint8())])), "x.a"),
    ],
)
def test_a_column_that_delta_cannot_have_is_refused_before_a_write(
    io: PyarrowDatasetIO, tmp_path: Path, column: pa.Array, named: str
) -> None:
    folder = tmp_path / "odd"
    io.write_dataset(pa.table({"id": [1]}), str(folder))
    io.export(str(folder), keep_exported=True)
    before = sorted(os.listdir(folder))
    with pytest.raises(UnsupportedDataError, match=named):
        io.write_dataset(pa.table({"id": [2], "x": column}), str(folder), mode="overwrite")
    assert sorted(os.listdir(folder)) == before
    io.remove_export(str(folder))
    io.write_dataset(pa.table({"id": [2], "x": column}), str(folder), mode="overwrite")
    with pytest.raises(UnsupportedDataError, match=named):
        io.export(str(folder))
    assert not (folder / "_delta_log").exists()


@pytest.mark.parametrize(("names", "problem"), [(["a b"], "spaces"), (["a", "A"], "upper and lower case")])
def test_names_that_delta_does_not_allow(io: PyarrowDatasetIO, tmp_path: Path, names: list[str], problem: str) -> None:
    folder = str(tmp_path / "names")
    io.write_dataset(pa.table([pa.array([1])] * len(names), names=names), folder)
    with pytest.raises(UnsupportedDataError, match=problem):
        io.export(folder)


def test_files_with_other_types_or_outside_partitions_are_refused(io: PyarrowDatasetIO, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), mixed / "a.parquet")
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), mixed / "b.parquet")
    with pytest.raises(UnsupportedDataError, match="another type"):
        io.export(str(mixed))
    (mixed / "day=1").mkdir()
    (mixed / "b.parquet").rename(mixed / "day=1" / "b.parquet")
    with pytest.raises(PartitionError, match="outside"):
        io.export(str(mixed))


def test_another_writer_of_the_delta_table_is_noticed(io: PyarrowDatasetIO, path: str) -> None:
    io.export(path, keep_exported=True)
    write_deltalake(path, ROWS.slice(0, 1), mode="append")
    for run in (
        lambda: io.read_parquet(path),
        lambda: io.delete(path, where="id = 1"),
        lambda: io.export(path),
        lambda: io.write_dataset(ROWS, path),
    ):
        with pytest.raises(TableFormatError, match="Another program committed"):
            run()
    assert io.remove_export(path, foreign="discard")
    assert io.read_parquet(path).num_rows == 6


def test_a_delta_table_of_another_program_is_refused_and_never_removed(io: PyarrowDatasetIO, tmp_path: Path) -> None:
    folder = str(tmp_path / "foreign")
    write_deltalake(folder, ROWS)
    with pytest.raises(TableFormatError, match="Delta Lake table"):
        io.export(folder)
    assert not io.remove_export(folder)
    assert DeltaTable(folder).version() == 0


def test_a_replaced_log_is_not_taken_for_an_exported_one(io: PyarrowDatasetIO, path: str) -> None:
    io.export(path)
    log = Path(path) / "_delta_log" / f"{0:020d}.json"
    text = log.read_text("utf-8")
    log.write_text(text.replace('"CREATE TABLE"', '"CREATE_TABLE"'), "utf-8")
    assert io.read_parquet(path).num_rows == 6
    with pytest.raises(TableFormatError, match="Another program"):
        io.export(path)
    log.write_text(text + "\n", "utf-8")
    with pytest.raises(TableFormatError, match="Another program"):
        io.read_parquet(path)


def test_a_deleted_log_is_written_again(io: PyarrowDatasetIO, path: str) -> None:
    io.export(path, keep_exported=True)
    for file in (Path(path) / "_delta_log").iterdir():
        file.unlink()
    io.delete(path, where="id = 1")
    assert exported(path) == rows_of(io.read_parquet(path))


def test_a_commit_without_its_export_is_exported_by_the_next_operation(io: PyarrowDatasetIO, path: str) -> None:
    io.export(path, keep_exported=True)
    for finish in (io.recover, lambda each: io.delete(each, where="id = 99")):
        commit_without_export(path)
        finish(path)
        assert exported(path) == rows_of(io.read_parquet(path))


def test_writers_that_export_at_the_same_time(path: str) -> None:
    PyarrowDatasetIO().export(path, keep_exported=True)

    def write(number: int) -> None:
        for step in range(3):
            ids = [[1000 * number + step]]
            PyarrowDatasetIO().write_dataset(ROWS.slice(0, 1).set_column(0, "id", ids), path)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert exported(path) == rows_of(PyarrowDatasetIO().read_parquet(path))
    assert len(exported(path)) == 18


def test_another_schema_and_partitioning(io: PyarrowDatasetIO, path: str) -> None:
    io.export(path, keep_exported=True)
    io.merge(
        pa.table({"id": [9], "v": ["n"], "day": ["wed"], "extra": [1.5]}), path, key_columns="id", schema_mode="evolve"
    )
    assert {row["extra"] for row in exported(path)} == {None, 1.5}
    io.delete(path, where="true")
    io.write_dataset(pa.table({"id": [1], "year": [2026]}), path, partition_by="year", mode="overwrite")
    assert exported(path) == [{"id": 1, "year": 2026}]


def test_an_unknown_format_is_an_error(io: PyarrowDatasetIO, path: str) -> None:
    with pytest.raises(ValueError, match="format='hudi' is unknown"):
        io.export(path, "hudi")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="no parquet dataset"):
        io.export(path + "-missing")
    assert not io.remove_export(path + "-missing")
    assert not io.unregister(path + "-missing", catalog="glue")
    assert not list(Path(path).parent.glob(".*missing*")), "nothing is written for a dataset that does not exist"


@pytest.mark.more
def test_an_export_on_s3(s3_server: Any, s3_bucket: str) -> None:
    io = PyarrowDatasetIO(storage_options=s3_server.storage_options)
    folder = f"s3://{s3_bucket}/events"
    io.write_dataset(ROWS, folder, partition_by="day")
    io.export(folder, keep_exported=True)
    io.update(folder, set={"v": "'z'"}, where="id = 2")
    options = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3_server.endpoint,
        "AWS_ALLOW_HTTP": "true",
    }
    table = DeltaTable(folder, storage_options=options)
    assert table.version() == 1
    assert exported(folder, storage_options=options) == rows_of(io.read_parquet(folder))
