"""Delete the rows for which a condition is true: snapshot, find rows, plan, run, commit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from fsspeckit.common.errors import DatasetNotFoundError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot, check_one_dataset, load_snapshot
from fsspeckit.core.dataset.source import Input
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.engine.read import full_schema
from fsspeckit.core.expressions.conditions import columns_named, compile_condition, errors_name
from fsspeckit.core.model import RewriteTask, RowChange, WriteOptions
from fsspeckit.core.operations.change import PreparedChange, run_change
from fsspeckit.core.planning.conditions import MatchingRows, find_matching_rows
from fsspeckit.core.planning.pinned_plan import check_plan_names
from fsspeckit.core.progress import Progress, Reporter, reporting
from fsspeckit.core.results import MergePlan, MergeResult


def delete(
    engine: Engine,
    place: Place,
    where: Any,
    options: WriteOptions,
    *,
    dry_run: bool = False,
    progress: Progress = None,
    pinned: MergePlan | None = None,
) -> MergeResult | MergePlan:
    """Delete matching rows. A dry run only returns the plan."""
    started = time.perf_counter()
    with log_unexpected("delete", place.path), reporting("delete", progress) as reporter:
        if pinned is not None:
            check_plan_names(pinned)
        with errors_name("where"):
            columns = columns_named(where)
        snapshot = load_target(place, "delete", columns, dry_run=dry_run)
        schema = full_schema(snapshot)
        with errors_name("where"):
            condition = compile_condition(where, schema)
        with vanished_file_is_conflict(place, "delete"):
            found = find_matching_rows(engine, place.storage, snapshot, schema, condition, reporter)
        return run_without_source(
            engine, place, _prepare(snapshot, found, options), reporter, started=started, dry_run=dry_run, pinned=pinned
        )


def load_target(place: Place, operation: str, stats_for: Sequence[str], *, dry_run: bool) -> Snapshot:
    """Return a snapshot of a dataset that must exist. A real run first recovers from a crashed writer."""
    if not dry_run:
        place.journal.recover()
    view = place.journal.view_to_change()
    if not view.files:
        raise DatasetNotFoundError(f"no parquet dataset at {place.path}. Check the path.")
    with vanished_file_is_conflict(place, operation):
        snapshot = load_snapshot(place.storage, view, stats_for=stats_for)
    check_one_dataset(snapshot)
    return snapshot


def _prepare(snapshot: Snapshot, found: Sequence[MatchingRows], options: WriteOptions) -> PreparedChange:
    deletes = [match.file.path for match in found if match.file.rows and len(match.positions) == match.file.rows]
    rewrites = [
        RewriteTask(match.file, RowChange(dropped=match.positions), match.file.schema, (), True, options)
        for match in found
        if 0 < len(match.positions) < match.file.rows
    ]
    return PreparedChange(
        operation="delete",
        strategy="delete",
        options=options,
        snapshot=snapshot,
        source_rows=0,
        source_route="none",
        rewrites=tuple(rewrites),
        inserts=(),
        deletes=tuple(sorted(deletes)),
        inserted=0,
        updated=0,
        deleted=sum(len(match.positions) for match in found),
        reasons={match.file.path: match.reason for match in found},
    )


def run_without_source(
    engine: Engine,
    place: Place,
    prepared: PreparedChange,
    reporter: Reporter,
    *,
    started: float,
    dry_run: bool,
    pinned: MergePlan | None,
) -> MergeResult | MergePlan:
    """Run a change that brings no rows from outside."""
    with engine.open_source(Input(pa.table({})), place.storage, place.scratch) as nothing:
        return run_change(engine, place, nothing, prepared, reporter, started=started, dry_run=dry_run, pinned=pinned)
