"""Write a staged Parquet file with pyarrow."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.arrow_versions import writer_options
from fsspeckit.common.categories import without_categories
from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.common.stored_types import without_marks
from fsspeckit.core.parquet.bytes.assembler import close_quietly
from fsspeckit.core.parquet.bytes.format_fields import MAX_GROUP_ROWS
from fsspeckit.core.parquet.bytes.kept_types import KeptTypesWriter
from fsspeckit.core.parquet.int96 import ARROW_SCHEMA, UNIT, has_only_int96, int96_leaves, metadata_of
from fsspeckit.core.parquet.row_facts import without_row_facts
from fsspeckit.core.parquet.sort_note import schema_without_sort_note
from fsspeckit.core.parquet.spark_schema import with_true_schema
from fsspeckit.core.parquet.stored_types import bare_schema, is_bare, kept_elements
from fsspeckit.core.parquet.timestamps import without_old_marks
from fsspeckit.core.parquet.writer_options import WriterOptions
from fsspeckit.core.values.required_fields import fill_required
from fsspeckit.core.values.take import used_codes

_INT96 = "use_deprecated_int96_timestamps"


def _own_metadata(metadata: Mapping[bytes, bytes] | None, schema: pa.Schema) -> dict[bytes, bytes]:
    """Return the metadata of other files that is true for a new one with a schema."""
    pairs = with_true_schema(without_row_facts(without_old_marks(metadata)), schema)
    return {key: value for key, value in pairs.items() if key != UNIT}


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema that a new file has: without marks of this program and of other files."""
    schema = without_categories(schema_without_sort_note(schema))
    return schema.with_metadata(_own_metadata(schema.metadata, schema) or None)


class StagedFile:
    """Writes tables as a Parquet file to an open sink, and closes the sink."""

    def __init__(
        self, sink: Any, schema: pa.Schema, options: WriterOptions, metadata: Mapping[bytes, bytes] | None = None
    ) -> None:
        schema = stored_schema(schema)
        self._sink, self._schema, self._kept = sink, without_marks(schema), kept_elements(schema)
        self._int96 = int96_leaves(schema)
        self._metadata = _own_metadata(metadata, schema)
        with_schema = options.get("store_schema", True)
        self._options = options | {_INT96: False}
        if any(self._int96):
            self._metadata |= metadata_of(bare_schema(schema), with_schema=with_schema)
            all_int96 = has_only_int96(schema) and not self._kept
            self._options |= {"store_schema": False, _INT96: all_int96}
            self._int96 = [] if all_int96 else self._int96
        elif is_bare(schema) and with_schema:
            self._metadata[ARROW_SCHEMA] = base64.b64encode(without_marks(bare_schema(schema)).serialize())
            self._options |= {"store_schema": False}
        self._writer: pq.ParquetWriter | KeptTypesWriter | None = None

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
                f"Rows cannot be written as Parquet ({error}). Nothing was changed. "
                "Leave the column out, or write it as text."
            ) from error

    def _open(self) -> pq.ParquetWriter | KeptTypesWriter:
        if any(self._int96) or self._kept:
            return KeptTypesWriter(self._sink, self._schema, self._options, self._int96, self._kept)
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
