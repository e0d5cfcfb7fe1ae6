"""Folders of other programs: refused as a dataset and as a source, on every engine, before any write."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from conformance.effort import for_each
from conformance.test_refusals import UPSERT, WRITES, refused
from fsspeckit import TableFormatError
from kit import numbers, put

ROWS = numbers([1, 2, 3], day=["mon", "mon", "tue"])
UUID = "01990a1c-7f1c-7c3a-8a55-0123456789ab"


def delta(folder: Path) -> None:
    write_deltalake(str(folder), ROWS, partition_by=["day"])


def files(*paths: str) -> Callable[[Path], None]:
    """Return a function that makes the files of a table: Parquet files with rows, and others."""

    def make(folder: Path) -> None:
        for path in paths:
            if path.endswith(".parquet"):
                put(folder / path, numbers([1, 2]))
            else:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text("{}")

    return make


TABLES: dict[str, tuple[str, str, Callable[[Path], None]]] = {
    # name in the error, a folder of data files, the function that makes the table
    "delta": ("Delta Lake", "day=mon", delta),
    "spark": ("Spark stream", "day=mon", files("_spark_metadata/0", "_spark_metadata/1", "day=mon/part-0.parquet")),
    "hudi": (
        "Hudi",
        "day=mon",
        files(
            ".hoodie/hoodie.properties",
            ".hoodie/20261102100000000.commit",
            "day=mon/.hoodie_partition_metadata",
            f"day=mon/{UUID}-0_0-8-0_20261102100000000.parquet",
        ),
    ),
    "iceberg": (
        "Iceberg",
        "data/day=mon",
        files(
            f"metadata/00000-{UUID}.metadata.json",
            f"metadata/snap-5211520-0-{UUID}.avro",
            f"metadata/{UUID}-m0.avro",
            f"data/day=mon/00000-0-{UUID}.parquet",
        ),
    ),
    "paimon": (
        "Paimon",
        "day=mon/bucket-0",
        files(
            "schema/schema-0",
            "snapshot/LATEST",
            "snapshot/snapshot-1",
            f"manifest/manifest-list-{UUID}-0",
            f"day=mon/bucket-0/data-{UUID}-0.parquet",
        ),
    ),
    "hive": (
        "Hive",
        "day=mon/base_0000002",
        files(
            "day=mon/base_0000002/000000_0.parquet",
            "day=mon/delta_0000003_0000003_0000/000000_0.parquet",
            "day=mon/delete_delta_0000004_0000004_0000/bucket_00000.parquet",
        ),
    ),
    "ducklake": (
        "DuckLake",
        "day=mon",
        files(f"day=mon/ducklake-{UUID}.parquet", f"day=mon/ducklake-{UUID}-delete.parquet"),
    ),
}
every_table = pytest.mark.parametrize("kind", TABLES)


@pytest.fixture
def table(tmp_path: Path, kind: str) -> Path:
    folder = tmp_path / "lake" / "table"
    folder.parent.mkdir()
    TABLES[kind][2](folder)
    return folder


@every_table
@pytest.mark.parametrize("where", ["the table", "a folder of data files", "the folder above"])
def test_it_is_no_dataset(io: Any, table: Path, kind: str, where: str) -> None:
    name, inner, _ = TABLES[kind]
    path = {"the table": table, "a folder of data files": table / inner, "the folder above": table.parent}[where]
    with refused(table.parent, TableFormatError, name, "write the rows to a new folder"):
        io.read_parquet(str(path))
    for write in ("append", "merge"):
        with refused(table.parent, TableFormatError, name):
            WRITES[write](io, numbers([1], "new"), str(path))


@every_table
def test_it_is_no_source(io: Any, table: Path, kind: str) -> None:
    name, inner, _ = TABLES[kind]
    target = str(table.parent.parent / "target")
    io.write_dataset(numbers([9]), target)
    for source in (table, table / inner):
        with refused(table.parent.parent, TableFormatError, name):
            io.merge(str(source), target, **UPSERT)


def test_a_table_among_other_folders_is_named(io: Any, tmp_path: Path) -> None:
    io.write_dataset(ROWS, str(tmp_path / "d"), partition_by=["day"])
    delta(tmp_path / "d" / "day=wed")
    with refused(tmp_path, TableFormatError, f"contains {tmp_path / 'd' / 'day=wed'}, a Delta Lake table"):
        io.read_parquet(str(tmp_path / "d"))


@for_each(
    "paths",
    [
        ("metadata/readme.txt",),
        ("schema/orders.json",),
        ("snapshot/readme.txt",),
        ("_checkpoint/metadata", "_checkpoint/offsets/0"),
        (".trash/_delta_log/00000000000000000000.json",),
        ("base_prices.txt", "delta_v1/notes.txt"),
    ],
)
def test_folders_with_similar_names_are_accepted(io: Any, tmp_path: Path, paths: tuple[str, ...]) -> None:
    io.write_dataset(ROWS, str(tmp_path / "data" / "data"))
    files(*paths)(tmp_path / "data" / "data")
    assert io.read_parquet(str(tmp_path / "data" / "data")).num_rows == 3


def test_a_partition_of_an_exported_dataset_is_a_source(io: Any, tmp_path: Path) -> None:
    path = tmp_path / "d"
    io.write_dataset(ROWS, str(path), partition_by=["day"])
    io.export(str(path))
    assert io.read_parquet(str(path / "day=mon")).num_rows == 2
    write_deltalake(str(path), pa.table({"id": [5], "v": ["x"], "day": ["mon"]}), mode="append")
    with pytest.raises(TableFormatError, match="Delta Lake table"):
        io.read_parquet(str(path / "day=mon"))


def test_the_folder_of_a_former_table_is_a_dataset(io: Any, tmp_path: Path) -> None:
    delta(tmp_path / "t")
    shutil.rmtree(tmp_path / "t" / "_delta_log")
    assert io.read_parquet(str(tmp_path / "t")).num_rows == 3
