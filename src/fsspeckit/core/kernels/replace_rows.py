"""The file kernel: one target file and its source rows in, one staged file out, row group by row group.

The same function on every engine. It keeps row order, types, row groups, codecs and metadata, verifies page checksums
of what it reads, and writes nothing at all when no row of the file changes. Where rows are only replaced, row groups
and columns without new values are copied as bytes (`splice.py`). Which rows match is decided before
(`match_keys.py`): a task names target positions and source rows, so this module knows nothing of keys.
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
from fsspeckit.core.parquet.writer_options import dictionary_columns, for_new_file, like_file
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.equality import columns_equal
from fsspeckit.core.values.take import needs_wider_codes, replace_rows, share_codes, take_ascending, with_wide_codes

TakeRows = Callable[[range | RowNumbers, pa.Schema], pa.Table]


@dataclass(frozen=True, slots=True)
class _Part:
    """A decoded piece of the file: its place, the rows of it that are replaced, and the columns with new values."""

    group: int
    start: int
    table: pa.Table
    positions: RowNumbers
    source: pa.Table
    equal: npt.NDArray[np.bool_]
    changed: tuple[str, ...]

    @property
    def unchanged(self) -> int:
        return int(np.count_nonzero(self.equal))

    def changes(self, drop_unmatched: bool) -> bool:
        dropped = drop_unmatched and len(self.positions) < self.table.num_rows
        return dropped or self.unchanged < len(self.positions)


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
            return Outcome("", task.rows_out, task.file.size, len(task.positions), False)
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
        self.task, self.reader, self.footer = task, reader, footer
        self.batch_rows = task.options.batch_rows
        self.starts = np.concatenate([[0], np.cumsum(task.file.row_groups)]).astype(np.int64)
        self.cuts = np.searchsorted(task.positions, self.starts)
        self.splices, self.exact_keys = self._may_splice(), self._exact_keys()
        apart = self.splices and len(self.exact_keys) < len(task.schema) and _can_choose(reader.schema_arrow)
        self.left_out = self.exact_keys if apart else frozenset[str]()
        self._take: TakeRows = take
        self._taken: pa.Table | None = None

    def _may_splice(self) -> bool:
        """Whether rows are replaced and nothing else is asked for, so that what is not new can be copied."""
        task, asked = self.task, self.task.options
        if task.recast or task.drop_unmatched or asked.compression or asked.row_group_size:
            return False
        whole = self.batch_rows is None or max(task.file.row_groups, default=0) <= self.batch_rows
        return whole and may_splice(self.footer)

    def _exact_keys(self) -> frozenset[str]:
        """Key columns that replaced rows cannot change, as a float key could that has another zero or NaN."""
        schema = self.task.schema
        return frozenset(
            name for name in self.task.key_columns if name in schema.names and _exact(schema.field(name).type)
        )

    def first_change(self) -> _Part | None:
        """The first part in which a row differs; parts without replaced rows are not even read."""
        for group in range(len(self.task.file.row_groups)):
            if self._untouched(group):
                continue
            for part in self._parts(group):
                if part.changes(self.task.drop_unmatched):
                    return part
        return None

    def _untouched(self, group: int) -> bool:
        hits = int(self.cuts[group + 1] - self.cuts[group])
        return hits == 0 and not (self.task.drop_unmatched and self.task.file.row_groups[group])

    def count_unchanged(self) -> int:
        groups = range(len(self.task.file.row_groups))
        return sum(part.unchanged for g in groups if not self._untouched(g) for part in self._parts(g))

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
        options = like_file(self.footer, sample, task.options, task.key_columns, False) | {"store_schema": False}
        origin = can_splice(self.footer, schema, options)
        if origin is None:
            return None
        source = open_file(storage, task.file)
        file, unchanged = SplicedFile(origin, task.file.path, source, storage.open_output(staged)), 0
        written = 0
        try:
            for group, rows in enumerate(task.file.row_groups):
                if not rows:
                    continue
                part = first if first and first.group == group else self._whole(group)
                unchanged += part.unchanged if part else 0
                if part is None or not part.changed:
                    file.copy_group(group)
                else:
                    file.mix_group(group, _apply(part, part.changed), options)
                written += rows
            return Outcome(staged, written, file.close(self._notes()), unchanged, True)
        except BaseException:
            file.abandon()
            raise

    def _whole(self, group: int) -> _Part | None:
        return None if self._untouched(group) else next(self._parts(group))

    def _encode(self, first: _Part | None, storage: Storage, staged: str) -> Outcome:
        rows = unchanged = 0
        writer: StagedFile | None = None
        try:
            for part in self._all_parts(first):
                unchanged += part.unchanged
                out = part.source if self.task.drop_unmatched else _apply(part, part.table.column_names)
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
        """A writer for a file like the input; what the schema's metadata said is said again word for word."""
        task = self.task
        options = like_file(self.footer, sample, task.options, task.key_columns, task.recast)
        if task.recast:
            return StagedFile(storage.open_output(staged), task.schema, options)
        options["store_schema"] = False
        return StagedFile(storage.open_output(staged), sample.schema.remove_metadata(), options, self._notes())

    def _notes(self) -> dict[bytes, bytes]:
        """The footer's own words; that the rows are in some order only while replaced rows cannot change it."""
        mark, keys = self.task.file.mark, self.task.key_columns
        still = mark is not None and not self.task.drop_unmatched and set(mark.columns) <= set(keys)
        return (without_sort_note(self.footer.notes) or {}) | sort_note_metadata(mark if still else None)

    def _all_parts(self, first: _Part | None) -> Iterator[_Part]:
        for group in range(len(self.task.file.row_groups)):
            whole = (
                first is not None and first.group == group and first.table.num_rows == self.task.file.row_groups[group]
            )
            if first is not None and whole:
                yield first
            else:
                yield from self._parts(group)

    def _parts(self, group: int) -> Iterator[_Part]:
        start = int(self.starts[group])
        for table in self._decode(group):
            stop = start + table.num_rows
            low, high = np.searchsorted(self.task.positions, [start, stop])
            positions = self.task.positions[low:high] - start
            table, source = share_codes(table, self._source().slice(low, high - low))  # noqa: PLW2901
            equal, changed = self._compare(table, positions, source)
            yield _Part(group, start, table, positions, source, equal, changed)
            start = stop

    def _source(self) -> pa.Table:
        """The source rows of the task, in order, without columns that are left out."""
        if self._taken is None:
            fields = [field for field in self.task.schema if field.name not in self.left_out]
            self._taken = self._take(self.task.source_rows, pa.schema(fields, self.task.schema.metadata))
        return self._taken

    def _compare(
        self, table: pa.Table, positions: RowNumbers, source: pa.Table
    ) -> tuple[npt.NDArray[np.bool_], tuple[str, ...]]:
        """Which rows stay equal, and which columns do not."""
        names = [name for name in table.column_names if name not in self.exact_keys]
        equal = np.ones(len(positions), dtype=bool)
        if not names or not len(positions):
            return equal, ()
        found = columns_equal(take_ascending(table.select(names), positions), source.select(names))
        changed = tuple(name for name, same in zip(names, found, strict=True) if not same.all())
        return np.logical_and.reduce(found), changed

    def _decode(self, group: int) -> Iterator[pa.Table]:
        rows, names = self.task.file.row_groups[group], None
        if self.left_out:
            names = [name for name in self.reader.schema_arrow.names if name not in self.left_out]
        if self.batch_rows is None or rows <= self.batch_rows:
            with self._naming_damage():
                table = self.reader.read_row_group(group, names, use_threads=False)
            check_rows(table.num_rows, self.task.file, [group])
            yield self._as_output(table)
            return
        seen = 0
        batches = self.reader.iter_batches(self.batch_rows, row_groups=[group], use_threads=False)
        while True:
            with self._naming_damage():
                batch = next(batches, None)
            if batch is None:
                break
            seen += batch.num_rows
            yield self._as_output(pa.Table.from_batches([batch]))
        check_rows(seen, self.task.file, [group])

    def _naming_damage(self) -> AbstractContextManager[None]:
        return report_damage("rewriting", self.task.file.path)

    def _as_output(self, table: pa.Table) -> pa.Table:
        if not self.task.recast:
            return table.replace_schema_metadata(None)
        return cast_schema(table, self.task.schema, fill_missing=True, operation="rewrite", path=self.task.file.path)


def _can_choose(schema: pa.Schema) -> bool:
    """Whether a reader that is asked for some columns by name gives those and no others."""
    return not any(pa.types.is_nested(field.type) or "." in field.name for field in schema)


def _exact(type_: pa.DataType) -> bool:
    value = type_.value_type if pa.types.is_dictionary(type_) else type_
    return not pa.types.is_floating(value.storage_type if isinstance(value, pa.BaseExtensionType) else value)


def _apply(part: _Part, names: Sequence[str]) -> pa.Table:
    """Some columns of a part with its new rows in place."""
    changed = ~part.equal
    out, source = part.table.select(names), part.source.select(names)
    if changed.all():
        out = replace_rows(out, part.positions, source)
    elif changed.any():
        out = replace_rows(out, part.positions[changed], take_ascending(source, np.flatnonzero(changed)))
    return out
