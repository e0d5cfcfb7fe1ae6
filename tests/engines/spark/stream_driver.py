"""A stream whose process dies after a batch is committed and before Spark has noted that."""

from __future__ import annotations

import os
import signal
from typing import Any

from fsspeckit.datasets.spark import SparkDatasetIO

SCHEMA = "id bigint, v string"


def source(spark: Any, folder: str) -> Any:
    """Files in the order of their times, one in each batch."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"{folder}/in")


def main(folder: str) -> None:
    """Merge a batch, then die in the next one."""
    io = SparkDatasetIO()
    checkpoint = f"{folder}/checkpoint"
    merge = io.merge_batches(f"{folder}/ds", key_columns="id", checkpoint=checkpoint)

    def each(batch: Any, number: int) -> None:
        merge(batch, number)
        if number == 1:
            print("dying", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    writer = source(io.spark, folder).writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
