"""Compute the history of keys (slowly changing dimension of type 2) from their history rows and new changes.

A history is a list of points per key: at a sequence, the row gets other values, or the key is deleted. A history row
starts at a point and ends at the next one. Changes are merged into the points by sequence, and a point that does not
change anything is dropped. This module works on Arrow tables and reads no files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import to_arrow, to_numpy, valid_mask
from fsspeckit.common.errors import KeyColumnError
from fsspeckit.core.model import NO_ROWS, KeyColumn, RowNumbers
from fsspeckit.core.values.equality import columns_equal
from fsspeckit.core.values.keys import KeyEncoder, comparable, order_rank
from fsspeckit.core.values.take import take_rows, with_one_dictionary

VALID_FROM, VALID_TO, IS_CURRENT = HISTORY_COLUMNS = ("valid_from", "valid_to", "is_current")
CHANGE, DELETE = -1, -2
"""Instead of a file number: the row is a change of the feed, or a change that deletes its key."""
_NONE = -1
_OLD, _OLD_END = -1, -2  # priorities at one sequence: changes of the feed, by row number, are above both
Mask = npt.NDArray[np.bool_]
HistoryFailure = tuple[int, int, int, KeyColumnError]
"""An invalid history or feed: the number of the check, the file and position of the first row, and the error."""


@dataclass(frozen=True, slots=True)
class HistoryLayout:
    """The columns of a history.

    Attributes:
        tracked: The columns whose changes start a new history row.
        partitions: The columns that decide in which folder a row is.
        ignore_nulls: Whether a NULL of a change means the value of the preceding row.
        ordered: Whether the last of several changes with one key and sequence is known.
    """

    keys: tuple[KeyColumn, ...]
    tracked: tuple[str, ...]
    partitions: tuple[str, ...] = ()
    ignore_nulls: bool = False
    ordered: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class HistoryInput:
    """History rows of some keys and all new changes of these keys.

    Attributes:
        files: The number of the file of a history row, or `CHANGE` or `DELETE`.
        positions: The position of a history row in its file, or the row number of a change in the feed.
        table: The rows. The sequence of a change is in the column ``valid_from``.
    """

    files: RowNumbers
    positions: RowNumbers
    table: pa.Table


@dataclass(frozen=True, slots=True, eq=False)
class HistoryChanges:
    """The changes to history rows.

    Attributes:
        table: New history rows and history rows with new values; a reference to them if they are stored elsewhere.
        files: The file of the row that gets the new values; -1 for a new row.
        positions: The position in this file.
        removed_files: The files of rows that are removed.
        removed_positions: The positions of these rows.
        moved: The number of rows that are removed and written to another partition. They are new in ``files``.
        effective: The number of changes of the feed that change the history.
        failure: Why the history cannot be changed; then there are no changes.
    """

    table: Any
    files: RowNumbers
    positions: RowNumbers
    removed_files: RowNumbers
    removed_positions: RowNumbers
    moved: int
    effective: int
    failure: HistoryFailure | None = None


def raise_first_failure(failures: Iterable[HistoryFailure | None]) -> None:
    """Raise the failure that comes first in the order of checks and of rows, if there is any."""
    found = min((each for each in failures if each is not None), key=lambda each: each[:3], default=None)
    if found is not None:
        raise found[3]


def change_history(rows: HistoryInput, layout: HistoryLayout) -> HistoryChanges:
    """Return the history rows that change. The last change of a key and sequence counts, and before a history row."""
    if not rows.table.num_rows:
        return _nothing(rows)
    rows = HistoryInput(rows.files, rows.positions, with_one_dictionary(rows.table))
    times = _Times.of(rows)
    keys = KeyEncoder([comparable(rows.table[key.name], key.type) for key in layout.keys]).codes
    if (failure := _broken_row(rows, keys, times, layout)) is not None:
        return _nothing(rows, failure)
    points = _points(rows, keys, times)
    if not layout.ordered and (failure := _tie(rows, points, layout)) is not None:
        return _nothing(rows, failure)
    return _Built(rows, times, points, _values(rows, points, layout), layout).changes()


def _nothing(rows: HistoryInput, failure: HistoryFailure | None = None) -> HistoryChanges:
    return HistoryChanges(rows.table.slice(0, 0), NO_ROWS, NO_ROWS, NO_ROWS, NO_ROWS, 0, 0, failure)


@dataclass(frozen=True, slots=True, eq=False)
class _Times:
    """The starts of all rows, then the ends of closed history rows, with their ranks.

    Attributes:
        closed: The rows that are closed history rows.
        end_at: The place of the end of each row in ``values``, -1 if it has no end.
    """

    values: pa.ChunkedArray
    ranks: RowNumbers
    closed: RowNumbers
    end_at: RowNumbers

    @classmethod
    def of(cls, rows: HistoryInput) -> _Times:
        starts, ends = rows.table[VALID_FROM], rows.table[VALID_TO]
        closed = np.flatnonzero((rows.files >= 0) & valid_mask(ends))
        taken = take_rows(pa.table({"": ends}), closed).column(0)
        values = pa.chunked_array([*starts.chunks, *taken.chunks], starts.type)
        end_at = np.full(len(starts), _NONE, dtype=np.int64)
        end_at[closed] = len(starts) + np.arange(len(closed))
        return cls(values, order_rank(values), closed, end_at)


def _broken_row(rows: HistoryInput, keys: RowNumbers, times: _Times, layout: HistoryLayout) -> HistoryFailure | None:
    """Find history rows of a key that overlap, end before they start, or do not say rightly that they are current."""
    old = np.flatnonzero(rows.files >= 0)
    is_open = times.end_at[old] == _NONE
    current = rows.table[IS_CURRENT]
    says_open = to_numpy(current.fill_null(False))[old]
    wrong = old[(says_open != is_open) | ~valid_mask(current)[old]]
    if len(wrong):
        return _broken(rows, wrong, layout, 0, f"{IS_CURRENT} must be true exactly where {VALID_TO} is NULL")
    starts = times.ranks[old]
    ends = np.where(is_open, 0, times.ranks[times.end_at[old]])
    if len(wrong := old[~is_open & (ends <= starts)]):
        return _broken(rows, wrong, layout, 1, f"{VALID_TO} must be after {VALID_FROM}")
    order = np.lexsort((starts, keys[old]))
    one, after = order[:-1], order[1:]
    overlap = (keys[old][one] == keys[old][after]) & (is_open[one] | (ends[one] > starts[after]))
    if overlap.any():
        return _broken(rows, old[after[overlap]], layout, 2, "it must not overlap another row of the key")
    return None


def _broken(rows: HistoryInput, wrong: RowNumbers, layout: HistoryLayout, check: int, what: str) -> HistoryFailure:
    """Return the failure of a check; of the wrong rows, the first one of the first file is shown."""
    row = int(wrong[np.lexsort((rows.positions[wrong], rows.files[wrong]))[0]])
    names = [*(key.name for key in layout.keys), *HISTORY_COLUMNS]
    shown = rows.table.select(names).slice(row, 1).to_pylist()[0]
    error = KeyColumnError(f"the history row {shown} of the dataset is not valid: {what}. Correct the row.")
    return check, int(rows.files[row]), int(rows.positions[row]), error


@dataclass(frozen=True, slots=True, eq=False)
class _Points:
    """One point for each key and sequence, by key and sequence.

    Attributes:
        keys: The code of the key.
        at: The place of the sequence in the times.
        rows: The row with the values of the point; -1 if the key is deleted.
        from_feed: Whether the point is a change of the feed.
        old_rows: The history row that started at this point before; -1 if there was none.
        was_deleted: Whether the key was deleted at this point before.
        feed_pairs: Changes of the feed with one key and sequence, as pairs of rows.
    """

    keys: RowNumbers
    at: RowNumbers
    rows: RowNumbers
    from_feed: Mask
    old_rows: RowNumbers
    was_deleted: Mask
    feed_pairs: tuple[RowNumbers, RowNumbers]

    @property
    def is_first(self) -> Mask:
        """Which points are the first of their key."""
        return np.append(True, self.keys[1:] != self.keys[:-1])


def _points(rows: HistoryInput, keys: RowNumbers, times: _Times) -> _Points:
    """Order all points. At one key and sequence the last change of the feed wins, then a history row, then an end."""
    count, ends = len(keys), times.closed
    is_old = rows.files >= 0
    row = np.concatenate([np.where(rows.files == DELETE, _NONE, np.arange(count)), np.full(len(ends), _NONE)])
    key = np.concatenate([keys, keys[ends]])
    priority = np.concatenate([np.where(is_old, _OLD, rows.positions), np.full(len(ends), _OLD_END)])
    order = np.lexsort((priority, times.ranks, key))
    same = (key[order][1:] == key[order][:-1]) & (times.ranks[order][1:] == times.ranks[order][:-1])
    is_last = np.append(~same, True)
    point = np.cumsum(np.append(0, ~same))
    winner, ordered = order[is_last], priority[order]
    old_rows = np.full(len(winner), _NONE, dtype=np.int64)
    old_rows[point[ordered == _OLD]] = row[order[ordered == _OLD]]
    was_deleted = np.zeros(len(winner), dtype=bool)
    was_deleted[point[ordered == _OLD_END]] = True
    repeated = np.flatnonzero(same & (ordered[:-1] >= 0))
    return _Points(
        keys=key[winner],
        at=winner,
        rows=row[winner],
        from_feed=priority[winner] >= 0,
        old_rows=old_rows,
        was_deleted=was_deleted & (old_rows == _NONE),
        feed_pairs=(row[order[repeated]], row[order[repeated + 1]]),
    )


def _tie(rows: HistoryInput, points: _Points, layout: HistoryLayout) -> HistoryFailure | None:
    """Find changes with one key and sequence that differ, where it is not known which of them is the last."""
    one, other = points.feed_pairs
    differs = (one == _NONE) != (other == _NONE)
    both = np.flatnonzero((one != _NONE) & (other != _NONE))
    differs[both] = ~_equal(rows.table, one[both], rows.table, other[both], layout.tracked)
    if not differs.any():
        return None
    found = np.maximum(one[differs], other[differs])
    row = int(found[np.argmin(rows.positions[found])])
    names = [*(key.name for key in layout.keys), VALID_FROM]
    shown = list(rows.table.select(names).slice(row, 1).to_pylist()[0].values())
    error = KeyColumnError(
        f"the feed has different changes with one key and sequence, {shown}, and its query ends in a shuffle, so "
        "it is not known which is the last. Sort the feed (orderBy), or order changes by a column without ties."
    )
    return 3, CHANGE, int(rows.positions[row]), error


def _equal(left: pa.Table, one: RowNumbers, right: pa.Table, other: RowNumbers, names: Sequence[str]) -> Mask:
    """Return which rows of two tables are equal in some columns."""
    if not names or not len(one):
        return np.ones(len(one), dtype=bool)
    chosen = list(names)
    pairs = columns_equal(take_rows(left.select(chosen), one), take_rows(right.select(chosen), other))
    return np.asarray(np.logical_and.reduce(pairs))


def _values(rows: HistoryInput, points: _Points, layout: HistoryLayout) -> pa.Table:
    """Return the row of each point, any row for a point without one; ignored NULLs of changes are filled."""
    own = np.maximum(points.rows, 0)
    values = take_rows(rows.table, own)
    if not layout.ignore_nulls:
        return values
    fills = points.from_feed & (points.rows != _NONE) & ~points.is_first
    for name in layout.tracked:
        missing = fills & ~valid_mask(values[name])
        if not missing.any():
            continue
        given_by = np.maximum.accumulate(np.where(missing, 0, np.arange(len(own))))
        chosen = np.where(points.rows[given_by] == _NONE, own, own[given_by])
        column = take_rows(rows.table.select([name]), chosen).column(0)
        values = values.set_column(values.column_names.index(name), values.field(name), column)
    return values


@dataclass(frozen=True, slots=True, eq=False)
class _Built:
    """Compares the history before and after."""

    rows: HistoryInput
    times: _Times
    points: _Points
    values: pa.Table
    layout: HistoryLayout

    def changes(self) -> HistoryChanges:
        points, kept = self.points, self._kept()
        equal_old = self._equal_old()
        ends = self._ends(kept)
        has_row = kept & (points.rows != _NONE)
        stays = has_row & (points.old_rows != _NONE)
        changed = np.flatnonzero(has_row & ~(stays & equal_old & self._same_end(ends)))
        table = self._rows_with_ends(changed, ends)
        old = points.old_rows[changed]
        moves = self._moves(table, old)
        replaced = np.where(moves, _NONE, old)
        is_new = replaced == _NONE
        is_removed = self.rows.files >= 0
        is_removed[points.old_rows[stays]] = False
        is_removed[old[moves]] = True
        removed = np.flatnonzero(is_removed)
        return HistoryChanges(
            table=table,
            files=np.where(is_new, _NONE, self.rows.files[replaced]),
            positions=np.where(is_new, _NONE, self.rows.positions[replaced]),
            removed_files=self.rows.files[removed],
            removed_positions=self.rows.positions[removed],
            moved=int(np.count_nonzero(moves)),
            effective=self._effective(kept, equal_old),
        )

    def _kept(self) -> Mask:
        """Return which points differ from the point before; before the first point, a key does not exist."""
        deleted: Mask = self.points.rows == _NONE
        before = np.append(True, deleted[:-1]) | self.points.is_first
        later = np.flatnonzero(~deleted & ~before)
        redundant: Mask = deleted & before
        redundant[later] = _equal(self.values, later, self.values, later - 1, self.layout.tracked)
        return np.asarray(~redundant)

    def _equal_old(self) -> Mask:
        """Return which points have the values that the history row at this point had before."""
        points = self.points
        equal: Mask = (points.rows != _NONE) & (points.old_rows != _NONE)
        new = np.flatnonzero(equal & points.from_feed)
        equal[new] = _equal(self.values, new, self.rows.table, points.old_rows[new], self.layout.tracked)
        return equal

    def _ends(self, kept: Mask) -> RowNumbers:
        """Return the place in the times of the end of each kept point; -1 if nothing follows."""
        ends = np.full(len(kept), _NONE, dtype=np.int64)
        chosen = np.flatnonzero(kept)
        followed = self.points.keys[chosen[:-1]] == self.points.keys[chosen[1:]]
        ends[chosen[:-1][followed]] = self.points.at[chosen[1:][followed]]
        return ends

    def _same_end(self, ends: RowNumbers) -> Mask:
        before = np.where(self.points.old_rows == _NONE, _NONE, self.times.end_at[self.points.old_rows])
        ranks = self.times.ranks
        same = np.where((ends == _NONE) | (before == _NONE), ends == before, ranks[ends] == ranks[before])
        return np.asarray(same)

    def _rows_with_ends(self, chosen: RowNumbers, ends: RowNumbers) -> pa.Table:
        table = take_rows(self.values, chosen)
        is_open = ends[chosen] == _NONE
        times = self.times.values
        or_null = pa.chunked_array([*times.chunks, pa.nulls(1, times.type)], times.type)
        at = np.where(is_open, len(times), ends[chosen])
        end = take_rows(pa.table([or_null], [VALID_TO]), at).column(0)  # Arrow cannot take rows of views
        columns = {VALID_TO: end, IS_CURRENT: pa.chunked_array([to_arrow(is_open)])}
        for name, column in columns.items():
            table = table.set_column(table.column_names.index(name), table.field(name), column)
        return table

    def _moves(self, table: pa.Table, old: RowNumbers) -> Mask:
        """Return which changed rows get another partition."""
        moves: Mask = old != _NONE
        known = np.flatnonzero(moves)
        moves[known] = ~_equal(table, known, self.rows.table, old[known], self.layout.partitions)
        return moves

    def _effective(self, kept: Mask, equal_old: Mask) -> int:
        """Count the changes of the feed whose point is not the same before and after."""
        points = self.points
        deleted = points.rows == _NONE
        no_point = ~kept & (points.old_rows == _NONE) & ~points.was_deleted
        same = no_point | (kept & deleted & points.was_deleted) | (kept & equal_old)
        return int(np.count_nonzero(points.from_feed & ~same))
