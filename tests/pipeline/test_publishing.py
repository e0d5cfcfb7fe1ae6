"""Datasets of pipelines that other engines read: exports and catalogs follow the steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from fsspeckit import UnsupportedDataError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.pipeline import Pipeline, PipelineFileError, StepFailedError

IO = PyarrowDatasetIO()


@pytest.fixture
def glue(s3_server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    client = boto3.client("glue", region_name="us-east-1", endpoint_url=s3_server.endpoint)
    client.create_database(DatabaseInput={"Name": "lake"})
    yield client
    client.delete_database(Name="lake")


def pipeline(**dataset: Any) -> dict[str, Any]:
    load = {"name": "load", "do": "merge", "from": "rows", "into": "orders", "keys": ["id"]}
    return {
        "name": "p",
        "sources": {"rows": {"format": "csv", "path": "in/mon.csv"}},
        "datasets": {"orders": {"path": "lake/orders", **dataset}},
        "steps": [load],
    }


def partitions(glue: Any) -> int:
    return len(glue.get_partitions(DatabaseName="lake", TableName="orders")["Partitions"])


def test_a_dataset_is_exported_and_registered(
    glue: Any, s3_server: Any, lake: Path, spark: Any, tmp_path: Path
) -> None:
    options = {"region_name": "us-east-1", "endpoint_url": s3_server.endpoint}
    catalog = {"name": "glue", "table": "lake.orders", "options": options}
    found = pipeline(keep_exported=["delta", "iceberg"], catalog=catalog)
    found["steps"][0]["partition_by"] = ["status"]
    with pytest.raises(PipelineFileError, match=r"datasets.orders.catalog: it writes to a catalog"):
        Pipeline.of(found)
    Path("in/mon.csv").write_text("id,status,amount\n1,new,10\n2,paid,20\n")
    Pipeline.of(found, trust=True).run(spark)
    assert DeltaTable("lake/orders").to_pyarrow_table().num_rows == 2
    table = StaticTable.from_metadata(str(tmp_path / "lake/orders.iceberg/metadata/v1.metadata.json"))
    assert (table.scan().to_arrow().num_rows, partitions(glue)) == (2, 2)
    Path("in/mon.csv").write_text("id,status,amount\n3,sent,10\n")
    before = len(s3_server.requests)
    Pipeline.of(found, trust=True).run(spark)
    assert len(s3_server.requests) - before == 3  # the commit reads the table and its partitions, and adds one
    assert (DeltaTable("lake/orders").version(), partitions(glue)) == (1, 3)
    found["datasets"]["orders"]["catalog"] = catalog | {"options": {"secret": "x"}}
    with pytest.raises(StepFailedError, match="before the first step: Unknown options of the Glue catalog"):
        Pipeline.of(found, trust=True).run(spark)
    assert IO.unregister("lake/orders", catalog="glue")


def test_a_step_fails_with_its_export_and_is_not_repeated(lake: Path, spark: Any) -> None:
    Path("in/mon.csv").write_text("id,a b\n1,new\n")
    found = pipeline(keep_exported=["delta"])
    for _ in range(2):
        with pytest.raises(StepFailedError, match="Delta Lake does not allow spaces") as caught:
            Pipeline.of(found).run(spark, idempotency_key="one")
        assert isinstance(caught.value.__cause__, UnsupportedDataError)
    assert len(IO.read_parquet("lake/orders")) == 1
    assert Pipeline.of(pipeline()).run(spark, idempotency_key="one").step("load").status == "skipped"


@pytest.mark.parametrize(("publish", "keeps_names"), [("replace", True), ("new_names", False)])
def test_a_dataset_says_how_commits_become_visible(publish: str, keeps_names: bool, lake: Path, spark: Any) -> None:
    def names() -> list[str]:
        return sorted(path.name for path in Path("lake/shown").glob("*.parquet"))

    found = pipeline(path="lake/shown", publish=publish)
    Path("in/mon.csv").write_text("id,status,amount\n1,new,10\n2,paid,20\n")
    Pipeline.of(found).run(spark)
    before = names()
    Path("in/mon.csv").write_text("id,status,amount\n1,new,11\n")
    Pipeline.of(found).run(spark)
    assert (names() == before) is keeps_names
    assert sorted(IO.read_parquet("lake/shown")["amount"].to_pylist()) == [11, 20]
    with pytest.raises(PipelineFileError, match="publish"):
        Pipeline.of(pipeline(publish="rename"))
