"""The straight lines of maintenance: compact, optimize and deduplicate, from the caller's words to a published result.

Look, plan, and then, a bounded number of groups at a time, run and commit. Each commit leaves a whole dataset, so a
run that is cut off has done part of the work and the next run does the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from fsspeckit.common.errors import CommitConflictError, DatasetNotFoundError, SchemaMismatchError
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.transaction import Changes, Publish
from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot, check_one_dataset, joint_schema, load_snapshot
from fsspeckit.core.dataset.source import Input
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.file_names import compact_token, compacted_name, new_token, rewritten_name
from fsspeckit.core.kernels.trial_write import TrialWrite
from fsspeckit.core.kernels.value_range_check import ValueRangeCheck
from fsspeckit.core.model import (
    CombineTask,
    DataFile,
    Outcome,
    RewriteTask,
    RowChange,
    RowNumbers,
    Task,
    WriteOptions,
)
from fsspeckit.core.operations.row_balance import check_balance
from fsspeckit.core.parquet.writer_options import codec_name, report_codecs
from fsspeckit.core.planning.compact import target_tag
from fsspeckit.core.planning.maintenance_request import Group, MaintenanceScope, Plan, commit_rounds
from fsspeckit.core.planning.output_sizes import OutputSizes, Target
from fsspeckit.core.planning.value_ranges import columns_to_check, proven_by_statistics, value_range_error
from fsspeckit.core.progress import Reporter
from fsspeckit.core.results import MaintenanceResult


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """A staged file and where it goes; ``instead_of`` is the file that it is a version of."""

    outcome: Outcome
    path: str
    instead_of: DataFile | None = None


@dataclass(slots=True)
class MaintenanceRun:
    """What the commits of one run have done so far, and how every file must still look."""

    place: Place
    operation: str
    snapshot: Snapshot
    started: float = field(default_factory=time.perf_counter)
    made: list[tuple[str, int, int]] = field(default_factory=list)
    gone: list[DataFile] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)

    def commit(
        self,
        produce: Callable[[str], Sequence[StagedOutput]],
        retired: Sequence[DataFile],
        needed: Sequence[DataFile],
        info: dict[str, Any],
        *,
        alone: bool = False,
    ) -> None:
        """Let files be staged and publish them; ``needed`` are files that must not have changed meanwhile.

        With ``alone``, no other writer may have committed anything between two commits of this run.
        """
        with vanished_file_is_conflict(self.place, self.operation):
            view = self._view([*retired, *needed], alone)
            with self.place.journal.begin(view, self.operation) as transaction:
                made = produce(transaction.staging)
                publish, gone = self._publish(made), list(retired)
                if not self.place.storage.in_place:
                    gone += [item.instead_of for item in made if item.instead_of is not None]
                changes = Changes(
                    publish,
                    tuple(file.path for file in gone),
                    tuple(file.path for file in needed),
                    info={"operation": self.operation} | info,
                )
                commit = transaction.commit(changes)
        self.commits.append(commit.seq)
        self.made += [(item.path, item.rows, made[i].outcome.size) for i, item in enumerate(publish)]
        self.gone += [*retired, *(item.instead_of for item in made if item.instead_of is not None)]

    def _publish(self, made: Sequence[StagedOutput]) -> tuple[Publish, ...]:
        in_place = self.place.storage.in_place
        return tuple(
            Publish(
                item.outcome.staged, item.path, item.outcome.rows, replaces=in_place and item.instead_of is not None
            )
            for item in made
        )

    def _view(self, files: Sequence[DataFile], alone: bool) -> View:
        """The dataset as it stands, in which the files must be as they were planned with."""
        if not self.commits:
            return self.snapshot.view
        view = self.place.journal.view()
        listed = {file.path: (file.size, file.stamp) for file in view.files}
        changed = [file.path for file in files if listed.get(file.path) != (file.size, file.stamp)]
        if changed or (alone and view.head != self.commits[-1]):
            raise CommitConflictError(
                f"{changed[0] if changed else 'the dataset'} changed during the {self.operation} of {self.place.path}; "
                "what was committed until then stands, run it again for the rest"
            )
        return view


@dataclass(frozen=True, slots=True, eq=False)
class RewriteWork:
    """Groups of files to join and files that lose rows, and which rows go."""

    plan: Plan
    scope: MaintenanceScope
    duplicates: Mapping[str, RowNumbers]
    sizes: OutputSizes | None = None

    @property
    def removed(self) -> int:
        """Rows that go."""
        return sum(len(self.duplicates.get(file.path, ())) for group in self.plan.groups for file in group.files)

    @property
    def files_after(self) -> int:
        """Files that all groups become."""
        return sum(group.work == "join" or not self.is_emptied(group) for group in self.plan.groups)

    def is_emptied(self, group: Group) -> bool:
        """Whether all rows of a group go."""
        return group.rows > 0 and group.rows == sum(len(self.duplicates.get(file.path, ())) for file in group.files)

    def combine_task(self, group: Group, number: int, tokens: tuple[str, str]) -> CombineTask:
        """Several files into one; the name of a whole group tells what size was wanted."""
        assert self.sizes is not None
        name = compacted_name(group.folder, tokens[0] if group.whole else tokens[1], number)
        drops = {file.path: self.duplicates[file.path] for file in group.files if file.path in self.duplicates}
        schema = joint_schema(group.files, group.folder)
        return CombineTask(name, group.files, schema, self.sizes.written_with(group.folder), drops)


def run_rewrites(
    engine: Engine, run: MaintenanceRun, work: RewriteWork, reporter: Reporter, *, dry_run: bool, **facts: Any
) -> MaintenanceResult:
    """Join files and drop rows, some groups in each commit; a dry run tells what would be."""
    plan, scope = work.plan, work.scope
    if dry_run:
        rows = run.snapshot.rows - work.removed
        return planned_result(run, plan, scope, after_files=work.files_after, after_rows=rows, **facts)
    if scope.options.compression is None:
        report_codecs(file for group in plan.groups for file in group.files)
    wish = "" if work.sizes is None else target_tag(work.sizes.target)
    tokens, done = (compact_token(wish), new_token()), 0
    on_done = reporter.stage("write", len(plan.groups), **work_size(plan.groups))
    for groups in commit_rounds(plan.groups, scope.limits):
        joins = [group for group in groups if group.work == "join"]
        tasks = [work.combine_task(group, done + i, tokens) for i, group in enumerate(joins)]
        drops = [group.files[0] for group in groups if group.work == "drop"]
        _commit_rewrites(engine, run, tasks, drops, work, on_done)
        done += len(joins)
    return finished_result(run, plan, scope, **facts)


def _commit_rewrites(
    engine: Engine,
    run: MaintenanceRun,
    joins: Sequence[CombineTask],
    files: Sequence[DataFile],
    work: RewriteWork,
    on_done: Callable[[int], None],
) -> None:
    """Commit joined files, and files without the rows that go; then every other file must still hold what stays."""
    place, duplicates = run.place, work.duplicates
    emptied = [file for file in files if len(duplicates[file.path]) == file.rows]
    drops = [_without(file, duplicates[file.path], work.scope.options) for file in files if file not in emptied]

    def produce(staging: str) -> list[StagedOutput]:
        outcomes = run_tasks(engine, place, [*joins, *drops], staging, on_done)
        joined = [StagedOutput(outcome, task.path) for task, outcome in zip(joins, outcomes, strict=False)]
        return joined + [
            StagedOutput(outcome, _new_path(place, task.file), task.file)
            for task, outcome in zip(drops, outcomes[len(joins) :], strict=True)
        ]

    joined_files = [file for task in joins for file in task.files]
    inputs = [*joined_files, *files]
    touched = {file.path for file in (*run.gone, *inputs)}
    needed = [file for file in run.snapshot.files if file.path not in touched] if duplicates else []
    rows = {"rows": sum(len(duplicates.get(file.path, ())) for file in inputs)} if duplicates else {}
    run.commit(produce, joined_files + emptied, needed, {"files": len(inputs)} | rows, alone=bool(duplicates))


def _without(file: DataFile, rows: RowNumbers, options: WriteOptions) -> RewriteTask:
    return RewriteTask(file, RowChange(dropped=rows), file.schema, (), True, options)


def work_size(groups: Sequence[Group]) -> dict[str, int]:
    """How much work some groups are."""
    return {"rows": sum(group.rows for group in groups), "size": sum(group.size for group in groups)}


def _new_path(place: Place, file: DataFile) -> str:
    return file.path if place.storage.in_place else rewritten_name(file.path)


def load_for(
    place: Place, scope: MaintenanceScope, *, dry_run: bool, operation: str, stats_for: Sequence[str] = ()
) -> Snapshot:
    """The files that an operation is about, with their footers; only a real run finishes what a dead one left."""
    if not dry_run:
        place.journal.recover()
    view = place.journal.view_to_change(takes_filter=True)
    if not view.files:
        raise DatasetNotFoundError(f"no matching parquet files were found under {place.path}; check the path")
    wanted = tuple(file for file in view.files if scope.holds(file.path))
    if not wanted:
        raise DatasetNotFoundError(
            f"no matching parquet files were found under {place.path} in {list(scope.folders or ())}; "
            "correct partition_filter"
        )
    try:
        with vanished_file_is_conflict(place, operation):
            chosen = replace(view, files=wanted)
            snapshot = load_snapshot(
                place.storage, chosen, stats_for=stats_for, empty_may_differ=True, keep_footers=True
            )
    except SchemaMismatchError as error:
        raise SchemaMismatchError(f"{operation} of {place.path}: {error}") from error
    check_one_dataset(snapshot)
    return replace(snapshot, view=view)


def check_value_ranges(
    engine: Engine,
    place: Place,
    snapshot: Snapshot,
    operation: str,
    reporter: Reporter,
    columns: Sequence[str] | None = None,
) -> None:
    """Raise where a time in a file, of all columns or of some, has no place in the unit that all files get."""
    found = columns_to_check(snapshot, columns)
    if not found:
        return
    assert snapshot.schema is not None
    names = sorted({name for names in found.values() for name in names})
    view = replace(snapshot.view, files=tuple(file for file in snapshot.view.files if file.path in found))
    with vanished_file_is_conflict(place, operation):
        files = load_snapshot(place.storage, view, stats_for=names).files
        items = [
            (file, found[file.path])
            for file in files
            if not proven_by_statistics(file, found[file.path], snapshot.schema)
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
    """Run tasks that bring no rows from outside."""
    with engine.open_source(Input(pa.table({})), place.storage, place.scratch) as nothing:
        outcomes = engine.run(place.storage, nothing, tasks, staging, on_done)
    check_balance(tasks, outcomes, place.path)
    return outcomes


def sizes_of_small_files(
    engine: Engine, place: Place, snapshot: Snapshot, target: Target, scope: MaintenanceScope, reporter: Reporter
) -> OutputSizes:
    """What small files weigh once they are joined."""
    sizes = OutputSizes.of(snapshot.files, target, scope.options)
    small = [file for file in snapshot.files if target.fill(file.size, file.rows) < 1]
    return measure_sizes(engine, place, sizes, small, reporter)


def measure_sizes(
    engine: Engine, place: Place, sizes: OutputSizes, files: Sequence[DataFile], reporter: Reporter
) -> OutputSizes:
    """The weights of some files, where a few of them must be looked at first."""
    trials = sizes.trials(files)
    if not trials:
        return sizes
    on_done = reporter.stage("measure", len(trials))
    with vanished_file_is_conflict(place, "run"):
        return sizes.learned(trials, engine.map(TrialWrite(place.storage), trials, on_done))


def planned_result(
    run: MaintenanceRun, plan: Plan, scope: MaintenanceScope, *, after_files: int, after_rows: int, **details: Any
) -> MaintenanceResult:
    """The result of a dry run; ``after_files`` is how many files all groups become."""
    touched, before = [file for group in plan.groups for file in group.files], run.snapshot.files
    totals = _Totals(len(before) - len(touched) + after_files, sum(file.size for file in before), after_rows)
    return _result(run, plan, scope, touched, totals, dry_run=True, details=details)


def finished_result(run: MaintenanceRun, plan: Plan, scope: MaintenanceScope, **details: Any) -> MaintenanceResult:
    """The result of a run, from what its commits did."""
    gone = {file.path: file for file in run.gone}
    kept = [file for file in run.snapshot.files if file.path not in gone]
    totals = _Totals(
        len(kept) + len(run.made),
        sum(file.size for file in kept) + sum(size for _, _, size in run.made),
        sum(file.rows for file in kept) + sum(rows for _, rows, _ in run.made),
    )
    return _result(run, plan, scope, list(gone.values()), totals, dry_run=False, details=details)


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
    snapshot, full = run.snapshot, run.place.full
    return MaintenanceResult(
        operation=run.operation,
        path=run.place.path,
        before_file_count=len(snapshot.files),
        after_file_count=after.files,
        before_total_bytes=sum(file.size for file in snapshot.files),
        after_total_bytes=after.size,
        before_row_count=snapshot.rows,
        after_row_count=after.rows,
        compacted_file_count=len(rewritten),
        rewritten_bytes=sum(file.size for file in rewritten),
        compression_codec=_codec(snapshot, scope),
        dry_run=dry_run,
        planned_groups=[[full(path) for path in paths] for paths in plan.paths()],
        skipped_files={full(path): reason for path, reason in sorted(plan.skipped.items())},
        new_files=[full(path) for path, _, _ in run.made],
        commits=run.commits,
        seconds=time.perf_counter() - run.started,
        details=details,
    )


def _codec(snapshot: Snapshot, scope: MaintenanceScope) -> str:
    """The codec of what is written: as asked, else the first file's own."""
    if scope.options.compression is not None:
        return scope.options.compression
    return next((codec_name(file.codec) for file in snapshot.files if file.codec), "none")
