"""Decide what a merge does to each file: which rows are replaced, removed, inserted and moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fsspeckit.core.dataset.source import Source
from fsspeckit.core.dataset.source_keys import PartitionRows
from fsspeckit.core.kernels.row_rules import raise_first
from fsspeckit.core.model import NO_MATCH, NO_ROWS, DataFile, Match, RowNumbers
from fsspeckit.core.planning.merge import MatchedFiles
from fsspeckit.core.planning.merge_request import FileChange, Strategy
from fsspeckit.core.planning.merge_rules import RuleCheck


@dataclass(frozen=True, slots=True, eq=False)
class MergeChanges:
    """The changes to files, the source rows to insert by partition, and the counts.

    ``moves`` has for each file the rows that move and keep values; rows that get all values from the source are among
    the inserts. ``stale_deletes`` are the source rows that delete their key, but are not newer than its rows.
    """

    files: tuple[FileChange, ...]
    inserts: tuple[tuple[PartitionRows, RowNumbers], ...]
    inserted: int
    updated: int
    deleted: int
    stale: int
    moved: int
    moves: tuple[Match, ...] = ()
    stale_deletes: RowNumbers = field(default_factory=lambda: NO_ROWS)


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """Matches of all files after the rules: the rows that change, all matched rows, and how many are stale."""

    changing: tuple[Match, ...]
    matched: tuple[Match, ...]
    stale: int = 0


def decide_changes(
    matched: MatchedFiles,
    removals: Sequence[Match],
    scope: Sequence[RowNumbers] | None,
    check: RuleCheck,
    rule: Strategy,
    *,
    moves_keep_values: bool,
) -> MergeChanges:
    """Decide from matches, conditions and the strategy.

    ``removals`` has for each file the rows whose keys the source deletes, ``scope`` the rows that a full merge may
    delete, or None for all. ``moves_keep_values`` says that rows that move keep some values of the target.
    """
    files = [file for file, _, _ in matched.files]
    updates = _kept(check, files, [match for _, match, _ in matched.files], conditions=True)
    deletes = _kept(check, files, removals, conditions=False)
    moves = _kept(check, files, matched.moves, conditions=True)
    if not rule.update:
        nothing = (NO_MATCH,) * len(files)
        updates, moves = _Kept(nothing, updates.matched), _Kept(nothing, moves.matched)
    moved = sum(len(match.positions) for match in moves.changing)
    inserts = _inserts(matched, moves, check, rule, with_moves=not moves_keep_values)
    raise_first(check.failures)
    drops = _Drops(updates, deletes, moves, scope, rule)
    changes = [drops.change(number, file, matched.files[number][2]) for number, file in enumerate(files)]
    rows = sum(len(rows) for _, rows in inserts)
    return MergeChanges(
        files=tuple(changes),
        inserts=tuple(inserts),
        inserted=rows if moves_keep_values else rows - moved,
        updated=sum(change.match.hits for change in changes) + moved,
        deleted=sum(change.lost for change in changes) - moved,
        stale=updates.stale + deletes.stale + moves.stale,
        moved=moved,
        moves=moves.changing if moves_keep_values else (),
        stale_deletes=np.setdiff1d(_source_rows(deletes.matched), _source_rows(deletes.changing)),
    )


def _kept(check: RuleCheck, files: Sequence[DataFile], matches: Sequence[Match], *, conditions: bool) -> _Kept:
    found = [number for number, match in enumerate(matches) if len(match.positions)]
    verdicts = check.apply([(number, files[number], matches[number]) for number in found], conditions=conditions)
    changing, stale = list(matches), 0
    for number, (mask, late) in zip(found, verdicts, strict=True):
        changing[number] = _filtered(matches[number], mask)
        stale += late
    return _Kept(tuple(changing), tuple(matches), stale)


def _filtered(match: Match, mask: npt.NDArray[np.bool_]) -> Match:
    return match if mask.all() else Match(match.positions[mask], match.source_rows[mask])


def _inserts(
    matched: MatchedFiles, moves: _Kept, check: RuleCheck, rule: Strategy, *, with_moves: bool
) -> list[tuple[PartitionRows, RowNumbers]]:
    """Return the source rows that are written to new files, by partition.

    A source row whose key occurs in several target rows that move is written as often.
    """
    elsewhere = _source_rows(moves.matched)
    moving = _source_rows(moves.changing) if with_moves else NO_ROWS
    result = []
    for group, rows in zip(matched.groups, matched.unmatched, strict=True):
        new = np.setdiff1d(rows, elsewhere) if len(elsewhere) else rows
        new = check.inserting(new) if rule.insert else NO_ROWS
        mine = moving[np.isin(moving, rows)]
        result.append((group, np.sort(np.concatenate([new, mine])) if len(mine) else new))
    return result


def _source_rows(matches: Sequence[Match]) -> RowNumbers:
    parts = [match.source_rows for match in matches if len(match.source_rows)]
    return np.concatenate(parts) if parts else NO_ROWS


@dataclass(frozen=True, slots=True, eq=False)
class _Drops:
    """Decides which rows of a file are removed."""

    updates: _Kept
    deletes: _Kept
    moves: _Kept
    scope: Sequence[RowNumbers] | None
    rule: Strategy

    def change(self, number: int, file: DataFile, reason: str) -> FileChange:
        match = self.updates.changing[number]
        if self.rule.delete and self._deletes_all_others(number):
            return FileChange(file, match, NO_ROWS, reason, drop_others=True)
        if len(self.moves.changing[number].positions):
            reason = "rows move to another partition"
        return FileChange(file, match, self._dropped(number, file), reason)

    def _deletes_all_others(self, number: int) -> bool:
        """Whether a full merge deletes every row that is not replaced."""
        kept = len(self.updates.matched[number].positions) > len(self.updates.changing[number].positions)
        others = len(self.deletes.matched[number].positions) or len(self.moves.matched[number].positions)
        return self.scope is None and not kept and not others

    def _dropped(self, number: int, file: DataFile) -> RowNumbers:
        parts = [self.deletes.changing[number].positions, self.moves.changing[number].positions]
        if self.rule.delete:
            candidates = np.arange(file.rows) if self.scope is None else self.scope[number]
            matched = [kept.matched[number].positions for kept in (self.updates, self.deletes, self.moves)]
            parts.append(np.setdiff1d(candidates, np.concatenate(matched)))
        return np.unique(np.concatenate(parts)).astype(np.int64)


def is_removed(change: FileChange, source: Source) -> bool:
    """Return whether no row of a file is left. An empty file stays unless a full merge has an empty source."""
    if change.drop_others:
        return change.match.hits == 0 and (change.file.rows > 0 or source.rows == 0)
    return 0 < change.file.rows == change.lost
