"""A staged Parquet file being written: opened, filled by tables, finished or let go."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.layout import WriterOptions
from fsspeckit.core.mark import unmarked_schema


class StagedFile:
    """A Parquet file being written to an open sink, which it closes."""

    def __init__(
        self, sink: Any, schema: pa.Schema, options: WriterOptions, metadata: Mapping[bytes, bytes] | None = None
    ) -> None:
        self._sink = sink
        self._writer = pq.ParquetWriter(self._sink, unmarked_schema(schema), **options)
        self.add_metadata(metadata)

    def add_metadata(self, metadata: Mapping[bytes, bytes] | None) -> None:
        """Add notes to the footer."""
        if metadata:
            self._writer.add_key_value_metadata(dict(metadata))

    def write(self, table: pa.Table, row_group_size: int) -> None:
        """Write rows as one or more row groups."""
        self._writer.write_table(table, row_group_size)

    def close(self) -> int:
        """Finish the file and tell its size."""
        self._writer.close()
        size = int(self._sink.tell())
        self._sink.close()
        return size

    def abandon(self) -> None:
        """Let go of a file that will not be finished; recovery or abort removes it."""
        for resource in (self._writer, self._sink):
            closing: AbstractContextManager[object] = resource
            try:
                closing.__exit__(None, None, None)
            except (OSError, pa.ArrowException):
                continue
