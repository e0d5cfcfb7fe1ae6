"""Sessions that somebody else starts: Spark Connect and spark-submit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from engines.spark.clusters import HERE, QUICK, SPARK, connect_port, environment, run_driver

pytestmark = pytest.mark.more

SCRIPT = """
import sys
from pyspark.sql import SparkSession
import life
from fsspeckit.datasets.spark import SparkDatasetIO
spark = SparkDatasetIO().spark
assert (spark.sparkContext.appName, spark.sparkContext.master) == ("submitted", "local[2]"), "another session"
life.live(spark, sys.argv[1])
"""


def test_spark_connect(tmp_path):
    with connect_port():
        paths = os.pathsep.join(sys.path)
        done = run_driver("connect_driver", tmp_path, PYSPARK_PYTHON=sys.executable, PYTHONPATH=paths)
    said = done.stdout.splitlines()
    assert (said[0], said[-1], len(said), done.returncode) == ("lived", "done", 8, 0), done.stderr[-5000:]


def test_spark_submit(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    program = [SPARK / "bin" / "spark-submit", "--master", "local[2]", "--name", "submitted"]
    program += ["--driver-java-options", QUICK, "--conf", "spark.ui.enabled=false", script, tmp_path]
    paths = os.pathsep.join([str(HERE), *sys.path])
    env = environment(PYSPARK_PYTHON=sys.executable, PYTHONPATH=paths)
    done = subprocess.run(program, env=env, capture_output=True, text=True, check=False, timeout=600)
    assert (done.stdout.splitlines(), done.returncode) == (["lived"], 0), done.stderr[-5000:]
