"""Run a planned change of rows and commit it: merge, delete and update share this part.

A dry run compares rows and writes nothing. A pinned plan stops the run before the commit if anything differs from it.
If other writers commit meanwhile, their new files are searched for rows that the change depends on. Without such rows
the change is committed, otherwise it is planned again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import pyarrow as pa

from fsspeckit.common.errors import CommitConflictError, FsspeckitError
from fsspeckit.common.stored_types import with_marks_of
from fsspeckit.core.commit.file_list import paths_of, sizes_of
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.partition_types import PartitionTypes
from fsspeckit.core.commit.transaction import Changes, Commit, Publish
from fsspeckit.core.dataset.categories import columns_left
from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot, check_one_dataset, full_schema, newer_snapshot
from fsspeckit.core.dataset.source import Input, Source
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.file_names import rewritten_name
from fsspeckit.core.model import CombineTask, MoveTask, NewFileTask, Outcome, PlanEntry, RewriteTask, Task, WriteOptions
from fsspeckit.core.operations.attempts import Attempts
from fsspeckit.core.operations.row_balance import check_balance
from fsspeckit.core.operations.run_tasks import run_tasks
from fsspeckit.core.parquet.stored_types import check_stored
from fsspeckit.core.parquet.writer_options import report_codecs
from fsspeckit.core.planning.exchange.routed_rows import ExchangedRows
from fsspeckit.core.planning.merge_request import compute_merge_stats
from fsspeckit.core.planning.pinned_plan import (
    check_against_plan,
    check_outcomes,
    check_rows,
    check_schema_changes,
    digest_of,
)
from fsspeckit.core.planning.pruned_files import PlanEntries, PrunedFiles
from fsspeckit.core.planning.tombstones import Tombstones
from fsspeckit.core.progress import Reporter
from fsspeckit.core.results import MergeFileMetadata, MergePlan, MergeResult, RowOperation, SchemaChange


@dataclass(frozen=True, slots=True, eq=False)
class PreparedChange:
    """A planned change: the tasks to run, the files to delete, the counts, and the reason for each file.

    Attributes:
        operation: The operation as commit records name it.
        strategy: The strategy of a merge, or the operation again.
        read: Paths of the files with rows on which the change depends. No row of other files has an effect on it.
        inserts: Tasks that write new files, of source rows or of rows that move.
        unchanged: Updated rows that keep their values, which no task reads.
        exchanged: The routes of source rows to tasks, if the source is exchanged.
        pruned: Files that do not change and are not in ``snapshot.files``.
        pruned_reasons: The reasons for these files, by the paths of their examples.
        tombstones: The deleted keys of a change feed.
        partition_types: The types of the partition columns after the change, if it has a source.
        schema_changes: The columns that are added or become wider.
    """

    operation: RowOperation
    strategy: str
    options: WriteOptions
    snapshot: Snapshot
    reasons: Mapping[str, str]
    read: frozenset[str] = frozenset()
    rewrites: tuple[RewriteTask, ...] = ()
    inserts: tuple[NewFileTask, ...] = ()
    deletes: tuple[str, ...] = ()
    source_rows: int = 0
    source_route: str = "none"
    share_limit: int | None = None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    stale: int = 0
    moved: int = 0
    unchanged: int = 0
    exchanged: ExchangedRows | None = None
    pruned: PrunedFiles | None = None
    pruned_reasons: Mapping[str, str] = field(default_factory=dict)
    tombstones: Tombstones | None = None
    partition_types: PartitionTypes | None = None
    schema_changes: Sequence[SchemaChange] = ()

    @property
    def rows_before(self) -> int:
        """Rows of the dataset before the change."""
        return self.snapshot.rows + (0 if self.pruned is None else self.pruned.rows)

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


@dataclass(frozen=True, slots=True, eq=False)
class PlannedChange:
    """A change, its source rows, and a function that finds out whether it depends on rows of other files.

    ``whole`` is the snapshot with all files, also those that need not be looked at.
    """

    prepared: PreparedChange
    source: Source
    whole: Snapshot
    depends_on: Callable[[Snapshot], bool]


@dataclass(slots=True, eq=False)
class Revalidation:
    """Checks whether a change that was planned on a snapshot is right for a newer view of the dataset.

    It is if the columns of the dataset are the same, and no row of a new file has an effect on the change. Rows of
    files that are gone had none: the commit compares the files that have one. ``snapshot`` is the newest one for which
    the change is right.
    """

    place: Place
    snapshot: Snapshot
    stats_for: Sequence[str]
    depends_on: Callable[[Snapshot], bool]

    def __call__(self, view: View, new: frozenset[str]) -> None:
        """Raise if the change must be planned again."""
        try:
            newer, added = newer_snapshot(self.place.storage, self.snapshot, view, new, self.stats_for)
            check_one_dataset(newer)
            is_valid = _same_columns(self.snapshot, newer) and not (added.files and self.depends_on(added))
        except CommitConflictError:
            raise
        except (FsspeckitError, ValueError) as error:
            if isinstance(error, OSError):
                raise
            raise self._conflict() from error  # the next plan finds the cause in the whole dataset
        if not is_valid:
            raise self._conflict()
        self.snapshot = newer

    def _conflict(self) -> CommitConflictError:
        return CommitConflictError(
            f"{self.place.path}: another writer committed rows or columns on which this change depends. "
            "Nothing was changed. Run the operation again."
        )


def _same_columns(one: Snapshot, other: Snapshot) -> bool:
    """Return whether two snapshots have the same columns. The type of a partition column depends on all folders."""
    if one.schema is None or other.schema is None or one.partition_columns != other.partition_columns:
        return False
    return bool(full_schema(one).equals(full_schema(other)))


def run_change(
    engine: Engine,
    place: Place,
    plan: Callable[[], PlannedChange],
    reporter: Reporter,
    *,
    stats_for: Sequence[str],
    started: float,
    dry_run: bool,
    pinned: MergePlan | None,
    retries: int,
) -> MergeResult | MergePlan:
    """Plan a change, run and commit it. A dry run only returns the plan. A pinned plan is not planned again.

    Args:
        engine: Runs the tasks.
        place: The dataset.
        plan: Plans the change from the dataset as it is now.
        reporter: Reports progress.
        stats_for: Columns whose statistics the plan needs.
        started: The time of the call, by the performance counter.
        dry_run: Whether to return the plan.
        pinned: A plan from which the change must not differ.
        retries: How often the change is planned again after a conflict.
    """
    work = _ChangeRun(engine, place, reporter, stats_for, pinned)
    with Attempts(place, 0 if pinned is not None else retries) as attempts:
        if dry_run:
            return attempts.run(lambda: work.compare(_storable(plan())))
        return attempts.run(lambda: work.commit(_storable(plan()), attempts, started))


def _storable(planned: PlannedChange) -> PlannedChange:
    """Return a planned change. Raise if a file cannot keep the logical type of a column."""
    prepared = planned.prepared
    pairs = {(id(task.schema), id(task.file.schema)): task for task in prepared.rewrites}
    schemas = [with_marks_of(task.schema, task.file.schema) for task in pairs.values()]
    for schema in (*schemas, *{id(task.schema): task.schema for task in prepared.inserts}.values()):
        check_stored(schema, prepared.operation)
    return planned


@dataclass(frozen=True, slots=True, eq=False)
class _ChangeRun:
    """Runs the tasks of planned changes."""

    engine: Engine
    place: Place
    reporter: Reporter
    stats_for: Sequence[str]
    pinned: MergePlan | None

    def compare(self, planned: PlannedChange) -> MergePlan:
        """Compare rows, write nothing, and return the plan."""
        prepared = planned.prepared
        moves = [task for task in prepared.inserts if isinstance(task, MoveTask)]
        return _as_plan(self.place, prepared, self._run(planned, [*prepared.rewrites, *moves], None))

    def commit(self, planned: PlannedChange, attempts: Attempts, started: float) -> MergeResult:
        """Stage the new files and commit them."""
        place, pinned, prepared = self.place, self.pinned, planned.prepared
        if pinned is not None:
            prepared = _as_pinned(pinned, place, prepared)
        tombstones = prepared.tombstones
        is_forced = place.journal.terms or (tombstones is not None and tombstones.is_changed)
        if not prepared.tasks and not prepared.deletes and not is_forced:
            return _as_result(place, prepared, [], (), None, time.perf_counter() - started)
        if prepared.options.compression is None:
            report_codecs(task.file for task in prepared.rewrites)
        transaction = attempts.begin(prepared.snapshot.view, prepared.label)
        rows = planned.source if prepared.exchanged is None else prepared.exchanged
        tasks = (*prepared.tasks, *(() if tombstones is None else tombstones.new))
        outcomes = attempts.staged.run(rows, tasks, lambda some: self._run(planned, some, transaction.staging))
        outcomes, deleted = outcomes[: len(prepared.tasks)], outcomes[len(prepared.tasks) :]
        changes, revalidation = _changes(place, prepared, planned.whole, outcomes), None
        if tombstones is not None:
            changes = self._with_tombstones(changes, tombstones, deleted, planned.whole, transaction.staging)
        if pinned is not None:
            check_outcomes(pinned, place.path, prepared.rewrites, outcomes, prepared.deletes, prepared.unchanged)
            changes = replace(changes, inputs=tuple(paths_of(prepared.snapshot.view.files).to_pylist()))
        else:
            revalidation = Revalidation(place, planned.whole, self.stats_for, planned.depends_on)
        has_changes = changes.publish or changes.retire or is_forced
        commit = transaction.commit(changes, revalidation) if has_changes else None
        if revalidation is not None and revalidation.snapshot is not planned.whole:
            prepared = replace(prepared, snapshot=revalidation.snapshot, pruned=None)
        return _as_result(place, prepared, outcomes, changes.publish, commit, time.perf_counter() - started)

    def _with_tombstones(
        self, changes: Changes, tombstones: Tombstones, outcomes: Sequence[Outcome], whole: Snapshot, staging: str
    ) -> Changes:
        """Return the changes with those of tombstones. A feed that only deletes creates a dataset without rows."""
        place = self.place

        def join(tasks: Sequence[CombineTask]) -> list[Outcome]:
            with (
                vanished_file_is_conflict(place, changes.info["operation"]),
                self.engine.open_source(Input(pa.table({})), place.storage, place.scratch) as no_source,
            ):
                return self.engine.run(place.storage, no_source, tasks, staging, lambda _: None)

        is_new = bool(outcomes) and not changes.publish and whole.view.is_missing
        return replace(
            changes,
            tombstones=tombstones.after(outcomes, int(time.time()), join),
            tombstones_at=tombstones.slot,
            emptied=(lambda: tombstones.emptied) if is_new else changes.emptied,
            is_empty_write=is_new,
        )

    def _run(self, planned: PlannedChange, tasks: Sequence[Task], staging: str | None) -> list[Outcome]:
        rows, size = sum(task.rows_in for task in tasks), sum(task.weight for task in tasks)
        on_done = self.reporter.stage("write" if staging else "compare", len(tasks), rows=rows, size=size)
        with vanished_file_is_conflict(self.place, planned.prepared.operation):
            exchanged, storage = planned.prepared.exchanged, self.place.storage
            outcomes = run_tasks(self.engine, storage, planned.source, exchanged, tasks, staging, on_done)
        check_balance(tasks, outcomes, self.place.path)
        return outcomes


def _as_pinned(pinned: MergePlan, place: Place, prepared: PreparedChange) -> PreparedChange:
    """Return the change with the file names of a plan. Raise if it differs from the plan."""
    counts = {**prepared.counts, "target_count_before": prepared.rows_before}
    check_schema_changes(pinned, place.path, prepared.schema_changes)
    inserts = check_against_plan(pinned, place.path, prepared.snapshot, counts, prepared.inserts)
    check_rows(pinned, place.path, prepared.strategy, digest_of(prepared.tasks, prepared.deletes))
    return replace(prepared, inserts=inserts)


def _changes(place: Place, prepared: PreparedChange, whole: Snapshot, outcomes: Sequence[Outcome]) -> Changes:
    publish, retire = publications(place, prepared.tasks, outcomes)
    info = {
        "operation": prepared.operation,
        "strategy": prepared.strategy,
        "inserted": prepared.inserted,
        "updated": prepared.updated,
        "deleted": prepared.deleted,
    }
    inputs = {*prepared.read, *(task.file.path for task in prepared.rewrites)}
    return Changes(
        publish,
        (*prepared.deletes, *retire),
        tuple(sorted(inputs)),
        complete_view=True,
        info=info,
        emptied=lambda: columns_left(place.storage, whole),
        partition_types=prepared.partition_types,
    )


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
        elif place.keeps_names:
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
    if prepared.pruned is not None:
        kept = sorted([*kept, *_pruned_files(place, prepared.pruned)], key=attrgetter("path"))
    before = prepared.rows_before
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
        published=commit is None or commit.published,
        partition_types=[] if commit is None else list(commit.partition_types),
        schema_changes=list(prepared.schema_changes),
    )


def _pruned_files(place: Place, pruned: PrunedFiles) -> list[MergeFileMetadata]:
    sizes, rows = (each[pruned.numbers].tolist() for each in (sizes_of(pruned.files.listed), pruned.files.row_counts))
    return [
        MergeFileMetadata(place.full(path), count, "preserved", size)
        for path, count, size in zip(pruned.paths(), rows, sizes, strict=True)
    ]


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
            hits, dropped = task.change.hits, file.rows - outcome.rows
            reason = reason if hits or dropped else "schema changes"
            entries.append(
                PlanEntry(file.path, "rewrite", reason, outcome.rows, file.size, hits, dropped, file.version)
            )
        else:
            reason = "rows are equal" if file.path in changed else reason
            hits = changed[file.path][0].change.hits if file.path in changed else 0
            entries.append(PlanEntry(file.path, "keep", reason, file.rows, file.size, hits, 0, file.version))
    new = [PlanEntry(t.path, "insert", _reason(t), t.rows_out, 0) for t in prepared.inserts]
    lines: Sequence[PlanEntry] = (*entries, *new)
    if prepared.pruned is not None:
        lines = PlanEntries(prepared.pruned, entries, prepared.pruned.reasons(prepared.pruned_reasons), new)
    return MergePlan(
        strategy=prepared.strategy,
        path=place.path,
        source_count=prepared.source_rows,
        target_count_before=prepared.rows_before,
        inserted=prepared.inserted,
        updated=prepared.updated,
        deleted=prepared.deleted,
        unchanged=prepared.unchanged + sum(outcome.unchanged for outcome in outcomes),
        entries=lines,
        source_route=prepared.source_route,
        share_limit=prepared.share_limit,
        settings=place.settings,
        operation=prepared.operation,
        tasks=(*prepared.rewrites, *prepared.inserts),
        stale=prepared.stale,
        moved=prepared.moved,
        digest=digest_of(prepared.tasks, prepared.deletes),
        schema_changes=list(prepared.schema_changes),
    )


def _reason(task: NewFileTask) -> str:
    return "rows of other partitions" if isinstance(task, MoveTask) else "new keys"
