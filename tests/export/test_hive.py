"""A Hive metastore: the table and its partitions follow the commits of a dataset, and Spark reads it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hive_metastore import ttypes
from hive_metastore.ThriftHiveMetastore import Client
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from export.metastore import running_metastore
from fsspeckit import CatalogError, PartitionError, UnsupportedDataError
from fsspeckit.cli.app import main
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

pytestmark = pytest.mark.more
NULL = "__HIVE_DEFAULT_PARTITION__"
DAYS = ["a/b", "ü % = 'x'", None, "mon"]
ROWS = pa.table({"Id": [1, 2, 3, 4], "day": DAYS, "n": pa.array([7, 8, None, 9])})
NOON = datetime(2026, 3, 1, 12, 0, 0, 5)  # noqa: DTZ001 - a time without a zone
IO = PyarrowDatasetIO()


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_metastore(tmp_path_factory.mktemp("metastore")) as address:
        yield address


@pytest.fixture
def metastore(uri: str) -> Iterator[Any]:
    transport = TBufferedTransport(TSocket("127.0.0.1", int(uri.rpartition(":")[2])))
    transport.open()
    client = Client(TBinaryProtocol(transport))
    if "sales" not in client.get_all_databases():
        client.create_database(ttypes.Database(name="sales"))
    yield client
    for name in client.get_all_tables("sales"):
        client.drop_table("sales", name, False)
    transport.close()


@pytest.fixture
def path(tmp_path: Path) -> str:
    folder = str(tmp_path / "new orders")
    IO.write_dataset(ROWS, folder, partition_by=["day", "n"])
    return folder


def register(path: str, uri: str, *, keep: bool = True, table: str = "sales.orders", **options: str) -> Any:
    given = {"uri": uri, **options}
    return IO.register(path, catalog="hive", table=table, keep_registered=keep, catalog_options=given)


def partitions(client: Any) -> dict[tuple[str, ...], Any]:
    return {tuple(each.values): each.sd for each in client.get_partitions("sales", "orders", -1)}


def columns(client: Any, table: str = "orders") -> dict[str, str]:
    found = client.get_table("sales", table)
    return {each.name: each.type for each in [*found.sd.cols, *found.partitionKeys]}


def test_table_and_partitions_follow_commits(metastore: Any, uri: str, path: str) -> None:
    done = register(path, uri)
    assert (done.columns, done.partitions, done.added, done.removed) == (3, 4, 4, 0)
    assert columns(metastore) == {"id": "bigint", "day": "string", "n": "bigint"}
    folders = {values: sd.location.removeprefix(f"file:{path}/") for values, sd in partitions(metastore).items()}
    assert folders[("a/b", "7")] == "day=a%2Fb/n=7"
    assert folders[(NULL, NULL)] == f"day={NULL}/n={NULL}"
    assert all(Path(path, folder).is_dir() for folder in folders.values())
    again = register(path, uri)
    assert (again.added, again.removed) == (0, 0)
    IO.write_dataset(pa.table({"Id": [5], "day": ["wed"], "n": [1]}), path)
    IO.delete(path, where="Id = 4")
    assert partitions(metastore).keys() == {("a/b", "7"), ("ü % = 'x'", "8"), (NULL, NULL), ("wed", "1")}
    more = pa.table({"Id": [5], "day": ["wed"], "n": [1], "price": [1.5]})
    IO.merge(more, path, key_columns="Id", schema_mode="evolve")
    assert columns(metastore) == {"id": "bigint", "price": "double", "day": "string", "n": "bigint"}
    assert {tuple(each.name for each in sd.cols) for sd in partitions(metastore).values()} == {("id", "price")}
    assert IO.unregister(path, catalog="hive")
    assert not IO.unregister(path, catalog="hive")
    assert metastore.get_all_tables("sales") == []
    assert IO.read_parquet(path).num_rows == 4


def test_other_types_and_partition_columns_replace_the_table(metastore: Any, uri: str, tmp_path: Path) -> None:
    path = str(tmp_path / "orders")
    IO.write_dataset(pa.table({"id": [1], "v": [1.5], "day": ["mon"]}), path, partition_by="day")
    register(path, uri)
    IO.write_dataset(pa.table({"v": [1], "id": ["x"], "n": [1]}), path, mode="overwrite", partition_by="n")
    assert columns(metastore) == {"v": "bigint", "id": "string", "n": "bigint"}
    assert partitions(metastore).keys() == {("1",)}
    IO.write_dataset(pa.table({"v": [True], "id": [2], "n": [2]}), path, mode="overwrite")
    assert columns(metastore) == {"v": "boolean", "id": "bigint", "n": "bigint"}
    assert partitions(metastore).keys() == {("2",)}
    assert IO.read_parquet(path).to_pylist() == [{"v": True, "id": 2, "n": 2}]


def test_spark_reads_all_types_and_partitions(metastore: Any, uri: str, path: str, tmp_path: Path) -> None:
    typed = {
        "b": pa.array([True]),
        "i8": pa.array([-1], pa.int8()),
        "i16": pa.array([-2], pa.int16()),
        "i32": pa.array([-3], pa.int32()),
        "f": pa.array([1.5], pa.float32()),
        "d": pa.array([date(2026, 3, 1)]),
        "local": pa.array([NOON]),
        "instant": pa.array([NOON.replace(tzinfo=UTC)]),
        "dec": pa.array([Decimal("12.30")], pa.decimal128(12, 2)),
        "bin": pa.array([b"\x00\xff"]),
        "tags": pa.array([["x", None]]),
        "pair": pa.array([{"Left": 1, "r": [{"z": "q"}]}]),
        "by": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    }
    IO.write_dataset(pa.table(typed), str(tmp_path / "types"))
    register(str(tmp_path / "types"), uri, table="sales.types")
    register(path, uri)
    moved = pa.table({"Id": [3], "day": ["mon"], "n": [9], "x": ["new"]})
    IO.merge(moved, path, key_columns="Id", schema_mode="evolve", partition_move="move")
    queries = [
        "SELECT * FROM sales.types",
        "SELECT id, x, day, n FROM sales.orders ORDER BY id",
        "SELECT id FROM sales.orders WHERE n = 8",
        "SELECT id FROM sales.orders WHERE day = 'a/b'",
        "SELECT count(*) FROM sales.orders WHERE day IS NULL",
    ]
    reader = [sys.executable, str(Path(__file__).parent / "hive_reader.py"), uri, str(tmp_path), *queries]
    done = subprocess.run(reader, capture_output=True, text=True, timeout=280, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    types, rows, by_number, by_text, nulls = map(json.loads, done.stdout.splitlines())
    shown = ["True", "-1", "-2", "-3", "1.5", "2026-03-01", str(NOON), str(NOON), "12.30", "b'\\x00\\xff'"]
    assert types == [[*shown, "['x', None]", "Row(Left=1, r=[Row(z='q')])", "{'k': 1}"]]
    assert rows == [
        ["1", "None", "a/b", "7"],
        ["2", "None", "ü % = 'x'", "8"],
        ["3", "new", "mon", "9"],
        ["4", "None", "mon", "9"],
    ]
    assert (by_number, by_text, nulls) == ([["2"]], [["1"]], [["0"]])


def test_a_table_of_others_is_not_touched(metastore: Any, uri: str, path: str) -> None:
    sd = ttypes.StorageDescriptor(cols=[ttypes.FieldSchema("a", "int")], location="file:///tmp/other", parameters={})
    sd.serdeInfo = ttypes.SerDeInfo(parameters={})
    metastore.create_table(ttypes.Table(dbName="sales", tableName="orders", sd=sd, parameters={"owner": "else"}))
    with pytest.raises(CatalogError, match="does not describe"):
        register(path, uri)
    assert columns(metastore) == {"a": "int"}
    assert not IO.unregister(path, catalog="hive")


def test_errors(metastore: Any, uri: str, path: str, tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"cannot write the table missing.orders of the Hive metastore"):
        register(path, uri, table="missing.orders")
    with pytest.raises(ValueError, match="needs the option uri, such as"):
        register(path, "")
    with pytest.raises(ValueError, match="is not the address of a Hive metastore"):
        register(path, "http://127.0.0.1:1")
    with pytest.raises(ValueError, match="Unknown options of the Hive metastore"):
        register(path, uri, password="x")
    with pytest.raises(ValueError, match="s3_scheme='http' is unknown"):
        register(path, uri, s3_scheme="http")
    for name, rows in {"case": pa.table({"a": [1], "A": [2]}), "comma": pa.table({"a,b": [1]})}.items():
        IO.write_dataset(rows, str(tmp_path / name))
        with pytest.raises(UnsupportedDataError, match="in the name"):
            register(str(tmp_path / name), uri)
    for folder in ("day=a b", "day=a%20b"):
        (tmp_path / "twice" / folder).mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), tmp_path / "twice" / folder / "x.parquet")
    with pytest.raises(PartitionError, match=r"two folders for the partition a b: .*/day=a b and .*/day=a%20b"):
        register(str(tmp_path / "twice"), uri)
    assert metastore.get_all_tables("sales") == []


def test_the_command_tells_of_an_address_in_two_lines(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        silent = f"uri=thrift://127.0.0.1:{free.getsockname()[1]}"
        for more, code, said in (
            (["--catalog-option", silent], 1, r"error: cannot write the table sales\.orders .*Could not connect"),
            ([], 2, r"to do: pass --catalog-option uri=thrift://"),
        ):
            words = ["register", path, "--catalog", "hive", "--table", "sales.orders", *more]
            found, shown = main(words), capsys.readouterr()
            assert (found, shown.out, len(shown.err.splitlines())) == (code, "", 2), shown.err
            assert re.search(said, shown.err)


def test_a_metastore_that_does_not_answer(metastore: Any, uri: str, path: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        silent = f"thrift://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(CatalogError, match="Could not connect"):
            register(path, silent)
        register(path, f"{silent},{uri}")  # the first that answers


@pytest.mark.s3
def test_addresses_of_s3_are_those_of_hadoop(
    metastore: Any, uri: str, s3_server: Any, s3_bucket: str, tmp_path: Path
) -> None:
    path = f"s3://{s3_bucket}/orders"
    io = PyarrowDatasetIO(storage_options=s3_server.storage_options)
    io.write_dataset(pa.table({"id": [1], "day": ["mon"]}), path, partition_by="day")
    options = {"uri": uri}
    with pytest.raises(CatalogError, match="s3a"):  # this metastore has no connector for S3
        io.register(path, catalog="hive", table="sales.orders", catalog_options=options)
    with pytest.raises(CatalogError, match='for scheme "s3"'):
        io.register(path, catalog="hive", table="sales.orders", catalog_options={**options, "s3_scheme": "s3"})
