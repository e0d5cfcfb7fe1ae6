"""The jars of Delta Lake and Apache Iceberg: given by the caller, or fetched by Maven for the installed PySpark."""

from __future__ import annotations

import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

_DELTA = "io.delta:delta-{part}:4.3.0"
_DELTA_PARTS = ("spark_4.1_2.13", "storage", "kernel-api", "kernel-defaults", "kernel-unitycatalog")
_ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
COORDINATES = {"4.1": (*(_DELTA.format(part=part) for part in _DELTA_PARTS), _ICEBERG)}
"""Jars that work together, by version of PySpark."""


def fetch(folder: Path) -> tuple[str, str]:
    """Return the paths of the jars, separated by commas, and the reason if there are none."""
    spark = ".".join(version("pyspark").split(".")[:2])
    if spark not in COORDINATES:
        return "", f"there are no jars for PySpark {spark}, only for {', '.join(COORDINATES)}"
    if shutil.which("mvn") is None:
        return "", "mvn is not installed; pass --jars instead"
    folder.mkdir(parents=True, exist_ok=True)
    for name in COORDINATES[spark]:
        command = ["mvn", "-q", "dependency:copy", f"-Dartifact={name}", f"-DoutputDirectory={folder}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = next(iter(done.stdout.strip().splitlines()), f"mvn exits with {done.returncode}")
            return "", f"{name} cannot be fetched: {reason}"
    return ",".join(str(path) for path in sorted(folder.glob("*.jar"))), ""
