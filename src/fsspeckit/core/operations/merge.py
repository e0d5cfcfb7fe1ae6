"""Merge a source into a dataset: validate, snapshot, plan, run, commit.

No step before the run writes a file, and only the commit changes the dataset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.choices import DEFAULT_RETRIES
from fsspeckit.common.errors import CommitConflictError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.dataset.categories import categories_for
from fsspeckit.core.dataset.folder_types import settled, types_written
from fsspeckit.core.dataset.place import Place, load_unchanged, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot, check_one_dataset, load_snapshot, same_types
from fsspeckit.core.dataset.source import Input, Source
from fsspeckit.core.dataset.source_columns import SourceColumns
from fsspeckit.core.dataset.source_keys import (
    check_no_null_keys,
    check_order_columns,
    check_sequence,
    select_rows,
)
from fsspeckit.core.dataset.text_source import TextFiles, read_later
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.model import NO_MATCH, NO_ROWS, Match, MoveTask, RowNumbers
from fsspeckit.core.operations.change import PlannedChange, PreparedChange, run_change
from fsspeckit.core.planning.exchange.merge import plan_exchanged
from fsspeckit.core.planning.merge import (
    MatchedFiles,
    check_target_keys,
    match_anywhere,
    match_source,
    set_aside_without_keys,
)
from fsspeckit.core.planning.merge_changes import MergeChanges, decide_changes, is_removed
from fsspeckit.core.planning.merge_moves import MergeMoves
from fsspeckit.core.planning.merge_request import (
    FileChange,
    MergeRequest,
    MergeSchemas,
    check_evolution,
    insert_tasks,
    merge_schemas,
    rewrite_tasks,
)
from fsspeckit.core.planning.merge_rules import (
    MergeRules,
    RuleCheck,
    check_scope,
    compile_rules,
    deleting_rows,
    row_rules,
    rows_in_scope,
)
from fsspeckit.core.planning.pinned_plan import check_plan_names
from fsspeckit.core.planning.tombstones import NEW_TOMBSTONES, load_tombstones
from fsspeckit.core.progress import SILENT, Progress, Reporter, reporting
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
    retries: int = DEFAULT_RETRIES,
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
            load,
        ),
    ):

        def plan() -> PlannedChange:
            rows, snapshot = settled(source, load())
            snapshot = categories_for(rows, snapshot, place, request.operation)
            if rows.exchange_folder is not None:
                return _plan_exchanged(engine, rows, place, snapshot, request, reporter)
            return _plan(engine, rows, place, snapshot, request, reporter)

        return run_change(
            engine,
            place,
            plan,
            reporter,
            stats_for=request.key_columns,
            started=started,
            dry_run=dry_run,
            pinned=pinned,
            retries=retries,
        )


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
) -> Iterator[tuple[Source, Callable[[], Snapshot]]]:
    """Open the source, and return it with a function that loads a snapshot, with statistics of some columns.

    ``types_of`` returns the types of the source's columns, for text files.
    """
    if pinned is not None:
        check_plan_names(pinned)
    if not dry_run:
        place.journal.recover()
    given = replace(given, on_tasks=reporter.tasks("source"))
    snapshots = _Snapshots(engine, place, request, stats_for, dry_run)
    if isinstance(given.data, TextFiles):
        snapshot = snapshots.keep()
        given = read_later(given, replace(snapshot, schema=types_of(snapshot)))
    with engine.open_source(given, place.storage, place.scratch) as source:
        yield source, snapshots.load


@dataclass(slots=True, eq=False)
class _Snapshots:
    """Loads snapshots of a dataset, which was just recovered.

    Text files are parsed with the types of the first one, so these must not change.
    """

    engine: Engine
    place: Place
    request: MergeRequest
    stats_for: Sequence[str]
    dry_run: bool
    kept: Snapshot | None = None
    parsed: Snapshot | None = None
    is_first: bool = True

    def keep(self) -> Snapshot:
        """Load a snapshot to parse text files with, which is the first one of the operation."""
        self.kept = self.parsed = self._load()
        return self.kept

    def load(self) -> Snapshot:
        """Return the snapshot that is kept, or one of now."""
        snapshot, self.kept = self.kept or self._load(), None
        if self.parsed is not None and not same_types(snapshot, self.parsed):
            raise CommitConflictError(
                f"the columns of {self.place.path} changed while the source was read. Run the operation again."
            )
        return snapshot

    def _load(self) -> Snapshot:
        if not self.is_first and not self.dry_run:
            self.place.journal.recover()
        self.is_first = False
        storage, journal = self.place.storage, self.place.journal
        map_footers = self.engine.map if self.engine.distributes else None

        def load() -> Snapshot:
            view = journal.view_to_change()
            return load_snapshot(storage, view, stats_for=self.stats_for, map_footers=map_footers)

        snapshot = load_unchanged(self.place, self.request.operation, load)
        check_one_dataset(snapshot)
        return snapshot


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """The rows of a snapshot on which a merge depends.

    Attributes:
        matched: Rows with keys of the source.
        removals: For each file, rows whose keys the source deletes.
        scope: For each file, rows that a full merge may delete, or None for all rows.
        deletes_others: Whether rows without a match are deleted.
    """

    matched: MatchedFiles
    removals: Sequence[Match]
    scope: Sequence[RowNumbers] | None
    deletes_others: bool

    @property
    def paths(self) -> frozenset[str]:
        """The paths of the files that have such rows."""
        return frozenset(file.path for number, (file, _, _) in enumerate(self.matched.files) if self._has_rows(number))

    def _has_rows(self, number: int) -> bool:
        if self.deletes_others and (self.scope is None or len(self.scope[number])):
            return True
        matches = (self.matched.files[number][1], self.removals[number], self.matched.moves[number])
        return any(len(match.positions) for match in matches)


def _plan(
    engine: Engine,
    source: Source,
    place: Place,
    snapshot: Snapshot,
    request: MergeRequest,
    reporter: Reporter,
) -> PlannedChange:
    with vanished_file_is_conflict(place, request.operation):
        schemas = merge_schemas(source.schema_for(snapshot.schema), snapshot, request, place.path)
        schemas = replace(schemas, body=source.widen_codes(schemas.body))
        rules = compile_rules(request, source.schema, snapshot)
        tombstones = load_tombstones(place, snapshot, source.schema, schemas, request)
        schemas = schemas if tombstones is None else tombstones.widen(schemas)
        deletes = deleting_rows(rules, source)
        source.check_casts(
            schemas.stored_by(request),
            operation=request.operation,
            path=place.path,
            without=deletes,
            compared=schemas.compared,
        )
        check_order_columns(source.schema, request.dedup_order_by)
        if request.null_keys == "error":
            check_no_null_keys(source.columns(request.key_columns), request.key_columns, "source", request.operation)
        if request.operation == "apply_changes" and request.newer_by is not None:
            check_sequence(source, request.newer_by)
        rows, late = select_rows(source, schemas.keys, request.choice), NO_ROWS
        if tombstones is not None:
            late = tombstones.late_rows(engine, place, source, rows, schemas, request, reporter)
            rows = np.setdiff1d(rows, late) if len(late) else rows
        whole = snapshot
        snapshot, pruned = set_aside_without_keys(whole, source, schemas, request)
        search = _Search(engine, source, place, request, reporter, schemas, rules, rows, deletes)
        found = search.find(snapshot)
        check_scope(engine, snapshot, source, rules, reporter)
        reasons = {
            file.path: "partition" if why == "partition" else "statistics" for file, _, why in found.matched.files
        }
        columns = SourceColumns(source)
        moves = MergeMoves(engine, place.storage, snapshot, columns, schemas, request, reporter)
        matched = moves.without_null_moves(found.matched)
        conditions = replace(row_rules(rules, source.schema, snapshot), deletes=None)
        check = RuleCheck(engine, place, snapshot, columns, conditions, reporter)
        keeps = moves.need_old_rows
        changes = decide_changes(matched, found.removals, found.scope, check, request.rule, moves_keep_values=keeps)
        moved = moves.tasks(changes.moves)
    changes = replace(changes, stale=changes.stale + len(late))
    prepared = _prepare(changes, moved, schemas, snapshot, source, request, found.paths, place.path)
    if tombstones is not None:
        deleted = np.setdiff1d(_split(rows, deletes)[1], changes.stale_deletes)
        prepared = replace(prepared, tombstones=tombstones.with_new(as_range(deleted), schemas, request))
    if pruned is not None:
        prepared = replace(prepared, pruned=pruned, pruned_reasons=reasons)
    adds_rows = changes.inserted + changes.updated > 0
    return PlannedChange(prepared, source, whole, lambda added: search.depends_on(added, adds_rows=adds_rows))


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """Finds the rows of files on which a merge depends; ``deletes`` marks source rows that delete their key."""

    engine: Engine
    source: Source
    place: Place
    request: MergeRequest
    reporter: Reporter
    schemas: MergeSchemas
    rules: MergeRules
    rows: range | RowNumbers
    deletes: npt.NDArray[np.bool_] | None

    def find(self, snapshot: Snapshot) -> _Found:
        """Check and match the files of a snapshot."""
        engine, storage, source, request = self.engine, self.place.storage, self.source, self.request
        schemas, reporter = self.schemas, self.reporter
        if request.null_keys == "error" and (source.rows or request.rule.delete):
            check_target_keys(storage, snapshot, schemas, request.operation)
        rows, deleting = _split(self.rows, self.deletes)
        matched = match_source(engine, storage, snapshot, source, rows, schemas, request, reporter)
        removals: Sequence[Match] = (NO_MATCH,) * len(snapshot.files)
        if len(deleting):
            found = match_anywhere(
                engine, storage, snapshot, source, deleting, schemas, request, reporter, stage="match deletes"
            )
            removals = [match for match, _ in found]
        scope = rows_in_scope(engine, self.place, snapshot, self.rules, reporter)
        return _Found(matched, removals, scope, request.rule.delete)

    def depends_on(self, added: Snapshot, *, adds_rows: bool) -> bool:
        """Return whether rows of new files have an effect on the merge, or the merge changes their columns."""
        deletes_any = self.request.rule.delete and self.rules.scope is None
        if deletes_any or replace(self, reporter=SILENT).find(added).paths:
            return True
        unmatched = [FileChange(file, NO_MATCH, NO_ROWS, "") for file in added.files]
        return bool(rewrite_tasks(unmatched, self.schemas, self.request, adds_rows=adds_rows))


def _plan_exchanged(
    engine: Engine, source: Source, place: Place, snapshot: Snapshot, request: MergeRequest, reporter: Reporter
) -> PlannedChange:
    """Plan a merge whose rows are decided about by workers.

    Other new files are not searched: that would exchange the whole source again. So it depends on all of them.
    """
    with vanished_file_is_conflict(place, request.operation):
        plan = plan_exchanged(engine, source, place, snapshot, request, reporter)
    files = plan.rows.files
    new = [pair for pair in plan.rows.inserts if pair[0] is not NEW_TOMBSTONES]
    updated, inserted = sum(change.match.hits for change in files), sum(len(rows) for _, rows in new)
    changes = MergeChanges(
        files=files,
        inserts=(),
        inserted=inserted if plan.moves else inserted - plan.moved,
        updated=updated + plan.moved,
        deleted=sum(change.lost for change in files) - plan.moved,
        stale=plan.stale,
        moved=plan.moved,
    )
    everything = frozenset(file.path for file in snapshot.files)
    prepared = _prepare(changes, (), plan.schemas, snapshot, source, request, everything, place.path)
    writes = insert_tasks(new, plan.schemas, snapshot, request.options)
    tombstones = plan.tombstones
    for _, deleted in plan.rows.inserts[len(new) :]:
        assert tombstones is not None
        tombstones = tombstones.with_new(deleted, plan.schemas, request)
    prepared = replace(prepared, inserts=(*writes, *plan.moves), exchanged=plan.rows, tombstones=tombstones)
    return PlannedChange(prepared, source, snapshot, lambda added: any(file.rows for file in added.files))


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
    read: frozenset[str],
    path: str,
) -> PreparedChange:
    """Turn the changes to files into tasks; ``read`` has the files with rows on which they depend."""
    removed = {change.file.path for change in changes.files if is_removed(change, source)}
    left = [change for change in changes.files if change.file.path not in removed]
    adds_rows = changes.inserted + changes.updated > 0
    rewrites = rewrite_tasks(left, schemas, request, adds_rows=adds_rows)
    check_evolution(rewrites, schemas, request, path)
    new = [(group, as_range(rows)) for group, rows in changes.inserts]
    return PreparedChange(
        operation=request.operation,
        strategy="scd1" if request.operation == "apply_changes" else request.strategy,
        options=request.options,
        snapshot=snapshot,
        read=read,
        source_rows=source.rows,
        source_route=source.route,
        share_limit=source.limit,
        rewrites=tuple(rewrites),
        inserts=(*insert_tasks(new, schemas, snapshot, request.options), *moves),
        deletes=tuple(sorted(removed)),
        inserted=changes.inserted,
        updated=changes.updated,
        deleted=changes.deleted,
        reasons={change.file.path: change.reason for change in changes.files},
        stale=changes.stale,
        moved=changes.moved,
        partition_types=types_written(snapshot, schemas.partitions, source),
        schema_changes=schemas.changes if adds_rows else (),
    )


def as_range(rows: RowNumbers) -> range | RowNumbers:
    """Return row numbers without gaps as a range, which is read without a copy."""
    if len(rows) and int(rows[-1]) - int(rows[0]) + 1 == len(rows) and bool(np.all(np.diff(rows) == 1)):
        return range(int(rows[0]), int(rows[-1]) + 1)
    return rows
