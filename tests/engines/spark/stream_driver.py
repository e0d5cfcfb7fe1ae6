"""A stream whose process dies after a batch is committed and before Spark has noted that."""

from __future__ import annotations

import os
import signal
from typing import Any

from fsspeckit.datasets.spark import SparkDatasetIO

SCHEMA = "id bigint, v string"
FEED = "id bigint, v string, lsn bigint, op string"
CHANGES = {"key_columns": "id", "sequence_by": "lsn", "delete_when": "op = 'd'", "except_columns": ["op"]}


def source(spark: Any, folder: str, schema: str = SCHEMA) -> Any:
    """Files in the order of their times, one in each batch."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(f"{folder}/in")


def die() -> None:
    """End the process as a power cut does."""
    print("dying", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder: str) -> None:
    """Merge a batch, then die in the next one."""
    io, checkpoint = SparkDatasetIO(), f"{folder}/checkpoint"
    merge = io.merge_batches(f"{folder}/ds", key_columns="id", checkpoint=checkpoint)
    run(io, folder, SCHEMA, merge, dies_after=1)


def main_of_changes(folder: str, when: str) -> None:
    """Apply a batch, then die after the commit of the next one, or before the first commit."""
    io, checkpoint = SparkDatasetIO(), f"{folder}/checkpoint"
    progress = (lambda event: die() if event.stage == "write" else None) if when == "before" else None
    apply = io.apply_changes_batches(f"{folder}/ds", checkpoint=checkpoint, progress=progress, **CHANGES)
    run(io, folder, FEED, apply, dies_after=1 if when == "after" else None)


def run(io: SparkDatasetIO, folder: str, schema: str, apply: Any, dies_after: int | None) -> None:
    """Apply the batches until the one after which the process dies."""
    checkpoint = f"{folder}/checkpoint"

    def each(batch: Any, number: int) -> None:
        apply(batch, number)
        if number == dies_after:
            die()

    writer = source(io.spark, folder, schema).writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
