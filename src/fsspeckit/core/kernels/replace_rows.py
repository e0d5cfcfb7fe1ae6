"""The file kernel: one target file and its source rows in, one staged file out, row group by row group.

The same function on every engine. It replaces and drops rows, keeps the order of rows, types, row groups, codecs and
metadata, verifies page checksums of what it reads, and writes nothing when no row of the file changes. Row groups
without a change, and columns without new values in row groups that keep all rows, are copied as bytes (`splice.py`).
A task names positions and source rows; which rows match is decided before (`match_keys.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.schema import cast_schema
from fsspeckit.core.model import Outcome, RewriteTask, RowNumbers
from fsspeckit.core.parquet.bytes.splice import SplicedFile, can_splice, may_splice
from fsspeckit.core.parquet.footer import Footer
from fsspeckit.core.parquet.reader import check_int96, check_rows, open_file, open_parquet, read_footer, report_damage
from fsspeckit.core.parquet.sort_note import sort_note_metadata, without_sort_note
from fsspeckit.core.parquet.writer import StagedFile
from fsspeckit.core.parquet.writer_options import WriterOptions, dictionary_columns, for_new_file, like_file
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.equality import columns_equal
from fsspeckit.core.values.take import (
    filter_rows,
    needs_wider_codes,
    replace_rows,
    share_codes,
    take_ascending,
    with_wide_codes,
)

TakeRows = Callable[[range | RowNumbers, pa.Schema], pa.Table]


@dataclass(frozen=True, slots=True)
class _Part:
    """A decoded piece of the file: its place, the rows of it that are replaced, and the columns with new values.

    ``kept`` says which rows stay, where not all of them do.
    """

    group: int
    table: pa.Table
    positions: RowNumbers
    source: pa.Table
    equal: npt.NDArray[np.bool_]
    changed: tuple[str, ...]
    kept: npt.NDArray[np.bool_] | None

    @property
    def unchanged(self) -> int:
        return int(np.count_nonzero(self.equal))

    @property
    def changes(self) -> bool:
        return self.kept is not None or self.unchanged < len(self.positions)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Some columns with new rows in place; all rows, whether they stay or not."""
        changed, out = ~self.equal, self.table.select(names)
        source = self.source.select([name for name in names if name in self.source.column_names])
        if not changed.any() or not source.num_columns:
            return out
        rows, source = (
            (self.positions, source)
            if changed.all()
            else (
                self.positions[changed],
                take_ascending(source, np.flatnonzero(changed)),
            )
        )
        new = replace_rows(out.select(source.column_names), rows, source)
        return pa.table([new[n] if n in source.column_names else out[n] for n in names], schema=out.schema)

    def rows(self) -> pa.Table:
        """The rows that stay, with new ones in place."""
        out = self.columns(self.table.column_names)
        return out if self.kept is None else filter_rows(out, self.kept)


def rewrite_file(task: RewriteTask, take: TakeRows, storage: Storage, staged: str | None) -> Outcome:
    """Run a task. Without ``staged`` the file is only compared."""
    wider = with_wide_codes(task.schema)
    if wider is task.schema:
        return _rewrite(task, take, storage, staged)
    try:
        return _rewrite(task, take, storage, staged)
    except pa.ArrowInvalid as error:
        if not needs_wider_codes(error):
            raise
        return _rewrite(replace(task, schema=wider), take, storage, staged)


def _rewrite(task: RewriteTask, take: TakeRows, storage: Storage, staged: str | None) -> Outcome:
    footer = read_footer(storage, task.file)
    with _open(task, storage, footer) as reader:
        check_int96(storage, task.file, range(len(task.file.row_groups)))
        kernel = _Kernel(task, take, reader, footer)
        first = kernel.first_change()
        if first is None and not task.recast and task.skip_unchanged:
            return Outcome("", task.rows_out, task.file.size, len(task.change.replaced), False)
        if staged is None:
            return Outcome("", task.rows_out, task.file.size, kernel.count_unchanged(), True)
        return kernel.write(first, storage, staged)


def _open(task: RewriteTask, storage: Storage, footer: Footer) -> pq.ParquetFile:
    """Open the target file; unless its types change, texts with a dictionary are handled as codes."""
    coded = [] if task.recast else dictionary_columns(footer, task.file.schema)
    with report_damage("rewriting", task.file.path):
        return open_parquet(storage, task.file, verify=True, coded=coded, footer=footer)


class _Kernel:
    def __init__(self, task: RewriteTask, take: TakeRows, reader: pq.ParquetFile, footer: Footer) -> None:
        self.task, self.change, self.reader, self.footer = task, task.change, reader, footer
        self.batch_rows = task.options.batch_rows
        self.starts = np.concatenate([[0], np.cumsum(task.file.row_groups)]).astype(np.int64)
        self.hits = np.diff(np.searchsorted(self.change.replaced, self.starts))
        self.losses = (
            np.array(task.file.row_groups) - self.hits
            if self.change.drop_others
            else np.diff(np.searchsorted(self.change.dropped, self.starts))
        )
        self.splices, self.exact_keys = self._may_splice(), self._exact_keys()
        apart = self.splices and len(self.exact_keys) < len(task.schema) and _can_choose(reader.schema_arrow)
        self.left_out = self.exact_keys if apart else frozenset[str]()
        self._take: TakeRows = take
        self._taken: pa.Table | None = None

    def _may_splice(self) -> bool:
        """Whether nothing is asked for but a change of rows, so that what is not new can be copied."""
        task, asked = self.task, self.task.options
        if task.recast or asked.compression or asked.row_group_size or not self._copies_anything():
            return False
        whole = self.batch_rows is None or max(task.file.row_groups, default=0) <= self.batch_rows
        return whole and may_splice(self.footer)

    def _copies_anything(self) -> bool:
        """Whether a row group keeps all its rows."""
        return bool((self.losses == 0).any())

    def _exact_keys(self) -> frozenset[str]:
        """Key columns that replaced rows cannot change, as a float key could that has another zero or NaN."""
        schema = self.task.schema
        return frozenset(
            name for name in self.task.key_columns if name in schema.names and _exact(schema.field(name).type)
        )

    def first_change(self) -> _Part | None:
        """The first part in which a row changes; parts without replaced and dropped rows are not even read."""
        for group in self._touched():
            for part in self._parts(group):
                if part.changes:
                    return part
        return None

    def _touched(self) -> list[int]:
        return np.flatnonzero((self.hits > 0) | (self.losses > 0)).tolist()

    def count_unchanged(self) -> int:
        return sum(part.unchanged for group in self._touched() for part in self._parts(group))

    def write(self, first: _Part | None, storage: Storage, staged: str) -> Outcome:
        if self.splices:
            done = self._splice(first, storage, staged)
            if done is not None:
                return done
            self.left_out, self._taken, first = frozenset(), None, None
        return self._encode(first, storage, staged)

    def _splice(self, first: _Part | None, storage: Storage, staged: str) -> Outcome | None:
        """Write only what is new and copy the rest; keys of replaced rows are never new, so they are not even read."""
        task, schema = self.task, self.reader.schema_arrow.remove_metadata()
        sample = pa.Table.from_batches([], schema) if first is None else first.table
        options = like_file(self.footer, sample, task.options, self._ordered_by(), False) | {"store_schema": False}
        origin = can_splice(self.footer, schema, options)
        if origin is None:
            return None
        source, touched = open_file(storage, task.file), set(self._touched())
        file = SplicedFile(origin, task.file.path, source, storage.open_output(staged))
        rows = unchanged = 0
        try:
            for group, count in enumerate(task.file.row_groups):
                part = first if first and first.group == group else None
                if part is None and group in touched:
                    part = next(self._parts(group))
                unchanged += part.unchanged if part else 0
                rows += _splice_group(file, group, count, part, options)
            return Outcome(staged, rows, file.close(self._notes()), unchanged, True)
        except BaseException:
            file.abandon()
            raise

    def _encode(self, first: _Part | None, storage: Storage, staged: str) -> Outcome:
        rows = unchanged = 0
        writer: StagedFile | None = None
        try:
            for part in self._all_parts(first):
                unchanged += part.unchanged
                out = part.rows()
                if writer is None:
                    writer = self._writer(part.table, storage, staged)
                if out.num_rows:
                    writer.write(out, self.task.options.row_group_size or out.num_rows)
                rows += out.num_rows
        except BaseException:
            if writer is not None:
                writer.abandon()
            raise
        if writer is None:
            options = for_new_file(self.task.schema.empty_table(), self.task.options)
            writer = StagedFile(storage.open_output(staged), self.task.schema, options)
        size = writer.close()
        return Outcome(staged, rows, size, unchanged, True)

    def _writer(self, sample: pa.Table, storage: Storage, staged: str) -> StagedFile:
        """A writer for a file like the input; the metadata of its schema is repeated word for word."""
        task = self.task
        options = like_file(self.footer, sample, task.options, self._ordered_by(), task.recast)
        if task.recast:
            return StagedFile(storage.open_output(staged), task.schema, options)
        options["store_schema"] = False
        return StagedFile(storage.open_output(staged), sample.schema.remove_metadata(), options, self._notes())

    def _ordered_by(self) -> tuple[str, ...]:
        """Columns whose values no row changes, so that an order by them still holds."""
        if not len(self.change.replaced):
            return tuple(self.task.schema.names)
        if self.change.columns is None:
            return self.task.key_columns
        return tuple(name for name in self.task.schema.names if name not in self.change.columns)

    def _notes(self) -> dict[bytes, bytes]:
        """The notes of the footer; that the rows are sorted only while no row changes the order."""
        note, rows = self.task.file.sort_note, self.task.rows_out
        still = note is not None and set(note.columns) <= set(self._ordered_by())
        kept = replace(note, rows=rows) if note is not None and still else None
        return (without_sort_note(self.footer.key_values) or {}) | sort_note_metadata(kept)

    def _all_parts(self, first: _Part | None) -> Iterator[_Part]:
        for group, rows in enumerate(self.task.file.row_groups):
            if first is not None and first.group == group and first.table.num_rows == rows:
                yield first
            else:
                yield from self._parts(group)

    def _parts(self, group: int) -> Iterator[_Part]:
        start = int(self.starts[group])
        for table in self._decode(group):
            stop = start + table.num_rows
            low, high = np.searchsorted(self.change.replaced, [start, stop])
            positions = self.change.replaced[low:high] - start
            table, source = share_codes(table, self._source().slice(low, high - low))  # noqa: PLW2901
            equal, changed = self._compare(table, positions, source)
            yield _Part(group, table, positions, source, equal, changed, self._kept(start, stop, positions))
            start = stop

    def _kept(self, start: int, stop: int, replaced: RowNumbers) -> npt.NDArray[np.bool_] | None:
        """Which rows of a part stay; None where all do."""
        if self.change.drop_others:
            kept = np.zeros(stop - start, dtype=bool)
            kept[replaced] = True
        else:
            low, high = np.searchsorted(self.change.dropped, [start, stop])
            kept = np.ones(stop - start, dtype=bool)
            kept[self.change.dropped[low:high] - start] = False
        return None if kept.all() else kept

    def _source(self) -> pa.Table:
        """The source rows of the task, in order: the columns that replaced rows get."""
        if self._taken is None:
            wanted = self.change.columns
            fields = [
                field
                for field in self.task.schema
                if field.name not in self.left_out and (wanted is None or field.name in wanted)
            ]
            schema = pa.schema(fields, self.task.schema.metadata)
            has_rows = len(self.change.source_rows) > 0
            self._taken = self._take(self.change.source_rows, schema) if has_rows else schema.empty_table()
        return self._taken

    def _compare(
        self, table: pa.Table, positions: RowNumbers, source: pa.Table
    ) -> tuple[npt.NDArray[np.bool_], tuple[str, ...]]:
        """Which rows stay equal, and which columns do not."""
        names = [name for name in source.column_names if name not in self.exact_keys]
        equal = np.ones(len(positions), dtype=bool)
        if not names or not len(positions):
            return equal, ()
        found = columns_equal(take_ascending(table.select(names), positions), source.select(names))
        changed = tuple(name for name, same in zip(names, found, strict=True) if not same.all())
        return np.logical_and.reduce(found), changed

    def _decode(self, group: int) -> Iterator[pa.Table]:
        rows, names = self.task.file.row_groups[group], None
        if self.left_out and not self.losses[group]:
            names = [name for name in self.reader.schema_arrow.names if name not in self.left_out]
        if self.batch_rows is None or rows <= self.batch_rows:
            with self._report_damage():
                table = self.reader.read_row_group(group, names, use_threads=False)
            check_rows(table.num_rows, self.task.file, [group])
            yield self._as_output(table)
            return
        seen = 0
        batches = self.reader.iter_batches(self.batch_rows, row_groups=[group], use_threads=False)
        while True:
            with self._report_damage():
                batch = next(batches, None)
            if batch is None:
                break
            seen += batch.num_rows
            yield self._as_output(pa.Table.from_batches([batch]))
        check_rows(seen, self.task.file, [group])

    def _report_damage(self) -> AbstractContextManager[None]:
        return report_damage("rewriting", self.task.file.path)

    def _as_output(self, table: pa.Table) -> pa.Table:
        if not self.task.recast:
            return table.replace_schema_metadata(None)
        return cast_schema(table, self.task.schema, fill_missing=True, operation="rewrite", path=self.task.file.path)


def _splice_group(file: SplicedFile, group: int, rows: int, part: _Part | None, options: WriterOptions) -> int:
    """Write one row group, of which as much as possible is copied; returns its rows."""
    if not rows:
        return 0
    if part is None or not (part.changed or part.kept is not None):
        file.copy_group(group)
        return rows
    if part.kept is None:
        file.mix_group(group, part.columns(part.changed), options)
        return rows
    out = part.rows()
    if out.num_rows:
        file.new_group(group, out, options)
    return int(out.num_rows)


def _can_choose(schema: pa.Schema) -> bool:
    """Whether a reader that is asked for some columns by name gives those and no others."""
    return not any(pa.types.is_nested(field.type) or "." in field.name for field in schema)


def _exact(type_: pa.DataType) -> bool:
    value = type_.value_type if pa.types.is_dictionary(type_) else type_
    return not pa.types.is_floating(value.storage_type if isinstance(value, pa.BaseExtensionType) else value)
