"""Clusters of real processes: executors without our package, tasks that fail, workers that are lost, a dying driver."""

from __future__ import annotations

import os
import re
from contextlib import nullcontext

import pytest

from engines.spark.clusters import faults_of, foreign_python, own_home, run_driver, standalone
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from sweeps import sweep_size

pytestmark = pytest.mark.more

DECIDED, UNDECIDED = "os.rename", "os.link"
"""What the driver is about to do when it dies: publish a file, or put the record in place that decides."""
ROUTES = {"standalone": "exchange", "local-cluster": "shared files"}
"""How the source's rows reach the tasks of the merge in which a worker is lost."""
ALL = ["works", "survived two failures", "survived a lost worker", "ready to die"]
WORLDS = {
    "standalone, the driver dies after the decision": ("standalone", DECIDED),
    "local-cluster, the driver dies before the decision": ("local-cluster", UNDECIDED),
    "standalone, the driver dies before the decision": ("standalone", UNDECIDED),
    "local-cluster, the driver dies after the decision": ("local-cluster", DECIDED),
}


@pytest.mark.parametrize("world", WORLDS if sweep_size().full else list(WORLDS)[:1])
def test_what_clusters_go_through(tmp_path, world):
    kind, dies_at = WORLDS[world]
    python = foreign_python(tmp_path / "python")
    (tmp_path / "work").mkdir()
    cluster = standalone(tmp_path / "work", python) if kind == "standalone" else nullcontext("local-cluster[2,1,1024]")
    with cluster as master:
        arguments = (master, tmp_path, faults_of(python), ROUTES[kind], dies_at)
        home = own_home(tmp_path / "home")
        done = run_driver("cluster_driver", *arguments, PYSPARK_PYTHON=str(python), SPARK_HOME=home)
    assert (done.stdout.splitlines(), done.returncode) == (ALL, -9), of_python(done.stderr)
    judge(tmp_path, decided=dies_at == DECIDED)


def of_python(said: str) -> str:
    """What the driver itself said, without the log of Spark."""
    return "\n".join(line for line in said.splitlines() if not re.match(r"\tat |\d\d/\d\d/\d\d |Caused by", line))


def judge(folder, *, decided: bool) -> None:
    """The twin has had the last merge; the dataset has it exactly when it was decided."""
    io, path = PyarrowDatasetIO(), folder / "ds"
    expected = io.read_parquet(folder / "twin")
    assert 4.0 in expected["v"].to_pylist()
    assert io.recover(path)
    found = io.read_parquet(path)
    if decided:
        assert found.sort_by("id").equals(expected.sort_by("id"))
    else:
        assert set(found["v"].to_pylist()) == {3.0}
    assert not io.recover(path)
    assert [name for name in os.listdir(folder / ".ds.fsspeckit") if "staging" in name] == []
    assert all(file.name.endswith(".parquet") for file in path.iterdir())
