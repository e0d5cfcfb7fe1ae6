"""Merge a source into a dataset: validate, snapshot, plan, run, commit.

No step before the run writes a file, and only the commit changes the dataset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot, check_one_dataset, load_snapshot
from fsspeckit.core.dataset.source import Input, Source
from fsspeckit.core.dataset.source_columns import SourceColumns
from fsspeckit.core.dataset.source_keys import check_no_null_keys, check_order_columns, check_sequence, select_rows
from fsspeckit.core.dataset.text_source import TextFiles, read_later
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.model import NO_MATCH, NO_ROWS, Match, MoveTask, RowNumbers
from fsspeckit.core.operations.change import PreparedChange, run_change
from fsspeckit.core.planning.merge import check_target_keys, match_anywhere, match_source
from fsspeckit.core.planning.merge_changes import MergeChanges, decide_changes, is_removed
from fsspeckit.core.planning.merge_moves import MergeMoves
from fsspeckit.core.planning.merge_request import (
    MergeRequest,
    MergeSchemas,
    insert_tasks,
    merge_schemas,
    rewrite_tasks,
)
from fsspeckit.core.planning.merge_rules import RuleCheck, compile_rules, deleting_rows, rows_in_scope
from fsspeckit.core.planning.pinned_plan import check_plan_names
from fsspeckit.core.progress import Progress, Reporter, reporting
from fsspeckit.core.results import MergePlan, MergeResult

_ONE_CHANGE_PER_KEY = (
    "With ignore_null_updates, apply one change per key at a time: split the feed by sequence, or pass scd_type=2"
)


def merge(
    engine: Engine,
    given: Input,
    place: Place,
    request: MergeRequest,
    *,
    dry_run: bool = False,
    progress: Progress = None,
    pinned: MergePlan | None = None,
) -> MergeResult | MergePlan:
    """Merge a source into a dataset. A dry run only returns the plan.

    With a ``pinned`` plan, raise before the commit if the merge would do anything else than the plan.
    """
    started = time.perf_counter()
    with (
        log_unexpected(request.operation, place.path),
        reporting(request.operation, progress) as reporter,
        opened(engine, given, place, request, request.key_columns, reporter, dry_run=dry_run, pinned=pinned) as (
            source,
            snapshot,
        ),
    ):
        prepared = _plan(engine, source, place, snapshot, request, reporter)
        return run_change(engine, place, source, prepared, reporter, started=started, dry_run=dry_run, pinned=pinned)


@contextmanager
def opened(
    engine: Engine,
    given: Input,
    place: Place,
    request: MergeRequest,
    stats_for: Sequence[str],
    reporter: Reporter,
    *,
    dry_run: bool,
    pinned: MergePlan | None,
    types_of: Callable[[Snapshot], pa.Schema | None] = attrgetter("schema"),
) -> Iterator[tuple[Source, Snapshot]]:
    """Open the source and load the snapshot of the dataset, with statistics of some columns.

    ``types_of`` returns the types of the source's columns, for text files.
    """
    if pinned is not None:
        check_plan_names(pinned)
    if not dry_run:
        place.journal.recover()
    given, snapshot = replace(given, on_tasks=reporter.tasks("source")), None
    if isinstance(given.data, TextFiles):
        snapshot = _snapshot(place, request, stats_for)
        given = read_later(given, replace(snapshot, schema=types_of(snapshot)))
    with engine.open_source(given, place.storage, place.scratch) as source:
        yield source, snapshot or _snapshot(place, request, stats_for)


def _snapshot(place: Place, request: MergeRequest, stats_for: Sequence[str]) -> Snapshot:
    with vanished_file_is_conflict(place, request.operation):
        snapshot = load_snapshot(place.storage, place.journal.view_to_change(), stats_for=stats_for)
    check_one_dataset(snapshot)
    return snapshot


def _plan(
    engine: Engine,
    source: Source,
    place: Place,
    snapshot: Snapshot,
    request: MergeRequest,
    reporter: Reporter,
) -> PreparedChange:
    with vanished_file_is_conflict(place, request.operation):
        schemas = merge_schemas(source.schema_for(snapshot.schema), snapshot, request, place.path)
        schemas = replace(schemas, body=source.widen_codes(schemas.body))
        rules = compile_rules(request, source.schema, snapshot)
        deletes = deleting_rows(rules, source)
        source.check_casts(schemas.body, operation=request.operation, path=place.path, without=deletes)
        check_order_columns(source.schema, request.dedup_order_by)
        if request.null_keys == "error":
            check_no_null_keys(source.columns(request.key_columns), request.key_columns, "source", request.operation)
        if request.operation == "apply_changes" and request.newer_by is not None:
            check_sequence(source, request.newer_by)
        rows = _rows_to_merge(source, schemas, request)
        if request.null_keys == "error" and (len(rows) or request.rule.delete):
            check_target_keys(place.storage, snapshot, schemas, request.operation)
        rows, deleting = _split(rows, deletes)
        matched = match_source(engine, place.storage, snapshot, source, rows, schemas, request, reporter)
        columns = SourceColumns(source)
        moves = MergeMoves(engine, place.storage, snapshot, columns, schemas, request, reporter)
        matched = moves.without_null_moves(matched)
        removals: Sequence[Match] = (NO_MATCH,) * len(snapshot.files)
        if len(deleting):
            found = match_anywhere(
                engine, place.storage, snapshot, source, deleting, schemas, request, reporter, stage="match deletes"
            )
            removals = [match for match, _ in found]
        scope = rows_in_scope(engine, place, snapshot, source, rules, reporter)
        check = RuleCheck(engine, place, snapshot, columns, rules, reporter)
        keeps = moves.need_old_rows
        changes = decide_changes(matched, removals, scope, check, request.rule, moves_keep_values=keeps)
        moved = moves.tasks(changes.moves)
    return _prepare(changes, moved, schemas, snapshot, source, request)


def _rows_to_merge(source: Source, schemas: MergeSchemas, request: MergeRequest) -> range | RowNumbers:
    """Return one source row for each key.

    Where NULL keeps a value, the older changes of a key in the source would count too, so there must be none.
    """
    if request.ignore_null_updates:
        return select_rows(
            source, schemas.keys, on_duplicate="error", deduplicate=False, order_by=(), remedy=_ONE_CHANGE_PER_KEY
        )
    return select_rows(
        source,
        schemas.keys,
        on_duplicate=request.on_duplicate_source,
        deduplicate=request.rule.deduplicate,
        order_by=request.dedup_order_by,
    )


def _split(rows: range | RowNumbers, deletes: npt.NDArray[np.bool_] | None) -> tuple[range | RowNumbers, RowNumbers]:
    """Split source rows into those that are written and those that delete their key."""
    if deletes is None:
        return rows, NO_ROWS
    numbers = np.asarray(rows, dtype=np.int64)
    return numbers[~deletes[numbers]], numbers[deletes[numbers]]


def _prepare(
    changes: MergeChanges,
    moves: Sequence[MoveTask],
    schemas: MergeSchemas,
    snapshot: Snapshot,
    source: Source,
    request: MergeRequest,
) -> PreparedChange:
    """Turn the changes to files into tasks."""
    removed = {change.file.path for change in changes.files if is_removed(change, source)}
    left = [change for change in changes.files if change.file.path not in removed]
    rewrites = rewrite_tasks(left, schemas, request, adds_rows=changes.inserted + changes.updated > 0)
    new = [(group, as_range(rows)) for group, rows in changes.inserts]
    return PreparedChange(
        operation=request.operation,
        strategy="scd1" if request.operation == "apply_changes" else request.strategy,
        options=request.options,
        snapshot=snapshot,
        source_rows=source.rows,
        source_route=source.route,
        rewrites=tuple(rewrites),
        inserts=(*insert_tasks(new, schemas, snapshot, request.options), *moves),
        deletes=tuple(sorted(removed)),
        inserted=changes.inserted,
        updated=changes.updated,
        deleted=changes.deleted,
        reasons={change.file.path: change.reason for change in changes.files},
        stale=changes.stale,
        moved=changes.moved,
    )


def as_range(rows: RowNumbers) -> range | RowNumbers:
    """Return row numbers without gaps as a range, which is read without a copy."""
    if len(rows) and int(rows[-1]) - int(rows[0]) + 1 == len(rows) and bool(np.all(np.diff(rows) == 1)):
        return range(int(rows[0]), int(rows[-1]) + 1)
    return rows
