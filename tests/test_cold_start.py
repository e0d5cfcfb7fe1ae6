"""A small merge, and a new Python process of an executor, must not pay for imports that they do not need."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import sys
import numpy as np, pyarrow as pa
from fsspeckit.common.bridge import text_array, to_arrow
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
rows = pa.table({"id": to_arrow(np.arange(100)), "day": text_array(["a", "b"] * 50), "v": to_arrow(np.arange(100) / 2)})
io, folder = PyarrowDatasetIO(), sys.argv[1]
io.write_dataset(rows, folder, partition_by=["day"])
io.merge(rows.slice(10, 20), folder, strategy="upsert", key_columns="id")
io.merge(rows.slice(0, 50), folder, strategy="full_merge", key_columns=["id", "day"])
options = {"update_columns": ["v"], "delete_when": "v > 45", "newer_by": "v", "update_when": "source.v <> target.v"}
io.merge(rows, folder, strategy="upsert", key_columns="id", **options)
io.apply_changes(rows, folder, key_columns="id", sequence_by="v", delete_when="id IS NULL")
io.update(folder, set={"v": "v * 2 + 1.5"}, where="id BETWEEN 3 AND 7 OR day IN ('a', 'c') AND id IN (1, 2)")
io.delete(folder, where="v > 3 AND NOT day = 'b' OR v IS NULL")
io.delete(folder, where="true")
print(sorted({"pandas", "pyarrow.dataset", "duckdb", "fsspec", "pyspark", "rich", "s3fs"} & set(sys.modules)))
"""
EXECUTOR = """
import sys
import fsspeckit.datasets.spark.jobs, fsspeckit.datasets.spark.tasks
unneeded = {"fsspec", "fsspeckit.core.operations", "fsspeckit.datasets.io", "fsspeckit.datasets.spark.engine"}
print(sorted(unneeded & set(sys.modules)))
"""


def test_merges_and_row_changes_import_no_heavy_module(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "t")], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_a_task_of_spark_imports_neither_planning_nor_fsspec():
    done = subprocess.run([sys.executable, "-c", EXECUTOR], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_fsspec_does_not_warn_of_our_own_variables():
    script = "import warnings; from fsspeckit.core.storage import resolve\n"
    script += "warnings.simplefilter('error'); print(resolve('memory://a/b')[1])"
    env = os.environ | {"FSSPECKIT_ENGINE": "pyarrow"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=env)
    assert (done.stdout.strip(), done.stderr) == ("/a/b", "")
