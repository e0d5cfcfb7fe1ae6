"""File kernels of maintenance: several files into one, and one file without some of its rows, row group by row group.

Like the kernel of a merge they keep row order, types, codecs, encodings and metadata, verify page checksums of what
they read, and run anywhere a file can be opened. Nothing here decides which files or rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from fsspeckit.common.schema import cast_schema
from fsspeckit.core.model import CombineTask, DataFile, Outcome, RowNumbers, WriteOptions
from fsspeckit.core.parquet.bytes.small_files import SmallFilesReader
from fsspeckit.core.parquet.footer import Footer
from fsspeckit.core.parquet.reader import check_int96, check_rows, open_rows, read_footer, report_damage
from fsspeckit.core.parquet.sort_note import without_sort_note
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

_MOST_ROWS = 200_000
"""Rows that are decoded at once: how much memory they take cannot be told from how much their files do."""

_BLOCK_ROWS = 20_000
"""Small pieces are copied together up to so many rows: an encoder pays for every piece, far more than for the copy."""


@dataclass(frozen=True, slots=True)
class RowForm:
    """How rows of several files are brought to one form: their schema, and which texts are handled as codes.

    ``recast`` says that types differ, ``restated`` that the lead's footer does not say all that the schema says.
    """

    schema: pa.Schema
    coded: tuple[str, ...]
    recast: bool
    restated: bool

    @classmethod
    def of(cls, files: Sequence[DataFile], schema: pa.Schema, footer: Footer | None) -> RowForm:
        """Codes only where all files have one schema and the lead kept dictionaries; other types need casts."""
        recast = any(file.rows and file.schema is not schema and not file.schema.equals(schema) for file in files)
        lead = lead_file(files)
        restated = lead is not None and not lead.schema.equals(schema, check_metadata=True)
        coded = () if recast or restated or footer is None else tuple(dictionary_columns(footer, schema))
        return cls(schema, coded, recast, restated)

    def apply(self, table: pa.Table, path: str) -> pa.Table:
        """A table as read, in the common form."""
        if not self.recast:
            return table.replace_schema_metadata(None)
        return cast_schema(table, self.schema, fill_missing=True, operation="rewrite", path=path)


def lead_file(files: Sequence[DataFile]) -> DataFile | None:
    """The file that joined files are written like: the first of those with the most rows, if any has rows."""
    lead = max(files, key=lambda file: file.rows, default=None)
    return lead if lead is not None and lead.rows else None


def lead_footer(storage: Storage, files: Sequence[DataFile]) -> Footer | None:
    """The footer of the file that joined files are written like."""
    lead = lead_file(files)
    return None if lead is None else read_footer(storage, lead)


def read_file(
    storage: Storage, file: DataFile, row_form: RowForm, row_groups: Sequence[int] | None = None
) -> Iterator[pa.Table]:
    """The row groups of a file, or some of them, as tables."""
    with report_damage("reading", file.path):
        reader = open_rows(storage, file, row_form.coded)
    groups = range(len(file.row_groups)) if row_groups is None else row_groups
    with closing(reader):
        check_int96(storage, file, groups)
        for group in groups:
            with report_damage("reading", file.path):
                table = reader.read_row_group(group, use_threads=False)
            check_rows(table.num_rows, file, [group])
            yield row_form.apply(table, file.path)


class Output:
    """Tables of one form on their way into a staged file, gathered into row groups.

    ``sample`` stands for the first row group where the writer is chosen; ``filtered`` are the columns with Bloom
    filters, which are left out where the caller says so.
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
        self.filtered: tuple[str, ...] = ()
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
        """Take rows; a full row group is written."""
        self.total += table.num_rows
        while table.num_rows > (room := self._group_rows - self._block_rows - self._piece_rows):
            self._take(table.slice(0, room))
            table = table.slice(room)
        self._take(table)

    def _take(self, piece: pa.Table) -> None:
        self._pieces.append(piece)
        self._piece_rows += piece.num_rows
        if self._piece_rows >= _BLOCK_ROWS:
            self._join_pieces()
        if self._block_rows + self._piece_rows == self._group_rows:
            self._flush()

    def finish(self, notes: dict[bytes, bytes] | None = None) -> int:
        """Write what is left, close the file and tell its size."""
        if self._block_rows or self._piece_rows or self._file is None:
            self._flush()
        assert self._file is not None
        self._file.add_metadata(notes)
        return self._file.close()

    def _join_pieces(self) -> None:
        """At once, so that the next pieces are read into memory that is at hand and in the processor's cache."""
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
        """A writer like the inputs'; one schema for all of them is said again word for word."""
        schema = self._row_form.schema
        if self._footer is None or sample.num_rows == 0:
            return StagedFile(self._open_sink(), schema, for_new_file(sample, self._options) | self._extra)
        options = like_files(self._footer, sample, self._options, self._row_form.recast, self._group_rows)
        blooms = (options["bloom_filter_options"] or {}) | (self._extra.get("bloom_filter_options") or {})
        options |= self._extra | {"bloom_filter_options": blooms if blooms and self._blooms else None}
        self.filtered = tuple(blooms)
        if self._row_form.recast or self._row_form.restated:
            notes = None if options["store_schema"] else without_sort_note(schema.metadata)
            return StagedFile(self._open_sink(), schema, options, notes)
        options["store_schema"] = False
        return StagedFile(
            self._open_sink(), sample.schema.remove_metadata(), options, without_sort_note(self._footer.key_values)
        )


def combine_files(task: CombineTask, storage: Storage, staged: str) -> Outcome:
    """Write the rows of all files of a task, in order, as one staged file."""
    footer = lead_footer(storage, task.files)
    row_form = RowForm.of(task.files, task.schema, footer)
    sink, group_rows = partial(storage.open_output, staged), rows_per_group(task.files, task.options)
    with Output(sink, row_form, footer, task.options, group_rows) as output:
        for table in read_files(storage, task.files, row_form, task.drops, group_rows):
            output.add(table)
        size = output.finish()
        return Outcome(staged, output.rows, size, 0, True)


def read_files(
    storage: Storage, files: Sequence[DataFile], row_form: RowForm, drops: Mapping[str, RowNumbers], held: int
) -> Iterator[pa.Table]:
    """The rows of files in order, less those that are dropped; small files are read together.

    ``held`` is how many rows are in memory at once anyhow: no more are decoded at once.
    """
    filled, together, at = [file for file in files if file.rows], SmallFilesReader(storage, row_form.coded), 0
    most = min(held, _MOST_ROWS)
    while at < len(filled):
        window = _window(storage, filled[at:], most)
        at += len(window)
        table = together.read(window) if sum(file.rows for file in window) <= most else None
        if table is not None:
            yield without_rows(row_form.apply(table, window[0].path), _positions(window, drops), 0)
        else:
            yield from _read_each(storage, window, row_form, drops)


def _read_each(
    storage: Storage, files: Sequence[DataFile], row_form: RowForm, drops: Mapping[str, RowNumbers]
) -> Iterator[pa.Table]:
    """Files one by one; where opening a file is a round trip, side by side."""
    if storage.workers > 1 and len(files) > 1:
        for tables in for_each(storage, lambda file: list(_kept_rows(storage, file, row_form, drops)), files):
            yield from tables
    else:
        for file in files:
            yield from _kept_rows(storage, file, row_form, drops)


def _positions(window: Sequence[DataFile], drops: Mapping[str, RowNumbers]) -> RowNumbers:
    """The rows that are dropped, counted over all files of a window."""
    starts = accumulate((file.rows for file in window), initial=0)
    found = [drops[file.path] + start for file, start in zip(window, starts, strict=False) if file.path in drops]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _kept_rows(
    storage: Storage, file: DataFile, row_form: RowForm, drops: Mapping[str, RowNumbers]
) -> Iterator[pa.Table]:
    """The row groups of a file less the rows that are dropped."""
    start = 0
    for table in read_file(storage, file, row_form):
        yield without_rows(table, drops[file.path], start) if file.path in drops else table
        start += table.num_rows


def _window(storage: Storage, files: Sequence[DataFile], most: int) -> Sequence[DataFile]:
    """The next few files that are small together; where opening a file is a round trip, many rows may be in them."""
    rows = size = 0
    for count, file in enumerate(files[:_FETCHED_FILES]):
        rows, size = rows + file.rows, size + max(file.uncompressed, file.size)
        if count and (size > _FETCHED_BYTES or (rows > most and storage.workers == 1)):
            return files[:count]
    return files[:_FETCHED_FILES]


def without_rows(table: pa.Table, positions: RowNumbers, start: int) -> pa.Table:
    """A piece of a file that begins at row ``start``, less the rows at the given positions of the file."""
    low, high = np.searchsorted(positions, [start, start + table.num_rows])
    if low == high:
        return table
    keep = np.ones(table.num_rows, dtype=bool)
    keep[positions[low:high] - start] = False
    return filter_rows(table, keep)
