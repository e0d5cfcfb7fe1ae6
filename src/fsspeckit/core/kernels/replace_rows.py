"""Rewrite one file with some rows replaced or dropped. All engines call this kernel.

Row order, types, row groups, codecs and metadata are kept, page checksums are verified, and nothing is written if no
row changes. Row groups without a change are copied as bytes, and so are columns without new values in row groups that
keep all rows (`splice.py`). The task has the positions of the changed rows; `match_keys.py` finds them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.bridge import empty_table
from fsspeckit.common.int96 import same_int96
from fsspeckit.common.stored_types import with_marks_of
from fsspeckit.core.kernels.changed_rows import ChangedRows, ChangedRowsReader, TakeRows
from fsspeckit.core.model import Outcome, RewriteTask
from fsspeckit.core.parquet.bytes.splice import SplicedFile, can_splice, may_splice
from fsspeckit.core.parquet.damage import open_file, report_damage
from fsspeckit.core.parquet.footer import Footer
from fsspeckit.core.parquet.reader import open_parquet, read_footer, with_content
from fsspeckit.core.parquet.sort_note import sort_note_metadata, without_sort_note
from fsspeckit.core.parquet.timestamps import old_columns
from fsspeckit.core.parquet.writer import StagedFile
from fsspeckit.core.parquet.writer_options import WriterOptions, dictionary_columns, for_new_file, like_file
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.take import needs_wider_codes, with_wide_codes


def rewrite_file(task: RewriteTask, take: TakeRows, storage: Storage, staged: str | None) -> Outcome:
    """Run a task and write the new file at ``staged``. Without ``staged``, only compare rows.

    If the dictionary of a column gets too many values for its codes, the file is written with wider codes.
    """
    try:
        return _rewrite(task, take, storage, staged)
    except pa.ArrowInvalid as error:
        wider = with_wide_codes(task.schema)
        if wider is task.schema or not needs_wider_codes(error):
            raise
        return _rewrite(replace(task, schema=wider), take, storage, staged)


def _rewrite(task: RewriteTask, take: TakeRows, storage: Storage, staged: str | None) -> Outcome:
    task = replace(task, file=with_content(storage, task.file))
    footer = read_footer(storage, task.file)
    with _open(task, storage, footer) as parquet:
        splices = _may_splice(task, footer)
        reader = ChangedRowsReader(task, take, parquet, skip_keys=splices)
        first = reader.first_change()
        if first is None and not task.recast and task.skip_unchanged:
            return Outcome("", task.rows_out, task.file.size, len(task.change.replaced), False)
        if staged is None:
            return Outcome("", task.rows_out, task.file.size, reader.count_unchanged(), True)
        output = _Output(task, footer, storage, staged)
        outcome = output.splice(reader, first, parquet.schema_arrow.remove_metadata()) if splices else None
        if outcome is not None:
            return outcome
        if splices:
            reader, first = ChangedRowsReader(task, take, parquet, skip_keys=False), None
        return output.encode(reader, first)


def _open(task: RewriteTask, storage: Storage, footer: Footer) -> pq.ParquetFile:
    """Open the file of a task. Unless its types change, strings with a dictionary are read as codes."""
    coded = [] if task.recast else dictionary_columns(footer, task.file.schema)
    with report_damage("rewriting", task.file.path):
        return open_parquet(storage, task.file, verify=True, coded=coded, footer=footer)


def _may_splice(task: RewriteTask, footer: Footer) -> bool:
    """Return whether bytes can be copied: the task only changes rows, and a row group keeps all its rows."""
    options, row_groups = task.options, task.file.row_groups
    if task.recast or old_columns(task.file.schema) or options.compression or options.row_group_size:
        return False
    _, dropped = task.change.counts_by_group(row_groups)
    in_one_batch = options.batch_rows is None or max(row_groups, default=0) <= options.batch_rows
    return in_one_batch and bool((dropped == 0).any()) and may_splice(footer)


@dataclass(frozen=True, slots=True)
class _Output:
    """Writes the new file of a task."""

    task: RewriteTask
    footer: Footer
    storage: Storage
    staged: str

    def splice(self, reader: ChangedRowsReader, first: ChangedRows | None, schema: pa.Schema) -> Outcome | None:
        """Encode only new values and copy all other bytes. Return ``None`` if the file cannot be written like that."""
        sample = empty_table(schema) if first is None else first.table
        options = self._options(sample) | {"store_schema": False}
        origin = can_splice(self.footer, schema, options)
        if origin is None:
            return None
        file = self.task.file
        output = SplicedFile(origin, file.path, open_file(self.storage, file), self.storage.open_output(self.staged))
        rows = unchanged = 0
        try:
            for group, count in enumerate(file.row_groups):
                for change in _changes(reader, group, count, first):
                    unchanged += change.unchanged if change else 0
                    rows += _splice_group(output, group, count, change, options)
            return Outcome(self.staged, rows, output.close(self._metadata()), unchanged, True)
        except BaseException:
            output.abandon()
            raise

    def encode(self, reader: ChangedRowsReader, first: ChangedRows | None) -> Outcome:
        """Encode all rows."""
        rows = unchanged = 0
        writer: StagedFile | None = None
        try:
            for change in reader.read_all(first):
                unchanged += change.unchanged
                table = change.new_rows()
                if writer is None:
                    writer = self._writer(change.table)
                if table.num_rows:
                    writer.write(table, self.task.options.row_group_size or table.num_rows)
                rows += table.num_rows
        except BaseException:
            if writer is not None:
                writer.abandon()
            raise
        if writer is None:
            options = for_new_file(empty_table(self.task.schema), self.task.options)
            writer = StagedFile(self.storage.open_output(self.staged), self.task.schema, options)
        return Outcome(self.staged, rows, writer.close(), unchanged, True)

    def _writer(self, sample: pa.Table) -> StagedFile:
        """Return a writer with the options of the input. Unless types change, the stored schema is copied."""
        options, sink = self._options(sample), self.storage.open_output(self.staged)
        if self.task.recast:
            schema = with_marks_of(self.task.schema, self.task.file.schema)
            metadata = None if options["store_schema"] else without_sort_note(schema.metadata)
            return StagedFile(sink, schema, options, metadata)
        options["store_schema"] = False
        schema = same_int96(sample.schema.remove_metadata(), self.task.schema)
        schema = with_marks_of(schema, self.task.file.schema)
        return StagedFile(sink, schema, options, self._metadata())

    def _options(self, sample: pa.Table) -> WriterOptions:
        return like_file(self.footer, sample, self.task.options, self._constant_columns(), self.task.recast)

    def _constant_columns(self) -> tuple[str, ...]:
        """Return the columns whose values do not change, so that rows stay sorted by them."""
        change, names = self.task.change, self.task.schema.names
        if not len(change.replaced):
            return tuple(names)
        if change.columns is None:
            return self.task.key_columns
        return tuple(name for name in names if name not in change.columns)

    def _metadata(self) -> dict[bytes, bytes]:
        """Return the key-value metadata of the footer. The sort note is kept only if rows stay sorted."""
        note = self.task.file.sort_note
        is_sorted = note is not None and set(note.columns) <= set(self._constant_columns())
        kept = replace(note, rows=self.task.rows_out) if note is not None and is_sorted else None
        return (without_sort_note(self.footer.key_values) or {}) | sort_note_metadata(kept)


def _changes(
    reader: ChangedRowsReader, group: int, rows: int, first: ChangedRows | None
) -> Iterable[ChangedRows | None]:
    """Return the changes of a row group that is spliced: one, or with all columns those of each batch."""
    if group not in reader.touched:
        return [None]
    change = first if first and first.group == group else next(reader.read(group))
    return [change] if change.table.num_rows == rows else reader.read(group, all_columns=True)


def _splice_group(
    output: SplicedFile, group: int, rows: int, change: ChangedRows | None, options: WriterOptions
) -> int:
    """Write one row group or a batch of it, and return the number of rows. What does not change is copied."""
    if not rows:
        return 0
    is_whole = change is None or change.table.num_rows == rows
    if change is None or (is_whole and not change.changed_columns and change.kept is None):
        output.copy_group(group)
        return rows
    if is_whole and change.kept is None:
        output.mix_group(group, change.new_columns(change.changed_columns), options)
        return rows
    table = change.new_rows()
    if table.num_rows:
        output.new_group(group, table, change.changed_columns, options)
    return int(table.num_rows)
