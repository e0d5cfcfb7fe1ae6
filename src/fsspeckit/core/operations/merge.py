"""Merge a source into a dataset: validate, snapshot, plan, run, commit.

No step before the run writes a file, and only the commit changes the dataset.
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
    """A planned merge: the tasks to run, the files to delete, the counts, and the reason for each file."""

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
        """All tasks, rewrites first."""
        return (*self.rewrites, *self.inserts)

    @property
    def counts(self) -> dict[str, int]:
        """The counts that must equal those of a pinned plan."""
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
        if dry_run:
            outcomes = _run(engine, place, source, prepared.rewrites, None, reporter)
            return _as_plan(place, prepared, outcomes)
        if pinned is not None:
            inserts = check_against_plan(pinned, place.path, prepared.snapshot, prepared.counts, prepared.inserts)
            prepared = replace(prepared, inserts=inserts)
        if not prepared.tasks and not prepared.deletes and not place.journal.terms:
            return _as_result(place, prepared, [], (), None, time.perf_counter() - started)
        if request.options.compression is None:
            report_codecs(task.file for task in prepared.rewrites)
        with place.journal.begin(prepared.snapshot.view, f"merge:{request.strategy}") as transaction:
            outcomes = _run(engine, place, source, prepared.tasks, transaction.staging, reporter)
            if pinned is not None:
                check_outcomes(pinned, place.path, prepared.rewrites, outcomes, prepared.deletes)
            changes = _changes(place, prepared, outcomes)
            has_changes = changes.publish or changes.retire or place.journal.terms
            commit = transaction.commit(changes) if has_changes else None
        return _as_result(place, prepared, outcomes, changes.publish, commit, time.perf_counter() - started)


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
) -> PreparedMerge:
    """Turn matches into tasks and counts, by the rule of the strategy."""
    rule = request.rule
    inserted = matched.new_rows if rule.insert else 0
    updated = matched.hits if rule.update else 0
    deletes = {file.path for file, match, _ in matched.files if rule.delete and _is_deleted(file, match, source)}
    left = [(file, match) for file, match, _ in matched.files if file.path not in deletes]
    rewrites = rewrite_tasks(left, schemas, request, adds_rows=inserted + updated > 0)
    new = list(zip(matched.groups, matched.unmatched, strict=True)) if rule.insert else []
    inserts = insert_tasks([(group, _as_range(rows)) for group, rows in new], schemas, snapshot, request.options)
    return PreparedMerge(
        request=request,
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


def _run(
    engine: Engine, place: Place, source: Source, tasks: Sequence[Task], staging: str | None, reporter: Reporter
) -> list[Outcome]:
    rows, size = sum(task.rows_in for task in tasks), sum(task.weight for task in tasks)
    on_done = reporter.stage("write" if staging else "compare", len(tasks), rows=rows, size=size)
    with vanished_file_is_conflict(place, "merge"):
        outcomes = engine.run(place.storage, source, tasks, staging, on_done)
    check_balance(tasks, outcomes, place.path)
    return outcomes


def _changes(place: Place, prepared: PreparedMerge, outcomes: Sequence[Outcome]) -> Changes:
    publish, retire = [], list(prepared.deletes)
    for task, outcome in zip(prepared.tasks, outcomes, strict=True):
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
        "strategy": prepared.request.strategy,
        "inserted": prepared.inserted,
        "updated": prepared.updated,
        "deleted": prepared.deleted,
    }
    inputs = tuple(file.path for file in prepared.snapshot.files)
    return Changes(tuple(publish), tuple(retire), inputs, complete_view=True, info=info)


def _as_result(
    place: Place,
    prepared: PreparedMerge,
    outcomes: Sequence[Outcome],
    published: Sequence[Publish],
    commit: Commit | None,
    seconds: float,
) -> MergeResult:
    rewrites, inserts = outcomes[: len(prepared.rewrites)], outcomes[len(prepared.rewrites) :]
    paths = iter(publish.path for publish in published)
    new_paths = [next(paths) if outcome.changed else "" for outcome in rewrites]
    files = [
        MergeFileMetadata(place.full(path), outcome.rows, "rewritten", outcome.size)
        for path, outcome in zip(new_paths, rewrites, strict=True)
        if outcome.changed
    ]
    inserted = [
        MergeFileMetadata(place.full(task.path), outcome.rows, "inserted", outcome.size)
        for task, outcome in zip(prepared.inserts, inserts, strict=True)
    ]
    touched = {task.file.path for task, o in zip(prepared.rewrites, rewrites, strict=True) if o.changed} | set(
        prepared.deletes
    )
    kept = [
        MergeFileMetadata(place.full(file.path), file.rows, "preserved", file.size)
        for file in prepared.snapshot.files
        if file.path not in touched
    ]
    before = prepared.snapshot.rows
    counts = compute_merge_stats(
        previous_total=before, inserted=prepared.inserted, updated=prepared.updated, deleted=prepared.deleted
    )
    return MergeResult(
        strategy=prepared.request.strategy,
        source_count=prepared.source_rows,
        target_count_before=before,
        target_count_after=counts["total"],
        inserted=prepared.inserted,
        updated=prepared.updated,
        deleted=prepared.deleted,
        files=[*files, *inserted, *kept],
        rewritten_files=[file.path for file in files],
        inserted_files=[file.path for file in inserted],
        preserved_files=[file.path for file in kept],
        deleted_files=[place.full(path) for path in prepared.deletes],
        unchanged=sum(outcome.unchanged for outcome in rewrites),
        commit_seq=commit.seq if commit else None,
        seconds=seconds,
        commit_seconds=commit.seconds if commit else 0.0,
    )


def _as_plan(place: Place, prepared: PreparedMerge, outcomes: Sequence[Outcome]) -> MergePlan:
    changed = {task.file.path: (task, o) for task, o in zip(prepared.rewrites, outcomes, strict=True)}
    deleted = set(prepared.deletes)
    entries = []
    for file in prepared.snapshot.files:
        reason = prepared.reasons[file.path]
        if file.path in deleted:
            entries.append(PlanEntry(file.path, "delete", reason, file.rows, file.size, 0, file.rows, file.version))
        elif file.path in changed and changed[file.path][1].changed:
            task, outcome = changed[file.path]
            hits, dropped = len(task.change.replaced), file.rows - outcome.rows
            reason = reason if hits or task.change.drop_others else "types widen"
            entries.append(
                PlanEntry(file.path, "rewrite", reason, outcome.rows, file.size, hits, dropped, file.version)
            )
        else:
            reason = "rows are equal" if file.path in changed else reason
            hits = len(changed[file.path][0].change.replaced) if file.path in changed else 0
            entries.append(PlanEntry(file.path, "keep", reason, file.rows, file.size, hits, 0, file.version))
    entries.extend(PlanEntry(t.path, "insert", "new keys", len(t.rows), 0) for t in prepared.inserts)
    return MergePlan(
        strategy=prepared.request.strategy,
        path=place.path,
        source_count=prepared.source_rows,
        target_count_before=prepared.snapshot.rows,
        inserted=prepared.inserted,
        updated=prepared.updated,
        deleted=prepared.deleted,
        unchanged=sum(outcome.unchanged for outcome in outcomes),
        entries=tuple(entries),
        source_route=prepared.source_route,
        tasks=(*prepared.rewrites, *prepared.inserts),
    )
