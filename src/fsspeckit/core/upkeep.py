"""The straight lines of maintenance: compact, optimize and deduplicate, from the caller's words to a published result.

Look, plan, and then, a bounded number of groups at a time, run and commit. Each commit leaves a whole dataset, so a
run that is cut off has done part of the work and the next run does the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from fsspeckit.common.errors import CommitConflictError, DatasetNotFoundError, SchemaMismatchError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.common.schema import unify_schemas
from fsspeckit.core.combine import Probe
from fsspeckit.core.commit import Changes, Publish, View
from fsspeckit.core.duplicates import FindLosers, SplitKeys, by_file, parts_for, stretches
from fsspeckit.core.engine import Engine
from fsspeckit.core.layout import codec_name
from fsspeckit.core.maintenance import (
    CompactRequest,
    DeduplicateRequest,
    Group,
    Plan,
    Scope,
    Target,
    plain_codec,
    plan_compact,
    plan_deduplicate,
    rounds,
)
from fsspeckit.core.model import CombineTask, DataFile, DropTask, Outcome, RowNumbers, Task
from fsspeckit.core.names import compacted_name, new_token, rewritten_name
from fsspeckit.core.operations import Place, vanishing_is_conflict
from fsspeckit.core.progress import Progress, Reporter, reporting
from fsspeckit.core.reading import full_schema
from fsspeckit.core.results import MaintenanceResult
from fsspeckit.core.snapshot import Snapshot, load_snapshot
from fsspeckit.core.source import Input

_PROBE_ROWS = 100_000
_PROBE_FILES = 64


@dataclass(frozen=True, slots=True)
class Made:
    """A staged file and where it goes; ``instead_of`` is the file that it is a version of."""

    outcome: Outcome
    path: str
    instead_of: DataFile | None = None


@dataclass(slots=True)
class Ledger:
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
        produce: Callable[[str], Sequence[Made]],
        retired: Sequence[DataFile],
        needed: Sequence[DataFile],
        info: dict[str, Any],
        *,
        alone: bool = False,
    ) -> None:
        """Let files be staged and publish them; ``needed`` are files that must not have changed meanwhile.

        With ``alone``, no other writer may have committed anything between two commits of this run.
        """
        with vanishing_is_conflict(self.place, self.operation):
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

    def _publish(self, made: Sequence[Made]) -> tuple[Publish, ...]:
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


def compact(
    engine: Engine, place: Place, request: CompactRequest, *, dry_run: bool = False, progress: Progress = None
) -> MaintenanceResult:
    """Join small files, or tell which would be joined."""
    with log_unexpected("compact", place.path), reporting("compact", progress) as reporter:
        snapshot = look(place, request.scope, dry_run=dry_run, operation="compact")
        ledger = Ledger(place, "compact", snapshot)
        measured = density(engine, place, snapshot.files, request.target, request.scope, reporter)
        plan = plan_compact(snapshot.files, request, measured)
        if dry_run:
            return planned(ledger, plan, request.scope, after_files=len(plan.groups))
        token, done = new_token(), 0
        on_done = reporter.stage("write", len(plan.groups), **extent(plan.groups))
        for groups in rounds(plan.groups, request.scope.limits):
            tasks = [_combine_task(group, token, done + i, request.scope) for i, group in enumerate(groups)]
            retired = [file for group in groups for file in group.files]
            ledger.commit(
                lambda staging, tasks=tasks: [  # type: ignore[misc]
                    Made(outcome, task.path)
                    for task, outcome in zip(tasks, run_tasks(engine, place, tasks, staging, on_done), strict=True)
                ],
                retired,
                (),
                {"files": len(retired)},
            )
            done += len(groups)
        return finished(ledger, plan, request.scope)


def deduplicate(
    engine: Engine, place: Place, request: DeduplicateRequest, *, dry_run: bool = False, progress: Progress = None
) -> MaintenanceResult:
    """Leave one row of each key, or tell how many rows would go."""
    with log_unexpected("deduplicate", place.path), reporting("deduplicate", progress) as reporter:
        snapshot = look(place, request.scope, dry_run=dry_run, operation="deduplicate")
        ledger = Ledger(place, "deduplicate", snapshot)
        losers = find_losers(engine, place, snapshot, request, reporter)
        plan = plan_deduplicate(snapshot.files, losers, request.scope.limits)
        removed = sum(len(losers[group.files[0].path]) for group in plan.groups)
        facts = deduplication_facts(request, removed)
        if dry_run:
            left = sum(len(losers[group.files[0].path]) < group.rows for group in plan.groups)
            after_rows = snapshot.rows - removed
            return planned(ledger, plan, request.scope, after_files=left, after_rows=after_rows, **facts)
        on_done = reporter.stage("write", len(plan.groups), **extent(plan.groups))
        for groups in rounds(plan.groups, request.scope.limits):
            files = [group.files[0] for group in groups]
            drop_losers(engine, ledger, files, losers, request.scope, on_done)
        return finished(ledger, plan, request.scope, **facts)


def extent(groups: Sequence[Group]) -> dict[str, int]:
    """How much work some groups are."""
    return {"rows": sum(group.rows for group in groups), "size": sum(group.size for group in groups)}


def deduplication_facts(request: DeduplicateRequest, removed: int) -> dict[str, Any]:
    """What a result says of a deduplication."""
    return {
        "key_columns": list(request.key_columns),
        "dedup_order_by": list(request.order_by),
        "deduplicated": True,
        "deduplicated_rows": removed,
    }


def find_losers(
    engine: Engine, place: Place, snapshot: Snapshot, request: DeduplicateRequest, reporter: Reporter
) -> Mapping[str, RowNumbers]:
    """Positions of the rows that go, by file, from keys and order columns alone."""
    keys, order_by, lowest = request.columns(full_schema(snapshot))
    items, parts = stretches(snapshot.files), parts_for(snapshot.rows)
    if not items:
        return {}
    matches = request.null_keys == "match"
    split = SplitKeys(place.storage, keys, order_by, lowest, snapshot.partition_columns, matches, parts)
    on_done = reporter.stage("find duplicates", len(items) + parts)
    with vanishing_is_conflict(place, "deduplicate"):
        found = engine.exchange(split, items, FindLosers(len(keys), lowest), parts, on_done)
    return by_file(found, snapshot.files)


def drop_losers(
    engine: Engine,
    ledger: Ledger,
    files: Sequence[DataFile],
    losers: Mapping[str, RowNumbers],
    scope: Scope,
    on_done: Callable[[int], None],
) -> None:
    """Commit some files without the rows that go; every other file must still hold the rows that stay."""
    place = ledger.place
    emptied = [file for file in files if len(losers[file.path]) == file.rows]
    tasks = [DropTask(file, losers[file.path], scope.options) for file in files if file not in emptied]

    def produce(staging: str) -> list[Made]:
        outcomes = run_tasks(engine, place, tasks, staging, on_done)
        return [
            Made(outcome, _new_path(place, task.file), task.file) for task, outcome in zip(tasks, outcomes, strict=True)
        ]

    touched = {file.path for file in (*ledger.gone, *files)}
    needed = [file for file in ledger.snapshot.files if file.path not in touched]
    removed = sum(len(losers[file.path]) for file in files)
    ledger.commit(produce, emptied, needed, {"files": len(files), "rows": removed}, alone=True)


def _new_path(place: Place, file: DataFile) -> str:
    return file.path if place.storage.in_place else rewritten_name(file.path)


def look(place: Place, scope: Scope, *, dry_run: bool, operation: str, stats_for: Sequence[str] = ()) -> Snapshot:
    """The files that an operation is about, with their footers; only a real run finishes what a dead one left."""
    if not dry_run:
        place.journal.recover()
    view = place.journal.view()
    wanted = tuple(file for file in view.files if scope.holds(file.path))
    if not wanted:
        where = f" in {list(scope.folders)}" if scope.folders is not None and view.files else ""
        raise DatasetNotFoundError(
            f"no matching parquet files were found under {place.path}{where}; check the path and partition_filter"
        )
    try:
        with vanishing_is_conflict(place, operation):
            snapshot = load_snapshot(place.storage, replace(view, files=wanted), stats_for=stats_for)
    except SchemaMismatchError as error:
        raise SchemaMismatchError(f"{operation} of {place.path}: {error}") from error
    return replace(snapshot, view=view)


def run_tasks(
    engine: Engine, place: Place, tasks: Sequence[Task], staging: str, on_done: Callable[[int], None]
) -> list[Outcome]:
    """Run tasks that bring no rows from outside."""
    with engine.open_source(Input(pa.table({})), place.storage, place.scratch) as nothing:
        return engine.run(place.storage, nothing, tasks, staging, on_done)


def _combine_task(group: Group, token: str, number: int, scope: Scope) -> CombineTask:
    schema = unify_schemas([file.schema for file in group.files], operation="compact", path=group.folder)
    return CombineTask(compacted_name(group.folder, token, number), group.files, schema, scope.options)


def density(
    engine: Engine, place: Place, files: Sequence[DataFile], target: Target, scope: Scope, reporter: Reporter
) -> float:
    """Bytes that small files take once joined, for each byte they have now; footers and dictionaries are shared."""
    small = [file for file in files if target.fill(file.size, file.rows) < 1]
    rows = sum(file.rows for file in small)
    if target.bytes is None or len(small) < 2 or rows == 0 or rows >= _PROBE_ROWS * len(small):
        return 1.0
    count = min(_PROBE_FILES, max(2, _PROBE_ROWS * len(small) // rows))
    probed = tuple(small[:: max(1, len(small) // count)])
    schema = unify_schemas([file.schema for file in probed], operation="measuring", path=place.path)
    task = CombineTask("", probed, schema, scope.options)
    with vanishing_is_conflict(place, "run"):
        return engine.map(Probe(place.storage), [task], reporter.stage("measure", 1))[0]


def planned(ledger: Ledger, plan: Plan, scope: Scope, *, after_files: int, **facts: Any) -> MaintenanceResult:
    """The result of a dry run; ``after_files`` is how many files all groups become."""
    snapshot, touched = ledger.snapshot, sum(len(group.files) for group in plan.groups)
    size = sum(file.size for file in snapshot.files)
    after_rows = facts.pop("after_rows", snapshot.rows)
    return MaintenanceResult(
        operation=ledger.operation,
        path=ledger.place.path,
        before_file_count=len(snapshot.files),
        after_file_count=len(snapshot.files) - touched + after_files,
        before_total_bytes=size,
        after_total_bytes=size,
        before_row_count=snapshot.rows,
        after_row_count=after_rows,
        compacted_file_count=touched,
        rewritten_bytes=sum(group.size for group in plan.groups),
        compression_codec=_codec(snapshot, scope),
        dry_run=True,
        planned_groups=[[ledger.place.full(path) for path in paths] for paths in plan.paths()],
        skipped_files={ledger.place.full(path): reason for path, reason in sorted(plan.skipped.items())},
        seconds=time.perf_counter() - ledger.started,
        details=facts,
    )


def finished(ledger: Ledger, plan: Plan, scope: Scope, **facts: Any) -> MaintenanceResult:
    """The result of a run, from what its commits did."""
    snapshot, gone = ledger.snapshot, {file.path: file for file in ledger.gone}
    kept = [file for file in snapshot.files if file.path not in gone]
    size = sum(file.size for file in snapshot.files)
    return MaintenanceResult(
        operation=ledger.operation,
        path=ledger.place.path,
        before_file_count=len(snapshot.files),
        after_file_count=len(kept) + len(ledger.made),
        before_total_bytes=size,
        after_total_bytes=sum(file.size for file in kept) + sum(size for _, _, size in ledger.made),
        before_row_count=snapshot.rows,
        after_row_count=sum(file.rows for file in kept) + sum(rows for _, rows, _ in ledger.made),
        compacted_file_count=len(gone),
        rewritten_bytes=sum(file.size for file in gone.values()),
        compression_codec=_codec(snapshot, scope),
        dry_run=False,
        planned_groups=[[ledger.place.full(path) for path in paths] for paths in plan.paths()],
        skipped_files={ledger.place.full(path): reason for path, reason in sorted(plan.skipped.items())},
        new_files=[ledger.place.full(path) for path, _, _ in ledger.made],
        commits=ledger.commits,
        seconds=time.perf_counter() - ledger.started,
        details=facts,
    )


def _codec(snapshot: Snapshot, scope: Scope) -> str:
    """The codec of what is written: as asked, else the first file's own."""
    if scope.options.compression is not None:
        return plain_codec(scope.options.compression)
    return next((codec_name(file.codec) for file in snapshot.files if file.codec), "none")
