"""Run a planned change of rows and commit it: merge, delete and update share this part.

A dry run compares rows and writes nothing. A pinned plan stops the run before the commit if anything differs from it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fsspeckit.core.commit.transaction import Changes, Commit, Publish
from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.file_names import rewritten_name
from fsspeckit.core.model import MoveTask, NewFileTask, Outcome, PlanEntry, RewriteTask, Task, WriteOptions
from fsspeckit.core.operations.row_balance import check_balance
from fsspeckit.core.parquet.writer_options import report_codecs
from fsspeckit.core.planning.merge_request import compute_merge_stats
from fsspeckit.core.planning.pinned_plan import check_against_plan, check_outcomes, check_rows, digest_of
from fsspeckit.core.progress import Reporter
from fsspeckit.core.results import MergeFileMetadata, MergePlan, MergeResult, RowOperation


@dataclass(frozen=True, slots=True, eq=False)
class PreparedChange:
    """A planned change: the tasks to run, the files to delete, the counts, and the reason for each file.

    Attributes:
        operation: The operation as commit records name it.
        strategy: The strategy of a merge, or the operation again.
        inserts: Tasks that write new files, of source rows or of rows that move.
        unchanged: Updated rows that keep their values, which no task reads.
    """

    operation: RowOperation
    strategy: str
    options: WriteOptions
    snapshot: Snapshot
    reasons: Mapping[str, str]
    rewrites: tuple[RewriteTask, ...] = ()
    inserts: tuple[NewFileTask, ...] = ()
    deletes: tuple[str, ...] = ()
    source_rows: int = 0
    source_route: str = "none"
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    stale: int = 0
    moved: int = 0
    unchanged: int = 0

    @property
    def tasks(self) -> tuple[RewriteTask | NewFileTask, ...]:
        """All tasks, rewrites first."""
        return (*self.rewrites, *self.inserts)

    @property
    def label(self) -> str:
        """The operation with its strategy, as staging folders name it."""
        return self.operation if self.operation == self.strategy else f"{self.operation}:{self.strategy}"

    @property
    def counts(self) -> dict[str, int]:
        """The counts that must equal those of a pinned plan."""
        return {
            "source_count": self.source_rows,
            "inserted": self.inserted,
            "updated": self.updated,
            "deleted": self.deleted,
            "stale": self.stale,
            "moved": self.moved,
        }


def run_change(
    engine: Engine,
    place: Place,
    source: Source,
    prepared: PreparedChange,
    reporter: Reporter,
    *,
    started: float,
    dry_run: bool,
    pinned: MergePlan | None,
) -> MergeResult | MergePlan:
    """Run a planned change and commit it. A dry run only returns the plan."""
    if dry_run:
        moves = [task for task in prepared.inserts if isinstance(task, MoveTask)]
        outcomes = _run(engine, place, source, prepared, [*prepared.rewrites, *moves], None, reporter)
        return _as_plan(place, prepared, outcomes)
    if pinned is not None:
        counts = {**prepared.counts, "target_count_before": prepared.snapshot.rows}
        inserts = check_against_plan(pinned, place.path, prepared.snapshot, counts, prepared.inserts)
        check_rows(pinned, place.path, prepared.strategy, digest_of(prepared.tasks, prepared.deletes))
        prepared = replace(prepared, inserts=inserts)
    if not prepared.tasks and not prepared.deletes and not place.journal.terms:
        return _as_result(place, prepared, [], (), None, time.perf_counter() - started)
    if prepared.options.compression is None:
        report_codecs(task.file for task in prepared.rewrites)
    with place.journal.begin(prepared.snapshot.view, prepared.label) as transaction:
        outcomes = _run(engine, place, source, prepared, prepared.tasks, transaction.staging, reporter)
        if pinned is not None:
            check_outcomes(pinned, place.path, prepared.rewrites, outcomes, prepared.deletes, prepared.unchanged)
        changes = _changes(place, prepared, outcomes)
        has_changes = changes.publish or changes.retire or place.journal.terms
        commit = transaction.commit(changes) if has_changes else None
    return _as_result(place, prepared, outcomes, changes.publish, commit, time.perf_counter() - started)


def _run(
    engine: Engine,
    place: Place,
    source: Source,
    prepared: PreparedChange,
    tasks: Sequence[Task],
    staging: str | None,
    reporter: Reporter,
) -> list[Outcome]:
    rows, size = sum(task.rows_in for task in tasks), sum(task.weight for task in tasks)
    on_done = reporter.stage("write" if staging else "compare", len(tasks), rows=rows, size=size)
    with vanished_file_is_conflict(place, prepared.operation):
        outcomes = engine.run(place.storage, source, tasks, staging, on_done)
    check_balance(tasks, outcomes, place.path)
    return outcomes


def _changes(place: Place, prepared: PreparedChange, outcomes: Sequence[Outcome]) -> Changes:
    publish, retire = publications(place, prepared.tasks, outcomes)
    info = {
        "operation": prepared.operation,
        "strategy": prepared.strategy,
        "inserted": prepared.inserted,
        "updated": prepared.updated,
        "deleted": prepared.deleted,
    }
    inputs = tuple(file.path for file in prepared.snapshot.files)
    return Changes(publish, (*prepared.deletes, *retire), inputs, complete_view=True, info=info)


def publications(
    place: Place, tasks: Sequence[RewriteTask | NewFileTask], outcomes: Sequence[Outcome]
) -> tuple[tuple[Publish, ...], tuple[str, ...]]:
    """Return the files to publish, and the files to delete because a new file with another name replaces them."""
    publish, retire = [], []
    for task, outcome in zip(tasks, outcomes, strict=True):
        if not outcome.changed:
            continue
        if not isinstance(task, RewriteTask):
            publish.append(Publish(outcome.staged, task.path, outcome.rows))
        elif place.storage.in_place:
            publish.append(Publish(outcome.staged, task.file.path, outcome.rows, replaces=True))
        else:
            publish.append(Publish(outcome.staged, rewritten_name(task.file.path), outcome.rows))
            retire.append(task.file.path)
    return tuple(publish), tuple(retire)


def _as_result(
    place: Place,
    prepared: PreparedChange,
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
        strategy=prepared.strategy,
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
        unchanged=prepared.unchanged + sum(outcome.unchanged for outcome in rewrites),
        commit_seq=commit.seq if commit else None,
        seconds=seconds,
        commit_seconds=commit.seconds if commit else 0.0,
        stale=prepared.stale,
        moved=prepared.moved,
        operation=prepared.operation,
    )


def _as_plan(place: Place, prepared: PreparedChange, outcomes: Sequence[Outcome]) -> MergePlan:
    compared = outcomes[: len(prepared.rewrites)]
    changed = {task.file.path: (task, o) for task, o in zip(prepared.rewrites, compared, strict=True)}
    deleted = set(prepared.deletes)
    entries = []
    for file in prepared.snapshot.files:
        reason = prepared.reasons[file.path]
        if file.path in deleted:
            entries.append(PlanEntry(file.path, "delete", reason, file.rows, file.size, 0, file.rows, file.version))
        elif file.path in changed and changed[file.path][1].changed:
            task, outcome = changed[file.path]
            hits, dropped = len(task.change.replaced), file.rows - outcome.rows
            reason = reason if hits or dropped else "types widen"
            entries.append(
                PlanEntry(file.path, "rewrite", reason, outcome.rows, file.size, hits, dropped, file.version)
            )
        else:
            reason = "rows are equal" if file.path in changed else reason
            hits = len(changed[file.path][0].change.replaced) if file.path in changed else 0
            entries.append(PlanEntry(file.path, "keep", reason, file.rows, file.size, hits, 0, file.version))
    entries.extend(PlanEntry(t.path, "insert", _reason(t), t.rows_out, 0) for t in prepared.inserts)
    return MergePlan(
        strategy=prepared.strategy,
        path=place.path,
        source_count=prepared.source_rows,
        target_count_before=prepared.snapshot.rows,
        inserted=prepared.inserted,
        updated=prepared.updated,
        deleted=prepared.deleted,
        unchanged=prepared.unchanged + sum(outcome.unchanged for outcome in outcomes),
        entries=tuple(entries),
        source_route=prepared.source_route,
        operation=prepared.operation,
        tasks=(*prepared.rewrites, *prepared.inserts),
        stale=prepared.stale,
        moved=prepared.moved,
        digest=digest_of(prepared.tasks, prepared.deletes),
    )


def _reason(task: NewFileTask) -> str:
    return "rows of other partitions" if isinstance(task, MoveTask) else "new keys"
