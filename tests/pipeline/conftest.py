"""One Spark session for all tests of pipelines, the one that the engine's tests have too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fsspeckit.datasets.spark import SparkDatasetIO


@pytest.fixture(scope="session")
def spark() -> Any:
    """The local session."""
    return SparkDatasetIO().spark


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with two days of orders as csv."""
    monkeypatch.chdir(tmp_path)
    day = tmp_path / "in"
    day.mkdir()
    (day / "mon.csv").write_text(
        "id,status,amount,at\n1,new,10,2026-11-02\n2,new,20,2026-11-02\n2,paid,21,2026-11-03\n"
    )
    (day / "tue.csv").write_text("id,status,amount,at\n2,sent,21,2026-11-04\n3,new,30,2026-11-04\n")
    return tmp_path
