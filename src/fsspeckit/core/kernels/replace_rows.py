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
from fsspeckit.common.int96 import int96_columns, same_int96
from fsspeckit.common.schema import cast_schema
from fsspeckit.common.stored_types import decoded_columns, marks_of, with_marks_of
from fsspeckit.core.kernels.changed_rows import ChangedRows, ChangedRowsReader, TakeRows, selects_exactly
from fsspeckit.core.model import Outcome, RewriteTask
from fsspeckit.core.parquet.batches import fits_in_memory
from fsspeckit.core.parquet.bytes.format_fields import empty_footer, key_values_of
from fsspeckit.core.parquet.bytes.splice import SplicedFile, can_copy_columns, can_splice, may_splice
from fsspeckit.core.parquet.damage import open_file, report_damage
from fsspeckit.core.parquet.footer import Footer
from fsspeckit.core.parquet.reader import open_parquet, read_footer, with_content
from fsspeckit.core.parquet.row_facts import without_row_facts
from fsspeckit.core.parquet.sort_note import sort_note_metadata, without_sort_note
from fsspeckit.core.parquet.timestamps import old_columns
from fsspeckit.core.parquet.writer import StagedFile, stored_schema
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
        if task.recast and first is None and (outcome := output.copy_columns(parquet)) is not None:
            return outcome
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

    def copy_columns(self, parquet: pq.ParquetFile) -> Outcome | None:
        """Write the rows with another schema: encode new columns and other types, copy the bytes of other columns.

        Return ``None`` if rows change too, or if the file cannot be written like that.
        """
        task, new, old = self.task, stored_schema(self.task.schema), parquet.schema_arrow.remove_metadata()
        options = self._options(empty_table(new))
        found = can_copy_columns(self.footer, old, options, new.remove_metadata()) if _keeps_rows(task) else None
        if found is None:
            return None
        origin, footer, kept = found
        columns = _OtherColumns(parquet, pa.schema([field for field in new if field.name not in kept]), task.file.path)
        groups = range(len(task.file.row_groups))
        if not all(map(columns.can_read, groups)):
            return None
        options = self._options(columns.read(0))
        file, sink = task.file, self.storage.open_output(self.staged)
        output = SplicedFile(origin, file.path, open_file(self.storage, file), sink)
        try:
            for group in groups:
                output.group_of_columns(group, kept, columns.read(group), new.names, options)
            metadata = key_values_of(empty_footer(new, {"store_schema": options["store_schema"]}))
            is_sorted = file.sort_note is not None and set(file.sort_note.columns) <= set(kept)
            metadata |= dict(new.metadata or {}) | sort_note_metadata(file.sort_note if is_sorted else None)
            return Outcome(self.staged, file.rows, output.close(metadata, footer), 0, True)
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
        if self.task.recast or decoded_columns(self.task.file.schema):
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
        return without_row_facts(without_sort_note(self.footer.key_values)) | sort_note_metadata(kept)


def _keeps_rows(task: RewriteTask) -> bool:
    """Return whether a task changes only the schema, in a way that leaves other columns as they are."""
    options, groups = task.options, task.file.row_groups
    if task.change.hits or task.change.drops or options.compression or options.row_group_size or options.batch_rows:
        return False
    if task.file.int96 or int96_columns(task.schema) or old_columns(task.file.schema):
        return False
    has_marks = any(marks_of(field) for schema in (task.schema, task.file.schema) for field in schema)
    return not has_marks and len(groups) > 0 and min(groups) > 0


@dataclass(frozen=True, slots=True)
class _OtherColumns:
    """Reads the columns of a file that get another type, and adds new ones."""

    parquet: pq.ParquetFile
    schema: pa.Schema
    path: str

    @property
    def _known(self) -> list[str]:
        return [name for name in self.schema.names if name in self.parquet.schema_arrow.names]

    def can_read(self, group: int) -> bool:
        """Return whether only these columns can be read, and fit into memory."""
        known = self._known
        is_exact = not known or selects_exactly(self.parquet.schema_arrow)
        return is_exact and (not known or fits_in_memory(self.parquet, [group], known))

    def read(self, group: int) -> pa.Table:
        """Return the columns of a row group."""
        with report_damage("rewriting", self.path):
            table = self.parquet.read_row_group(group, self._known, use_threads=False)
        count = self.parquet.metadata.row_group(group).num_rows
        added = [field for field in self.schema if field.name not in table.column_names]
        for field in added:
            table = table.append_column(field, pa.nulls(count, field.type))
        return cast_schema(table, self.schema, operation="rewrite", path=self.path)


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
