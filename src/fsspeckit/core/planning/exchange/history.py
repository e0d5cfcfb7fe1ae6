"""Plan a history (type 2) whose feed is too large for one process: workers handle rows, the planner handles files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fsspeckit.core.dataset.categories import own_categories
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.dataset.source_keys import UNREADABLE, PartitionIdentities, PartitionRows
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.expressions.tree import Expression, columns_of
from fsspeckit.core.kernels.exchange.change_histories import (
    FeedPiece,
    HistoryDecisions,
    KeepPositions,
    SplitPieces,
    StoredPositions,
    StoreHistory,
)
from fsspeckit.core.kernels.exchange.route_moves import MovedPlaces
from fsspeckit.core.kernels.exchange.route_rows import SourceRoutes
from fsspeckit.core.kernels.exchange.split_keys import SourceKeys, SplitKeyHashes, TargetKeys
from fsspeckit.core.kernels.exchange.summarize_source import CheckCasts, SourceSummary, SummarizeSource
from fsspeckit.core.kernels.exchange.table_files import TableFolder, TablePlace
from fsspeckit.core.kernels.find_duplicates import partition_count
from fsspeckit.core.kernels.history_rows import SplitHistory
from fsspeckit.core.kernels.row_rules import RowRules
from fsspeckit.core.model import NO_ROWS, RowNumbers, Scan
from fsspeckit.core.planning.exchange.file_changes import FileChanges
from fsspeckit.core.planning.exchange.merge import ExchangedMerge
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
from fsspeckit.core.planning.history import (
    HistoryRequest,
    HistorySchemas,
    feed_columns,
    feed_target,
    history_schemas,
    ordering_columns,
    read_history,
)
from fsspeckit.core.planning.merge import check_target_keys, file_identities, folders_of
from fsspeckit.core.planning.merge_rules import compile_rules
from fsspeckit.core.planning.statistics import candidate_row_groups
from fsspeckit.core.progress import Reporter
from fsspeckit.core.values.history import raise_first_failure
from fsspeckit.core.values.key_hash import KeyHasher


@dataclass(frozen=True, slots=True, eq=False)
class ExchangedHistory:
    """The changes to history rows, and the files that have history rows of the feed's keys."""

    merge: ExchangedMerge
    read: frozenset[str]


def plan_exchanged_history(
    engine: Engine, feed: Source, place: Place, snapshot: Snapshot, request: HistoryRequest, reporter: Reporter
) -> ExchangedHistory:
    """Plan a history. Raise for null keys, changes without a sequence, values that do not fit, and broken histories."""
    schema = own_categories(feed.schema_for(feed_target(snapshot, request)), feed)
    schemas = history_schemas(schema, snapshot, request, place.path, ordered=feed.ordered)
    deletes = compile_rules(request.feed, feed.schema, snapshot).deletes
    planner = _Planner(engine, feed, place, snapshot, request, schemas, deletes, reporter)
    summaries = planner.summarize()
    check_nulls(summaries, schemas.matching, "apply_changes")
    check_sequences(summaries, request.sequence_by)
    check_target_keys(place.storage, snapshot, schemas.writing, "apply_changes")
    columns = snapshot.partition_columns
    check_folder_values(engine, place.storage, snapshot.files, columns, columns, reporter)
    old, reasons = planner.find(summaries)
    found = planner.change(summaries, old)
    read = frozenset(snapshot.files[number].path for number in old)
    return ExchangedHistory(planner.plan(found, reasons), read)


_Found = dict[int, list[tuple[TablePlace, int]]]
"""Where the positions of the history rows of files are, and their numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class _Planner:
    """Plans one history."""

    engine: Engine
    feed: Source
    place: Place
    snapshot: Snapshot
    request: HistoryRequest
    schemas: HistorySchemas
    deletes: Expression | None
    reporter: Reporter

    @property
    def _folder(self) -> TableFolder:
        folder = self.feed.exchange_folder
        assert folder is not None
        return folder

    def summarize(self) -> list[SourceSummary]:
        """Return the summaries of all parts of the feed. Values that are written are checked to fit."""
        wanted = cast_fields(self.feed.schema, feed_columns(self.schemas))
        how = SummarizeSource(
            self.schemas.matching.keys,
            (),
            0,
            CheckCasts(wanted, "apply_changes", self.place.path, ordering_columns(self.schemas, self.request)),
            (),
            self.deletes,
            self.request.sequence_by,
        )
        return summarize(self.engine, self.feed, how, self.reporter)

    def find(self, summaries: Sequence[SourceSummary]) -> tuple[_Found, list[str]]:
        """Return the history rows of the keys of the feed, and for each file how it was searched."""
        schemas, folder = self.schemas.matching, self._folder
        in_key = tuple(name for name in schemas.in_folders if name in self.request.key_columns)
        scans, reasons = self._scans(summaries, in_key)
        rows = self.feed.rows + sum(scan.scan.rows for scan in scans)
        parts = part_count(rows)
        split = SplitKeyHashes(
            self.place.storage,
            KeyHasher.random(),
            parts,
            schemas.file_keys,
            in_key,
            (),
            (),
            schemas.body,
            (),
            "first",
            (),
            RowRules(),
            folder,
            False,
        )
        pieces = self.feed.pieces([key.name for key in schemas.keys])
        items: list[SourceKeys | TargetKeys] = [*(SourceKeys(n, piece) for n, piece in enumerate(pieces)), *scans]
        on_done = self.reporter.stage("match", len(items) + parts, rows=rows)
        found: _Found = {}
        for part in self.engine.exchange(split, items, KeepPositions(folder), parts, on_done):
            for number, place in part.items():
                found.setdefault(number, []).append(place)
        return dict(sorted(found.items())), reasons

    def _scans(self, summaries: Sequence[SourceSummary], in_key: Sequence[str]) -> tuple[list[TargetKeys], list[str]]:
        """Return the scans of the files that may have a key of the feed, and the last step for each file."""
        files, schemas = self.snapshot.files, self.schemas.matching
        spellings = PartitionIdentities(in_key, self.feed.schema, schemas.text_folders)
        folder_keys = [name or "" for name in file_identities(self.snapshot, in_key, spellings)]
        checked = [i for i, name in enumerate(folder_keys) if not name.startswith(UNREADABLE)]
        reasons, scans = ["partition"] * len(files), list[TargetKeys]()
        candidates = candidate_row_groups([files[i] for i in checked], key_intervals(summaries, schemas))
        for i, row_groups in zip(checked, candidates, strict=True):
            reasons[i] = "key scan" if row_groups else "statistics" if files[i].rows else "empty"
            some = in_scans(files[i].row_groups, row_groups) if row_groups else ()
            scans += [TargetKeys(i, Scan(files[i], groups, 0), folder_keys[i], None) for groups in some]
        return scans, reasons

    def change(self, summaries: Sequence[SourceSummary], old: _Found) -> list[HistoryDecisions]:
        """Bring the changes of each key and its history rows together, and change the history."""
        schemas, request, folder = self.schemas, self.request, self._folder
        read = read_history(self.place.storage, self.snapshot, schemas, request)
        others = [] if self.deletes is None else sorted(columns_of(self.deletes))
        names = list(dict.fromkeys((*schemas.written, request.sequence_by, *others)))
        firsts = np.cumsum([0, *(summary.rows for summary in summaries)]).tolist()
        pieces = self.feed.pieces(names)
        items: list[FeedPiece | StoredPositions] = [
            *(FeedPiece(firsts[number], piece, self.deletes) for number, piece in enumerate(pieces)),
            *(
                StoredPositions(number, self.snapshot.files[number], tuple(place for place, _ in places))
                for number, places in old.items()
            ),
        ]
        rows = self.feed.rows + sum(count for places in old.values() for _, count in places)
        parts = partition_count(rows)
        split = SplitPieces(SplitHistory(read, schemas.layout.keys, parts), folder)
        coded = coded_columns(schemas.writing.body, schemas.rows.names)
        gather = StoreHistory(folder, schemas.rows, schemas.layout, schemas.writing.partitions, coded)
        on_done = self.reporter.stage("read history", len(items) + parts, rows=rows)
        found = self.engine.exchange(split, items, gather, parts, on_done)
        raise_first_failure(each.failure for each in found)
        return found

    def plan(self, found: Sequence[HistoryDecisions], reasons: Sequence[str]) -> ExchangedMerge:
        """Return the changes of files, and the routes of changed history rows to them."""
        writing, options = self.schemas.writing, self.request.writing.options
        coded = coded_columns(writing.body, self.schemas.rows.names)
        writing = replace(writing, body=with_codes_for(writing.body, coded, [each.distinct for each in found]))
        groups, counts, maps = self._new_rows(found)
        before, totals = np.cumsum(counts, axis=0) - counts, counts.sum(axis=0)
        routes = [
            SourceRoutes(each.table, () if each.place is None else (each.place,), ranks, MovedPlaces(), numbers)
            for each, ranks, numbers in zip(found, before, maps, strict=True)
        ]
        rows = ExchangedRows(
            tuple((group, range(int(total))) for group, total in zip(groups, totals, strict=True)),
            tuple(range(len(groups))),
            tuple(routes),
            self._folder,
            self.schemas.rows,
            options.max_rows_per_file,
            tuple(FileChanges(self.snapshot.files, reasons, ()).of(found)),
        )
        stale = self.feed.rows - sum(each.effective for each in found)
        return ExchangedMerge(writing, rows, stale, sum(each.moved for each in found))

    def _new_rows(self, found: Sequence[HistoryDecisions]) -> tuple[list[PartitionRows], RowNumbers, list[RowNumbers]]:
        """Return the partitions with new rows, the number of rows by part and partition, and numbers by part."""
        writing = self.schemas.writing
        spellings = PartitionIdentities(writing.partitions, self.schemas.rows, writing.text_folders)
        folders = folders_of(self.snapshot, file_identities(self.snapshot, writing.partitions, spellings))
        names = {name for each in found for name in each.folders}
        groups = [PartitionRows(folders.get(name, name), name, NO_ROWS) for name in names]
        groups.sort(key=lambda group: group.folder)
        spellings.check(groups)
        number = {group.identity: at for at, group in enumerate(groups)}
        maps = [np.array([number[name] for name in each.folders], dtype=np.int64) for each in found]
        counts = np.zeros((len(found), len(groups)), dtype=np.int64)
        for part, (each, numbers) in enumerate(zip(found, maps, strict=True)):
            counts[part, numbers] = each.inserts
        return groups, counts, maps
