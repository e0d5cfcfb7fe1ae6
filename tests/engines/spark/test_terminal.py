"""What a user sees on the terminal: nothing in a normal run, a few words after an error, and Ctrl-C that works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import fsspeckit
from engines.spark.clusters import environment, faults_of, foreign_python, python_without
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

pytestmark = pytest.mark.more

NORMAL = """
import glob, sys, tempfile
import pyarrow as pa
from fsspeckit.common.errors import FsspeckitError
from fsspeckit.datasets.spark import SparkDatasetIO
io, path = SparkDatasetIO(), sys.argv[1]
frame = io.spark.range(100).selectExpr("id", "cast(id % 2 as string) as p", "id * 2 as v")
io.write_dataset(frame, path, partition_by="p")
print(io.merge(frame.limit(10), path, strategy="full_merge", key_columns="id").stats())
print(io.merge(pa.table({"id": [1], "p": ["1"], "v": [0]}), path, strategy="upsert", key_columns="id").updated)
print(io.read(path).count(), io.read_parquet(path).num_rows)
try:
    io.merge(frame.union(frame), path, strategy="upsert", key_columns="id")
except FsspeckitError as error:
    print(type(error).__name__)
io.merge(frame.selectExpr("id", "p", "cast(raise_error('sensor broken') as bigint) as v"), path, strategy="upsert",
         key_columns="id")
"""

CTRL_C = """
import sys
import pyarrow as pa
from fsspeckit.datasets.spark import SparkDatasetIO
io, path = SparkDatasetIO(), sys.argv[1]
io.merge(pa.table({"id": range(0, 400000, 7), "v": [0.0] * len(range(0, 400000, 7))}), path, strategy="upsert",
         key_columns="id")
"""


def test_a_normal_run_says_nothing_and_an_error_little(tmp_path):
    env = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", NORMAL, str(tmp_path / "t")], capture_output=True, text=True, check=False, env=env
    )
    assert done.stdout.splitlines() == [
        "{'inserted': 0, 'updated': 10, 'deleted': 90, 'total': 10}",
        "1",
        "10 10",
        "KeyColumnError",
    ], done.stderr
    trace, _, message = done.stderr.rstrip().rpartition("\n")
    assert message.startswith("fsspeckit.datasets.spark.errors.SparkJobError: ")
    assert "sensor broken" in message
    assert "Java" not in trace
    assert "py4j" not in trace
    assert "another exception" not in trace
    assert trace.startswith("Traceback")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("fsspeckit-")] == []


def test_ctrl_c_leaves_the_old_dataset(tmp_path):
    """Pressed while a staged file is half written: its Python worker has stopped dead."""
    io, path = PyarrowDatasetIO(), tmp_path / "t"
    io.write_dataset(pa.table({"id": range(400_000), "v": [1.0 / (i + 1) for i in range(400_000)]}), path)
    before = {file: file.read_bytes() for file in path.iterdir()}
    python = foreign_python(tmp_path / "python")
    (faults_of(python) / "stop.1").touch()
    env = environment(PYSPARK_PYTHON=str(python)) | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", CTRL_C, str(path)], stderr=subprocess.PIPE, text=True, env=env)
    until = time.monotonic() + 400
    while not any(name.startswith("struck-") for name in os.listdir(faults_of(python))):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=200)
    assert process.returncode == -signal.SIGINT
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert "py4j" not in said
    assert {file: file.read_bytes() for file in path.iterdir()} == before
    assert not io.recover(path)
    assert [name for name in os.listdir(tmp_path / ".t.fsspeckit") if "staging" in name] == []


def test_executors_without_pyarrow_are_told_of(tmp_path):
    """The Python that Spark finds is not always the one that has the packages."""
    python = python_without(tmp_path / "python", "pyarrow")
    code = "import pyarrow as pa; from fsspeckit.datasets.spark import SparkDatasetIO as IO\n"
    code += f"IO().write_dataset(pa.table({{'id': [1]}}), {str(tmp_path / 't')!r})"
    env = environment(PYSPARK_PYTHON=str(python), PYTHONPATH=str(Path(fsspeckit.__file__).parent.parent))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    message = done.stderr.rstrip().rpartition("\n")[2]
    assert message.startswith("fsspeckit.datasets.spark.errors.ExecutorSetupError: ")
    assert "no package 'pyarrow'" in message
    assert "set PYSPARK_PYTHON, before the session starts" in message
    assert sys.executable in message
    assert not (tmp_path / "t").exists()
    assert {*os.listdir(tmp_path)} <= {"python", ".t.fsspeckit"}
    assert [path.name for path in (tmp_path / ".t.fsspeckit").rglob("*") if "staging" in path.name] == []
