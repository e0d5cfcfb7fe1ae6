"""A staged Parquet file being written: opened, filled by tables, finished or let go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.assembly import AssembledFile, let_go, new_pieces
from fsspeckit.core.fileparts import MOST_ROWS, FileField, GroupField, empty_footer
from fsspeckit.core.layout import WriterOptions
from fsspeckit.core.mark import unmarked_schema
from fsspeckit.core.plain import find_plain
from fsspeckit.core.rows import used_codes
from fsspeckit.core.thrift import FALSE, I32, I64, LIST, STRUCT, TRUE, Struct

_WORTH_ASSEMBLING = 0.2
"""Share of a file's bytes that need no Parquet writer; below that, putting pieces together costs what it saves."""


class StagedFile:
    """A Parquet file being written to an open sink, which it closes.

    The first rows decide how: pyarrow's writer does all of it, or only what `fsspeckit.core.plain` cannot do.
    """

    def __init__(
        self, sink: Any, schema: pa.Schema, options: WriterOptions, metadata: Mapping[bytes, bytes] | None = None
    ) -> None:
        self._sink, self._schema, self._options = sink, unmarked_schema(schema), options
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
            part = used_codes(table.slice(start, rows))
            if self._writer is None:
                self._writer = self._open(part)
            self._writer.write_table(part, rows)

    def _open(self, sample: pa.Table) -> pq.ParquetWriter | _Assembler:
        plain = sum(column.values.nbytes for column in find_plain(sample, self._options).values())
        if plain and plain >= _WORTH_ASSEMBLING * sample.nbytes:
            return _Assembler(self._sink, self._schema, self._options)
        return pq.ParquetWriter(self._sink, self._schema, **self._options)

    def close(self) -> int:
        """Finish the file and tell its size."""
        try:
            writer = self._writer or self._open(pa.Table.from_batches([], self._schema))
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
        let_go(*([self._writer] if isinstance(self._writer, pq.ParquetWriter) else []), self._sink)


class _Assembler:
    """Writes tables like a `pq.ParquetWriter`, each as a row group."""

    def __init__(self, sink: Any, schema: pa.Schema, options: WriterOptions) -> None:
        self._file, self._schema, self._options = AssembledFile(sink), schema, options
        self._footer = empty_footer(schema, options)
        self._notes: dict[bytes, bytes] = {}

    def write_table(self, table: pa.Table, _: int) -> None:
        if not table.schema.equals(self._schema):
            raise ValueError(f"rows of schema {table.schema} do not fit a file of schema {self._schema}")
        if not table.num_rows:
            return
        pieces = new_pieces(table, find_plain(table, self._options), self._options)
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
        own = {pair[1][1]: pair[2][1] for pair in self._footer.get(FileField.notes, (0, (0, [])))[1][1]}
        self._file.finish(self._footer, own | self._notes)


def _sorted_by(column: pq.SortingColumn) -> Struct:
    descending, nulls_first = (TRUE if told else FALSE for told in (column.descending, column.nulls_first))
    return {1: (I32, column.column_index), 2: (descending, None), 3: (nulls_first, None)}
