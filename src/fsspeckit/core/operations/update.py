"""Compute new values for the rows for which a condition is true: snapshot, find rows, plan, run, commit."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from fsspeckit.common.errors import ExpressionError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.engine.read import full_schema
from fsspeckit.core.expressions.conditions import columns_named, compile_condition, compile_values, errors_name
from fsspeckit.core.expressions.tree import Expression, with_constants
from fsspeckit.core.model import RewriteTask, RowChange, WriteOptions
from fsspeckit.core.operations.change import PreparedChange
from fsspeckit.core.operations.delete import load_target, run_without_source
from fsspeckit.core.planning.conditions import MatchingRows, constants_of, find_matching_rows
from fsspeckit.core.planning.pinned_plan import check_plan_names
from fsspeckit.core.progress import Progress, reporting
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
    started = time.perf_counter()
    with log_unexpected("update", place.path), reporting("update", progress) as reporter:
        if pinned is not None:
            check_plan_names(pinned)
        with errors_name("where"):
            columns = columns_named(where)
        snapshot = load_target(place, "update", columns, dry_run=dry_run)
        schema = full_schema(snapshot)
        with errors_name("where"):
            condition = compile_condition(where, schema)
        with errors_name("set"):
            computed = compile_values(values, schema)
            _check_columns(computed, snapshot)
        with vanished_file_is_conflict(place, "update"):
            found = find_matching_rows(engine, place.storage, snapshot, schema, condition, reporter)
        prepared = _prepare(snapshot, schema, found, computed, options)
        return run_without_source(engine, place, prepared, reporter, started=started, dry_run=dry_run, pinned=pinned)


def _check_columns(computed: Mapping[str, Expression], snapshot: Snapshot) -> None:
    in_folders = [name for name in computed if name in snapshot.partition_columns]
    if in_folders:
        raise ExpressionError(
            f"{in_folders} are partition columns, and update does not move rows. "
            'Merge the changed rows with partition_move="move".'
        )


def _prepare(
    snapshot: Snapshot,
    schema: pa.Schema,
    found: Sequence[MatchingRows],
    computed: Mapping[str, Expression],
    options: WriteOptions,
) -> PreparedChange:
    rewrites = [_task(snapshot, schema, match, computed, options) for match in found if len(match.positions)]
    return PreparedChange(
        operation="update",
        strategy="update",
        options=options,
        snapshot=snapshot,
        source_rows=0,
        source_route="none",
        rewrites=tuple(rewrites),
        inserts=(),
        deletes=(),
        inserted=0,
        updated=sum(len(match.positions) for match in found),
        deleted=0,
        reasons={match.file.path: match.reason for match in found},
    )


def _task(
    snapshot: Snapshot,
    schema: pa.Schema,
    match: MatchingRows,
    computed: Mapping[str, Expression],
    options: WriteOptions,
) -> RewriteTask:
    """Rewrite a file; a file that lacks a column gets it."""
    file, constants = match.file, constants_of(snapshot, match.file, schema)
    own = {name: with_constants(value, constants) for name, value in computed.items()}
    missing = [schema.field(name) for name in computed if name not in file.schema.names]
    body = pa.schema([*file.schema, *missing], file.schema.metadata) if missing else file.schema
    change = RowChange(replaced=match.positions, columns=tuple(computed), computed=own)
    return RewriteTask(file, change, body, (), True, options)
