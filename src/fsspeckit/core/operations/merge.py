"""Merge a source into a dataset: validate, snapshot, plan, run, commit.

No step before the run writes a file, and only the commit changes the dataset.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot, check_one_dataset, load_snapshot
from fsspeckit.core.dataset.source import Input, Source
from fsspeckit.core.dataset.source_keys import check_no_null_keys, check_order_columns, select_rows
from fsspeckit.core.dataset.text_source import TextFiles, read_later
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.model import DataFile, Match, RowNumbers
from fsspeckit.core.operations.change import PreparedChange, run_change
from fsspeckit.core.planning.merge import MatchedFiles, check_target_keys, match_source
from fsspeckit.core.planning.merge_request import (
    MergeRequest,
    MergeSchemas,
    insert_tasks,
    merge_schemas,
    rewrite_tasks,
)
from fsspeckit.core.planning.pinned_plan import check_plan_names
from fsspeckit.core.progress import Progress, Reporter, reporting
from fsspeckit.core.results import MergePlan, MergeResult


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
    with log_unexpected("merge", place.path), reporting("merge", progress) as reporter, ExitStack() as stack:
        if pinned is not None:
            check_plan_names(pinned)
        if not dry_run:
            place.journal.recover()
        given = replace(given, on_tasks=reporter.tasks("source"))
        snapshot = None
        if isinstance(given.data, TextFiles):
            snapshot = _snapshot(place, request)
            given = read_later(given, snapshot)
        source = stack.enter_context(engine.open_source(given, place.storage, place.scratch))
        prepared = _plan(engine, source, place, snapshot, request, reporter)
        return run_change(engine, place, source, prepared, reporter, started=started, dry_run=dry_run, pinned=pinned)


def _snapshot(place: Place, request: MergeRequest) -> Snapshot:
    with vanished_file_is_conflict(place, "merge"):
        snapshot = load_snapshot(place.storage, place.journal.view_to_change(), stats_for=request.key_columns)
    check_one_dataset(snapshot)
    return snapshot


def _plan(
    engine: Engine,
    source: Source,
    place: Place,
    snapshot: Snapshot | None,
    request: MergeRequest,
    reporter: Reporter,
) -> PreparedChange:
    snapshot = snapshot or _snapshot(place, request)
    with vanished_file_is_conflict(place, "merge"):
        schemas = merge_schemas(source.schema_for(snapshot.schema), snapshot, request, place.path)
        schemas = replace(schemas, body=source.widen_codes(schemas.body))
        source.check_casts(schemas.body, operation="merge", path=place.path)
        check_order_columns(source.schema, request.dedup_order_by)
        if request.null_keys == "error":
            check_no_null_keys(source.columns(request.key_columns), request.key_columns, "source")
        rows = select_rows(
            source,
            schemas.keys,
            on_duplicate=request.on_duplicate_source,
            deduplicate=request.rule.deduplicate,
            order_by=request.dedup_order_by,
        )
        if request.null_keys == "error" and (len(rows) or request.rule.delete):
            check_target_keys(place.storage, snapshot, schemas)
        matched = match_source(engine, place.storage, snapshot, source, rows, schemas, request, reporter)
    return _prepare(matched, schemas, snapshot, source, request)


def _prepare(
    matched: MatchedFiles, schemas: MergeSchemas, snapshot: Snapshot, source: Source, request: MergeRequest
) -> PreparedChange:
    """Turn matches into tasks and counts, by the rule of the strategy."""
    rule = request.rule
    inserted = matched.new_rows if rule.insert else 0
    updated = matched.hits if rule.update else 0
    deletes = {file.path for file, match, _ in matched.files if rule.delete and _is_deleted(file, match, source)}
    left = [(file, match) for file, match, _ in matched.files if file.path not in deletes]
    rewrites = rewrite_tasks(left, schemas, request, adds_rows=inserted + updated > 0)
    new = list(zip(matched.groups, matched.unmatched, strict=True)) if rule.insert else []
    inserts = insert_tasks([(group, _as_range(rows)) for group, rows in new], schemas, snapshot, request.options)
    return PreparedChange(
        operation="merge",
        strategy=request.strategy,
        options=request.options,
        snapshot=snapshot,
        source_rows=source.rows,
        source_route=source.route,
        rewrites=tuple(rewrites),
        inserts=tuple(inserts),
        deletes=tuple(sorted(deletes)),
        inserted=inserted,
        updated=updated,
        deleted=snapshot.rows - updated if rule.delete else 0,
        reasons={file.path: reason for file, _, reason in matched.files},
    )


def _is_deleted(file: DataFile, match: Match, source: Source) -> bool:
    """Return whether a full merge deletes a file: no row matches. An empty file stays unless the source is empty."""
    return len(match.positions) == 0 and (file.rows > 0 or source.rows == 0)


def _as_range(rows: RowNumbers) -> range | RowNumbers:
    """Return row numbers without gaps as a range, which is read without a copy."""
    if len(rows) and int(rows[-1]) - int(rows[0]) + 1 == len(rows) and bool(np.all(np.diff(rows) == 1)):
        return range(int(rows[0]), int(rows[-1]) + 1)
    return rows
