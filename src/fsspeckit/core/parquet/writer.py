"""A staged Parquet file being written: opened, filled by tables, finished or let go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.core.parquet.bytes.assembler import AssembledFile, close_quietly, new_chunks
from fsspeckit.core.parquet.bytes.fixed_width import FixedWidthColumn, find_fixed_width
from fsspeckit.core.parquet.bytes.format_fields import MOST_ROWS, GroupField, SortField, empty_footer, notes_of
from fsspeckit.core.parquet.bytes.thrift import FALSE, I32, I64, LIST, STRUCT, TRUE, Struct
from fsspeckit.core.parquet.sort_note import schema_without_sort_note
from fsspeckit.core.parquet.writer_options import WriterOptions
from fsspeckit.core.values.required_fields import fill_required
from fsspeckit.core.values.take import used_codes

_WORTH_ASSEMBLING = 0.2
"""Share of a file's bytes that need no Parquet writer; below that, putting pieces together costs what it saves."""


class StagedFile:
    """A Parquet file being written to an open sink, which it closes.

    The first rows decide how: pyarrow's writer does all of it, or only what `fixed_width.py` cannot do.
    """

    def __init__(
        self, sink: Any, schema: pa.Schema, options: WriterOptions, metadata: Mapping[bytes, bytes] | None = None
    ) -> None:
        self._sink, self._schema, self._options = sink, schema_without_sort_note(schema), options
        self._notes = dict(metadata or {})
        self._writer: pq.ParquetWriter | _Assembler | None = None

    def add_metadata(self, metadata: Mapping[bytes, bytes] | None) -> None:
        """Add notes to the footer."""
        self._notes |= metadata or {}

    def write(self, table: pa.Table, row_group_size: int) -> None:
        """Write rows as one or more row groups.

        Their dictionaries hold nothing else, since pyarrow may take any value of a dictionary for a row's, and readers
        answer from its statistics.
        """
        rows = min(row_group_size, MOST_ROWS)
        for start in range(0, max(1, table.num_rows), rows):
            self._write_group(fill_required(used_codes(table.slice(start, rows))))

    def _write_group(self, table: pa.Table) -> None:
        plain = {} if isinstance(self._writer, pq.ParquetWriter) else find_fixed_width(table, self._options)
        if self._writer is None:
            size = sum(column.nbytes for column in plain.values())
            self._writer = self._open(assemble=bool(plain) and size >= _WORTH_ASSEMBLING * table.nbytes)
        try:
            if isinstance(self._writer, _Assembler):
                self._writer.write_group(table, plain)
            else:
                self._writer.write_table(table, max(1, table.num_rows))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SchemaMismatchError(
                f"rows cannot be written as Parquet ({error}); nothing was changed, leave the column out or cast it"
            ) from error

    def _open(self, *, assemble: bool) -> pq.ParquetWriter | _Assembler:
        if assemble:
            return _Assembler(self._sink, self._schema, self._options)
        return pq.ParquetWriter(self._sink, self._schema, **self._options)

    def close(self) -> int:
        """Finish the file and tell its size."""
        try:
            writer = self._writer or self._open(assemble=False)
            if self._notes:
                writer.add_key_value_metadata(self._notes)
            writer.close()
            size = int(self._sink.tell())
            self._sink.close()
        except BaseException:
            self.abandon()
            raise
        return size

    def abandon(self) -> None:
        """Let go of a file that will not be finished; recovery or abort removes it."""
        close_quietly(*([self._writer] if isinstance(self._writer, pq.ParquetWriter) else []), self._sink)


class _Assembler:
    """Does for row groups what a `pq.ParquetWriter` does, with the columns that are plain made here."""

    def __init__(self, sink: Any, schema: pa.Schema, options: WriterOptions) -> None:
        self._file, self._schema, self._options = AssembledFile(sink), schema, options
        self._footer = empty_footer(schema, options)
        self._notes: dict[bytes, bytes] = {}

    def write_group(self, table: pa.Table, plain: Mapping[str, FixedWidthColumn]) -> None:
        if not table.schema.equals(self._schema):
            raise ValueError(f"rows of schema {table.schema} do not fit a file of schema {self._schema}")
        if not table.num_rows:
            return
        pieces = new_chunks(table, plain, self._options)
        self._file.put_group(self._group(table), [piece for name in table.column_names for piece in pieces[name]])

    def _group(self, table: pa.Table) -> Struct:
        group: Struct = {GroupField.rows: (I64, table.num_rows)}
        sorting = self._options.get("sorting_columns")
        if sorting:
            group[GroupField.sorting] = LIST, (STRUCT, [_sorted_by(column) for column in sorting])
        return group

    def add_key_value_metadata(self, notes: Mapping[bytes, bytes]) -> None:
        self._notes |= notes

    def close(self) -> None:
        self._file.finish(self._footer, notes_of(self._footer) | self._notes)


def _sorted_by(column: pq.SortingColumn) -> Struct:
    descending, nulls_first = (TRUE if told else FALSE for told in (column.descending, column.nulls_first))
    return {
        SortField.column: (I32, column.column_index),
        SortField.descending: (descending, None),
        SortField.nulls_first: (nulls_first, None),
    }
