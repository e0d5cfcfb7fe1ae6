"""Compute new values for the rows for which a condition is true. A new partition value moves the row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from fsspeckit.common.categories import same_categories
from fsspeckit.common.choices import DEFAULT_RETRIES
from fsspeckit.common.schema import cast_schema, same_storage
from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.expressions.conditions import compile_values, errors_name
from fsspeckit.core.expressions.tree import Expression, Literal, with_constants
from fsspeckit.core.kernels.new_partitions import STAYS, NewPartitions
from fsspeckit.core.model import NO_ROWS, DataFile, RewriteTask, RowChange, RowNumbers, WriteOptions
from fsspeckit.core.operations.change import PreparedChange
from fsspeckit.core.operations.where import Prepare, Target, change_rows_where
from fsspeckit.core.planning.conditions import MatchingRows, constants_of
from fsspeckit.core.planning.moves import find_new_partitions, move_tasks
from fsspeckit.core.progress import Progress, Reporter
from fsspeckit.core.results import MergePlan, MergeResult


def update(
    engine: Engine,
    place: Place,
    values: Mapping[str, Any],
    where: Any,
    options: WriteOptions,
    *,
    dry_run: bool = False,
    progress: Progress = None,
    pinned: MergePlan | None = None,
    retries: int = DEFAULT_RETRIES,
) -> MergeResult | MergePlan:
    """Set columns of matching rows to computed values. A dry run only returns the plan."""

    def compile_change(target: Target) -> Prepare:
        with errors_name("set"):
            computed = compile_values(values, target.schema)
        with vanished_file_is_conflict(place, "update"):
            target = target.with_categories(place.storage, computed)
        _check_constants(computed, target.schema, place.path)
        moves = any(name in target.snapshot.partition_columns for name in computed)

        def prepare(rows: Sequence[MatchingRows], reporter: Reporter) -> PreparedChange:
            found: Sequence[NewPartitions | None] = [None] * len(rows)
            if moves:
                with errors_name("set"):
                    found = find_new_partitions(
                        engine, place.storage, target.snapshot, target.schema, rows, computed, reporter
                    )
            files = [_FileUpdate.of(match, new) for match, new in zip(rows, found, strict=True)]
            return _Update(target, computed, options).prepare(files)

        return prepare

    return change_rows_where(
        engine,
        place,
        "update",
        where,
        compile_change,
        dry_run=dry_run,
        progress=progress,
        pinned=pinned,
        retries=retries,
    )


def _check_constants(computed: Mapping[str, Expression], schema: pa.Schema, path: str) -> None:
    """Raise if a constant is not a value of its column. Other values are computed when files are written."""
    constants = {name: value.value for name, value in computed.items() if isinstance(value, Literal)}
    for name, value in constants.items():
        wanted = pa.schema([schema.field(name)])
        cast_schema(pa.table({name: pa.repeat(value, 1)}), wanted, operation="update", path=path)


@dataclass(frozen=True, slots=True, eq=False)
class _FileUpdate:
    """The matching rows of a file: those that stay in it, and those that move, by folder."""

    file: DataFile
    reason: str
    staying: RowNumbers
    moving: Mapping[str, RowNumbers]

    @classmethod
    def of(cls, match: MatchingRows, new: NewPartitions | None) -> _FileUpdate:
        if new is None:
            return cls(match.file, match.reason, match.positions, {})
        places = [(folder, match.positions[new.numbers == i]) for i, folder in enumerate(new.folders)]
        moving = {folder: positions for folder, positions in places if len(positions)}
        reason = "rows move to another partition" if moving else match.reason
        return cls(match.file, reason, match.positions[new.numbers == STAYS], moving)

    @property
    def leaving(self) -> RowNumbers:
        """Positions of the rows that move."""
        return np.sort(np.concatenate([NO_ROWS, *self.moving.values()]))


@dataclass(frozen=True, slots=True, eq=False)
class _Update:
    """Plans an update."""

    target: Target
    computed: Mapping[str, Expression]
    options: WriteOptions

    def prepare(self, files: Sequence[_FileUpdate]) -> PreparedChange:
        """Return the tasks: files without the rows that move, and new files with these."""
        snapshot = self.target.snapshot
        assert snapshot.schema is not None
        moved = {update.file.path: len(update.leaving) for update in files}
        parts = (part for update in files for part in self._moves(update))
        return PreparedChange(
            operation="update",
            strategy="update",
            options=self.options,
            snapshot=snapshot,
            rewrites=tuple(self._rewrites(files)),
            inserts=tuple(move_tasks(parts, snapshot.schema, snapshot, self.options)),
            deletes=tuple(sorted(each.file.path for each in files if 0 < each.file.rows == moved[each.file.path])),
            updated=sum(len(update.staying) + moved[update.file.path] for update in files),
            reasons={update.file.path: update.reason for update in files},
            moved=sum(moved.values()),
            unchanged=0 if self._columns else sum(len(update.staying) for update in files),
        )

    @property
    def _columns(self) -> tuple[str, ...]:
        """The columns of files that get new values. Other columns are only in the names of folders."""
        schema = self.target.snapshot.schema
        return tuple(name for name in self.computed if schema is not None and name in schema.names)

    def _rewrites(self, files: Sequence[_FileUpdate]) -> Iterator[RewriteTask]:
        """Yield a task for each file that keeps rows and in which a row is updated or leaves."""
        for update in files:
            replaced, dropped = update.staying if self._columns else NO_ROWS, update.leaving
            if (len(replaced) or len(dropped)) and len(dropped) < update.file.rows:
                change = RowChange(replaced=replaced, dropped=dropped)
                yield self._task(update.file, change, self._body(update.file, len(replaced) > 0))

    def _moves(self, update: _FileUpdate) -> Iterator[tuple[str, RewriteTask]]:
        for folder, positions in update.moving.items():
            change = RowChange(replaced=positions, drop_others=True)
            yield folder, self._task(update.file, change, self.target.snapshot.schema)

    def _body(self, file: DataFile, is_updated: bool) -> pa.Schema:
        """Return the schema of a file after the update: columns with new values have the type of the dataset.

        A file that lacks a column gets it with the first value.
        """
        names = self._columns if is_updated else ()
        wanted = {name: self.target.schema.field(name) for name in names}
        fields = [_field_after(own, wanted.pop(own.name, own)) for own in file.schema]
        after = pa.schema([*fields, *wanted.values()], file.schema.metadata)
        return file.schema if after.equals(file.schema, check_metadata=True) else after

    def _task(self, file: DataFile, change: RowChange, schema: pa.Schema) -> RewriteTask:
        constants = constants_of(self.target.snapshot, file, self.target.schema)
        own = {name: with_constants(self.computed[name], constants) for name in self._columns}
        change = replace(change, columns=self._columns, computed=own)
        return RewriteTask(file, change, schema, (), True, self.options)


def _field_after(own: pa.Field, wanted: pa.Field) -> pa.Field:
    kept = own if same_storage(own.type, wanted.type) else own.with_type(wanted.type)
    return same_categories(kept, wanted)
