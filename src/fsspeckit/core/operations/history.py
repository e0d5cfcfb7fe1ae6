"""Apply a change feed as history (type 2): read the history of the feed's keys, change it, commit the changed rows.

The history is read and planned from one snapshot; the commit is a conflict if the dataset has changed since.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from fsspeckit.common.choices import DEFAULT_RETRIES
from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.dataset.categories import categories_for, own_categories
from fsspeckit.core.dataset.folder_types import settled, types_written
from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.dataset.source import Input, Source
from fsspeckit.core.dataset.source_keys import (
    KeyChoice,
    PartitionRows,
    check_no_null_keys,
    check_sequence,
    select_rows,
)
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.kernels.find_duplicates import partition_count
from fsspeckit.core.kernels.history_rows import ChangeHistory, FeedChunk, OldRows, SplitHistory, join
from fsspeckit.core.kernels.row_rules import Mask
from fsspeckit.core.model import NO_MATCH, NO_ROWS, RowNumbers
from fsspeckit.core.operations.change import PlannedChange, PreparedChange, run_change
from fsspeckit.core.operations.merge import as_range, opened
from fsspeckit.core.planning.exchange.history import plan_exchanged_history
from fsspeckit.core.planning.folder_values import check_folder_values
from fsspeckit.core.planning.history import (
    HistoryRequest,
    HistorySchemas,
    check_feed_values,
    feed_target,
    history_schemas,
    plan_history,
    read_history,
)
from fsspeckit.core.planning.merge import check_target_keys, match_anywhere, partition_groups
from fsspeckit.core.planning.merge_changes import is_removed
from fsspeckit.core.planning.merge_request import (
    FileChange,
    MergeSchemas,
    check_evolution,
    insert_tasks,
    partition_columns_of,
    rewrite_tasks,
)
from fsspeckit.core.planning.merge_rules import compile_rules, deleting_rows
from fsspeckit.core.progress import SILENT, Progress, Reporter, reporting
from fsspeckit.core.results import MergePlan, MergeResult
from fsspeckit.core.values.history import IS_CURRENT, VALID_FROM, HistoryChanges, change_history, raise_first_failure


def apply_history(
    engine: Engine,
    given: Input,
    place: Place,
    request: HistoryRequest,
    *,
    dry_run: bool = False,
    progress: Progress = None,
    pinned: MergePlan | None = None,
    retries: int = DEFAULT_RETRIES,
) -> MergeResult | MergePlan:
    """Apply a change feed as history. A dry run only returns the plan; ``pinned`` and ``retries`` as for a merge."""
    started = time.perf_counter()
    stats_for, types_of = (*request.key_columns, VALID_FROM), partial(feed_target, request=request)
    with (
        log_unexpected("apply_changes", place.path),
        reporting("apply_changes", progress) as reporter,
        opened(
            engine, given, place, request.feed, stats_for, reporter, dry_run=dry_run, pinned=pinned, types_of=types_of
        ) as (
            feed,
            load,
        ),
    ):

        def plan() -> PlannedChange:
            written = pa.schema([*feed.schema, pa.field(IS_CURRENT, pa.bool_())])
            rows, snapshot = settled(feed, load(), written=written)
            snapshot = categories_for(rows, snapshot, place, "apply_changes")
            with vanished_file_is_conflict(place, "apply_changes"):
                exchanged = rows.exchange_folder is not None
                plan = (_plan_exchanged if exchanged else _plan)(engine, rows, place, snapshot, request, reporter)
            types = types_written(snapshot, partition_columns_of(snapshot, request.partition_by), rows, written)
            return replace(plan, prepared=replace(plan.prepared, partition_types=types))

        return run_change(
            engine,
            place,
            plan,
            reporter,
            stats_for=stats_for,
            started=started,
            dry_run=dry_run,
            pinned=pinned,
            retries=retries,
        )


def _plan(
    engine: Engine, feed: Source, place: Place, snapshot: Snapshot, request: HistoryRequest, reporter: Reporter
) -> PlannedChange:
    """Return the tasks, with the changed history rows as their source."""
    schema = own_categories(feed.schema_for(feed_target(snapshot, request)), feed)
    schemas = history_schemas(schema, snapshot, request, place.path, ordered=feed.ordered)
    rules = compile_rules(request.feed, feed.schema, snapshot)
    deletes = deleting_rows(rules, feed)
    check_feed_values(feed, schemas, request, place.path, deletes)
    check_no_null_keys(feed.columns(request.key_columns), request.key_columns, "source", "apply_changes")
    check_sequence(feed, request.sequence_by)
    old, reasons = _find_history(engine, feed, place, snapshot, schemas, request, reporter)
    found = _change(engine, feed, place, snapshot, schemas, old, deletes, request, reporter)
    raise_first_failure(changes.failure for changes in found)
    rows = feed.with_parts([changes.table for changes in found], schemas.rows)
    plan = plan_history(found, snapshot, reasons)
    writing = replace(schemas.writing, body=rows.widen_codes(schemas.writing.body))
    groups, _ = partition_groups(snapshot, rows, plan.inserts, writing)
    new = [(group, as_range(np.asarray(group.rows, dtype=np.int64))) for group in groups]
    new.sort(key=lambda pair: pair[0].folder)
    stale = feed.rows - plan.effective
    prepared = _prepare(plan.files, new, feed, snapshot, writing, request, plan.moved, stale, place.path)
    prepared = replace(prepared, read=frozenset(rows_of_file.file.path for rows_of_file in old))

    def depends_on(added: Snapshot) -> bool:
        if _find_history(engine, feed, place, added, schemas, request, SILENT)[0]:
            return True
        unmatched = [FileChange(file, NO_MATCH, NO_ROWS, "") for file in added.files]
        adds_rows = prepared.inserted + prepared.updated > 0
        return bool(rewrite_tasks(unmatched, schemas.writing, request.writing, adds_rows=adds_rows))

    return PlannedChange(prepared, rows, snapshot, depends_on)


def _plan_exchanged(
    engine: Engine, feed: Source, place: Place, snapshot: Snapshot, request: HistoryRequest, reporter: Reporter
) -> PlannedChange:
    """Plan a history whose rows workers change.

    Other new files are not searched: that would exchange the whole feed again. So it depends on all of them.
    """
    plan = plan_exchanged_history(engine, feed, place, snapshot, request, reporter)
    merge = plan.merge
    rows = merge.rows
    prepared = _prepare(
        rows.files, rows.inserts, feed, snapshot, merge.schemas, request, merge.moved, merge.stale, place.path
    )
    prepared = replace(prepared, read=plan.read, exchanged=rows)
    return PlannedChange(prepared, feed, snapshot, lambda added: any(file.rows for file in added.files))


def _find_history(
    engine: Engine,
    feed: Source,
    place: Place,
    snapshot: Snapshot,
    schemas: HistorySchemas,
    request: HistoryRequest,
    reporter: Reporter,
) -> tuple[list[OldRows], list[str]]:
    """Check the files, and return the history rows of the keys of the feed, and for each file how it was searched."""
    if feed.rows:
        check_target_keys(place.storage, snapshot, schemas.writing, "apply_changes")
        columns = snapshot.partition_columns
        check_folder_values(engine, place.storage, snapshot.files, columns, columns, reporter)
    keys = schemas.matching.keys
    chosen = select_rows(feed, keys, KeyChoice("highest", (request.sequence_by,)))
    rows = np.asarray(chosen, dtype=np.int64)
    found = match_anywhere(
        engine, place.storage, snapshot, feed, rows, schemas.matching, request.feed, reporter, stage="match"
    )
    old = [
        OldRows(number, file, match.positions)
        for number, (file, (match, _)) in enumerate(zip(snapshot.files, found, strict=True))
        if len(match.positions)
    ]
    return old, [reason for _, reason in found]


def _change(
    engine: Engine,
    feed: Source,
    place: Place,
    snapshot: Snapshot,
    schemas: HistorySchemas,
    old: list[OldRows],
    deletes: Mask | None,
    request: HistoryRequest,
    reporter: Reporter,
) -> list[HistoryChanges]:
    """Change the history: in this process, or distributed by key if the rows of the feed are shared with workers."""
    read = read_history(place.storage, snapshot, schemas, request)
    changes = _chunks(feed, deletes)
    if not feed.is_shared:
        read_old = engine.map(read, old, reporter.stage("read history", len(old))) if old else []
        rows = join([*(read(chunk) for chunk in changes), *read_old], schemas.rows)
        return [change_history(rows, schemas.layout)]
    parts = partition_count(feed.rows + sum(len(rows.positions) for rows in old))
    split = SplitHistory(read, schemas.layout.keys, parts)
    gather = ChangeHistory(schemas.rows, schemas.layout, feed.part_sink())
    on_done = reporter.stage("read history", len(changes) + len(old) + parts)
    items: list[FeedChunk | OldRows] = [*changes, *old]
    return engine.exchange(split, items, gather, parts, on_done)


def _chunks(feed: Source, deletes: Mask | None) -> list[FeedChunk]:
    """Return the parts of a feed."""
    result, first = [], 0
    for chunk in feed.chunks():
        rows = chunk.rows
        mask = np.zeros(rows, dtype=bool) if deletes is None else deletes[first : first + rows]
        result.append(FeedChunk(first, chunk, mask))
        first += rows
    return result


def _prepare(
    files: Sequence[FileChange],
    new: Sequence[tuple[PartitionRows, range | RowNumbers]],
    feed: Source,
    snapshot: Snapshot,
    writing: MergeSchemas,
    request: HistoryRequest,
    moved: int,
    stale: int,
    path: str,
) -> PreparedChange:
    """Turn the changes to files and the new history rows of each partition into tasks."""
    removed = {change.file.path for change in files if is_removed(change, feed)}
    left = [change for change in files if change.file.path not in removed]
    inserted, updated = sum(len(rows) for _, rows in new) - moved, sum(change.match.hits for change in files) + moved
    adds_rows = inserted + updated > 0
    rewrites = rewrite_tasks(left, writing, request.writing, adds_rows=adds_rows)
    check_evolution(rewrites, writing, request.writing, path)
    return PreparedChange(
        operation="apply_changes",
        strategy="scd2",
        options=request.writing.options,
        snapshot=snapshot,
        source_rows=feed.rows,
        source_route=feed.route,
        share_limit=feed.limit,
        rewrites=tuple(rewrites),
        inserts=tuple(insert_tasks(new, writing, snapshot, request.writing.options)),
        deletes=tuple(sorted(removed)),
        inserted=inserted,
        updated=updated,
        deleted=sum(change.lost for change in files) - moved,
        reasons={change.file.path: change.reason for change in files},
        stale=stale,
        moved=moved,
        schema_changes=writing.changes if adds_rows else (),
    )
