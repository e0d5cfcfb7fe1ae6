"""Compute new values for the rows for which a condition is true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from fsspeckit.common.errors import ExpressionError
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.expressions.conditions import compile_values, errors_name
from fsspeckit.core.expressions.tree import Expression, with_constants
from fsspeckit.core.model import RewriteTask, RowChange, WriteOptions
from fsspeckit.core.operations.change import PreparedChange
from fsspeckit.core.operations.where import Prepare, Target, change_rows_where
from fsspeckit.core.planning.conditions import MatchingRows, constants_of
from fsspeckit.core.progress import Progress
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
) -> MergeResult | MergePlan:
    """Set columns of matching rows to computed values. A dry run only returns the plan."""

    def compile_change(target: Target) -> Prepare:
        with errors_name("set"):
            computed = compile_values(values, target.schema)
            _check_columns(computed, target.snapshot)
        return lambda rows: _prepare(target, rows, computed, options)

    return change_rows_where(
        engine, place, "update", where, compile_change, dry_run=dry_run, progress=progress, pinned=pinned
    )


def _check_columns(computed: Mapping[str, Expression], snapshot: Snapshot) -> None:
    in_folders = [name for name in computed if name in snapshot.partition_columns]
    if in_folders:
        raise ExpressionError(
            f"{in_folders} are partition columns, and update does not move rows. "
            'Merge the changed rows with partition_move="move".'
        )


def _prepare(
    target: Target, rows: Sequence[MatchingRows], computed: Mapping[str, Expression], options: WriteOptions
) -> PreparedChange:
    return PreparedChange(
        operation="update",
        strategy="update",
        options=options,
        snapshot=target.snapshot,
        rewrites=tuple(_task(target, match, computed, options) for match in rows if len(match.positions)),
        updated=sum(len(match.positions) for match in rows),
        reasons={match.file.path: match.reason for match in rows},
    )


def _task(
    target: Target, match: MatchingRows, computed: Mapping[str, Expression], options: WriteOptions
) -> RewriteTask:
    """Rewrite a file; a file that lacks a column gets it."""
    file, constants = match.file, constants_of(target.snapshot, match.file, target.schema)
    own = {name: with_constants(value, constants) for name, value in computed.items()}
    missing = [target.schema.field(name) for name in computed if name not in file.schema.names]
    body = pa.schema([*file.schema, *missing], file.schema.metadata) if missing else file.schema
    change = RowChange(replaced=match.positions, columns=tuple(computed), computed=own)
    return RewriteTask(file, change, body, (), True, options)
