"""The operators in a run of a DAG by Airflow itself, with its own database."""

from __future__ import annotations

import os
import runpy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

pytest.importorskip("airflow", reason="make test-integrations installs it")

from fsspeckit.integrations.airflow import DatasetOperator

IO = PyarrowDatasetIO()
DAY = datetime(2026, 11, 2, tzinfo=UTC)
PIPELINE = """
name = "orders"
datasets.orders.path = "lake/orders"
sources.raw = { format = "csv", path = "in/${day}.csv" }

[[steps]]
name = "load"
do = "merge"
from = "raw"
into = "orders"
keys = ["id"]
"""


HEAD = """
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, task

from fsspeckit.integrations.airflow import DatasetOperator, PipelineOperator

RETRY = {"retries": 2, "retry_delay": timedelta(seconds=0)}
START = datetime(2026, 11, 1, tzinfo=UTC)


def count_try():
    with Path(FOLDER, "tries").open("a") as file:
        file.write("x")
    return Path(FOLDER, "tries").read_text()
"""
APPENDS = """
class FailsOnce(DatasetOperator):
    def execute(self, context):
        found = super().execute(context)
        if count_try() == "x":
            raise RuntimeError("the worker is gone after the commit")
        return found


with DAG("appends", schedule=None, start_date=START) as dag:
    log, data = f"{FOLDER}/lake/log", {"data": FOLDER + "/in/{{ ds }}.csv"}
    append = FailsOnce(task_id="append", path=log, operation="append", arguments=data, engine="pyarrow", **RETRY)
    merge = DatasetOperator(
        task_id="merge",
        path=f"{FOLDER}/lake/orders",
        operation="merge",
        arguments={"data": log},
        engine="duckdb",
        key="id",
    )
    append >> merge
"""
ORDERS = """
with DAG("orders", schedule=None, start_date=START) as dag:
    given = {"pipeline": f"{FOLDER}/pipeline.toml", "variables": {"day": "{{ ds }}"}, "master": "local[1]"}
    first = PipelineOperator(task_id="first", **given)
    key = "{{ dag.dag_id }}/{{ run_id }}"
    second, third = [PipelineOperator(task_id=name, idempotency_key=key, **given) for name in ("second", "third")]

    @task
    def count(document):
        return document["steps"][0]["details"]["inserted"]

    first >> second >> third
    count(first.output)
"""
MISTAKE = """
class Counted(PipelineOperator):
    def execute(self, context):
        count_try()
        return super().execute(context)


with DAG("mistake", schedule=None, start_date=START) as dag:
    Counted(task_id="load", pipeline=f"{FOLDER}/pipeline.toml", **RETRY)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ids(path: str) -> list[int]:
    return sorted(IO.read_parquet(path)["id"].to_pylist())


def run_dag(name: str, text: str) -> Any:
    """Put a file into the folder of DAGs, and let Airflow run the DAG."""
    path = Path(os.environ["AIRFLOW_HOME"]) / "dags" / f"{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"FOLDER = {os.getcwd()!r}\n{HEAD}{text}")
    return runpy.run_path(str(path))["dag"].test(logical_date=DAY)


def results_of(run: Any) -> dict[str, Any]:
    return {each.task_id: each.xcom_pull(task_ids=each.task_id) for each in run.get_task_instances()}


def test_a_retry_does_not_repeat_an_operation(folder: Path) -> None:
    Path("in").mkdir()
    Path("in/2026-11-02.csv").write_text("id\n1\n2\n")
    run = run_dag("appends", APPENDS)
    assert run.state == "success"
    found = results_of(run)
    assert Path("tries").read_text() == "xx"
    assert (found["append"]["status"], found["append"]["commit_seq"]) == ("skipped", 1)
    assert (found["merge"]["status"], found["merge"]["inserted"]) == ("done", 2)
    assert ids("lake/log") == ids("lake/orders") == [1, 2]


def test_a_pipeline_is_run_once_for_each_key(folder: Path) -> None:
    Path("pipeline.toml").write_text(PIPELINE)
    Path("in").mkdir()
    Path("in/2026-11-02.csv").write_text("id,v\n1,a\n2,b\n")
    run = run_dag("orders", ORDERS)
    assert run.state == "success"
    found = results_of(run)
    assert found["count"] == found["first"]["steps"][0]["details"]["inserted"] == 2
    assert found["second"]["steps"][0]["status"] == "done"
    assert found["third"]["steps"][0]["status"] == "skipped"
    assert ids("lake/orders") == [1, 2]


def test_a_mistake_in_the_file_is_not_tried_again(folder: Path) -> None:
    Path("pipeline.toml").write_text(PIPELINE.replace('do = "merge"', 'do = "merg"'))
    assert run_dag("mistake", MISTAKE).state == "failed"
    assert Path("tries").read_text() == "x"


def test_an_unknown_operation_is_an_error_in_the_dag_file() -> None:
    with pytest.raises(ValueError, match=r"operation='drop' is unknown. Use one of append, apply_changes"):
        DatasetOperator(task_id="x", path="lake", operation="drop")
