"""Merge streams into datasets: every micro-batch is one merge that is committed exactly once.

Spark records in the checkpoint that a batch is done after its function has returned, so it runs the batch again after a
crash in between. The commit of a batch therefore stores a key: the query's id in the checkpoint and the number of the
batch. A batch whose key is committed is skipped.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fsspeckit.common.errors import AlreadyCommittedError, StorageError
from fsspeckit.core.storage import join, resolve
from fsspeckit.core.storage.urls import to_fsspec, to_spark
from fsspeckit.datasets.io import DatasetIO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_logger = logging.getLogger(__name__)


class BatchMerge:
    """A function for `foreachBatch` that merges each batch into a dataset exactly once."""

    def __init__(self, io: DatasetIO, path: Any, checkpoint: str, options: Mapping[str, Any]) -> None:
        self._io, self._path, self._checkpoint, self._options = io, path, checkpoint, dict(options)
        self._query: str | None = None

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Merge a batch, unless it is committed already."""
        key = f"stream/{self._query_id()}/{number}"
        self._io.recover(self._path)
        if self._io.committed(self._path, key) is not None:
            _logger.info("batch %d of %s was committed before", number, self._path)
            return
        try:
            self._io.on_terms(idempotency_key=key).merge(batch, self._path, **self._options)
        except AlreadyCommittedError:
            _logger.info("batch %d of %s was committed by another process meanwhile", number, self._path)

    def _query_id(self) -> str:
        """Return Spark's id of the query, which is stored in the checkpoint: a new checkpoint starts a new stream."""
        if self._query is None:
            storage, root = resolve(to_fsspec(self._checkpoint), self._io.filesystem, self._io.storage_options)
            try:
                self._query = str(json.loads(storage.read_bytes(join(root, "metadata")))["id"])
            except (FileNotFoundError, ValueError, KeyError) as error:
                raise StorageError(
                    f"there is no Spark query at the checkpoint {self._checkpoint} ({error}); "
                    "pass the checkpointLocation of the query itself"
                ) from error
        return self._query


def merge_stream(
    merge_batch: BatchMerge,
    frame: DataFrame,
    checkpoint: str,
    *,
    trigger: Mapping[str, Any] | None,
    query_name: str | None,
) -> StreamingQuery:
    """Start a query that merges a streaming DataFrame, batch by batch."""
    address = to_spark(checkpoint) if "://" in checkpoint else resolve(checkpoint)[1]
    writer = frame.writeStream.foreachBatch(merge_batch).option("checkpointLocation", address)
    writer = writer.queryName(query_name) if query_name is not None else writer
    return (writer.trigger(**trigger) if trigger is not None else writer).start()
