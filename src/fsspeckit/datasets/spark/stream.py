"""Merge streams and change feeds into datasets: every micro-batch is one operation that is committed exactly once.

Spark records in the checkpoint that a batch is done after its function has returned, so it runs the batch again after a
crash in between. The commit of a batch therefore stores a key: the query's id in the checkpoint and the number of the
batch. A batch whose key is committed is skipped.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fsspeckit.common.documents import parse_json
from fsspeckit.common.errors import AlreadyCommittedError, StorageError
from fsspeckit.common.wording import EXPRESSIONS
from fsspeckit.core.expressions.conditions import errors_name
from fsspeckit.core.expressions.grammar import parse_one
from fsspeckit.core.storage import join, resolve
from fsspeckit.core.storage.urls import to_fsspec, to_spark
from fsspeckit.datasets.io import DatasetIO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_IO = TypeVar("_IO", bound=DatasetIO)
_logger = logging.getLogger(__name__)


class BatchChange:
    """A function for `foreachBatch` that runs `merge` or `apply_changes` with each batch exactly once."""

    def __init__(
        self,
        io: DatasetIO,
        operation: Literal["merge", "apply_changes"],
        path: Any,
        checkpoint: str,
        options: Mapping[str, Any],
    ) -> None:
        _check(operation, options)
        self._io, self._operation, self._path = io, operation, path
        self._checkpoint, self._options = checkpoint, dict(options)
        self._query: str | None = None

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Apply a batch, unless it is committed already."""
        key = f"stream/{self._query_id()}/{number}"
        self._io._place(self._path).journal.recover()
        if self._io.committed(self._path, key) is not None:
            _logger.info("batch %d of %s was committed before", number, self._path)
            return
        try:
            io = batch_terms(self._io, key, number)
            getattr(io, self._operation)(batch, self._path, **self._options)
        except AlreadyCommittedError:
            _logger.info("batch %d of %s was committed by another process meanwhile", number, self._path)

    def _query_id(self) -> str:
        if self._query is None:
            options = self._io._options_for(self._checkpoint)[0]
            self._query = query_id(self._checkpoint, self._io.filesystem, options)
        return self._query


def batch_terms(io: _IO, key: str, number: int) -> _IO:
    """Return an object for the commit of a batch. One after the first continues what the checkpoint says is loaded."""
    found = io.on_terms(idempotency_key=key)
    found.terms = replace(found.terms, continues=number > 0)
    return found


def query_id(checkpoint: str, filesystem: Any, storage_options: Mapping[str, Any] | None) -> str:
    """Return Spark's id of a query, which is stored in the checkpoint: a new checkpoint starts a new stream."""
    storage, root = resolve(to_fsspec(checkpoint), filesystem, storage_options)
    try:
        return str(parse_json(storage.read_bytes(join(root, "metadata")))["id"])
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StorageError(
            f"there is no Spark query at the checkpoint {checkpoint} ({error}); "
            "pass the checkpointLocation of the query itself"
        ) from error


def _check(operation: str, options: Mapping[str, Any]) -> None:
    """Raise for options that no batch can be applied with, before the stream starts."""
    for name in ("dry_run", "plan"):
        if options.get(name):
            raise ValueError(f"{name} would drop the batches of a stream. Leave it out.")
    inspect.signature(getattr(DatasetIO, operation)).bind(None, None, None, **options)
    for name in EXPRESSIONS:
        if isinstance(options.get(name), str):
            with errors_name(name):
                parse_one(options[name])


def start_query(
    apply_batch: BatchChange,
    frame: DataFrame,
    checkpoint: str,
    *,
    trigger: Mapping[str, Any] | None,
    query_name: str | None,
) -> StreamingQuery:
    """Start a query that applies a streaming DataFrame, batch by batch."""
    address = to_spark(checkpoint) if "://" in checkpoint else resolve(checkpoint)[1]
    writer = frame.writeStream.foreachBatch(apply_batch).option("checkpointLocation", address)
    writer = writer.queryName(query_name) if query_name is not None else writer
    return (writer.trigger(**trigger) if trigger is not None else writer).start()
