"""Airflow reads its configuration when it is imported, so its home and its database are chosen before any test."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="fsspeckit-airflow-")
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "False"
os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = f"sqlite:///{os.environ['AIRFLOW_HOME']}/airflow.db"


@pytest.fixture(scope="session", autouse=True)
def database() -> None:
    """Create the database of Airflow, if it is installed."""
    program = Path(sys.executable).with_name("airflow")
    if not program.exists():
        return
    command = [str(program), "db", "migrate"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr[-2000:]
