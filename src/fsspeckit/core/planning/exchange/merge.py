"""Plan a merge whose source is too large for one process: workers handle rows, the planner handles files.

The workers summarize the parts of the source, match keys by an exchange, and keep the decisions about rows in files.
The planner gets counts for each file and partition, and examples for errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from fsspeckit.common.errors import ExpressionError
from fsspeckit.common.partitions import partition_folder
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.dataset.source_keys import (
    UNREADABLE,
    PartitionIdentities,
    PartitionRows,
    check_order_columns,
    duplicate_error,
)
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.kernels.exchange.decide_keys import DecideKeys, KeyDecisions, Moves
from fsspeckit.core.kernels.exchange.move_targets import MoveTargets
from fsspeckit.core.kernels.exchange.read_examples import ReadExamples
from fsspeckit.core.kernels.exchange.route_rows import SourceRoutes
from fsspeckit.core.kernels.exchange.split_keys import Keep, SourceKeys, SplitKeyHashes, TargetKeys
from fsspeckit.core.kernels.exchange.stored_rows import StoredRows
from fsspeckit.core.kernels.exchange.summarize_source import CheckCasts, SourceSummary, SummarizeSource
from fsspeckit.core.kernels.exchange.table_files import TableFolder
from fsspeckit.core.kernels.row_rules import RowRules, raise_first
from fsspeckit.core.model import NO_ROWS, DataFile, KeyColumn, MoveTask, RowNumbers, Scan
from fsspeckit.core.planning.conditions import constants_of
from fsspeckit.core.planning.exchange.file_changes import FileChanges, other_rows
from fsspeckit.core.planning.exchange.moves import ExchangedMoves, plan_moves
from fsspeckit.core.planning.exchange.routed_rows import ExchangedRows
from fsspeckit.core.planning.exchange.source_summary import (
    cast_fields,
    check_nulls,
    check_sequences,
    coded_columns,
    in_scans,
    key_intervals,
    part_count,
    summarize,
    with_codes_for,
)
from fsspeckit.core.planning.folder_values import check_folder_values
from fsspeckit.core.planning.merge import check_target_keys, file_identities, folders_of, move_error
from fsspeckit.core.planning.merge_moves import canonical
from fsspeckit.core.planning.merge_request import MergeRequest, MergeSchemas, merge_schemas
from fsspeckit.core.planning.merge_rules import MergeRules, check_scope, compile_rules, row_rules, store_rows_in_scope
from fsspeckit.core.planning.statistics import candidate_row_groups
from fsspeckit.core.planning.tombstones import NEW_TOMBSTONES, Tombstones, load_tombstones
from fsspeckit.core.progress import Reporter
from fsspeckit.core.values.key_hash import KeyHasher

_SHOWN = 5


@dataclass(frozen=True, slots=True, eq=False)
class ExchangedMerge:
    """A planned merge.

    Attributes:
        rows: The changes of files and new rows, and the routes of source rows to them.
        stale: The number of matched rows that are not older than their source rows.
        moved: The number of rows that move to another partition.
        moves: The tasks that write moved rows which keep values; other moved rows are among the new rows.
        tombstones: The deleted keys of a change feed. New ones are among the new rows, last.
    """

    schemas: MergeSchemas
    rows: ExchangedRows
    stale: int
    moved: int
    moves: tuple[MoveTask, ...] = ()
    tombstones: Tombstones | None = None


def plan_exchanged(
    engine: Engine, source: Source, place: Place, snapshot: Snapshot, request: MergeRequest, reporter: Reporter
) -> ExchangedMerge:
    """Plan a merge. Raise for duplicate and null keys, values that do not fit, and rows that change their partition."""
    schemas = merge_schemas(source.schema_for(snapshot.schema), snapshot, request, place.path)
    conditions = compile_rules(request, source.schema, snapshot)
    tombstones = load_tombstones(place, snapshot, source.schema, schemas, request)
    schemas = schemas if tombstones is None else tombstones.widen(schemas)
    rules = row_rules(conditions, source.schema, snapshot)
    planner = _Planner(engine, source, place, snapshot, request, conditions, rules, reporter, tombstones)
    summaries, schemas = planner.summarize(schemas)
    check_order_columns(source.schema, request.dedup_order_by)
    if request.null_keys == "error":
        check_nulls(summaries, schemas, request.operation)
    if request.operation == "apply_changes" and request.newer_by is not None:
        check_sequences(summaries, request.newer_by)
    return planner.plan(summaries, schemas)


@dataclass(frozen=True, slots=True, eq=False)
class _Planner:
    """Plans one merge."""

    engine: Engine
    source: Source
    place: Place
    snapshot: Snapshot
    request: MergeRequest
    conditions: MergeRules
    rules: RowRules
    reporter: Reporter
    tombstones: Tombstones | None

    @property
    def _folder(self) -> TableFolder:
        folder = self.source.exchange_folder
        assert folder is not None
        return folder

    def summarize(self, schemas: MergeSchemas) -> tuple[list[SourceSummary], MergeSchemas]:
        """Return the summaries of all parts of the source, and the schemas with wider dictionary codes if needed."""
        request, coded = self.request, coded_columns(schemas.body, self.source.schema.names)
        how = SummarizeSource(
            schemas.keys,
            schemas.partitions,
            0,
            CheckCasts(
                cast_fields(self.source.schema, schemas.stored_by(request)),
                request.operation,
                self.place.path,
                schemas.compared,
            ),
            coded,
            self.rules.deletes,
            request.newer_by if request.operation == "apply_changes" else None,
        )
        summaries = summarize(self.engine, self.source, how, self.reporter)
        body = with_codes_for(schemas.body, coded, [summary.distinct for summary in summaries])
        return summaries, replace(schemas, body=body)

    def plan(self, summaries: Sequence[SourceSummary], schemas: MergeSchemas) -> ExchangedMerge:
        """Match keys and return the changes."""
        engine, place, folder, reporter = self.engine, self.place, self._folder, self.reporter
        spellings = PartitionIdentities(schemas.partitions, self.source.schema, schemas.text_folders)
        groups, identities = self._partitions(summaries, schemas, spellings)
        scope, scope_failure = self._scope()
        scans, reasons = self._scans(summaries, schemas, groups, identities, scope)
        decisions = self._exchange([*self._tombstone_scans(summaries, schemas), *scans], schemas, groups)
        self._check_duplicates(decisions, schemas)
        numbers = _by_first_row(decisions)
        self._check_target(schemas, has_rows=bool(numbers))
        spellings.check([groups[number] for number in numbers])
        self._check_moves(decisions, schemas)
        if scope_failure is not None:
            raise scope_failure
        check_scope(engine, self.snapshot, self.source, self.conditions, reporter)
        raise_first(failure for each in decisions for failure in each.failures)
        others: Sequence[StoredRows | None] = scope or ()
        if self.request.rule.delete and scope is None:
            others = other_rows(engine, place.storage, folder, self.snapshot.files, decisions)
        moves = plan_moves(
            engine,
            folder,
            [each.new_places for each in decisions],
            self.source.schema,
            len(summaries),
            self.snapshot,
            schemas,
            self.request,
        )
        counts = _insert_counts(decisions, len(summaries), len(groups) + 1)
        totals = counts.sum(axis=0)
        groups = [*groups, NEW_TOMBSTONES]
        numbers += [len(groups) - 1] if totals[-1] else []
        rows = ExchangedRows(
            tuple((groups[number], range(int(totals[number]))) for number in numbers),
            tuple(numbers),
            tuple(self._routes(decisions, counts, moves)),
            folder,
            self.source.schema,
            self.request.options.max_rows_per_file,
            tuple(FileChanges(self.snapshot.files, reasons, others).of(decisions)),
            others,
            moves.routes,
        )
        stale, moved = sum(each.stale for each in decisions), sum(each.moved for each in decisions)
        return ExchangedMerge(schemas, rows, stale, moved, moves.tasks, self.tombstones)

    def _scope(self) -> tuple[list[StoredRows] | None, ExpressionError | None]:
        """Return the rows that a full merge may delete, or why they cannot be found: other errors come first."""
        try:
            place, snapshot = self.place, self.snapshot
            return store_rows_in_scope(self.engine, place, snapshot, self.conditions, self._folder, self.reporter), None
        except ExpressionError as error:
            return None, error

    def _partitions(
        self, summaries: Sequence[SourceSummary], schemas: MergeSchemas, spellings: PartitionIdentities
    ) -> tuple[list[PartitionRows], list[str | None]]:
        """Return the partitions of the source, with the folders that exist, and the partition of each file."""
        identities = file_identities(self.snapshot, schemas.partitions, spellings)
        folders = folders_of(self.snapshot, identities)
        names = dict.fromkeys(name for summary in summaries for name in summary.partitions)
        return [PartitionRows(folders.get(name, name), name, NO_ROWS) for name in names], identities

    def _moves(self, schemas: MergeSchemas) -> Moves:
        request = self.request
        if request.partition_move == "unchecked" or set(schemas.partitions) <= set(request.key_columns):
            return "ignore"
        return request.partition_move

    def _scans(
        self,
        summaries: Sequence[SourceSummary],
        schemas: MergeSchemas,
        groups: Sequence[PartitionRows],
        identities: Sequence[str | None],
        scope: Sequence[StoredRows] | None,
    ) -> tuple[list[TargetKeys], list[str]]:
        """Return the scans of the files that may have a key of the source, and the last step for each file."""
        files, number = self.snapshot.files, {group.identity: i for i, group in enumerate(groups)}
        in_key = [name for name in schemas.in_folders if name in self.request.key_columns]
        spellings = PartitionIdentities(in_key, self.source.schema, schemas.text_folders)
        folder_keys = file_identities(self.snapshot, in_key, spellings)
        everywhere = self._moves(schemas) != "ignore" or self.rules.deletes is not None
        checked = [
            i
            for i, name in enumerate(identities)
            if (name is None or name in number or everywhere) and not (folder_keys[i] or "").startswith(UNREADABLE)
        ]
        reasons = ["partition"] * len(files)
        ranges = key_intervals(summaries, schemas)
        scans = []
        for i, row_groups in zip(checked, candidate_row_groups([files[i] for i in checked], ranges), strict=True):
            name = identities[i]
            if name is None or name in number:
                reasons[i] = "key scan" if row_groups else "statistics" if files[i].rows else "empty"
            if row_groups:
                first = TargetKeys(
                    i,
                    Scan(files[i], (), 0),
                    folder_keys[i] or "",
                    None if name is None else number.get(name, -1),
                    self._constants(files[i]),
                    None if scope is None or scope[i].count == files[i].rows else scope[i],
                    self._place(files[i], schemas) if self._keeps_partitions(schemas) else "",
                )
                groups_of = in_scans(files[i].row_groups, row_groups)
                scans += [replace(first, scan=replace(first.scan, row_groups=some)) for some in groups_of]
        return scans, reasons

    def _tombstone_scans(self, summaries: Sequence[SourceSummary], schemas: MergeSchemas) -> list[TargetKeys]:
        """Return the scans of the files of tombstones that may have a key of the source."""
        files = () if self.tombstones is None else self.tombstones.snapshot.files
        found = zip(files, candidate_row_groups(files, key_intervals(summaries, schemas)), strict=True) if files else ()
        return [
            TargetKeys(number, Scan(file, some, 0), "", None, is_tombstones=True)
            for number, (file, row_groups) in enumerate(found)
            if row_groups
            for some in in_scans(file.row_groups, row_groups)
        ]

    def _keeps_partitions(self, schemas: MergeSchemas) -> bool:
        """Whether NULL in the source keeps the partition of a row."""
        return self.request.ignore_null_updates and self._moves(schemas) == "move"

    def _place(self, file: DataFile, schemas: MergeSchemas) -> str:
        """Return the name that the partition of a file has in new folders; empty if its rows have the values."""
        values = file.partition or (None,) * len(schemas.partitions)
        pairs = zip(schemas.partitions, values, strict=True)
        return partition_folder(schemas.partitions, [canonical(name, text, self.source.schema) for name, text in pairs])

    def _constants(self, file: DataFile) -> dict[str, pa.Scalar]:
        """Return the columns that conditions read and a file does not have."""
        found = constants_of(self.snapshot, file, self.rules.target)
        return {name: literal.value for name, literal in found.items()}

    def _exchange(
        self, scans: Sequence[TargetKeys], schemas: MergeSchemas, groups: Sequence[PartitionRows]
    ) -> list[KeyDecisions]:
        request, folder, choice = self.request, self._folder, self.request.choice
        keep: Keep = choice.keep or "first"
        rows = self.source.rows + sum(scan.scan.rows for scan in scans)
        parts = part_count(rows)
        order_by = _order_columns(self.source, choice.order_by)
        identities = tuple(group.identity for group in groups)
        late, retain = RowRules(), 0
        if self.tombstones is not None:
            late, retain = self.tombstones.rules, self.tombstones.retain
        split = SplitKeyHashes(
            self.place.storage,
            KeyHasher.random(),
            parts,
            schemas.file_keys,
            tuple(name for name in schemas.in_folders if name in request.key_columns),
            schemas.partitions,
            _stored_partitions(scans, schemas),
            schemas.body,
            identities,
            keep,
            order_by,
            self.rules,
            folder,
            self._keeps_partitions(schemas),
            late,
        )
        columns = [key.name for key in schemas.keys] + list(schemas.partitions) + [name for name, _ in order_by]
        pieces = self.source.pieces(list(dict.fromkeys([*columns, *self.rules.source_columns])))
        items: list[SourceKeys | TargetKeys] = [
            *(SourceKeys(number, piece) for number, piece in enumerate(pieces)),
            *scans,
        ]
        moves, rule, targets = self._moves(schemas), request.rule, None
        if moves == "move" and (schemas.updated is not None or request.ignore_null_updates):
            targets = MoveTargets(schemas.partitions, identities, request.ignore_null_updates)
        partitioned = bool(schemas.partitions)
        decide = DecideKeys(
            folder,
            partitioned,
            keep,
            order_by,
            rule.update,
            rule.insert,
            rule.delete,
            moves,
            self.rules,
            targets,
            late,
            len(groups) if retain else None,
        )
        size = sum(scan.scan.file.size for scan in scans)
        on_done = self.reporter.stage("match", len(items) + parts, rows=rows, size=size)
        return self.engine.exchange(split, items, decide, parts, on_done)

    def _check_duplicates(self, decisions: Sequence[KeyDecisions], schemas: MergeSchemas) -> None:
        count = sum(each.duplicates for each in decisions)
        if not count:
            return
        choice = self.request.choice
        choice.check(self.source)
        if choice.keep is None:
            found = sorted(example for each in decisions for example in each.examples)[:_SHOWN]
            names = [key.name for key in schemas.keys]
            rows = self._examples([(part, row) for part, row, _ in found], names)
            times = [number for _, _, number in found]
            raise duplicate_error(names, rows, times, count, choice.remedy)

    def _check_target(self, schemas: MergeSchemas, *, has_rows: bool) -> None:
        """Raise for NULL keys in files, and for files with other partition values than their folders."""
        snapshot, storage, request = self.snapshot, self.place.storage, self.request
        if request.null_keys == "error":
            check_target_keys(storage, snapshot, schemas, request.operation)
        if snapshot.files and has_rows:
            columns, names = snapshot.partition_columns, schemas.partitions
            check_folder_values(self.engine, storage, snapshot.files, columns, names, self.reporter)

    def _check_moves(self, decisions: Sequence[KeyDecisions], schemas: MergeSchemas) -> None:
        if self._moves(schemas) != "check" or not any(each.moved for each in decisions):
            return
        found = np.concatenate([each.moves for each in decisions])
        found = found[np.lexsort((found[:, 1], found[:, 0]))]
        file = int(found[0, 0])
        shown = found[found[:, 0] == file][:_SHOWN]
        names = [*self.request.key_columns, *(n for n in schemas.partitions if n not in self.request.key_columns)]
        rows = self._examples([(int(part), int(row)) for _, _, part, row in shown], names)
        raise move_error(rows, self.snapshot.files[file])

    def _examples(self, rows: Sequence[tuple[int, int]], names: Sequence[str]) -> list[dict[str, Any]]:
        """Return some rows of the source, in order."""
        pieces = self.source.pieces(names)
        items = [(pieces[part], row) for part, row in rows]
        return [row for part in self.engine.map(ReadExamples(), items, lambda _: None) for row in part]

    def _routes(
        self, decisions: Sequence[KeyDecisions], counts: RowNumbers, moves: ExchangedMoves
    ) -> Iterable[SourceRoutes]:
        """Return the routes of each part of the source: its decisions, and the rows that are inserted before it."""
        before = np.cumsum(counts, axis=0) - counts
        for number, piece in enumerate(self.source.pieces(self.source.schema.names)):
            places = tuple(each.places[number] for each in decisions if number in each.places)
            yield SourceRoutes(piece, places, before[number], moves.places[number])


def _stored_partitions(scans: Sequence[TargetKeys], schemas: MergeSchemas) -> tuple[KeyColumn, ...]:
    """Return the partition columns that are compared with rows of files outside partition folders, if there are any."""
    if not schemas.partitions or all(scan.is_tombstones or scan.partition is not None for scan in scans):
        return ()
    known = {key.name for key in schemas.keys}
    names = [name for name in schemas.partitions if name in schemas.body.names and name not in known]
    return tuple(KeyColumn(name, schemas.body.field(name).type) for name in names)


def _order_columns(source: Source, names: Sequence[str]) -> tuple[tuple[str, bool], ...]:
    """Return order columns, and whether the lowest value is kept."""
    return tuple((name, False) if name in source.schema.names else (name.removeprefix("-"), True) for name in names)


def _insert_counts(decisions: Sequence[KeyDecisions], parts: int, partitions: int) -> RowNumbers:
    """Return the number of new rows by part of the source and partition."""
    counts = np.zeros((parts, partitions), dtype=np.int64)
    for each in decisions:
        part, partition, rows = each.inserts.T
        np.add.at(counts, (part, partition), rows)
    return counts


def _by_first_row(decisions: Sequence[KeyDecisions]) -> list[int]:
    """Return the numbers of the partitions with rows, in the order of their first rows."""
    firsts: dict[int, tuple[int, int]] = {}
    for each in decisions:
        for partition, row in each.firsts.items():
            firsts[partition] = min(row, firsts.get(partition, row))
    return sorted(firsts, key=firsts.__getitem__)
