"""The Glue catalog: the table and its partitions follow the commits of a dataset. The server is that of moto."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest

from fsspeckit import CatalogError, Dataset, UnsupportedDataError
from fsspeckit.cli.app import main
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

ROWS = pa.table({"id": [1, 2, 3], "day": ["mon", "tue", None]})


@pytest.fixture
def glue(s3_server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    client = boto3.client("glue", region_name="us-east-1", endpoint_url=s3_server.endpoint)
    client.create_database(DatabaseInput={"Name": "sales"})
    yield client
    client.delete_database(Name="sales")


@pytest.fixture
def options(s3_server: Any) -> dict[str, str]:
    return {"region_name": "us-east-1", "endpoint_url": s3_server.endpoint}


@pytest.fixture
def path(tmp_path: Path) -> str:
    folder = str(tmp_path / "orders")
    PyarrowDatasetIO().write_dataset(ROWS, folder, partition_by="day")
    return folder


def partitions(glue: Any) -> dict[str, str]:
    found = glue.get_partitions(DatabaseName="sales", TableName="orders")["Partitions"]
    return {each["Values"][0]: each["StorageDescriptor"]["Location"] for each in found}


def columns(glue: Any) -> dict[str, str]:
    table = glue.get_table(DatabaseName="sales", Name="orders")["Table"]
    return {each["Name"]: each["Type"] for each in [*table["StorageDescriptor"]["Columns"], *table["PartitionKeys"]]}


def test_table_and_partitions_follow_commits(glue: Any, options: dict[str, str], path: str) -> None:
    io = PyarrowDatasetIO()
    done = io.register(path, catalog="glue", table="sales.orders", keep_registered=True, catalog_options=options)
    assert (done.columns, done.partitions, done.added, done.removed) == (2, 3, 3, 0)
    assert columns(glue) == {"id": "bigint", "day": "string"}
    null = "__HIVE_DEFAULT_PARTITION__"
    assert partitions(glue) == {value: f"file://{path}/day={value}" for value in ("mon", "tue", null)}
    io.write_dataset(pa.table({"id": [4], "day": ["wed"]}), path)
    io.delete(path, where="day = 'mon'")
    assert partitions(glue).keys() == {"tue", "wed", null}
    io.merge(pa.table({"id": [4], "day": ["wed"], "n": [1.5]}), path, key_columns="id", schema_mode="evolve")
    assert columns(glue) == {"id": "bigint", "n": "double", "day": "string"}
    [wed] = [
        each
        for each in glue.get_partitions(DatabaseName="sales", TableName="orders")["Partitions"]
        if each["Values"] == ["wed"]
    ]
    assert [each["Name"] for each in wed["StorageDescriptor"]["Columns"]] == ["id", "n"]
    assert io.unregister(path, catalog="glue")
    assert not io.unregister(path, catalog="glue")
    assert glue.get_tables(DatabaseName="sales")["TableList"] == []
    assert io.read_parquet(path).num_rows == 3


def test_a_table_of_others_is_not_touched(glue: Any, options: dict[str, str], path: str) -> None:
    glue.create_table(DatabaseName="sales", TableInput={"Name": "orders", "Parameters": {"owner": "else"}})
    with pytest.raises(CatalogError, match="does not describe"):
        PyarrowDatasetIO().register(path, catalog="glue", table="sales.orders", catalog_options=options)
    assert glue.get_table(DatabaseName="sales", Name="orders")["Table"]["Parameters"] == {"owner": "else"}
    glue.delete_table(DatabaseName="sales", Name="orders")


def test_errors(glue: Any, options: dict[str, str], path: str, tmp_path: Path) -> None:
    events = Dataset(path, engine="pyarrow")
    with pytest.raises(CatalogError, match="EntityNotFound"):
        events.register(catalog="glue", table="missing.orders", catalog_options=options)
    with pytest.raises(ValueError, match="Unknown options"):
        events.register(catalog="glue", table="sales.orders", catalog_options={"secret": "x"})
    with pytest.raises(ValueError, match="is not a name such as"):
        events.register(catalog="glue", table="orders", catalog_options=options)
    with pytest.raises(ValueError, match="catalog='unity' is unknown"):
        events.register(catalog="unity", table="sales.orders")  # type: ignore[arg-type]
    odd = Dataset(str(tmp_path / "odd"), engine="pyarrow")
    odd.write(pa.table({"x": pa.array([1], pa.uint8())}))
    with pytest.raises(UnsupportedDataError, match="uint8"):
        odd.register(catalog="glue", table="sales.odd", catalog_options=options)
    assert glue.get_tables(DatabaseName="sales")["TableList"] == []


def test_a_commit_does_not_fail_with_the_catalog(
    glue: Any, options: dict[str, str], path: str, caplog: pytest.LogCaptureFixture
) -> None:
    events = Dataset(path, engine="pyarrow")
    events.register(catalog="glue", table="sales.orders", keep_registered=True, catalog_options=options)
    glue.delete_table(DatabaseName="sales", Name="orders")
    glue.create_table(DatabaseName="sales", TableInput={"Name": "orders"})
    assert events.delete("id = 1").deleted == 1
    assert "the glue catalog does not have it" in caplog.text
    glue.delete_table(DatabaseName="sales", Name="orders")
    events.delete("id = 2")
    assert partitions(glue).keys() == {"__HIVE_DEFAULT_PARTITION__"}
    events.unregister(catalog="glue")


def test_command(glue: Any, options: dict[str, str], path: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = [f"--catalog-option={name}={value}" for name, value in options.items()]
    assert main(["register", path, "--catalog", "glue", "--table", "sales.orders", "--keep-registered", *more]) == 0
    assert "3 added" in capsys.readouterr().out
    assert main(["register", path, "--catalog", "glue", "--remove"]) == 0
    assert main(["register", path, "--catalog", "glue", "--remove", "--noop-exit-code", "3"]) == 3
    assert main(["register", path, "--catalog", "glue"]) == 2
    assert "--table is missing" in capsys.readouterr().err
