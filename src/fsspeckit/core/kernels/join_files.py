"""Write the rows of several files, without dropped rows, as one file, one row group at a time.

Row order, types, codecs, encodings and metadata are kept, and page checksums are verified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from fsspeckit.common.int96 import same_int96
from fsspeckit.common.schema import cast_schema
from fsspeckit.common.stored_types import decoded_columns, with_marks_of
from fsspeckit.core.model import CombineTask, DataFile, Outcome, RowNumbers, SortNote, WriteOptions
from fsspeckit.core.parquet.batches import read_batches, value_bytes
from fsspeckit.core.parquet.damage import report_damage, unreadable_columns
from fsspeckit.core.parquet.footer import Footer
from fsspeckit.core.parquet.reader import check_rows, open_rows, read_footer
from fsspeckit.core.parquet.sort_note import sort_note_metadata, without_sort_note
from fsspeckit.core.parquet.writer import StagedFile
from fsspeckit.core.parquet.writer_options import (
    WriterOptions,
    dictionary_columns,
    for_new_file,
    like_files,
    rows_per_group,
)
from fsspeckit.core.storage import Storage, for_each
from fsspeckit.core.values.take import filter_rows

_FETCHED_FILES = 32
_FETCHED_BYTES = 32 * 1024 * 1024

_BLOCK_ROWS = 20_000
"""Small tables are joined up to this many rows: the encoder's cost per chunk is far higher than that of the copy."""


@dataclass(frozen=True, slots=True)
class RowForm:
    """The common form of rows of several files.

    Attributes:
        schema: The common schema.
        coded: String columns that are read as dictionary codes.
        recast: Whether the schema of a file differs, so that rows are cast.
        new_schema: Whether the stored schema of the lead file differs in types or metadata.
        renames: New names of columns.
    """

    schema: pa.Schema
    coded: tuple[str, ...]
    recast: bool
    new_schema: bool
    renames: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        files: Sequence[DataFile],
        schema: pa.Schema,
        footer: Footer | None,
        renames: Mapping[str, str] | None = None,
    ) -> RowForm:
        """Return the form of some files. Codes are used if no cast is needed and the lead file has dictionaries."""
        recast = any(file.rows and file.schema is not schema and not file.schema.equals(schema) for file in files)
        lead = lead_file(files)
        new_schema = lead is not None and not lead.schema.equals(schema, check_metadata=True)
        new_schema = new_schema or (lead is not None and bool(decoded_columns(lead.schema)))
        coded = () if recast or new_schema or footer is None else tuple(dictionary_columns(footer, schema))
        return cls(schema, coded, recast, new_schema, renames or {})

    def apply(self, table: pa.Table, path: str) -> pa.Table:
        """Return a decoded table in the common form."""
        if not self.recast:
            return table.replace_schema_metadata(None)
        if self.renames:
            table = table.rename_columns([self.renames.get(name, name) for name in table.column_names])
        return cast_schema(table, self.schema, fill_missing=True, operation="rewrite", path=path)


def lead_file(files: Sequence[DataFile]) -> DataFile | None:
    """Return the file whose writer options are used: the first with the most rows; ``None`` if no file has rows."""
    lead = max(files, key=lambda file: file.rows, default=None)
    return lead if lead is not None and lead.rows else None


def lead_footer(storage: Storage, files: Sequence[DataFile]) -> Footer | None:
    """Return the footer of the lead file."""
    lead = lead_file(files)
    return None if lead is None else read_footer(storage, lead)


def read_file(
    storage: Storage, file: DataFile, row_form: RowForm, row_groups: Sequence[int] | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of row groups of a file in batches. Default: all."""
    with report_damage("reading", file.path):
        reader = open_rows(storage, file, row_form.coded)
    groups = range(len(file.row_groups)) if row_groups is None else row_groups
    with closing(reader):
        for group in groups:
            batches, rows = read_batches(reader, group), 0
            while True:
                with report_damage("reading", file.path, partial(unreadable_columns, storage, file)):
                    table = next(batches, None)
                if table is None:
                    break
                rows += table.num_rows
                yield row_form.apply(table, file.path)
            check_rows(rows, file, [group])


class Output:
    """Collects tables of one form into row groups and writes them to a file.

    Args:
        open_sink: Opens the output.
        row_form: The form of the tables.
        footer: The footer of the lead file.
        options: The write options.
        group_rows: The rows of a row group.
        extra: Writer options in addition to those of the lead file.
        sample: Rows from which writer options are chosen. Default: the first row group.
        blooms: Whether Bloom filters are written. ``bloom_columns`` lists their columns in any case.
    """

    def __init__(
        self,
        open_sink: Callable[[], Any],
        row_form: RowForm,
        footer: Footer | None,
        options: WriteOptions,
        group_rows: int,
        extra: WriterOptions | None = None,
        *,
        sample: pa.Table | None = None,
        blooms: bool = True,
    ) -> None:
        self._open_sink, self._row_form, self._footer = open_sink, row_form, footer
        self._options, self._group_rows, self._extra = options, group_rows, extra or {}
        self._sample, self._blooms = sample, blooms
        self.bloom_columns: tuple[str, ...] = ()
        self._pieces: list[pa.Table] = []
        self._blocks: list[pa.Table] = []
        self._piece_rows = self._block_rows = self.rows = self.total = 0
        self._file: StagedFile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and self._file is not None:
            self._file.abandon()

    def add(self, table: pa.Table) -> None:
        """Add rows. A full row group is written."""
        self.total += table.num_rows
        while table.num_rows > (free := self._group_rows - self._block_rows - self._piece_rows):
            self._take(table.slice(0, free))
            table = table.slice(free)
        self._take(table)

    def _take(self, piece: pa.Table) -> None:
        self._pieces.append(piece)
        self._piece_rows += piece.num_rows
        if self._piece_rows >= _BLOCK_ROWS:
            self._join_pieces()
        if self._block_rows + self._piece_rows == self._group_rows:
            self._flush()

    def finish(self, metadata: dict[bytes, bytes] | None = None) -> int:
        """Write the last row group, close the file and return its size."""
        if self._block_rows or self._piece_rows or self._file is None:
            self._flush()
        assert self._file is not None
        self._file.add_metadata(metadata)
        return self._file.close()

    def _join_pieces(self) -> None:
        """Join pieces early, so that the memory of pieces is reused for the next ones."""
        self._blocks.append(pa.concat_tables(self._pieces).combine_chunks())
        self._block_rows += self._piece_rows
        self._pieces, self._piece_rows = [], 0

    def _flush(self) -> None:
        if self._pieces:
            self._join_pieces()
        table = pa.concat_tables(self._blocks) if self._blocks else self._row_form.schema.empty_table()
        self._blocks, self._block_rows = [], 0
        if self._file is None:
            self._file = self._open(table if self._sample is None else self._sample)
        if table.num_rows:
            self._file.write(table, table.num_rows)
        self.rows += table.num_rows

    def _open(self, sample: pa.Table) -> StagedFile:
        """Open a writer with the options of the inputs. If all inputs have one schema, its stored form is copied."""
        schema = self._row_form.schema
        if self._footer is None or sample.num_rows == 0:
            return StagedFile(self._open_sink(), schema, for_new_file(sample, self._options) | self._extra)
        options = like_files(self._footer, sample, self._options, self._row_form.recast, self._group_rows)
        blooms = (options["bloom_filter_options"] or {}) | (self._extra.get("bloom_filter_options") or {})
        options |= self._extra | {"bloom_filter_options": blooms if blooms and self._blooms else None}
        self.bloom_columns = tuple(blooms)
        if self._row_form.recast or self._row_form.new_schema:
            metadata = None if options["store_schema"] else without_sort_note(schema.metadata)
            return StagedFile(self._open_sink(), schema, options, metadata)
        options["store_schema"] = False
        schema = with_marks_of(same_int96(sample.schema.remove_metadata(), schema), schema)
        return StagedFile(self._open_sink(), schema, options, without_sort_note(self._footer.key_values))


def combine_files(task: CombineTask, storage: Storage, staged: str) -> Outcome:
    """Write the rows of all files of a task, in order, as one staged file."""
    footer = lead_footer(storage, task.files)
    row_form = RowForm.of(task.files, task.schema, footer, dict(task.options.renames))
    sink, group_rows = partial(storage.open_output, staged), rows_per_group(task.files, task.options)
    with Output(sink, row_form, footer, task.options, group_rows) as output:
        for table in read_files(storage, task.files, row_form, task.drops):
            output.add(table)
        note = None if task.target is None else SortNote("", (), "", task.rows_out, ((), ()), task.target)
        size = output.finish(sort_note_metadata(note))
        return Outcome(staged, output.rows, size, 0, True)


def read_files(
    storage: Storage, files: Sequence[DataFile], row_form: RowForm, drops: Mapping[str, RowNumbers]
) -> Iterator[pa.Table]:
    """Yield the rows of files in order, without dropped rows. On remote storage, some files are read in parallel."""
    filled, at = [file for file in files if file.rows], 0
    while at < len(filled):
        window = filled[at : at + 1] if storage.workers == 1 else _window(filled[at:])
        at += len(window)
        if len(window) == 1:
            yield from _kept_rows(storage, window[0], row_form, drops)
            continue
        for tables in for_each(storage, lambda file: list(_kept_rows(storage, file, row_form, drops)), window):
            yield from tables


def _kept_rows(
    storage: Storage, file: DataFile, row_form: RowForm, drops: Mapping[str, RowNumbers]
) -> Iterator[pa.Table]:
    """Yield the rows of a file in batches, without dropped rows."""
    start = 0
    for table in read_file(storage, file, row_form):
        yield without_rows(table, drops[file.path], start) if file.path in drops else table
        start += table.num_rows


def _window(files: Sequence[DataFile]) -> Sequence[DataFile]:
    """Return the next files to read in parallel: as many as have few bytes."""
    size = 0
    for count, file in enumerate(files[:_FETCHED_FILES]):
        width = sum(value_bytes(field.type, 0) for field in file.schema)  # a dictionary may have few bytes
        size += max(file.uncompressed, file.size, file.rows * width)
        if count and size > _FETCHED_BYTES:
            return files[:count]
    return files[:_FETCHED_FILES]


def without_rows(table: pa.Table, positions: RowNumbers, start: int) -> pa.Table:
    """Return rows of a file that begin at row ``start``, without those at the given positions in the file."""
    low, high = np.searchsorted(positions, [start, start + table.num_rows])
    if low == high:
        return table
    keep = np.ones(table.num_rows, dtype=bool)
    keep[positions[low:high] - start] = False
    return filter_rows(table, keep)
