"""Iceberg export: pyiceberg reads what fsspeckit reads, after every operation."""

from __future__ import annotations

import os
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import CommitTableResponse, StaticTable, Table
from pyiceberg.table.update import update_table_metadata

from export.changes import CHANGES, ROWS, rows_of
from fsspeckit import StorageError, TableFormatError, UnsupportedDataError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import commit_without_export

TYPES = pa.table(
    {
        "id": pa.array([1, 2], pa.int16()),
        "text": ["a", "z" * 200],
        "ratio": [0.5, float("nan")],
        "price": pa.array([Decimal("-1.25"), Decimal("9.75")], pa.decimal128(9, 2)),
        "day": [date(1969, 11, 1), date(2026, 11, 2)],
        "at": pa.array([datetime(2026, 11, 2, 12, tzinfo=UTC)] * 2, pa.timestamp("us", "UTC")),
        "local": pa.array([10**12] * 2, pa.timestamp("ms")),
        "hour": pa.array([time(1), None], pa.time64("us")),
        "flag": [True, None],
        "tags": [["x", None], None],
        "place": [{"x": 1, "y": {"z": "q"}}, None],
        "counts": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        "part": [1, 1],
    }
)


def table_of(path: str, **properties: str) -> StaticTable:
    """The newest version, found as readers of a Hadoop table find it."""
    folder = Path(path + ".iceberg") / "metadata"
    version = (folder / "version-hint.text").read_text("utf-8")
    return StaticTable.from_metadata(f"{folder}/v{version}.metadata.json", properties)


def exported(path: str) -> list[dict[str, Any]]:
    return rows_of(table_of(path).scan().to_arrow())


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
    assert io.export(path, "iceberg", keep_exported=True).version == 1
    assert exported(path) == rows_of(io.read_parquet(path))
    CHANGES[change](io, path)
    assert exported(path) == rows_of(io.read_parquet(path))
    assert len(table_of(path).metadata.snapshots) == 1


def test_readers_skip_files_by_statistics_and_partitions(io: PyarrowDatasetIO, path: str) -> None:
    io.export(path, "iceberg")
    for condition, files, rows in (("id = 6", 1, 1), ("id > 99", 0, 0), ("day = 'tue'", 1, 1), ("v = 'c'", 1, 1)):
        scan = table_of(path).scan(row_filter=condition)
        assert (len(list(scan.plan_files())), scan.to_arrow().num_rows) == (files, rows), condition


def test_every_type_and_its_bounds(io: PyarrowDatasetIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # the other planner is a package of its own
    folder = str(tmp_path / "types")
    io.write_dataset(TYPES, folder, partition_by="part")
    io.export(folder, "iceberg")
    found, same = table_of(folder).scan().to_arrow(), io.read_parquet(folder)
    assert rows_of(found.drop_columns("ratio")) == rows_of(same.drop_columns("ratio"))
    for condition in ("ratio > 0.1", "text = 'a'", "price < 0", "day < '1970-01-01'", "hour is null", "id = 2"):
        assert table_of(folder).scan(row_filter=condition).to_arrow().num_rows == 1, condition
    assert pl.scan_iceberg(table_of(folder)).select(pl.len()).collect().item() == 2


def test_ids_stay_with_names_and_types(io: PyarrowDatasetIO, path: str) -> None:
    io.export(path, "iceberg", keep_exported=True)
    before = {field.name: field.field_id for field in table_of(path).schema().fields}
    new = pa.table({"id": [9], "v": ["n"], "day": ["wed"], "extra": [1.5]})
    io.merge(new, path, key_columns="id", schema_mode="evolve")
    after = {field.name: field.field_id for field in table_of(path).schema().fields}
    assert before.items() <= after.items()
    assert {row["extra"] for row in exported(path)} == {None, 1.5}
    io.write_dataset(pa.table({"id": ["text"], "year": [2026]}), path, partition_by="year", mode="overwrite")
    other = {field.name: field.field_id for field in table_of(path).schema().fields}
    assert other["id"] not in after.values()
    assert table_of(path).scan().to_arrow().to_pylist() == [{"id": "text", "year": 2026}]


def test_plain_readers_and_old_metadata(io: PyarrowDatasetIO, path: str) -> None:
    io.export(path, "iceberg", keep_exported=True)
    for number in range(7):
        io.write_dataset(ROWS.slice(0, 1).set_column(0, "id", [[100 + number]]), path)
    assert sorted(os.listdir(path)) == sorted(name for name in os.listdir(path) if name.startswith("day="))
    assert ds.dataset(path, partitioning="hive").count_rows() == 13
    assert pl.scan_parquet(path).select(pl.len()).collect().item() == 13
    versions = [name for name in os.listdir(path + ".iceberg/metadata") if name.endswith(".metadata.json")]
    assert sorted(versions) == [f"v{number}.metadata.json" for number in (4, 5, 6, 7, 8)]


def test_another_writer_of_the_iceberg_table_is_noticed(io: PyarrowDatasetIO, path: str) -> None:
    io.export(path, "iceberg", keep_exported=True)
    folder = Path(path + ".iceberg") / "metadata"
    (folder / "v2.metadata.json").write_text((folder / "v1.metadata.json").read_text("utf-8"), "utf-8")
    for run in (lambda: io.delete(path, where="id = 1"), lambda: io.export(path, "iceberg")):
        with pytest.raises(TableFormatError, match="Another program committed to the Apache Iceberg table"):
            run()
    assert io.remove_export(path, "iceberg", foreign="discard")
    assert not Path(path + ".iceberg").exists()
    io.delete(path, where="id = 1")


class FolderCatalog(NoopCatalog):
    """pyiceberg as the other program: it commits versions with the names of catalogs."""

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        metadata = update_table_metadata(table.metadata, updates, metadata_location=table.metadata_location)
        location = f"{table.location()}/metadata/00002-{uuid.uuid4()}.metadata.json"
        ToOutputFile.table_metadata(metadata, table.io.new_output(location))
        return CommitTableResponse(metadata=metadata, metadata_location=location)


def foreign_table(path: str) -> Table:
    known = table_of(path)
    return Table(("n", "t"), known.metadata, known.metadata_location, known.io, FolderCatalog("other"))


CHANGES_OF_OTHERS = {
    "append": lambda table: table.append(ROWS.slice(0, 2).cast(table.schema().as_arrow())),
    "delete": lambda table: table.delete("id = 1"),
    "overwrite": lambda table: table.overwrite(ROWS.slice(0, 1).cast(table.schema().as_arrow())),
}


@pytest.mark.parametrize("change", CHANGES_OF_OTHERS)
def test_a_change_of_pyiceberg_is_listed_and_discarded_only_on_demand(
    io: PyarrowDatasetIO, path: str, change: str
) -> None:
    io.export(path, "iceberg", keep_exported=True)
    rows = rows_of(io.read_parquet(path))
    CHANGES_OF_OTHERS[change](foreign_table(path))
    table = Path(path + ".iceberg")
    before = sorted(table.rglob("*"))
    written = [
        str(file.relative_to(table)) for file in [*table.glob("data/**/*.parquet"), *table.rglob("00002-*.json")]
    ]
    for run in (lambda: io.delete(path, where="id = 1"), lambda: io.export(path, "iceberg")):
        with pytest.raises(TableFormatError, match="which lists the change"):
            run()
    with pytest.raises(TableFormatError, match="--foreign discard") as caught:
        io.remove_export(path, "iceberg")
    assert written
    assert all(name in str(caught.value) for name in written)
    with pytest.raises(TableFormatError, match="cannot take over"):
        io.remove_export(path, "iceberg", foreign="keep")
    assert sorted(table.rglob("*")) == before
    assert io.remove_export(path, "iceberg", foreign="discard")
    assert not table.exists()
    assert rows_of(io.read_parquet(path)) == rows
    io.export(path, "iceberg")
    assert exported(path) == rows


def test_a_folder_of_another_table_is_not_used(io: PyarrowDatasetIO, path: str) -> None:
    folder = Path(path + ".iceberg") / "metadata"
    folder.mkdir(parents=True)
    (folder / "v1.metadata.json").write_text("{}", "utf-8")
    with pytest.raises(TableFormatError, match="Another program"):
        io.export(path, "iceberg")
    assert not io.remove_export(path, "iceberg")
    assert (folder / "v1.metadata.json").read_text("utf-8") == "{}"


def test_a_commit_without_its_export_is_exported_by_a_recovery(io: PyarrowDatasetIO, path: str) -> None:
    io.export(path, "iceberg", keep_exported=True)
    io.export(path, "delta", keep_exported=True)
    commit_without_export(path)
    io.recover(path)
    assert exported(path) == rows_of(io.read_parquet(path))


@pytest.mark.parametrize("kind", [pa.uint32(), pa.timestamp("ns"), pa.duration("s"), pa.time32("s")])
def test_a_column_that_iceberg_cannot_have_is_refused(io: PyarrowDatasetIO, tmp_path: Path, kind: pa.DataType) -> None:
    folder = str(tmp_path / "odd")
    io.write_dataset(pa.table({"id": [1], "x": pa.array([1], kind)}), folder)
    with pytest.raises(UnsupportedDataError, match="'x'"):
        io.export(folder, "iceberg")
    assert not Path(folder + ".iceberg").exists()


@pytest.mark.parametrize("folder", ["d", "a#b?c"])
def test_names_that_are_no_urls_and_uuids(io: PyarrowDatasetIO, tmp_path: Path, folder: str) -> None:
    """pyiceberg ends a URL at # and ?, and takes a path as it is."""
    path, numbers = tmp_path / folder, [uuid.UUID(int=1 << 127), None]
    path.mkdir()
    for at, name in enumerate(("part#1.parquet", "100%20 or more?.parquet")):
        values = pa.array([None if number is None else number.bytes for number in numbers], pa.binary(16))
        column = pa.ExtensionArray.from_storage(pa.uuid(), values)
        pq.write_table(pa.table({"id": [at, at + 10], "u": column}), path / name)
    io.export(str(path), "iceberg")
    expected = [{"id": n, "u": numbers[0] if n < 10 else None} for n in (0, 1, 10, 11)]
    assert sorted(table_of(str(path)).scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == expected
    assert table_of(str(path)).scan(row_filter="id = 1").to_arrow().to_pylist() == expected[1:2]
    assert str(table_of(str(path)).schema().find_field("u").field_type) == "uuid"


def test_names_that_no_reader_opens_on_an_object_store_are_refused(memory_fs: Any) -> None:
    io = PyarrowDatasetIO(filesystem=memory_fs)
    io.write_dataset(pa.table({"id": [1]}), "/lake/d", basename_template="part#{i}.parquet")
    with pytest.raises(UnsupportedDataError, match="part#0"):
        io.export("/lake/d", "iceberg")


def test_files_that_polars_reads_from_an_export(
    io: PyarrowDatasetIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    io.write_dataset(pa.table({"id": [1, 2]}), str(tmp_path / "d"), basename_template="part#{i}.parquet")
    io.export(str(tmp_path / "d"), "iceberg")
    assert pl.scan_iceberg(table_of(str(tmp_path / "d"))).collect()["id"].to_list() == [1, 2]


def test_categories_beside_texts(io: PyarrowDatasetIO, tmp_path: Path) -> None:
    """pyiceberg cannot join them, so the export names the command that writes one type."""
    path = str(tmp_path / "d")
    texts = pa.array(["a", "b"])
    for at, column in enumerate((texts.dictionary_encode(), texts)):
        (tmp_path / "d").mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": [at, at + 2], "kind": column}), tmp_path / "d" / f"{at}.parquet")
    with pytest.raises(UnsupportedDataError, match=r"'kind' is dictionary.* and string in .*fsspeckit compact"):
        io.export(path, "iceberg")
    io.compact_parquet_dataset(path, target_rows_per_file=100)
    io.export(path, "iceberg")
    assert sorted(row["kind"] for row in exported(path)) == ["a", "a", "b", "b"]


def test_field_ids_of_another_table_are_refused(io: PyarrowDatasetIO, tmp_path: Path) -> None:
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "7"})
    (tmp_path / "ids").mkdir()
    pq.write_table(pa.table([pa.array([1])], schema=pa.schema([field])), tmp_path / "ids" / "a.parquet")
    with pytest.raises(UnsupportedDataError, match="field ids of another table"):
        io.export(str(tmp_path / "ids"), "iceberg")


def test_a_dataset_without_a_parent_folder(memory_fs: Any) -> None:
    io = PyarrowDatasetIO(filesystem=memory_fs)
    io.write_dataset(pa.table({"id": [1]}), "/")
    with pytest.raises(StorageError, match="no parent folder"):
        io.export("/", "iceberg")


@pytest.mark.more
def test_an_export_on_s3(s3_server: Any, s3_bucket: str) -> None:
    io = PyarrowDatasetIO(storage_options=s3_server.storage_options)
    folder = f"s3://{s3_bucket}/events"
    io.write_dataset(ROWS, folder, partition_by="day")
    io.export(folder, "iceberg", keep_exported=True)
    io.update(folder, set={"v": "'z'"}, where="id = 2")
    access = {"s3.endpoint": s3_server.endpoint, "s3.access-key-id": "test", "s3.secret-access-key": "test"}
    table = StaticTable.from_metadata(
        f"{folder}.iceberg/metadata/v2.metadata.json", {**access, "s3.region": "us-east-1"}
    )
    assert rows_of(table.scan().to_arrow()) == rows_of(io.read_parquet(folder))
