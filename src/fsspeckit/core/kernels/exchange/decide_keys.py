"""Decide about the keys of a part of an exchange: duplicates, matches, new keys, deletes and moves.

The decisions are written to a file for each part; only counts and a few examples are returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import to_numpy
from fsspeckit.core.kernels.exchange.file_rows import NO_FILE_ROWS, FileRows, write_by_part
from fsspeckit.core.kernels.exchange.move_targets import STAYS, MoveTargets, NewPlaces, store_moved
from fsspeckit.core.kernels.exchange.source_index import OrderBy, SourceIndex
from fsspeckit.core.kernels.exchange.split_keys import SOURCE_SIDE, TOMBSTONES, Keep
from fsspeckit.core.kernels.exchange.table_files import TableFolder, TablePlace
from fsspeckit.core.kernels.row_rules import Failure, Mask, RowRules, row_places
from fsspeckit.core.model import RowNumbers
from fsspeckit.core.values.take import take_rows

Moves = Literal["ignore", "check", "move"]
"""What happens to a key that is only in another partition: it is inserted, it is an error, or its row moves."""
SEND, DROP, KEEP = 0, 1, 2
"""A source row is sent to a position or a partition; a row is dropped; a matched row stays as it is."""
_SHOWN = 5
_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class KeyDecisions:
    """The decisions of a part of the exchange.

    Attributes:
        replaced: The rows of files that get the values of a source row.
        dropped: The rows of files that are removed: their keys are deleted, or they move to another partition.
        spared: The rows with keys of the source among those that a full merge may delete.
        special: The files with matched rows that are not replaced.
        inserts: The number of new rows by part of the source and partition: columns of three numbers.
        stale: The number of matched rows that are not older than their source rows.
        duplicates: The number of keys that occur several times in the source.
        examples: Some of them: part and row of the first occurrence, and the number of occurrences.
        moves: The first rows of files with keys that the source has in other partitions: file, position, part of the
            source, row.
        moved: The number of such rows; of those that move, if rows move.
        moved_from: The files with rows that move.
        new_places: Where rows that move and keep values go.
        firsts: The first row of each partition: its part of the source and its number.
        places: Where the decisions for the rows of each part of the source are.
        failures: The conditions that cannot be computed.
    """

    replaced: FileRows = NO_FILE_ROWS
    dropped: FileRows = NO_FILE_ROWS
    spared: FileRows = NO_FILE_ROWS
    special: frozenset[int] = frozenset()
    inserts: RowNumbers = field(default_factory=lambda: _NONE.reshape(0, 3))
    stale: int = 0
    duplicates: int = 0
    examples: list[tuple[int, int, int]] = field(default_factory=list)
    moves: RowNumbers = field(default_factory=lambda: _NONE.reshape(0, 4))
    moved: int = 0
    moved_from: frozenset[int] = frozenset()
    new_places: NewPlaces | None = None
    firsts: dict[int, tuple[int, int]] = field(default_factory=dict)
    places: dict[int, TablePlace] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class DecideKeys:
    """Decides about the keys of a part of the exchange.

    Attributes:
        folder: Where the decisions are written.
        update: Whether matched rows are replaced.
        insert: Whether new rows are inserted.
        delete: Whether rows without a match are removed.
        moves: What happens to keys in other partitions.
        rules: The conditions.
        targets: Finds the folders of rows that move and keep values; None if such rows get all values of the source.
        tombstones: Compares the sequence of source rows with that of tombstones, whose pieces come before other files.
        new_tombstones: The number that stands for the partition of new tombstones; None if there are none.
    """

    folder: TableFolder
    partitioned: bool
    keep: Keep
    order_by: OrderBy
    update: bool
    insert: bool
    delete: bool
    moves: Moves
    rules: RowRules
    targets: MoveTargets | None = None
    tombstones: RowRules = RowRules()  # noqa: RUF009 - it is frozen
    new_tombstones: int | None = None

    def __call__(self, part: int, pieces: Iterator[pa.Table]) -> KeyDecisions:  # noqa: ARG002 - exchanges pass it
        """Match the rows of one part. The pieces of the source come first."""
        sources: list[pa.Table] = []
        found: _FoundKeys | None = None
        for piece in pieces:
            if piece.schema.metadata[b"side"] == SOURCE_SIDE:
                sources.append(piece)
            elif sources:
                found = found or _FoundKeys(self._index(sources), self)
                found.add(piece)
        if not sources:
            return KeyDecisions()
        return (found or _FoundKeys(self._index(sources), self)).decisions()

    def _index(self, sources: Sequence[pa.Table]) -> SourceIndex:
        return SourceIndex.of(sources, self.keep, self.order_by, self.rules.sent, partitioned=self.partitioned)


@dataclass(frozen=True, slots=True, eq=False)
class _Matches:
    """Rows of files whose keys are in the index.

    File, position, row of the index, what the conditions say, whether a full merge may delete the row, and the number
    of the folder to which it moves.
    """

    numbers: RowNumbers
    positions: RowNumbers
    rows: RowNumbers
    newer: Mask
    updating: Mask
    in_scope: Mask
    folders: RowNumbers

    @classmethod
    def joined(cls, found: Sequence[_Matches]) -> _Matches:
        """Return several matches as one."""
        types = (np.int64, np.int64, np.int64, bool, bool, bool, np.int64)
        columns = zip(cls.__slots__, types, strict=True)
        return cls(*(np.concatenate([np.empty(0, t), *(getattr(each, n) for each in found)]) for n, t in columns))

    def where(self, chosen: Mask | RowNumbers) -> _Matches:
        """Return some of the matches."""
        return _Matches(*(getattr(self, name)[chosen] for name in self.__slots__))

    def sorted(self) -> _Matches:
        """Return the matches in the order of files and positions."""
        return self.where(np.lexsort((self.positions, self.numbers)))

    @property
    def file_rows(self) -> FileRows:
        """The matched rows by file."""
        return FileRows.of(self.numbers, self.positions)


@dataclass(slots=True, eq=False)
class _FoundKeys:
    """Collects the rows of files whose keys are in the index: in the partition of the source row, and elsewhere.

    Of those elsewhere only the values are collected: conditions are for keys that are not in their own partition.
    """

    index: SourceIndex
    how: DecideKeys
    own: list[_Matches] = field(default_factory=list)
    elsewhere: list[tuple[pa.Table, RowNumbers]] = field(default_factory=list)
    folders: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    late: Mask = field(init=False)

    def __post_init__(self) -> None:
        self.late = np.zeros(len(self.index.high), dtype=bool)

    def add(self, piece: pa.Table) -> None:
        """Look up the rows of one file. A source row that deletes its key does so in every partition.

        One that is not newer than a tombstone of its key is late, and has no effect.
        """
        metadata = piece.schema.metadata
        hits, rows = self.index.lookup(to_numpy(piece["high"]), to_numpy(piece["low"]))
        if metadata[b"side"] == TOMBSTONES:
            places = row_places(int(metadata[b"number"]), to_numpy(piece["row"])[hits].astype(np.int64))
            newer = self.how.tombstones.newer(*self._values(piece, hits, rows), places, self.failures)
            self.late[rows[~newer]] = True
            return
        hits, rows = hits[~self.late[rows]], rows[~self.late[rows]]
        is_own = np.ones(len(rows), dtype=bool)
        if b"partition" in metadata:
            is_own = self.index.partitions[rows] == int(metadata[b"partition"])
        elif "stored" in piece.column_names:
            is_own = self.index.stored[rows] == to_numpy(piece["stored"])[hits]
        is_own |= self.index.deletes[rows]
        self.own.append(self._matches(piece, hits[is_own], rows[is_own]))
        if self.how.moves != "ignore" and not is_own.all():
            kept = piece.drop_columns(["high", "low"])
            self.elsewhere.append((take_rows(kept, hits[~is_own]), rows[~is_own]))

    def _moving(self, is_known: Mask) -> _Matches:
        """Return the matches elsewhere of keys that are not known yet. Those that are an error are not compared."""
        found, targets = [], self.how.targets
        for piece, rows in self.elsewhere:
            hits = np.flatnonzero(~is_known[rows])
            matches = self._matches(piece, hits, rows[hits], compares=self.how.moves == "move")
            if targets is not None:
                folders = targets.find(piece, hits, self.index.partitions[rows[hits]], self.folders)
                matches = replace(matches, folders=folders)
            found.append(matches)
        return _Matches.joined(found)

    def _matches(self, piece: pa.Table, hits: RowNumbers, rows: RowNumbers, *, compares: bool = True) -> _Matches:
        """Return some matches. ``update_when`` is not for source rows that delete their key."""
        rules = self.how.rules
        newer, updating, in_scope = (np.ones(len(rows), dtype=bool) for _ in range(3))
        number = np.full(len(rows), int(piece.schema.metadata[b"number"]))
        positions = to_numpy(piece["row"])[hits].astype(np.int64)
        if compares and rules.compares and len(rows):
            values, written = self._values(piece, hits, rows), ~self.index.deletes[rows]
            places = row_places(number, positions)
            newer = rules.newer(*values, places, self.failures)
            if not written.all():
                values = self._values(piece, hits[written], rows[written])
            updating[written] = rules.updating(*values, places[written], self.failures)
        if "scope" in piece.column_names:
            in_scope = to_numpy(piece["scope"])[hits]
        return _Matches(number, positions, rows, newer, updating, in_scope, np.full(len(rows), STAYS))

    def _values(self, piece: pa.Table, hits: RowNumbers, rows: RowNumbers) -> tuple[pa.Table, pa.Table]:
        """Return the columns that conditions read of source rows and of the rows of a file."""
        names = [name for name in piece.column_names if name.startswith("target.")]
        return take_rows(self.index.values, rows), take_rows(piece.select(names), hits)

    def decisions(self) -> KeyDecisions:
        """Write the decisions for the rows of the source, and return the counts."""
        own, how, index = _Matches.joined(self.own), self.how, self.index
        is_known = np.zeros(len(index.high), dtype=bool)
        is_known[own.rows] = True
        moving = self._moving(is_known)
        if how.targets is not None:  # NULL in the source keeps the partition of some rows
            own = _Matches.joined([own, moving.where(moving.folders == STAYS)]).sorted()
            moving = moving.where(moving.folders != STAYS)
            is_known[own.rows] = True
        is_known[moving.rows] = True
        new = self._new_rows(np.flatnonzero(~is_known & ~index.deletes & ~self.late)) if how.insert else _NONE
        deletes = index.deletes[own.rows]
        replaces = own.newer & own.updating & ~deletes & how.update
        drops, leaves = own.newer & deletes, moving.newer & moving.updating & how.update & (how.moves == "move")
        replaced, moved = own.where(replaces), moving.where(leaves)
        dropped = _Matches.joined([own.where(drops), moved]).sorted()
        if how.targets is None:
            new = np.concatenate([new, moved.rows])
        partitions = index.partitions[new]
        if how.new_tombstones is not None:
            stale_deletes = np.setdiff1d(own.rows[deletes], own.rows[drops])
            deleted = np.setdiff1d(np.flatnonzero(index.deletes & ~self.late), stale_deletes)
            new = np.concatenate([new, deleted])
            partitions = np.concatenate([partitions, np.full(len(deleted), how.new_tombstones)])
        stale = int(np.count_nonzero(~own.newer) + np.count_nonzero(~moving.newer)) if how.update else 0
        stale += int(np.count_nonzero(self.late))
        kept, spared, special = _Matches.joined([]), NO_FILE_ROWS, frozenset[int]()
        if how.delete:
            kept = _Matches.joined([own.where(~replaces & ~drops), moving.where(~leaves)])
            both = _Matches.joined([own, moving]).sorted()
            spared = both.where(both.in_scope).file_rows
            special = frozenset(np.concatenate([kept.numbers, dropped.numbers]).tolist())
        return KeyDecisions(
            replaced.file_rows,
            dropped.file_rows,
            spared,
            special,
            self._insert_counts(new, partitions),
            stale,
            index.duplicates,
            index.examples,
            self._examples(moving) if how.moves == "check" else _NONE.reshape(0, 4),
            len((moved if how.moves == "move" else moving).rows),
            frozenset(moved.numbers.tolist()),
            self._new_places(moved),
            index.first_rows(~index.deletes & ~self.late) if how.partitioned else {0: (0, 0)},
            self._write(replaced, dropped, kept, new, partitions),
            tuple(self.failures),
        )

    def _new_rows(self, new: RowNumbers) -> RowNumbers:
        if self.how.rules.inserts is None or not len(new):
            return new
        places = row_places(self.index.files[new], self.index.rows[new])
        return new[self.how.rules.inserting(take_rows(self.index.values, new), places, self.failures)]

    def _examples(self, moving: _Matches) -> RowNumbers:
        """Return file, position, part of the source and row of the first keys that are in another partition."""
        shown = np.lexsort((moving.positions, moving.numbers))[:_SHOWN]
        rows = moving.rows[shown]
        found = (moving.numbers[shown], moving.positions[shown], self.index.files[rows], self.index.rows[rows])
        return np.stack([values.astype(np.int64) for values in found], axis=1)

    def _insert_counts(self, new: RowNumbers, partitions: RowNumbers) -> RowNumbers:
        pairs = self.index.files[new] << 32 | partitions
        unique, counts = np.unique(pairs, return_counts=True)
        return np.stack([unique >> 32, unique & 0xFFFFFFFF, counts], axis=1)

    def _new_places(self, moved: _Matches) -> NewPlaces | None:
        if self.how.targets is None or not len(moved.rows):
            return None
        parts, rows = self.index.files[moved.rows], self.index.rows[moved.rows]
        return store_moved(self.how.folder, parts, rows, moved.numbers, moved.positions, moved.folders, self.folders)

    def _write(
        self, replaced: _Matches, dropped: _Matches, kept: _Matches, new: RowNumbers, partitions: RowNumbers
    ) -> dict[int, TablePlace]:
        """Write row, target, position and the kind of decision, by part of the source."""
        index, none, matches = self.index, np.zeros(len(new), np.int64), (replaced, dropped, kept)
        rows = np.concatenate([*(each.rows for each in matches), new])
        targets = np.concatenate([*(each.numbers for each in matches), -1 - partitions])
        positions = np.concatenate([*(each.positions for each in matches), none])
        kinds = np.repeat([SEND, DROP, KEEP, SEND], [*(len(each.rows) for each in matches), len(new)])
        types = (np.uint32, np.int32, np.uint32, np.int8)
        columns = [
            values.astype(type_)
            for values, type_ in zip((index.rows[rows], targets, positions, kinds), types, strict=True)
        ]
        return write_by_part(self.how.folder, index.files[rows], columns, ["row", "target", "position", "kind"])
