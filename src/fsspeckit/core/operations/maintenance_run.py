"""Steps that compact, deduplicate and optimize share: snapshot, checks, rewrites, commits and the result.

A run commits a bounded number of groups at a time. Every commit leaves a complete dataset, so after an interrupted run
the next run does the remaining groups.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from fsspeckit.common.errors import CommitConflictError, DatasetNotFoundError, SchemaMismatchError
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.transaction import Changes, Publish
from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot, check_one_dataset, joint_schema, load_snapshot, schema_examples
from fsspeckit.core.dataset.source import Input
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.file_names import compact_token, compacted_name, new_token, rewritten_name
from fsspeckit.core.kernels.value_range_check import ValueRangeCheck
from fsspeckit.core.model import (
    CombineTask,
    DataFile,
    Outcome,
    RewriteTask,
    RowChange,
    RowNumbers,
    Task,
)
from fsspeckit.core.operations.attempts import Attempts
from fsspeckit.core.operations.row_balance import check_balance
from fsspeckit.core.parquet.row_facts import geometry_columns
from fsspeckit.core.parquet.stored_types import check_stored
from fsspeckit.core.parquet.writer_options import codec_name, report_codecs
from fsspeckit.core.planning.compact import target_tag
from fsspeckit.core.planning.maintenance_request import (
    Group,
    Limits,
    MaintenanceScope,
    Plan,
    apply_limits,
    commit_rounds,
)
from fsspeckit.core.planning.output_sizes import DEFAULT_TARGET, OutputSizes
from fsspeckit.core.planning.value_ranges import columns_to_check, proven_by_statistics, value_range_error
from fsspeckit.core.progress import Reporter
from fsspeckit.core.results import MaintenanceResult


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """A staged file and its path in the dataset; ``instead_of`` is the file that it replaces."""

    outcome: Outcome
    path: str
    instead_of: DataFile | None = None


@dataclass(slots=True)
class MaintenanceRun:
    """The state of one run: its snapshot, and what its commits have published and replaced.

    After a conflict, the rest is planned as another run; ``earlier`` is the one before it.
    """

    place: Place
    operation: str
    snapshot: Snapshot
    attempts: Attempts
    earlier: MaintenanceRun | None = None
    started: float = field(default_factory=time.perf_counter)
    published: list[tuple[str, int, int]] = field(default_factory=list)
    is_published: bool = True
    """Path, rows and size of each new file."""
    replaced: list[DataFile] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)
    groups: list[list[str]] = field(default_factory=list)
    """Paths of the groups that are done."""

    @classmethod
    def begin(
        cls, place: Place, operation: str, snapshot: Snapshot, attempts: Attempts, runs: list[MaintenanceRun]
    ) -> MaintenanceRun:
        """Begin a run, and append it to those of earlier attempts."""
        earlier = runs[-1] if runs else None
        runs.append(cls(place, operation, snapshot, attempts, earlier))
        return runs[-1]

    @property
    def all_runs(self) -> list[MaintenanceRun]:
        """Return the runs of all attempts, the first one first."""
        return [*(self.earlier.all_runs if self.earlier is not None else ()), self]

    def limit(self, plan: Plan, limits: Limits) -> Plan:
        """Return a plan with as many groups as the limits allow, after what earlier attempts have rewritten."""
        done = [file for run in self.all_runs for file in run.replaced]
        files = None if limits.max_files is None else limits.max_files - len(done)
        size = None if limits.max_bytes is None else limits.max_bytes - sum(file.size for file in done)
        if any(left is not None and left < 1 for left in (files, size)):
            return Plan((), dict(plan.skipped))
        return apply_limits(plan, replace(limits, max_files=files, max_bytes=size))

    def commit(
        self,
        stage: Callable[[str], Sequence[StagedOutput]],
        inputs: Sequence[DataFile],
        retired: Sequence[DataFile],
        info: dict[str, Any],
        *,
        exclusive: bool,
    ) -> None:
        """Call ``stage`` with a staging folder and publish the files that it returns, in place of the inputs.

        Args:
            stage: Writes staged files.
            inputs: Files that are read. None of them may have changed since the snapshot.
            retired: The inputs that the commit removes. The others are replaced by a staged file.
            info: Facts for the journal record.
            exclusive: Whether also every other file of the dataset must be unchanged.
        """
        handled = {file.path for file in (*self.replaced, *inputs)}
        others = [file for file in self.snapshot.files if file.path not in handled] if exclusive else []
        with vanished_file_is_conflict(self.place, self.operation):
            view = self._view([*inputs, *others], exclusive)
            transaction = self.attempts.begin(view, self.operation)
            staged = stage(transaction.staging)
            publish, replaced = self._publish(staged), [item.instead_of for item in staged if item.instead_of]
            removed = [*retired, *(() if self.place.keeps_names else replaced)]
            changes = Changes(
                publish,
                tuple(file.path for file in removed),
                tuple(file.path for file in others),
                info={"operation": self.operation} | info,
            )
            commit = transaction.commit(changes)
            self.attempts.end()
        self.commits.append(commit.seq)
        self.is_published = self.is_published and commit.published
        self.published += [(item.path, item.outcome.rows, item.outcome.size) for item in staged]
        self.replaced += [*retired, *replaced]

    def _publish(self, staged: Sequence[StagedOutput]) -> tuple[Publish, ...]:
        keeps = self.place.keeps_names
        return tuple(
            Publish(item.outcome.staged, item.path, item.outcome.rows, replaces=keeps and item.instead_of is not None)
            for item in staged
        )

    def _view(self, files: Sequence[DataFile], exclusive: bool) -> View:
        """Return the current listing. Raise if one of the files has changed since the snapshot."""
        if not self.commits:
            return self.snapshot.view
        view = self.place.journal.view()
        listed = {file.path: (file.size, file.stamp) for file in view.files}
        changed = [file.path for file in files if listed.get(file.path) != (file.size, file.stamp)]
        if changed or (exclusive and view.head != self.commits[-1]):
            raise CommitConflictError(
                f"{changed[0] if changed else 'the dataset'} changed during the {self.operation} of {self.place.path}. "
                "Earlier commits of this run are kept; run it again for the rest."
            )
        return view


def dropped_rows(groups: Iterable[Group], duplicates: Mapping[str, RowNumbers]) -> int:
    """Return how many rows of some groups are duplicates."""
    return sum(len(duplicates.get(file.path, ())) for group in groups for file in group.files)


@dataclass(frozen=True, slots=True, eq=False)
class RewriteWork:
    """Groups of files to join, files to rewrite without some rows, and the positions of these rows."""

    plan: Plan
    scope: MaintenanceScope
    duplicates: Mapping[str, RowNumbers]
    sizes: OutputSizes | None = None

    @property
    def removed(self) -> int:
        """Number of rows that are dropped."""
        return dropped_rows(self.plan.groups, self.duplicates)

    @property
    def files_after(self) -> int:
        """Number of files that the groups are written as."""
        return sum(group.work == "join" or not self._drops_all(group) for group in self.plan.groups)

    def _drops_all(self, group: Group) -> bool:
        return 0 < group.rows == dropped_rows([group], self.duplicates)

    def combine_task(self, group: Group, number: int, tokens: tuple[str, str]) -> CombineTask:
        """Return the task that joins a group. ``tokens`` name files of complete groups and of groups cut by a limit."""
        assert self.sizes is not None
        name = compacted_name(group.folder, tokens[0] if group.whole else tokens[1], number)
        drops = {file.path: self.duplicates[file.path] for file in group.files if file.path in self.duplicates}
        target, options = self.sizes.target, self.sizes.options_for(group.folder)
        schema = options.schema_after(joint_schema(group.files, group.folder, dict(options.renames)))
        noted = None if target == DEFAULT_TARGET else (target.bytes, target.rows)
        return CombineTask(name, group.files, schema, options, drops, noted)


def run_rewrites(
    engine: Engine, run: MaintenanceRun, work: RewriteWork, reporter: Reporter, *, dry_run: bool, **details: Any
) -> MaintenanceResult:
    """Join files and drop rows, a bounded number of groups in each commit. A dry run only returns the plan."""
    plan, scope = work.plan, work.scope
    if dry_run:
        rows = run.snapshot.rows - work.removed
        return planned_result(run, plan, scope, after_files=work.files_after, after_rows=rows, **details)
    if scope.options.compression is None:
        report_codecs(file for group in plan.groups for file in group.files)
    tag = "" if work.sizes is None else target_tag(work.sizes.target)
    tokens, done = (compact_token(tag), new_token()), 0
    on_done = reporter.stage("write", len(plan.groups), **work_size(plan.groups))
    for groups in commit_rounds(plan.groups, scope.limits):
        joins = [group for group in groups if group.work == "join"]
        tasks = [work.combine_task(group, done + i, tokens) for i, group in enumerate(joins)]
        drops = [group.files[0] for group in groups if group.work == "drop"]
        _commit_rewrites(engine, run, tasks, drops, work, on_done)
        run.groups += [[file.path for file in group.files] for group in groups]
        done += len(joins)
    return finished_result(run, plan, scope, **details)


def _commit_rewrites(
    engine: Engine,
    run: MaintenanceRun,
    joins: Sequence[CombineTask],
    files: Sequence[DataFile],
    work: RewriteWork,
    on_done: Callable[[int], None],
) -> None:
    """Commit joined files and files without their duplicates.

    When duplicates are dropped, no other file may change: the row that is kept may be in any of them.
    """
    place, duplicates, options = run.place, work.duplicates, work.scope.options
    emptied = [file for file in files if 0 < len(duplicates[file.path]) == file.rows]
    drops = [
        RewriteTask(
            file, RowChange(dropped=duplicates[file.path]), options.schema_after(file.schema), (), True, options
        )
        for file in files
        if file not in emptied
    ]

    def stage(staging: str) -> list[StagedOutput]:
        outcomes = run.attempts.staged.run(
            None, [*joins, *drops], lambda tasks: run_tasks(engine, place, tasks, staging, on_done)
        )
        joined = [StagedOutput(outcome, task.path) for task, outcome in zip(joins, outcomes, strict=False)]
        return joined + [
            StagedOutput(outcome, _new_path(place, task.file), task.file)
            for task, outcome in zip(drops, outcomes[len(joins) :], strict=True)
        ]

    joined_files = [file for task in joins for file in task.files]
    inputs = [*joined_files, *files]
    rows = {"rows": sum(len(duplicates.get(file.path, ())) for file in inputs)} if duplicates else {}
    run.commit(stage, inputs, joined_files + emptied, {"files": len(inputs)} | rows, exclusive=bool(duplicates))


def work_size(groups: Sequence[Group]) -> dict[str, int]:
    """Return the rows and bytes of some groups, as arguments of `Reporter.stage`."""
    return {"rows": sum(group.rows for group in groups), "size": sum(group.size for group in groups)}


def _new_path(place: Place, file: DataFile) -> str:
    return file.path if place.keeps_names else rewritten_name(file.path)


def load_for(
    place: Place,
    scope: MaintenanceScope,
    *,
    dry_run: bool,
    operation: str,
    stats_for: Sequence[str] = (),
    ignore_case: bool = False,
) -> Snapshot:
    """Return a snapshot of the files in scope. A real run first recovers from a crashed writer."""
    if not dry_run:
        place.journal.recover()
    view = place.journal.view_to_change(takes_filter=True)
    if view.is_missing:
        raise DatasetNotFoundError(f"no matching parquet files were found under {place.path}. Check the path.")
    selected = scope.select(view.files)
    if not selected and (view.files or scope.prefixes):
        raise DatasetNotFoundError(
            f"no matching parquet files were found under {place.path} in {list(scope.prefixes or ())}. "
            "Correct partition_filter."
        )
    try:
        with vanished_file_is_conflict(place, operation):
            snapshot = load_snapshot(
                place.storage,
                replace(view, files=selected),
                stats_for=stats_for,
                empty_may_differ=True,
                keep_footers=True,
                ignore_case=ignore_case,
            )
    except SchemaMismatchError as error:
        raise SchemaMismatchError(f"{operation} of {place.path}: {error}") from error
    check_one_dataset(snapshot)
    if snapshot.schema is not None:
        check_stored(snapshot.schema, f"{operation} of {place.path}")
    return replace(snapshot, view=view)


def check_same_geometry(snapshot: Snapshot, operation: str) -> None:
    """Raise if files to join have geometries in different coordinate systems: one file can name only one of them."""
    known: dict[str, tuple[str, Any]] = {}
    for file in schema_examples(snapshot.files):
        for name, facts in geometry_columns(file.schema.metadata).items():
            path, first = known.setdefault(name, (file.path, facts))
            if facts != first:
                raise SchemaMismatchError(
                    f"{operation} of {snapshot.root}: the metadata `geo` of {path} and {file.path} describes "
                    f"{name!r} differently, such as another coordinate system. Nothing was changed. Write the files "
                    "with one coordinate system and encoding first."
                )


def check_value_ranges(
    engine: Engine,
    place: Place,
    snapshot: Snapshot,
    operation: str,
    reporter: Reporter,
    columns: Sequence[str] | None = None,
) -> None:
    """Raise if a time in one of the columns does not fit the unit of the common schema. Default: all columns."""
    to_check = columns_to_check(snapshot, columns)
    if not to_check:
        return
    assert snapshot.schema is not None
    names = sorted({name for names in to_check.values() for name in names})
    view = replace(snapshot.view, files=tuple(file for file in snapshot.view.files if file.path in to_check))
    with vanished_file_is_conflict(place, operation):
        files = load_snapshot(place.storage, view, stats_for=names).files
        items = [
            (file, to_check[file.path])
            for file in files
            if not proven_by_statistics(file, to_check[file.path], snapshot.schema)
        ]
        on_done = reporter.stage("check", len(items))
        misfits = engine.map(ValueRangeCheck(place.storage, snapshot.schema), items, on_done) if items else []
    for (file, _), name in zip(items, misfits, strict=True):
        if name is not None:
            error = value_range_error(snapshot, file, name)
            raise SchemaMismatchError(f"{operation} of {place.path}: {error}")


def run_tasks(
    engine: Engine, place: Place, tasks: Sequence[Task], staging: str, on_done: Callable[[int], None]
) -> list[Outcome]:
    """Run tasks that need no source rows."""
    with engine.open_source(Input(pa.table({})), place.storage, place.scratch) as no_source:
        outcomes = engine.run(place.storage, no_source, tasks, staging, on_done)
    check_balance(tasks, outcomes, place.path)
    return outcomes


def planned_result(
    run: MaintenanceRun, plan: Plan, scope: MaintenanceScope, *, after_files: int, after_rows: int, **details: Any
) -> MaintenanceResult:
    """Return the result of a dry run; ``after_files`` is the number of files that the groups are written as."""
    touched, before = [file for group in plan.groups for file in group.files], run.snapshot.files
    totals = _Totals(len(before) - len(touched) + after_files, sum(file.size for file in before), after_rows)
    return _result(run, plan, scope, touched, totals, dry_run=True, details=details)


def finished_result(run: MaintenanceRun, plan: Plan, scope: MaintenanceScope, **details: Any) -> MaintenanceResult:
    """Return the result of a run, from what its commits published."""
    replaced = {file.path: file for file in run.replaced}
    kept = [file for file in run.snapshot.files if file.path not in replaced]
    totals = _Totals(
        len(kept) + len(run.published),
        sum(file.size for file in kept) + sum(size for _, _, size in run.published),
        sum(file.rows for file in kept) + sum(rows for _, rows, _ in run.published),
    )
    return _result(run, plan, scope, list(replaced.values()), totals, dry_run=False, details=details)


class _Totals(NamedTuple):
    """Files, bytes and rows of a dataset after a run."""

    files: int
    size: int
    rows: int


def _result(
    run: MaintenanceRun,
    plan: Plan,
    scope: MaintenanceScope,
    rewritten: Sequence[DataFile],
    after: _Totals,
    *,
    dry_run: bool,
    details: Mapping[str, Any],
) -> MaintenanceResult:
    first, full = run.all_runs[0], run.place.full
    earlier = [] if run.earlier is None else run.earlier.all_runs
    replaced = {file.path for file in rewritten}
    new = [path for each in earlier for path, _, _ in each.published if path not in replaced]
    touched = [*(file for each in earlier for file in each.replaced), *rewritten]
    if earlier and "deduplicated_rows" in details:
        details = {**details, "deduplicated_rows": details["deduplicated_rows"] + sum(map(_dropped, earlier))}
    snapshot = first.snapshot
    return MaintenanceResult(
        operation=run.operation,
        path=run.place.path,
        before_file_count=len(snapshot.files),
        after_file_count=after.files,
        before_total_bytes=sum(file.size for file in snapshot.files),
        after_total_bytes=after.size,
        before_row_count=snapshot.rows,
        after_row_count=after.rows,
        compacted_file_count=len(touched),
        rewritten_bytes=sum(file.size for file in touched),
        compression_codec=_codec(snapshot, scope),
        dry_run=dry_run,
        planned_groups=[
            [full(path) for path in paths] for paths in (*(g for each in earlier for g in each.groups), *plan.paths())
        ],
        skipped_files={full(path): reason for path, reason in sorted(plan.skipped.items())},
        new_files=[full(path) for path in (*new, *(path for path, _, _ in run.published))],
        commits=[seq for each in run.all_runs for seq in each.commits],
        seconds=time.perf_counter() - first.started,
        details=details,
        published=all(each.is_published for each in run.all_runs),
    )


def _dropped(run: MaintenanceRun) -> int:
    return sum(file.rows for file in run.replaced) - sum(rows for _, rows, _ in run.published)


def _codec(snapshot: Snapshot, scope: MaintenanceScope) -> str:
    """Return the requested codec, else that of the first file."""
    if scope.options.compression is not None:
        return scope.options.compression
    return next((codec_name(file.codec) for file in snapshot.files if file.codec), "none")
