"""Read the rows of a file that a task replaces or drops, and compare replaced rows with their source rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.bridge import empty_table
from fsspeckit.common.schema import cast_schema
from fsspeckit.core.expressions.conditions import errors_name
from fsspeckit.core.expressions.evaluate import evaluate
from fsspeckit.core.expressions.tree import columns_of
from fsspeckit.core.model import RewriteTask, RowNumbers
from fsspeckit.core.parquet.batches import read_batches
from fsspeckit.core.parquet.damage import failing_columns, report_damage
from fsspeckit.core.parquet.reader import check_rows
from fsspeckit.core.values.equality import columns_equal
from fsspeckit.core.values.take import coalesce, filter_rows, replace_rows, share_codes, take_ascending

TakeRows = Callable[[range | RowNumbers, pa.Schema], pa.Table]
"""Returns source rows by row number, with the columns and types of a schema."""
_ROWS_AT_ONCE = 500_000


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Decoded rows of a file and the change to them: a row group, or a batch of its rows.

    Attributes:
        group: The number of the row group.
        table: The rows before the change.
        replaced: Positions of the replaced rows in ``table``, ascending.
        source: The new values of each replaced row. Columns that are missing here do not change.
        equal: Which replaced rows already have their new values.
        changed_columns: The columns in which a replaced row gets another value.
        kept: Which rows are not dropped; ``None`` if all rows are kept.
    """

    group: int
    table: pa.Table
    replaced: RowNumbers
    source: pa.Table
    equal: npt.NDArray[np.bool_]
    changed_columns: tuple[str, ...]
    kept: npt.NDArray[np.bool_] | None

    @property
    def unchanged(self) -> int:
        """Number of replaced rows that already have their new values."""
        return int(np.count_nonzero(self.equal))

    @property
    def has_changes(self) -> bool:
        """Whether a row is dropped or gets other values."""
        return self.kept is not None or self.unchanged < len(self.replaced)

    def new_columns(self, names: Sequence[str]) -> pa.Table:
        """Return some columns with the new values; dropped rows are included."""
        differs, old = ~self.equal, self.table.select(names)
        source = self.source.select([name for name in names if name in self.source.column_names])
        if not differs.any() or not source.num_columns:
            return old
        positions = self.replaced
        if not differs.all():
            positions, source = positions[differs], take_ascending(source, np.flatnonzero(differs))
        new = replace_rows(old.select(source.column_names), positions, source)
        return pa.table([new[n] if n in source.column_names else old[n] for n in names], schema=old.schema)

    def new_rows(self) -> pa.Table:
        """Return the rows after the change."""
        table = self.new_columns(self.table.column_names)
        return table if self.kept is None else filter_rows(table, self.kept)


class ChangedRowsReader:
    """Reads the rows of a task's file, one batch at a time, often a row group.

    Args:
        task: The task.
        take: Returns source rows.
        parquet: The open file of the task.
        skip_keys: Whether key columns that no replaced row changes are left out of row groups that keep all rows.
    """

    def __init__(self, task: RewriteTask, take: TakeRows, parquet: pq.ParquetFile, *, skip_keys: bool) -> None:
        self._task, self._change, self._take, self._parquet = task, task.change, take, parquet
        self._starts = np.concatenate([[0], np.cumsum(task.file.row_groups)]).astype(np.int64)
        replaced, self._dropped = task.change.counts_by_group(task.file.row_groups)
        self.touched: list[int] = np.flatnonzero((replaced > 0) | (self._dropped > 0)).tolist()
        """The row groups with replaced or dropped rows."""
        names = [name for name in task.key_columns if name in task.schema.names]
        self._equal_keys = frozenset(name for name in names if not _is_floating(task.schema.field(name).type))
        """Key columns in which equal keys are equal values: floats may differ in the sign of zero or in NaN bits."""
        skipped = self._columns_to_skip()
        skips = skip_keys and len(skipped) < len(task.schema) and selects_exactly(parquet.schema_arrow)
        self._skipped = skipped if skips else frozenset[str]()

    def _columns_to_skip(self) -> frozenset[str]:
        """Return the columns that need not be read where all rows are kept: they do not change."""
        columns = self._change.columns
        if columns is None:
            return self._equal_keys
        needed = frozenset(columns).union(*map(columns_of, self._change.computed.values()))
        return frozenset(self._task.schema.names) - needed

    def first_change(self) -> ChangedRows | None:
        """Return the first rows with a change, or ``None``. Only row groups with replaced or dropped rows are read."""
        changes = (rows for group in self.touched for rows in self.read(group))
        return next((rows for rows in changes if rows.has_changes), None)

    def count_unchanged(self) -> int:
        """Return how many replaced rows of the file already have their new values."""
        return sum(rows.unchanged for group in self.touched for rows in self.read(group))

    def read_replaced(self) -> Iterator[ChangedRows]:
        """Read the row groups with replaced rows."""
        replaced, _ = self._change.counts_by_group(self._task.file.row_groups)
        return (rows for group in np.flatnonzero(replaced).tolist() for rows in self.read(group))

    def read_all(self, first: ChangedRows | None) -> Iterator[ChangedRows]:
        """Read all row groups; ``first`` is a result of `first_change`, which is not read again if it is complete."""
        for group, count in enumerate(self._task.file.row_groups):
            if first is not None and first.group == group and first.table.num_rows == count:
                yield first
            else:
                yield from self.read(group)

    def read(self, group: int, *, all_columns: bool = False) -> Iterator[ChangedRows]:
        """Read a row group, in batches if it is large; with ``all_columns`` also the columns that do not change."""
        start = int(self._starts[group])
        for decoded in self._decode(group, all_columns=all_columns):
            stop = start + decoded.num_rows
            low, high = np.searchsorted(self._change.replaced, [start, stop])
            replaced = self._change.replaced[low:high] - start
            table, source = share_codes(decoded, self._new_values(decoded, replaced, int(low), int(high)))
            equal, columns = self._compare(table, replaced, source)
            yield ChangedRows(group, table, replaced, source, equal, columns, self._change.kept(start, stop))
            start = stop

    def _new_values(self, table: pa.Table, replaced: RowNumbers, low: int, high: int) -> pa.Table:
        """Return the new values of replaced rows; ``low`` and ``high`` are their range among all replaced rows."""
        if self._change.computed:
            return self._computed(table, replaced)
        source = self._source_rows(low, high)
        if not self._change.keep_for_null or not source.num_rows:
            return source
        old = take_ascending(table.select(source.column_names), replaced)
        pairs = zip(source.columns, old.columns, source.schema, strict=True)
        kept = [coalesce(new, before.cast(field.type)) for new, before, field in pairs]
        return pa.table(kept, schema=source.schema)

    def _computed(self, table: pa.Table, replaced: RowNumbers) -> pa.Table:
        """Return the computed values of replaced rows."""
        rows = take_ascending(table, replaced)
        fields = [self._task.schema.field(name) for name in self._change.computed]
        with errors_name("set"):
            values = [evaluate(value, rows) for value in self._change.computed.values()]
        new = pa.table(values, names=list(self._change.computed))
        return cast_schema(new, pa.schema(fields), operation="update", path=self._task.file.path)

    def _source_rows(self, low: int, high: int) -> pa.Table:
        """Return the source rows of some replaced rows. Rows that fit into memory are taken once for all."""
        if len(self._change.source_rows) <= _ROWS_AT_ONCE:
            return self._source.slice(low, high - low)
        return self._take_source(self._change.source_rows[low:high])

    @cached_property
    def _source(self) -> pa.Table:
        return self._take_source(self._change.source_rows)

    def _take_source(self, rows: RowNumbers) -> pa.Table:
        """Return source rows with the columns that replaced rows get."""
        columns = self._change.columns
        fields = [
            field
            for field in self._task.schema
            if field.name not in self._skipped and (columns is None or field.name in columns)
        ]
        schema = pa.schema(fields, self._task.schema.metadata)
        return self._take(rows, schema) if len(rows) else empty_table(schema)

    def _compare(
        self, table: pa.Table, replaced: RowNumbers, source: pa.Table
    ) -> tuple[npt.NDArray[np.bool_], tuple[str, ...]]:
        """Return which replaced rows are equal to their source rows, and the columns that differ."""
        names = [name for name in source.column_names if name not in self._equal_keys]
        if not names or not len(replaced):
            return np.ones(len(replaced), dtype=bool), ()
        equal = columns_equal(take_ascending(table.select(names), replaced), source.select(names))
        differing = tuple(name for name, column in zip(names, equal, strict=True) if not column.all())
        return np.logical_and.reduce(equal), differing

    def _decode(self, group: int, *, all_columns: bool) -> Iterator[pa.Table]:
        names, count = None, 0
        if self._skipped and not self._dropped[group] and not all_columns:
            names = [name for name in self._parquet.schema_arrow.names if name not in self._skipped]
        batches = read_batches(self._parquet, group, names, self._task.options.batch_rows)
        while True:
            with self._report_damage():
                table = next(batches, None)
            if table is None:
                break
            count += table.num_rows
            yield self._as_output(table)
        check_rows(count, self._task.file, [group])

    def _report_damage(self) -> AbstractContextManager[None]:
        return report_damage("rewriting", self._task.file.path, partial(failing_columns, self._parquet))

    def _as_output(self, table: pa.Table) -> pa.Table:
        if not self._task.recast:
            return table.replace_schema_metadata(None)
        path = self._task.file.path
        return cast_schema(table, self._task.schema, fill_missing=True, operation="rewrite", path=path)


def selects_exactly(schema: pa.Schema) -> bool:
    """Return whether pyarrow reads exactly the columns that are selected by name: a dot selects nested fields."""
    return not any(pa.types.is_nested(field.type) or "." in field.name for field in schema)


def _is_floating(type_: pa.DataType) -> bool:
    value = type_.value_type if pa.types.is_dictionary(type_) else type_
    return bool(pa.types.is_floating(value.storage_type if isinstance(value, pa.BaseExtensionType) else value))
