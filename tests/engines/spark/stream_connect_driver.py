"""A stream on Spark Connect, whose server runs the function of each batch in a Python process of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from stream_driver import source

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO


def put(folder: str, number: int, *lines: str) -> None:
    """A file of the source; times a minute apart make the order of batches."""
    path = Path(folder, "in", f"{number}.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines))
    os.utime(path, (1_700_000_000 + 60 * number,) * 2)


def rows(folder: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in PyarrowDatasetIO().read_parquet(f"{folder}/ds").to_pylist())


def main(folder: str) -> None:
    """Two batches; the last one again, as after a crash before Spark took note of it; and a third."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    io = SparkDatasetIO(spark)

    def stream() -> None:
        query = io.merge_stream(
            source(spark, folder),
            f"{folder}/ds",
            key_columns="id",
            checkpoint=f"{folder}/checkpoint",
            trigger={"availableNow": True},
        )
        query.awaitTermination()
        assert query.exception() is None, query.exception()

    put(folder, 0, '{"id": 1, "v": "a"}', '{"id": 2, "v": "b"}')
    put(folder, 1, '{"id": 2, "v": "B"}')
    stream()
    assert rows(folder) == [(1, "a"), (2, "B")]
    PyarrowDatasetIO().merge(pa.table({"id": [2], "v": ["mine"]}), f"{folder}/ds", strategy="upsert", key_columns="id")
    for name in ("1", ".1.crc"):
        Path(folder, "checkpoint", "commits", name).unlink()
    stream()
    assert rows(folder) == [(1, "a"), (2, "mine")], "the batch was merged again"
    put(folder, 2, '{"id": 3, "v": "c"}')
    stream()
    assert rows(folder) == [(1, "a"), (2, "mine"), (3, "c")]
    print("streamed", flush=True)
