"""Change the history of the keys of a large feed: workers find its history rows, change them, and keep the result.

A first exchange compares hashes of keys and keeps the positions of history rows in files. A second one brings the
changes of a key and its history rows together. The changed rows are then the source rows of a merge by position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import to_numpy
from fsspeckit.common.partitions import partition_folders
from fsspeckit.core.expressions.conditions import errors_name
from fsspeckit.core.expressions.evaluate import matching_rows
from fsspeckit.core.expressions.tree import Expression
from fsspeckit.core.kernels.exchange.decide_keys import DROP, SEND
from fsspeckit.core.kernels.exchange.file_rows import NO_FILE_ROWS, FileRows, write_by_part
from fsspeckit.core.kernels.exchange.source_index import SourceIndex
from fsspeckit.core.kernels.exchange.split_keys import SOURCE_SIDE
from fsspeckit.core.kernels.exchange.table_files import TableFolder, TablePlace, in_chunks
from fsspeckit.core.kernels.history_rows import FeedChunk, OldRows, SplitHistory, join
from fsspeckit.core.model import NO_ROWS, DataFile, RowNumbers
from fsspeckit.core.values.history import (
    HistoryChanges,
    HistoryFailure,
    HistoryInput,
    HistoryLayout,
    change_history,
)
from fsspeckit.core.values.take import take_rows

_PIECE_BYTES = 32 * 1024 * 1024
_OLD_ROWS = 250_000
_MOST_DISTINCT = 1 << 16  # more values than codes of 16 bits


@dataclass(frozen=True, slots=True)
class KeepPositions:
    """Keeps the positions of the rows of files whose keys are in the source."""

    folder: TableFolder

    def __call__(self, part: int, pieces: Iterator[pa.Table]) -> dict[int, tuple[TablePlace, int]]:  # noqa: ARG002
        """Return for each file where the positions are, and their number. The pieces of the source come first."""
        sources: list[pa.Table] = []
        index: SourceIndex | None = None
        numbers, positions = [NO_ROWS], [NO_ROWS]
        for piece in pieces:
            if piece.schema.metadata[b"side"] == SOURCE_SIDE:
                sources.append(piece)
            elif sources:
                index = index or SourceIndex.of(sources, "first", (), (), partitioned=False)
                hits, _ = index.lookup(to_numpy(piece["high"]), to_numpy(piece["low"]))
                numbers.append(np.full(len(hits), int(piece.schema.metadata[b"number"])))
                positions.append(to_numpy(piece["row"])[hits])
        files = np.concatenate(numbers)
        places = write_by_part(self.folder, files, [np.concatenate(positions).astype(np.uint32)], ["position"])
        counts = np.bincount(files)
        return {number: (place, int(counts[number])) for number, place in places.items()}


@dataclass(frozen=True, slots=True, eq=False)
class FeedPiece:
    """A part of a feed: the number of its first row, a piece that reads it, and which rows delete their key."""

    first: int
    piece: Any
    deletes: Expression | None


@dataclass(frozen=True, slots=True, eq=False)
class StoredPositions:
    """History rows of one file: its number, and where their positions are."""

    number: int
    file: DataFile
    places: tuple[TablePlace, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _TableColumns:
    """Rows of a feed in memory."""

    table: pa.Table

    def columns(self, names: Sequence[str]) -> pa.Table:
        return self.table.select(list(names))


@dataclass(frozen=True, slots=True)
class SplitPieces:
    """Splits the rows of a feed and history rows by key, some rows at a time."""

    split: SplitHistory
    folder: TableFolder

    def __call__(self, item: FeedPiece | StoredPositions) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows of one item by part."""
        chunks = self._changes(item) if isinstance(item, FeedPiece) else self._old_rows(item)
        return (piece for chunk in chunks for piece in self.split(chunk))

    def _changes(self, item: FeedPiece) -> Iterator[FeedChunk]:
        first = item.first
        for table in in_chunks(item.piece.batches()):
            deletes = np.zeros(table.num_rows, dtype=bool)
            if item.deletes is not None:
                with errors_name("delete_when"):
                    deletes = matching_rows(item.deletes, table)
            yield FeedChunk(first, _TableColumns(table), deletes)
            first += table.num_rows

    def _old_rows(self, item: StoredPositions) -> Iterator[OldRows]:
        found = [to_numpy(self.folder.read(place)["position"]) for place in item.places]
        positions = np.sort(np.concatenate(found)).astype(np.int64)
        for start in range(0, len(positions), _OLD_ROWS):
            yield OldRows(item.number, item.file, positions[start : start + _OLD_ROWS])


@dataclass(frozen=True, slots=True, eq=False)
class StoredTable:
    """A table in pieces in files, which is read as a part of a source."""

    folder: TableFolder
    places: tuple[TablePlace, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches."""
        return (batch for place in self.places for batch in self.folder.read(place).to_batches())


@dataclass(frozen=True, slots=True, eq=False)
class HistoryDecisions:
    """The changes to history rows of a part.

    Attributes:
        replaced: The history rows that get other values.
        dropped: The history rows that are removed.
        folders: The partitions of new history rows.
        inserts: The number of new history rows of each of these partitions.
        table: The changed history rows.
        place: Where the decisions about these rows are, if there are any; partitions have the numbers of ``folders``.
        distinct: The distinct values of columns of dictionaries with few codes.
        moved: The number of rows that are removed and written to another partition.
        effective: The number of changes of the feed that change the history.
        failure: Why the history cannot be changed.
    """

    replaced: FileRows
    dropped: FileRows
    folders: tuple[str, ...]
    inserts: RowNumbers
    table: StoredTable
    place: TablePlace | None
    distinct: tuple[pa.Array, ...]
    moved: int
    effective: int
    spared: FileRows = NO_FILE_ROWS
    moved_from: frozenset[int] = frozenset()
    failure: HistoryFailure | None = None


@dataclass(frozen=True, slots=True)
class StoreHistory:
    """Changes the history of the keys of a part, and keeps the rows that change and the decisions about them.

    Attributes:
        schema: The columns of history rows.
        partitions: The partition columns.
        coded: The columns whose distinct values are needed.
    """

    folder: TableFolder
    schema: pa.Schema
    layout: HistoryLayout
    partitions: tuple[str, ...]
    coded: tuple[str, ...]

    def __call__(self, part: int, pieces: Iterator[pa.Table]) -> HistoryDecisions:  # noqa: ARG002 - exchanges pass it
        """Change the history of the keys of one part."""
        found = [
            HistoryInput(
                to_numpy(piece.column(0)), to_numpy(piece.column(1)), pa.table(piece.columns[2:], schema=self.schema)
            )
            for piece in pieces
        ]
        changes = change_history(join(found, self.schema), self.layout)
        is_new = changes.files < 0
        folders, numbers = self._folders(changes.table, np.flatnonzero(is_new))
        targets = changes.files.copy()
        targets[is_new] = -1 - numbers
        return HistoryDecisions(
            _file_rows(changes.files[~is_new], changes.positions[~is_new]),
            _file_rows(changes.removed_files, changes.removed_positions),
            folders,
            np.bincount(numbers, minlength=len(folders)),
            self._store(changes.table),
            self._decisions(changes, targets),
            tuple(pc.unique(changes.table[name]).slice(0, _MOST_DISTINCT) for name in self.coded),
            changes.moved,
            changes.effective,
            failure=changes.failure,
        )

    def _folders(self, table: pa.Table, rows: RowNumbers) -> tuple[tuple[str, ...], RowNumbers]:
        """Return the partitions of some rows, and the number of the partition of each."""
        if not len(rows):
            return (), NO_ROWS
        if not self.partitions:
            return ("",), np.zeros(len(rows), dtype=np.int64)
        encoded = partition_folders(take_rows(table.select(list(self.partitions)), rows)).dictionary_encode()
        return tuple(encoded.dictionary.to_pylist()), to_numpy(encoded.indices).astype(np.int64)

    def _store(self, table: pa.Table) -> StoredTable:
        if not table.num_rows:
            return StoredTable(self.folder, ())
        step = max(1, _PIECE_BYTES // max(1, table.nbytes // table.num_rows))
        with self.folder.writer() as writer:
            places = [writer.add(table.slice(start, step)) for start in range(0, table.num_rows, step)]
        return StoredTable(self.folder, tuple(places))

    def _decisions(self, changes: HistoryChanges, targets: RowNumbers) -> TablePlace | None:
        """Write the decisions. Rows that are removed belong to no changed row."""
        count, removed = len(targets), len(changes.removed_files)
        if not count + removed:
            return None
        columns: list[npt.NDArray[Any]] = [
            np.concatenate([np.arange(count), np.zeros(removed, dtype=np.int64)]).astype(np.uint32),
            np.concatenate([targets, changes.removed_files]).astype(np.int32),
            np.concatenate([np.maximum(changes.positions, 0), changes.removed_positions]).astype(np.uint32),
            np.repeat([SEND, DROP], [count, removed]).astype(np.int8),
        ]
        parts = np.zeros(count + removed, dtype=np.int64)
        return write_by_part(self.folder, parts, columns, ["row", "target", "position", "kind"])[0]


def _file_rows(files: RowNumbers, positions: RowNumbers) -> FileRows:
    order = np.lexsort((positions, files))
    return FileRows.of(files[order], positions[order])
