"""Readers of Delta Lake and Apache Iceberg as they exist: DuckDB with its extensions, and Spark with jars.

`make test-readers` has an environment of its own, because the extensions and jars are of earlier versions of DuckDB and
Spark than the tests use otherwise. The jars come from Maven.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from inside import ensure_java

_DELTA, _ICEBERG = "4.3.0", "1.12.0"
_SPARK = ".".join(pyspark.__version__.split(".")[:2])
JARS = [
    f"io.delta:delta-spark_{_SPARK}_2.13:{_DELTA}",
    f"io.delta:delta-storage:{_DELTA}",
    *(f"io.delta:delta-kernel-{part}:{_DELTA}" for part in ("api", "defaults", "unitycatalog")),
    f"org.apache.iceberg:iceberg-spark-runtime-{_SPARK}_2.13:{_ICEBERG}",
]


@pytest.fixture(scope="session")
def jars() -> str:
    """The jars, separated by commas; downloaded once to the repository of Maven."""
    found = [_jar(artifact) for artifact in JARS]
    missing = [artifact for artifact, jar in zip(JARS, found, strict=True) if not jar.exists()]
    if missing and shutil.which("mvn") is None:
        pytest.skip(f"Maven is not installed, which downloads {missing[0]}")
    for artifact in missing:
        get = ["mvn", "-q", "-B", "dependency:get", f"-Dartifact={artifact}", "-Dtransitive=false"]
        done = subprocess.run(get, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            pytest.skip(f"Maven cannot download {artifact}: {done.stdout[-200:]}")
    return ",".join(map(str, found))


def _jar(artifact: str) -> Path:
    group, name, version = artifact.split(":")
    return Path.home() / ".m2" / "repository" / group.replace(".", "/") / name / version / f"{name}-{version}.jar"


@pytest.fixture(scope="session")
def spark(jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with Delta and Iceberg."""
    from pyspark.sql import SparkSession

    ensure_java()
    settings = {
        "spark.master": "local[1]",
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def duckdb() -> Iterator[Any]:
    """A connection of DuckDB with its extensions for Delta and Iceberg, which packages of PyPI install."""
    import duckdb as library

    with library.connect() as connection:
        connection.execute("SET autoinstall_known_extensions = false")
        for name in ("avro", "httpfs", "delta", "iceberg"):
            connection.load_extension(str(_extension(name)))
        yield connection


def _extension(name: str) -> Path:
    package = pytest.importorskip(f"duckdb_extension_{name}", reason=f"the extension {name} is not installed")
    [found] = Path(package.__file__).parent.rglob("*.duckdb_extension")
    return found
