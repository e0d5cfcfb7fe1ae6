"""Streams: every batch is merged once, also where a process dies between its commit and Spark's note of it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from engines.spark.clusters import run_driver
from engines.spark.stream_driver import SCHEMA, source
from fsspeckit.common.errors import StorageError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO


def put(folder: Path, number: int, *rows: tuple[int, str]) -> None:
    """A file of the source; times a minute apart make the order of batches."""
    path = folder / "in" / f"{number}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({"id": key, "v": value}) + "\n" for key, value in rows))
    os.utime(path, (1_700_000_000 + 60 * number,) * 2)


def rows_of(path: Path) -> dict[int, str]:
    found = PyarrowDatasetIO().read_parquet(path).to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["v"] for row in found}


def keys_of(path: Path) -> list[str]:
    log = path.parent / f".{path.name}.fsspeckit" / "log"
    infos = [json.loads(record.read_text())["info"] for record in sorted(log.glob("*.json"))]
    return [info["idempotency_key"].rpartition("/")[2] for info in infos if "idempotency_key" in info]


def test_a_process_is_killed_between_batches(tmp_path, io, spark):
    for number in range(3):
        put(tmp_path, number, (0, f"batch {number}"), (number + 1, "new"))
    done = run_driver("stream_driver", tmp_path)
    assert (done.stdout.splitlines(), done.returncode) == (["dying"], -9), done.stderr[-3000:]
    assert sorted(os.listdir(tmp_path / "checkpoint" / "commits"))[-1] == "0"
    assert rows_of(tmp_path / "ds") == {0: "batch 1", 1: "new", 2: "new"}

    other = PyarrowDatasetIO()
    newer = other.read_parquet(tmp_path / "ds").slice(0, 1).set_column(1, "v", [["by somebody else"]])
    other.merge(newer, tmp_path / "ds", strategy="update", key_columns="id")
    expected = rows_of(tmp_path / "ds")
    os.remove(tmp_path / "in" / "2.json")

    def again() -> None:
        query = io.merge_stream(
            source(spark, str(tmp_path)),
            tmp_path / "ds",
            key_columns="id",
            checkpoint=str(tmp_path / "checkpoint"),
            trigger={"availableNow": True},
        )
        query.awaitTermination()

    again()
    assert rows_of(tmp_path / "ds") == expected
    put(tmp_path, 5, (0, "batch 5"), (9, "new"))
    again()
    assert rows_of(tmp_path / "ds") == {0: "batch 5", 1: "new", 2: "new", 9: "new"}
    assert keys_of(tmp_path / "ds") == ["0", "1", "2"]


def test_a_function_that_does_not_know_its_query(tmp_path, io, spark):
    merge = io.merge_batches(tmp_path / "ds", key_columns="id", checkpoint=str(tmp_path / "elsewhere"))
    with pytest.raises(StorageError, match="checkpointLocation"):
        merge(spark.createDataFrame([(1, "x")], SCHEMA), 0)
    assert not (tmp_path / "ds").exists()


def test_a_stream_on_spark_connect(tmp_path):
    done = run_driver(
        "stream_connect_driver", tmp_path, PYSPARK_PYTHON=sys.executable, PYTHONPATH=os.pathsep.join(sys.path)
    )
    assert (done.stdout.splitlines(), done.returncode) == (["streamed"], 0), done.stderr[-5000:]
