"""The materialization and the sources in dbt with dbt-duckdb itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

dbt = pytest.importorskip("dbt.cli.main", reason="make test-integrations installs it")
from fsspeckit.integrations.dbt import PACKAGE  # noqa: E402

IO = PyarrowDatasetIO()
PROFILE = """
shop:
  target: dev
  outputs:
    dev:
      type: duckdb
      path: shop.duckdb
      plugins:
        - module: fsspeckit.integrations.dbt
          alias: fsspeckit
"""
SOURCES = """
sources:
  - name: lake
    meta:
      plugin: fsspeckit
    tables:
      - name: raw
        meta:
          path: lake/raw
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DBT_SEND_ANONYMOUS_USAGE_STATS", "false")
    monkeypatch.setenv("FSSPECKIT_DBT", PACKAGE)
    Path("dbt_project.yml").write_text("name: shop\nversion: '1.0'\nprofile: shop\n")
    Path("profiles.yml").write_text(PROFILE)
    Path("packages.yml").write_text("packages:\n  - local: \"{{ env_var('FSSPECKIT_DBT') }}\"\n")
    Path("models").mkdir()
    return tmp_path


def model(name: str, config: str, query: str) -> None:
    Path(f"models/{name}.sql").write_text(f"{{{{ config(materialized='fsspeckit', {config}) }}}}\n{query}\n")


def run(*arguments: str, succeeds: bool = True) -> Any:
    result = dbt.dbtRunner().invoke([*arguments, "--project-dir", ".", "--profiles-dir", "."])
    assert result.success is succeeds, result.exception or [str(each.message) for each in result.result]
    return result


def rows(path: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in IO.read_parquet(path).to_pylist())


def test_models_are_merged_and_other_models_read_all_rows(project: Path) -> None:
    Path("models/sources.yml").write_text(SOURCES)
    query = "SELECT id, amount * 2 AS amount FROM {{ source('lake', 'raw') }}"
    model("orders", "location='lake/orders', key='id'", query)
    model(
        "by_parity",
        "location='lake/by_parity', partition_by=['parity']",
        "SELECT id % 2 AS parity, id FROM {{ ref('orders') }}",
    )
    Path("models/total.sql").write_text("SELECT count(*) AS n, sum(amount) AS amount FROM {{ ref('orders') }}\n")
    IO.write_dataset(pa.table({"id": [1, 2], "amount": [10, 20]}), "lake/raw")
    run("deps")
    run("run")
    IO.write_dataset(pa.table({"id": [2, 3], "amount": [21, 30]}), "lake/raw", mode="overwrite")
    run("run")
    assert rows("lake/orders") == [(1, 20), (2, 42), (3, 60)]
    assert rows("lake/by_parity") == [(1, 1), (2, 0), (3, 1)]
    assert sorted(path.name for path in Path("lake/by_parity").iterdir()) == ["parity=0", "parity=1"]
    assert [version.operation for version in IO.history("lake/orders")] == ["merge", "merge"]
    shown = run("show", "--inline", "SELECT * FROM {{ ref('total') }}")
    assert [tuple(row) for row in shown.result.results[0].agate_table.rows] == [(3, 122)]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("key='id'", "location"),
        ("location='lake/orders', key='nothing'", "nothing"),
        ("location='lake/orders', key='id', mode='append'", "either 'key', which merges, or 'mode'"),
    ],
)
def test_mistakes_write_nothing(project: Path, config: str, said: str) -> None:
    model("orders", config, "SELECT 1 AS id")
    run("deps")
    result = run("run", succeeds=False)
    assert said in str([each.message for each in result.result])
    assert not Path("lake/orders").exists()


def test_an_empty_model_and_appends(project: Path) -> None:
    model("log", "location='lake/log', mode='append'", "SELECT 1 AS id WHERE {{ var('some', 1) }} = 1")
    run("deps")
    run("run")
    run("run", "--vars", "{some: 0}")
    run("run")
    assert rows("lake/log") == [(1,), (1,)]
