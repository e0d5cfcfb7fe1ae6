"""The straight lines: merge, write, read and recover, from the caller's words to a published result.

Validate, snapshot, plan, run, commit. Everything before the run writes nothing; everything after it goes through the
one commit. Engines do the heavy work and know nothing of the order of these steps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.commit.transaction import Changes, Commit, Publish
from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot, check_one_dataset, load_snapshot
from fsspeckit.core.dataset.source import Input, Source
from fsspeckit.core.dataset.source_keys import check_no_null_keys, check_order_columns, select_rows
from fsspeckit.core.dataset.text_source import TextFiles, read_later
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.file_names import rewritten_name
from fsspeckit.core.model import DataFile, Match, Outcome, PlanEntry, RewriteTask, RowNumbers, Task, WriteTask
from fsspeckit.core.operations.row_balance import check_balance
from fsspeckit.core.parquet.writer_options import report_codecs
from fsspeckit.core.planning.merge import MatchedFiles, check_target_keys, match_source
from fsspeckit.core.planning.merge_request import (
    MergeRequest,
    MergeSchemas,
    compute_merge_stats,
    insert_tasks,
    merge_schemas,
    rewrite_tasks,
)
from fsspeckit.core.planning.pinned_plan import check_against_plan, check_outcomes, check_plan_names
from fsspeckit.core.progress import Progress, Reporter, reporting
from fsspeckit.core.results import MergeFileMetadata, MergePlan, MergeResult


@dataclass(frozen=True, slots=True, eq=False)
class PreparedMerge:
    """A merge that is ready to run."""

    request: MergeRequest
    snapshot: Snapshot
    source_rows: int
    source_route: str
    rewrites: tuple[RewriteTask, ...]
    inserts: tuple[WriteTask, ...]
    deletes: tuple[str, ...]
    inserted: int
    updated: int
    deleted: int
    reasons: Mapping[str, str]

    @property
    def tasks(self) -> tuple[RewriteTask | WriteTask, ...]:
        """Everything an engine has to run."""
        return (*self.rewrites, *self.inserts)

    @property
    def counts(self) -> dict[str, int]:
        """The numbers that a plan promises."""
        return {
            "source_count": self.source_rows,
            "inserted": self.inserted,
            "updated": self.updated,
            "deleted": self.deleted,
        }


def merge(
    engine: Engine,
    given: Input,
    place: Place,
    request: MergeRequest,
    *,
    dry_run: bool = False,
    progress: Progress = None,
    agreed: MergePlan | None = None,
) -> MergeResult | MergePlan:
    """Merge a source into a dataset, or tell what that would do; ``agreed`` is a plan to keep to."""
    started = time.perf_counter()
    with log_unexpected("merge", place.path), reporting("merge", progress) as reporter, ExitStack() as stack:
        if agreed is not None:
            check_plan_names(agreed)
        if not dry_run:
            place.journal.recover()
        given = replace(given, on_tasks=reporter.tasks("source"))
        snapshot = None
        if isinstance(given.data, TextFiles):
            snapshot = _snapshot(place, request)
            given = read_later(given, snapshot)
        source = stack.enter_context(engine.open_source(given, place.storage, place.scratch))
        draft = _plan(engine, source, place, snapshot, request, reporter)
        if dry_run:
            outcomes = _run(engine, place, source, draft.rewrites, None, reporter)
            return _as_plan(place, draft, outcomes)
        if agreed is not None:
            draft = replace(
                draft, inserts=check_against_plan(agreed, place.path, draft.snapshot, draft.counts, draft.inserts)
            )
        if not draft.tasks and not draft.deletes and not place.journal.terms:
            return _as_result(place, draft, [], (), None, time.perf_counter() - started)
        if request.options.compression is None:
            report_codecs(task.file for task in draft.rewrites)
        with place.journal.begin(draft.snapshot.view, f"merge:{request.strategy}") as transaction:
            outcomes = _run(engine, place, source, draft.tasks, transaction.staging, reporter)
            if agreed is not None:
                check_outcomes(agreed, place.path, draft.rewrites, outcomes, draft.deletes)
            changes = _changes(place, draft, outcomes)
            worth_it = changes.publish or changes.retire or place.journal.terms
            commit = transaction.commit(changes) if worth_it else None
        return _as_result(place, draft, outcomes, changes.publish, commit, time.perf_counter() - started)


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
) -> PreparedMerge:
    snapshot = snapshot or _snapshot(place, request)
    with vanished_file_is_conflict(place, "merge"):
        shape = merge_schemas(source.schema_for(snapshot.schema), snapshot, request, place.path)
        shape = replace(shape, body=source.widen_codes(shape.body))
        source.check_casts(shape.body, operation="merge", path=place.path)
        check_order_columns(source.schema, request.dedup_order_by)
        if request.null_keys == "error":
            check_no_null_keys(source.columns(request.key_columns), request.key_columns, "source")
        rows = select_rows(
            source,
            shape.keys,
            on_duplicate=request.on_duplicate_source,
            deduplicate=request.rule.deduplicate,
            order_by=request.dedup_order_by,
        )
        if request.null_keys == "error" and (len(rows) or request.rule.delete):
            check_target_keys(place.storage, snapshot, shape)
        draft = match_source(engine, place.storage, snapshot, source, rows, shape, request, reporter)
    return _decide(draft, shape, snapshot, source, request)


def _decide(
    draft: MatchedFiles, shape: MergeSchemas, snapshot: Snapshot, source: Source, request: MergeRequest
) -> PreparedMerge:
    """Turn matches into tasks and counts, by the strategy's rule."""
    rule = request.rule
    inserted = draft.new_rows if rule.insert else 0
    updated = draft.hits if rule.update else 0
    gone = {file.path for file, match, _ in draft.files if rule.delete and _loses_all(file, match, source)}
    left = [(file, match) for file, match, _ in draft.files if file.path not in gone]
    rewrites = rewrite_tasks(left, shape, request, rows_enter=inserted + updated > 0)
    new = list(zip(draft.groups, draft.unmatched, strict=True)) if rule.insert else []
    inserts = insert_tasks([(group, _compact(rows)) for group, rows in new], shape, snapshot, request.options)
    return PreparedMerge(
        request=request,
        snapshot=snapshot,
        source_rows=source.rows,
        source_route=source.route,
        rewrites=tuple(rewrites),
        inserts=tuple(inserts),
        deletes=tuple(sorted(gone)),
        inserted=inserted,
        updated=updated,
        deleted=snapshot.rows - updated if rule.delete else 0,
        reasons={file.path: reason for file, _, reason in draft.files},
    )


def _loses_all(file: DataFile, match: Match, source: Source) -> bool:
    """Whether a full merge leaves nothing of a file; one without rows stays unless nothing stays."""
    return len(match.positions) == 0 and (file.rows > 0 or source.rows == 0)


def _compact(rows: RowNumbers) -> range | RowNumbers:
    """Row numbers without gaps as a range, which is read without copying."""
    if len(rows) and int(rows[-1]) - int(rows[0]) + 1 == len(rows) and bool(np.all(np.diff(rows) == 1)):
        return range(int(rows[0]), int(rows[-1]) + 1)
    return rows


def _run(
    engine: Engine, place: Place, source: Source, tasks: Sequence[Task], staging: str | None, reporter: Reporter
) -> list[Outcome]:
    rows, size = sum(task.rows_in for task in tasks), sum(task.weight for task in tasks)
    on_done = reporter.stage("write" if staging else "compare", len(tasks), rows=rows, size=size)
    with vanished_file_is_conflict(place, "merge"):
        outcomes = engine.run(place.storage, source, tasks, staging, on_done)
    check_balance(tasks, outcomes, place.path)
    return outcomes


def _changes(place: Place, draft: PreparedMerge, outcomes: Sequence[Outcome]) -> Changes:
    publish, retire = [], list(draft.deletes)
    for task, outcome in zip(draft.tasks, outcomes, strict=True):
        if not outcome.changed:
            continue
        if isinstance(task, WriteTask):
            publish.append(Publish(outcome.staged, task.path, outcome.rows))
        elif place.storage.in_place:
            publish.append(Publish(outcome.staged, task.file.path, outcome.rows, replaces=True))
        else:
            publish.append(Publish(outcome.staged, rewritten_name(task.file.path), outcome.rows))
            retire.append(task.file.path)
    info = {
        "operation": "merge",
        "strategy": draft.request.strategy,
        "inserted": draft.inserted,
        "updated": draft.updated,
        "deleted": draft.deleted,
    }
    inputs = tuple(file.path for file in draft.snapshot.files)
    return Changes(tuple(publish), tuple(retire), inputs, complete_view=True, info=info)


def _as_result(
    place: Place,
    draft: PreparedMerge,
    outcomes: Sequence[Outcome],
    published: Sequence[Publish],
    commit: Commit | None,
    seconds: float,
) -> MergeResult:
    rewrites, inserts = outcomes[: len(draft.rewrites)], outcomes[len(draft.rewrites) :]
    paths = iter(publish.path for publish in published)
    new_paths = [next(paths) if outcome.changed else "" for outcome in rewrites]
    files = [
        MergeFileMetadata(place.full(path), outcome.rows, "rewritten", outcome.size)
        for path, outcome in zip(new_paths, rewrites, strict=True)
        if outcome.changed
    ]
    inserted = [
        MergeFileMetadata(place.full(task.path), outcome.rows, "inserted", outcome.size)
        for task, outcome in zip(draft.inserts, inserts, strict=True)
    ]
    touched = {task.file.path for task, o in zip(draft.rewrites, rewrites, strict=True) if o.changed} | set(
        draft.deletes
    )
    kept = [
        MergeFileMetadata(place.full(file.path), file.rows, "preserved", file.size)
        for file in draft.snapshot.files
        if file.path not in touched
    ]
    before = draft.snapshot.rows
    counts = compute_merge_stats(
        previous_total=before, inserted=draft.inserted, updated=draft.updated, deleted=draft.deleted
    )
    return MergeResult(
        strategy=draft.request.strategy,
        source_count=draft.source_rows,
        target_count_before=before,
        target_count_after=counts["total"],
        inserted=draft.inserted,
        updated=draft.updated,
        deleted=draft.deleted,
        files=[*files, *inserted, *kept],
        rewritten_files=[file.path for file in files],
        inserted_files=[file.path for file in inserted],
        preserved_files=[file.path for file in kept],
        deleted_files=[place.full(path) for path in draft.deletes],
        unchanged=sum(outcome.unchanged for outcome in rewrites),
        commit_seq=commit.seq if commit else None,
        seconds=seconds,
        commit_seconds=commit.seconds if commit else 0.0,
    )


def _as_plan(place: Place, draft: PreparedMerge, outcomes: Sequence[Outcome]) -> MergePlan:
    changed = {task.file.path: (task, o) for task, o in zip(draft.rewrites, outcomes, strict=True)}
    deleted = set(draft.deletes)
    entries = []
    for file in draft.snapshot.files:
        reason = draft.reasons[file.path]
        if file.path in deleted:
            entries.append(PlanEntry(file.path, "delete", reason, file.rows, file.size, 0, file.rows, file.stamp))
        elif file.path in changed and changed[file.path][1].changed:
            task, outcome = changed[file.path]
            hits, lost = len(task.change.replaced), file.rows - outcome.rows
            why = reason if hits or task.change.drop_others else "types widen"
            entries.append(PlanEntry(file.path, "rewrite", why, outcome.rows, file.size, hits, lost, file.stamp))
        else:
            why = "rows are equal" if file.path in changed else reason
            hits = len(changed[file.path][0].change.replaced) if file.path in changed else 0
            entries.append(PlanEntry(file.path, "keep", why, file.rows, file.size, hits, 0, file.stamp))
    entries.extend(PlanEntry(t.path, "insert", "new keys", len(t.rows), 0) for t in draft.inserts)
    return MergePlan(
        strategy=draft.request.strategy,
        path=place.path,
        source_count=draft.source_rows,
        target_count_before=draft.snapshot.rows,
        inserted=draft.inserted,
        updated=draft.updated,
        deleted=draft.deleted,
        unchanged=sum(outcome.unchanged for outcome in outcomes),
        entries=tuple(entries),
        source_route=draft.source_route,
        tasks=(*draft.rewrites, *draft.inserts),
    )
