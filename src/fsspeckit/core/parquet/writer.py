"""Write a staged Parquet file with pyarrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.arrow_versions import writer_options
from fsspeckit.common.categories import without_categories
from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.core.parquet.bytes.assembler import close_quietly
from fsspeckit.core.parquet.bytes.format_fields import MAX_GROUP_ROWS
from fsspeckit.core.parquet.sort_note import schema_without_sort_note
from fsspeckit.core.parquet.writer_options import WriterOptions
from fsspeckit.core.values.required_fields import fill_required
from fsspeckit.core.values.take import used_codes


class StagedFile:
    """Writes tables as a Parquet file to an open sink, and closes the sink."""

    def __init__(
        self, sink: Any, schema: pa.Schema, options: WriterOptions, metadata: Mapping[bytes, bytes] | None = None
    ) -> None:
        schema = without_categories(schema_without_sort_note(schema))
        self._sink, self._schema, self._options = sink, schema, options
        self._metadata = dict(metadata or {})
        self._writer: pq.ParquetWriter | None = None

    def add_metadata(self, metadata: Mapping[bytes, bytes] | None) -> None:
        """Add key-value metadata to the footer."""
        self._metadata |= metadata or {}

    def write(self, table: pa.Table, row_group_size: int) -> None:
        """Write rows as one or more row groups.

        Unused dictionary values are removed first: pyarrow would include them in the statistics, which readers use.
        """
        rows = min(row_group_size, MAX_GROUP_ROWS)
        for start in range(0, max(1, table.num_rows), rows):
            self._write_group(fill_required(used_codes(table.slice(start, rows))))

    def _write_group(self, table: pa.Table) -> None:
        if self._writer is None:
            self._writer = self._open()
        try:
            self._writer.write_table(table, max(1, table.num_rows))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatchError(
                f"Rows cannot be written as Parquet ({error}). Nothing was changed. Leave the column out or cast it."
            ) from error

    def _open(self) -> pq.ParquetWriter:
        return pq.ParquetWriter(self._sink, self._schema, **writer_options(self._options))

    def close(self) -> int:
        """Finish the file and return its size."""
        try:
            writer = self._writer or self._open()
            if self._metadata:
                writer.add_key_value_metadata(self._metadata)
            writer.close()
            size = int(self._sink.tell())
            self._sink.close()
        except BaseException:
            self.abandon()
            raise
        return size

    def abandon(self) -> None:
        """Close an unfinished file. The transaction or recovery deletes it."""
        close_quietly(*([self._writer] if self._writer else []), self._sink)
