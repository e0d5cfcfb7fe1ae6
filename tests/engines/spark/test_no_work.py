"""An operation that has nothing to do does not start Spark: without Java, it succeeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

CODE = """
import sys
from fsspeckit.cli.app import main

for words in sys.argv[1:]:
    print(main([*words.split(), "--engine", "spark", "-q"]), words)
"""


def test_no_work_needs_no_java(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "n": [10, 20]})
    PyarrowDatasetIO().write_dataset(rows, str(tmp_path / "lake"))
    (tmp_path / "same.csv").write_text("id,n\n")
    idle = [
        "merge same.csv lake --key id",
        "merge same.csv nowhere --key id --strategy update",
        "delete lake --where id=9",
        "update lake --set n=1 --where id=9",
        "compact lake",
        "write same.csv lake --mode ignore",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    environment |= {"JAVA_HOME": str(tmp_path / "no java"), "PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    busy = "delete lake --where id=1"
    done = subprocess.run(
        [sys.executable, "-c", CODE, *idle, busy],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [*(f"0 {words}" for words in idle), f"1 {busy}"], done.stderr
    assert "Spark" in done.stderr, "this one has work, and needs Java"
