"""The files of docs/integrations.md, each run by its program."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from test_snippets import FENCE, ROOT

PAGE = ROOT / "docs" / "integrations.md"
IO = PyarrowDatasetIO()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of the page; DAGs are where Airflow looks for them."""
    monkeypatch.chdir(tmp_path)
    for block in FENCE.finditer(PAGE.read_text("utf-8")):
        named = re.match(r"(?:#|--) (\S+)\n", block[2])
        if named is not None:
            folder = Path(os.environ["AIRFLOW_HOME"]) if named[1].startswith("dags/") else tmp_path
            path = folder / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block[2].partition("\n")[2] if path.suffix == ".sql" else block[2])
    return tmp_path


def names(path: str) -> list[str]:
    return sorted(IO.read_parquet(path)["name"].to_pylist())


def test_the_dag_of_the_page(files: Path) -> None:
    pytest.importorskip("airflow", reason="make test-integrations installs it")
    Path("in").mkdir()
    Path("in/2026-11-02.csv").write_text("id,name\n1,Ann\n2,Bob\n")
    runpy.run_path(str(Path(os.environ["AIRFLOW_HOME"]) / "dags" / "orders.py"), run_name="__main__")
    assert names("lake/orders") == ["Ann", "Bob"]


def test_the_assets_of_the_page_and_the_models_that_read_them(files: Path) -> None:
    pytest.importorskip("dagster", reason="make test-integrations installs it")
    runpy.run_path("assets.py", run_name="__main__")
    visits = IO.read_parquet("lake/visits")
    assert set(visits["day"].to_pylist()) == {"2026-11-03"}
    pytest.importorskip("dbt", reason="make test-integrations installs it")
    (shell,) = [block[2] for block in FENCE.finditer(PAGE.read_text("utf-8")) if block[2].startswith("export")]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {**os.environ, "PATH": path, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
    done = subprocess.run(["bash", "-euc", shell], check=False, env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert names("lake/dbt_orders") == ["ANN", "BOB"]
