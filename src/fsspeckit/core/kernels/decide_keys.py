"""Decide about the keys of a part of an exchange: duplicates, matches, new keys, deletes and moves.

The decisions are written to a file for each part; only counts and a few examples are returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import to_arrow, to_numpy
from fsspeckit.core.kernels.exchange_keys import SOURCE_SIDE, Keep, choose_rows, key_groups, key_ranks
from fsspeckit.core.kernels.row_rules import Mask, RowRules, flags_of
from fsspeckit.core.kernels.table_files import TableFolder, TablePlace
from fsspeckit.core.model import RowNumbers
from fsspeckit.core.values.hashing import Hashes, position_sums, runs_of
from fsspeckit.core.values.take import in_parts, take_rows, with_one_dictionary

Moves = Literal["ignore", "check", "move"]
"""What happens to a key that is only in another partition: it is inserted, it is an error, or its row moves."""
_SHOWN = 5


@dataclass(frozen=True, slots=True, eq=False)
class FileRows:
    """Some rows of files: the numbers of the files, and for each the number of rows and two sums of their positions.

    See `position_sums`.
    """

    files: RowNumbers
    counts: RowNumbers
    sums: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, numbers: RowNumbers, positions: npt.NDArray[np.uint32]) -> FileRows:
        """Count rows by file; the numbers of the files are ascending."""
        files, starts, counts = np.unique(numbers, return_index=True, return_counts=True)
        sums = np.add.reduceat(position_sums(positions), starts, axis=0) if len(files) else np.empty((0, 2), np.uint64)
        return cls(files, counts, sums)


_NONE = np.empty(0, dtype=np.int64)
_NO_ROWS = FileRows(_NONE, _NONE, np.empty((0, 2), np.uint64))


@dataclass(frozen=True, slots=True, eq=False)
class KeyDecisions:
    """The decisions of a part of the exchange.

    Attributes:
        replaced: The rows of files that get the values of a source row.
        dropped: The rows of files that are removed: their keys are deleted, or they move to another partition.
        inserts: The number of new rows by part of the source and partition: columns of three numbers.
        stale: The number of matched rows that are not older than their source rows.
        duplicates: The number of keys that occur several times in the source.
        examples: Some of them: part and row of the first occurrence, and the number of occurrences.
        moves: The first rows of files with keys that the source has in other partitions: file, position, part of the
            source, row.
        moved: The number of such rows; of those that move, if rows move.
        moved_from: The files with rows that move.
        firsts: The first row of each partition: its part of the source and its number.
        places: Where the decisions for the rows of each part of the source are.
    """

    replaced: FileRows = _NO_ROWS
    dropped: FileRows = _NO_ROWS
    inserts: RowNumbers = field(default_factory=lambda: _NONE.reshape(0, 3))
    stale: int = 0
    duplicates: int = 0
    examples: list[tuple[int, int, int]] = field(default_factory=list)
    moves: RowNumbers = field(default_factory=lambda: _NONE.reshape(0, 4))
    moved: int = 0
    moved_from: frozenset[int] = frozenset()
    firsts: dict[int, tuple[int, int]] = field(default_factory=dict)
    places: dict[int, TablePlace] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DecideKeys:
    """Decides about the keys of a part of the exchange.

    Attributes:
        folder: Where the decisions are written.
        update: Whether matched rows are replaced.
        insert: Whether new rows are inserted.
        moves: What happens to keys in other partitions.
        rules: The conditions.
    """

    folder: TableFolder
    partitioned: bool
    keep: Keep
    order_by: tuple[tuple[str, bool], ...]
    update: bool
    insert: bool
    moves: Moves
    rules: RowRules

    def __call__(self, part: int, pieces: Iterator[pa.Table]) -> KeyDecisions:  # noqa: ARG002 - exchanges pass it
        """Match the rows of one part. The pieces of the source come first."""
        sources: list[pa.Table] = []
        found: _FoundKeys | None = None
        for piece in pieces:
            if piece.schema.metadata[b"side"] == SOURCE_SIDE:
                sources.append(piece)
            elif sources:
                found = found or _FoundKeys(_SourceIndex.of(sources, self), self)
                found.add(piece)
        if not sources:
            return KeyDecisions()
        return (found or _FoundKeys(_SourceIndex.of(sources, self), self)).decisions()


@dataclass(frozen=True, slots=True, eq=False)
class _SourceIndex:
    """The source rows of a part, one for each key, in the order of their hashes.

    ``values`` has the columns that conditions read, and ``deletes`` the rows that delete their key.
    """

    high: Hashes
    low: Hashes
    files: RowNumbers
    rows: RowNumbers
    partitions: RowNumbers
    values: pa.Table
    deletes: Mask
    ambiguous: bool
    duplicates: int
    examples: list[tuple[int, int, int]]

    @classmethod
    def of(cls, pieces: Sequence[pa.Table], how: DecideKeys) -> _SourceIndex:
        """Build the index of all pieces of the source."""
        high, low, rows = (np.concatenate([to_numpy(p[name]) for p in pieces]) for name in ("high", "low", "row"))
        sizes = [piece.num_rows for piece in pieces]
        files = np.repeat([int(piece.schema.metadata[b"number"]) for piece in pieces], sizes)
        partitions = np.zeros(len(high), dtype=np.int64)
        if how.partitioned:
            partitions = np.concatenate([to_numpy(piece["partition"]) for piece in pieces]).astype(np.int64)
        order = np.argsort(high)
        same = high[order[1:]] == high[order[:-1]]
        duplicates, examples = 0, list[tuple[int, int, int]]()
        if same.any() or any("rows" in piece.column_names for piece in pieces):
            duplicates, examples, chosen = _without_duplicates(pieces, high, low, files, how)
            order = chosen[np.lexsort((low[chosen], high[chosen]))]
        upper, values = high[order], _values(pieces, how.rules.sent, order)
        return cls(
            upper,
            low[order],
            files[order],
            rows[order].astype(np.int64),
            partitions[order],
            values,
            flags_of(values),
            bool((upper[1:] == upper[:-1]).any()),
            duplicates,
            examples,
        )

    def first_rows(self) -> dict[int, tuple[int, int]]:
        """Return the part of the source and the number of the first row of each partition."""
        numbers, written = self.files << 32 | self.rows, ~self.deletes
        firsts = np.full(int(self.partitions.max(initial=-1)) + 1, np.iinfo(np.int64).max)
        np.minimum.at(firsts, self.partitions[written], numbers[written])
        found = np.flatnonzero(firsts < np.iinfo(np.int64).max).tolist()
        return {partition: (int(firsts[partition]) >> 32, int(firsts[partition]) & 0xFFFFFFFF) for partition in found}

    def lookup(self, high: Hashes, low: Hashes) -> tuple[RowNumbers, RowNumbers]:
        """Return the positions of known hashes, and the row of the index of each."""
        at = np.searchsorted(self.high, high)
        last = len(self.high) - 1
        inside = np.minimum(at, last)
        equal = self.high[inside] == high
        if self.ambiguous:  # several keys have the same upper half
            for _ in range(len(self.high)):
                wrong = equal & (self.low[inside] != low) & (inside < last)
                wrong &= self.high[np.minimum(inside + 1, last)] == high
                if not wrong.any():
                    break
                inside = inside + wrong
        hits = np.flatnonzero(equal & (self.low[inside] == low))
        return hits, inside[hits]


def _without_duplicates(
    pieces: Sequence[pa.Table], high: Hashes, low: Hashes, files: RowNumbers, how: DecideKeys
) -> tuple[int, list[tuple[int, int, int]], RowNumbers]:
    """Return the number of keys with several rows, examples of them, and the rows to keep."""
    groups = key_groups(high, low)
    weights = np.concatenate([_numbers(piece, "rows", 1) for piece in pieces])
    first_rows = np.concatenate([_numbers(piece, "first", None) for piece in pieces])
    counts = np.bincount(groups, weights).astype(np.int64)
    repeated = np.flatnonzero(counts > 1)
    if not len(repeated):
        return 0, [], np.arange(len(high))
    firsts = np.full(len(counts), len(high), dtype=np.int64)
    np.minimum.at(firsts, groups, np.arange(len(high)))
    at = firsts[repeated]
    shown = np.lexsort((first_rows[at], files[at]))[:_SHOWN]
    examples = [(int(files[at[i]]), int(first_rows[at[i]]), int(counts[repeated[i]])) for i in shown]
    ranks: list[RowNumbers] = []
    if how.keep == "highest" and how.order_by:
        columns = pa.concat_tables([p.select([f"order{i}" for i in range(len(how.order_by))]) for p in pieces])
        ranks = key_ranks(columns, how.order_by)
    return len(repeated), examples, choose_rows(groups, how.keep, ranks)


def _numbers(piece: pa.Table, name: str, default: int | None) -> RowNumbers:
    if name in piece.column_names:
        return to_numpy(piece[name])
    return to_numpy(piece["row"]).astype(np.int64) if default is None else np.full(piece.num_rows, default)


def _values(pieces: Sequence[pa.Table], names: Sequence[str], order: RowNumbers) -> pa.Table:
    """Return some columns of source rows in an order; a table without columns would have no rows."""
    if not names:
        return pa.table({"": pa.nulls(len(order))})
    joined = pa.concat_tables([piece.select(list(names)).replace_schema_metadata(None) for piece in pieces])
    return take_rows(with_one_dictionary(joined), order)


@dataclass(frozen=True, slots=True, eq=False)
class _Matches:
    """Rows of files whose keys are in the index: file, position, row of the index, and what the conditions say."""

    numbers: RowNumbers
    positions: npt.NDArray[np.uint32]
    rows: RowNumbers
    newer: Mask
    updating: Mask

    @classmethod
    def joined(cls, found: Sequence[_Matches]) -> _Matches:
        """Return the matches of all files as one."""
        types = (np.int64, np.uint32, np.int64, bool, bool)
        names = ("numbers", "positions", "rows", "newer", "updating")
        columns = zip(names, types, strict=True)
        return cls(*(np.concatenate([np.empty(0, t), *(getattr(each, n) for each in found)]) for n, t in columns))

    def where(self, mask: Mask) -> _Matches:
        """Return some of the matches."""
        return _Matches(
            self.numbers[mask], self.positions[mask], self.rows[mask], self.newer[mask], self.updating[mask]
        )


@dataclass(slots=True, eq=False)
class _FoundKeys:
    """Collects the rows of files whose keys are in the index: in the partition of the source row, and elsewhere.

    Of those elsewhere only the values are collected: conditions are for keys that are not in their own partition.
    """

    index: _SourceIndex
    how: DecideKeys
    own: list[_Matches] = field(default_factory=list)
    elsewhere: list[tuple[pa.Table, RowNumbers]] = field(default_factory=list)

    def add(self, piece: pa.Table) -> None:
        """Look up the rows of one file. A source row that deletes its key does so in every partition."""
        metadata = piece.schema.metadata
        hits, rows = self.index.lookup(to_numpy(piece["high"]), to_numpy(piece["low"]))
        is_own = np.ones(len(rows), dtype=bool)
        if b"partition" in metadata:
            is_own = self.index.partitions[rows] == int(metadata[b"partition"])
        elif "partition" in piece.column_names:
            is_own = self.index.partitions[rows] == to_numpy(piece["partition"])[hits]
        is_own |= self.index.deletes[rows]
        self.own.append(self._matches(piece, hits[is_own], rows[is_own]))
        if self.how.moves != "ignore" and not is_own.all():
            kept = piece.select(["row", *_target_columns(piece)])
            self.elsewhere.append((take_rows(kept, hits[~is_own]), rows[~is_own]))

    def _moving(self, piece: pa.Table, rows: RowNumbers, is_known: Mask) -> _Matches:
        """Return the matches elsewhere of keys that are not known yet. Those that are an error are not compared."""
        hits = np.flatnonzero(~is_known[rows])
        return self._matches(piece, hits, rows[hits], compares=self.how.moves == "move")

    def _matches(self, piece: pa.Table, hits: RowNumbers, rows: RowNumbers, *, compares: bool = True) -> _Matches:
        """Return some matches. ``update_when`` is not for source rows that delete their key."""
        rules = self.how.rules
        newer, updating = np.ones(len(rows), dtype=bool), np.ones(len(rows), dtype=bool)
        if compares and rules.compares and len(rows):
            values, written = self._values(piece, hits, rows), ~self.index.deletes[rows]
            newer = rules.newer(*values)
            if not written.all():
                values = self._values(piece, hits[written], rows[written])
            updating[written] = rules.updating(*values)
        number = np.full(len(rows), int(piece.schema.metadata[b"number"]))
        return _Matches(number, to_numpy(piece["row"])[hits], rows, newer, updating)

    def _values(self, piece: pa.Table, hits: RowNumbers, rows: RowNumbers) -> tuple[pa.Table, pa.Table]:
        """Return the columns that conditions read of source rows and of the rows of a file."""
        return take_rows(self.index.values, rows), take_rows(piece.select(_target_columns(piece)), hits)

    def decisions(self) -> KeyDecisions:
        """Write the decisions for the rows of the source, and return the counts."""
        own, how, index = _Matches.joined(self.own), self.how, self.index
        is_known = np.zeros(len(index.high), dtype=bool)
        is_known[own.rows] = True
        moving = _Matches.joined([self._moving(piece, rows, is_known) for piece, rows in self.elsewhere])
        is_known[moving.rows] = True
        new = self._new_rows(np.flatnonzero(~is_known & ~index.deletes)) if how.insert else _NONE
        deletes = index.deletes[own.rows]
        replaced = own.where(own.newer & own.updating & ~deletes & how.update)
        dropped, moved = own.where(own.newer & deletes), moving.where(moving.newer & moving.updating & how.update)
        if how.moves == "move":
            dropped = _by_position(_Matches.joined([dropped, moved]))
            new = np.concatenate([new, moved.rows])
        stale = int(np.count_nonzero(~own.newer) + np.count_nonzero(~moving.newer)) if how.update else 0
        moves = self._examples(moving) if how.moves == "check" else _NONE.reshape(0, 4)
        return KeyDecisions(
            FileRows.of(replaced.numbers, replaced.positions),
            FileRows.of(dropped.numbers, dropped.positions),
            self._insert_counts(new),
            stale,
            index.duplicates,
            index.examples,
            moves,
            len((moved if how.moves == "move" else moving).rows),
            frozenset(moved.numbers.tolist()) if how.moves == "move" else frozenset(),
            index.first_rows() if how.partitioned else {0: (0, 0)},
            self._write(replaced, dropped, new),
        )

    def _new_rows(self, new: RowNumbers) -> RowNumbers:
        if self.how.rules.inserts is None or not len(new):
            return new
        return new[self.how.rules.inserting(take_rows(self.index.values, new))]

    def _examples(self, moving: _Matches) -> RowNumbers:
        """Return file, position, part of the source and row of the first keys that are in another partition."""
        shown = np.lexsort((moving.positions, moving.numbers))[:_SHOWN]
        rows = moving.rows[shown]
        found = (moving.numbers[shown], moving.positions[shown], self.index.files[rows], self.index.rows[rows])
        return np.stack([values.astype(np.int64) for values in found], axis=1)

    def _insert_counts(self, new: RowNumbers) -> RowNumbers:
        pairs = self.index.files[new] << 32 | self.index.partitions[new]
        unique, counts = np.unique(pairs, return_counts=True)
        return np.stack([unique >> 32, unique & 0xFFFFFFFF, counts], axis=1)

    def _write(self, replaced: _Matches, dropped: _Matches, new: RowNumbers) -> dict[int, TablePlace]:
        """Write row, target, position and whether the position is dropped, by part of the source."""
        index, none = self.index, np.zeros(len(new), np.uint32)
        rows = np.concatenate([replaced.rows, dropped.rows, new])
        targets = np.concatenate([replaced.numbers, dropped.numbers, -1 - index.partitions[new]])
        positions = np.concatenate([replaced.positions, dropped.positions, none])
        drops = np.repeat([False, True, False], [len(replaced.rows), len(dropped.rows), len(new)])
        files = index.files[rows]
        order = in_parts(files)
        arrays = [index.rows[rows].astype(np.uint32), targets.astype(np.int32), positions, drops]
        table = pa.table([to_arrow(values[order]) for values in arrays], ["row", "target", "position", "drop"])
        with self.how.folder.writer() as writer:
            runs = runs_of(files[order])
            return {file: writer.add(table.slice(start, stop - start)) for file, start, stop in runs}


def _target_columns(piece: pa.Table) -> list[str]:
    return [name for name in piece.column_names if name.startswith("target.")]


def _by_position(matches: _Matches) -> _Matches:
    order = np.lexsort((matches.positions, matches.numbers))
    return _Matches(*(getattr(matches, name)[order] for name in _Matches.__slots__))
