"""Pipelines whose dataset another program removed or wrote anew: an error, and `reload` loads everything again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import DatasetExistsError, DatasetLostError
from fsspeckit.cli.app import main
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.pipeline import Pipeline, StepFailedError

pytestmark = pytest.mark.spark

LANDING = """
name = "landing"
idempotency_key = "fixed"

[sources.raw]
format = "csv"
path = "in"
new_files = true

[sources.fixed]
format = "csv"
path = "once"

[datasets.orders]
path = "lake/orders"

[[steps]]
name = "load"
do = "write"
from = "raw"
into = "orders"

[[steps]]
name = "once"
do = "write"
from = "fixed"
into = "orders"
after = ["load"]
"""
ORDERS = Path("lake/orders")


def put(name: str, id_: int) -> None:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(f"id\n{id_}\n")


def ids() -> list[int]:
    return sorted(PyarrowDatasetIO().read_parquet("lake/orders")["id"].to_pylist())


def write_anew() -> None:
    rmtree(ORDERS)
    ORDERS.mkdir()
    pq.write_table(pa.table({"id": [9]}), ORDERS / "part-00000.parquet")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    put("in/a.csv", 1)
    put("once/b.csv", 2)
    Path("p.toml").write_text(LANDING)

    def call(**options: Any) -> list[tuple[str, int | None]]:
        return [(step.status, step.rows) for step in Pipeline.load("p.toml").run(spark, **options).steps]

    assert call() == [("done", 1), ("done", 1)]
    assert call() == [("done", 0), ("skipped", None)]
    return call


@pytest.mark.parametrize("lose", [lambda: rmtree(ORDERS), write_anew], ids=["removed", "written anew"])
def test_new_files_and_a_fixed_key(run: Callable[..., Any], spark: Any, lose: Callable[[], None]) -> None:
    lose()
    there = [9] if ORDERS.exists() else []
    for select in ("load", "once"):
        with pytest.raises(StepFailedError, match=r"lake/orders.*--reload.*fsspeckit forget") as raised:
            run(select=[select])
        assert isinstance(raised.value.__cause__, DatasetLostError)
        with pytest.raises(StepFailedError, match="--reload"):
            Pipeline.load("p.toml").preview(spark, select=[select])
    shown = Pipeline.load("p.toml").preview(spark, reload=True)
    assert [step.committed for step in shown.steps] == [None, None]
    assert run(reload=True, select=["load"]) == [("done", 1), ("not selected", None)]
    with pytest.raises(StepFailedError, match="started the dataset anew"):
        run()
    assert run(reload=True, select=["once"]) == [("not selected", None), ("done", 1)]
    assert ids() == [1, 2, *there]
    put("in/c.csv", 3)
    assert run() == [("done", 1), ("skipped", None)]
    for select in ("load", "once"):
        with pytest.raises(StepFailedError, match=f"has what step '{select}' has loaded") as raised:
            run(reload=True, select=[select])
        assert isinstance(raised.value.__cause__, DatasetExistsError)
    assert ids() == [1, 2, 3, *there]


def test_rows_that_were_deleted_are_loaded_again_and_so_is_a_dataset_without_journal(run: Callable[..., Any]) -> None:
    io = PyarrowDatasetIO()
    io.delete("lake/orders", where="true")
    assert run() == [("done", 0), ("skipped", None)]
    assert run(reload=True) == [("done", 1), ("done", 1)]
    assert ids() == [1, 2]
    rmtree(ORDERS)
    io.forget("lake/orders")
    assert run() == [("done", 1), ("done", 1)]
    assert ids() == [1, 2]


def test_the_command(run: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    rmtree(ORDERS)
    assert main(["run", "p.toml"]) == 1
    said = capsys.readouterr().err
    assert "--reload" in said
    assert "fsspeckit forget" in said
    assert main(["run", "p.toml", "--reload", "--dry-run"]) == 0
    assert main(["run", "p.toml", "--reload"]) == 0
    assert ids() == [1, 2]
