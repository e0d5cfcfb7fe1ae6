"""The example of Spark Declarative Pipelines, run by the command `spark-pipelines`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

import fsspeckit
from engines.spark.clusters import connect_port, environment
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

pytestmark = pytest.mark.more

pytest.importorskip("pyspark.pipelines", reason="Spark Declarative Pipelines come with PySpark 4.1")
EXAMPLE = Path(__file__).parents[3] / "examples" / "declarative"
HERE = "/tmp/fsspeckit-declarative"


def run_pipeline(folder: Path) -> None:
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run", "--spec", "spark-pipeline.yml"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    own = environment(PATH=path, PYTHONPATH=str(Path(fsspeckit.__file__).parents[1]))
    with connect_port():
        done = subprocess.run(command, check=False, cwd=folder, env=own, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_a_dataset_is_the_sink_of_a_flow(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    shutil.copytree(EXAMPLE, folder)
    spec = folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace(HERE, str(folder)))
    run_pipeline(folder)
    (folder / "in" / "tuesday.csv").write_text("id,status,amount\n2,paid,20.00\n3,new,7.25\n")
    run_pipeline(folder)
    table = PyarrowDatasetIO().read_parquet(str(folder / "lake" / "orders")).sort_by("id")
    assert table.to_pydict() == {
        "id": [1, 2, 3],
        "status": ["new", "paid", "new"],
        "amount": [Decimal("10.50"), Decimal("20.00"), Decimal("7.25")],
    }
    assert len(PyarrowDatasetIO().history(str(folder / "lake" / "orders"))) == 2
