"""Match the keys of a large source with those of files by an exchange of key hashes.

The hash of a key selects a part of the exchange. The hashes of source rows meet those of the scanned rows of files
there, and everything about keys is decided there: duplicates, matches, new keys, and keys in another partition. The
decisions are written to a file for each part; only counts and a few examples are returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import text_array, to_arrow, to_numpy
from fsspeckit.common.errors import UnsupportedDataError
from fsspeckit.common.partitions import partition_folders
from fsspeckit.core.kernels.match_keys import in_file, plain_columns, read_keys
from fsspeckit.core.kernels.table_files import TableFolder, TablePlace, in_chunks
from fsspeckit.core.model import KeyColumn, RowNumbers, Scan
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.hashing import Hashes, position_sums, runs_of
from fsspeckit.core.values.key_hash import KeyHasher
from fsspeckit.core.values.keys import comparable, last_of_each, order_rank, sortable
from fsspeckit.core.values.take import in_parts, take_rows

Keep = Literal["first", "last", "highest"]
_SHOWN = 5
_BUCKETS = 1 << 16
_SKEW_ROWS = 1 << 16
_MOST_ROWS = (1 << 32) - 1  # positions have 32 bits
_SOURCE, _TARGET = b"source", b"target"


@dataclass(frozen=True, slots=True)
class SourceKeys:
    """A part of the source, with its number and a piece that reads its key columns."""

    number: int
    piece: Any


@dataclass(frozen=True, slots=True)
class TargetKeys:
    """A scan of a file, with the number of the file.

    ``folder_key`` is the text of the key columns that are only in the names of folders. ``partition`` is the number of
    the file's partition, -1 if the source has no row of it, and None if the rows of the file have the values.
    """

    number: int
    scan: Scan
    folder_key: str
    partition: int | None


@dataclass(frozen=True, slots=True)
class SplitKeyHashes:
    """Splits the key hashes of source rows and of scanned rows by part.

    Attributes:
        keys: The key columns that are in the files.
        folder_keys: The key columns that are only in the names of folders.
        partitions: The partition columns.
        identities: The partitions of the source; their numbers are sent.
        order_by: The columns that decide which row of a key is kept, and whether the lowest value is.
    """

    storage: Storage
    hasher: KeyHasher
    parts: int
    keys: tuple[KeyColumn, ...]
    folder_keys: tuple[str, ...]
    partitions: tuple[str, ...]
    identities: tuple[str, ...]
    keep: Keep
    order_by: tuple[tuple[str, bool], ...]

    def __call__(self, item: SourceKeys | TargetKeys) -> Iterator[tuple[int, pa.Table]]:
        """Yield the hashes of one item by part, in the order of their upper bits."""
        for table in self._source_rows(item) if isinstance(item, SourceKeys) else [self._target_rows(item)]:
            bucket = (to_numpy(table["high"]) >> np.uint64(48)).astype(np.uint16)
            order = np.argsort(bucket, kind="stable")
            ordered, part = take_rows(table, order), bucket[order].astype(np.int64) * self.parts >> 16
            for number, start, stop in runs_of(part):
                yield number, ordered.slice(start, stop - start)

    def _source_rows(self, item: SourceKeys) -> Iterator[pa.Table]:
        """Yield the hashes of the rows of a part of the source, in chunks."""
        metadata, first = {b"side": _SOURCE, b"number": b"%d" % item.number}, 0
        for table in in_chunks(item.piece.batches()):
            columns = plain_columns(table, self.keys)
            if self.folder_keys:
                columns.append(_folder_texts(table, self.folder_keys))
            names = ["high", "low", "row"]
            arrays = [to_arrow(values) for values in self.hasher.hash(columns)]
            arrays.append(to_arrow(np.arange(first, first + table.num_rows, dtype=np.uint32)))
            if self.partitions:
                names.append("partition")
                arrays.append(to_arrow(self._partition_numbers(table)))
            for number, (name, _) in enumerate(self.order_by):
                names.append(f"order{number}")
                arrays.append(sortable(table[name]))
            yield self._without_skew(pa.table(arrays, names)).replace_schema_metadata(metadata)
            first += table.num_rows

    def _without_skew(self, table: pa.Table) -> pa.Table:
        """Return one row for each key, with the number of its rows, if a key occurs very often."""
        high, low = to_numpy(table["high"]), to_numpy(table["low"])
        counts = np.bincount((high >> np.uint64(48)).astype(np.int64), minlength=_BUCKETS)
        if int(counts.max(initial=0)) < _SKEW_ROWS + 4 * table.num_rows // _BUCKETS:
            return table
        groups = _groups(high, low)
        chosen = choose_rows(groups, self.keep, _ranks(table, self.order_by))
        rows = np.bincount(groups)[groups[chosen]]
        firsts = np.full(int(groups.max()) + 1, table.num_rows, dtype=np.int64)
        np.minimum.at(firsts, groups, np.arange(table.num_rows))
        first = to_numpy(table["row"])[firsts[groups[chosen]]].astype(np.int64)
        return take_rows(table, chosen).append_column("rows", to_arrow(rows)).append_column("first", to_arrow(first))

    def _target_rows(self, item: TargetKeys) -> pa.Table:
        if item.scan.file.rows > _MOST_ROWS:
            raise UnsupportedDataError(f"{item.scan.file.path} has more than {_MOST_ROWS:,} rows. Split it first.")
        by_row = item.partition is None and bool(self.partitions)
        keys = list(self.keys)
        stored = [KeyColumn(name, item.scan.file.schema.field(name).type) for name in self.partitions if by_row]
        wanted = [*keys, *(key for key in stored if key.name not in {own.name for own in keys})]
        table = read_keys(self.storage, item.scan, wanted)
        columns = plain_columns(table, keys)
        if self.folder_keys:
            columns.append(_repeated(item.folder_key, table.num_rows))
        names = ["high", "low", "row"]
        positions = in_file(item.scan, np.arange(table.num_rows)).astype(np.uint32)
        arrays = [*(to_arrow(values) for values in self.hasher.hash(columns)), to_arrow(positions)]
        metadata = {b"side": _TARGET, b"number": b"%d" % item.number}
        if by_row:
            names.append("partition")
            arrays.append(to_arrow(self._partition_numbers(table)))
        elif item.partition is not None and self.partitions:
            metadata[b"partition"] = b"%d" % item.partition
        return pa.table(arrays, names).replace_schema_metadata(metadata)

    def _partition_numbers(self, table: pa.Table) -> npt.NDArray[np.int32]:
        """Return the number of the partition of each row, or -1 for a partition that the source does not have."""
        encoded = partition_folders(table.select(list(self.partitions))).dictionary_encode()
        known = {name: number for number, name in enumerate(self.identities)}
        numbers = np.array([known.get(name, -1) for name in encoded.dictionary.to_pylist()], dtype=np.int32)
        return np.asarray(numbers[to_numpy(encoded.indices)])


def _folder_texts(table: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    return comparable(pa.chunked_array([partition_folders(table.select(list(names)))]), pa.string())


def _repeated(text: str, count: int) -> pa.ChunkedArray:
    return comparable(pa.chunked_array([text_array([text]).take(pa.repeat(0, count))]), pa.string())


def _groups(high: Hashes, low: Hashes) -> RowNumbers:
    """Return the same number for rows with the same hash."""
    order = np.lexsort((low, high))
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (high[order[1:]] != high[order[:-1]]) | (low[order[1:]] != low[order[:-1]])
    groups = np.empty(len(order), dtype=np.int64)
    groups[order] = np.cumsum(is_new) - 1
    return groups


def _ranks(table: pa.Table, order_by: Sequence[tuple[str, bool]]) -> list[RowNumbers]:
    """Return for each order column the ranks of its values, of which the highest is kept."""
    ranks = [order_rank(table[f"order{number}"]) for number in range(len(order_by))]
    return [~values if lowest else values for values, (_, lowest) in zip(ranks, order_by, strict=True)]


def choose_rows(groups: RowNumbers, keep: Keep, ranks: Sequence[RowNumbers]) -> RowNumbers:
    """Return the row to keep of each group, ascending."""
    if keep == "first":
        return np.sort(len(groups) - 1 - last_of_each(groups[::-1], []))
    return last_of_each(groups, ranks if keep == "highest" else [])


@dataclass(frozen=True, slots=True, eq=False)
class KeyDecisions:
    """The decisions of a part of the exchange.

    Attributes:
        files: The numbers of the files with matched rows.
        hits: The number of matched rows of each of them.
        sums: For each of them two sums over its matched positions, see `position_sums`.
        inserts: The number of new rows by part of the source and partition: columns of three numbers.
        duplicates: The number of keys that occur several times in the source.
        examples: Some of them: part and row of the first occurrence, and the number of occurrences.
        moves: The first rows of files with keys that the source has in other partitions: file, position, part of the
            source, row.
        moved: The number of such rows.
        firsts: The first row of each partition: its part of the source and its number.
        places: Where the decisions for the rows of each part of the source are.
    """

    files: RowNumbers
    hits: RowNumbers
    sums: npt.NDArray[np.uint64]
    inserts: RowNumbers
    duplicates: int
    examples: list[tuple[int, int, int]]
    moves: RowNumbers
    moved: int
    firsts: dict[int, tuple[int, int]]
    places: dict[int, TablePlace]


@dataclass(frozen=True, slots=True)
class DecideKeys:
    """Decides about the keys of a part of the exchange.

    Attributes:
        folder: Where the decisions are written.
        update: Whether matched rows are replaced.
        insert: Whether new rows are inserted.
        check_moves: Whether keys in other partitions are looked for.
    """

    folder: TableFolder
    partitioned: bool
    keep: Keep
    order_by: tuple[tuple[str, bool], ...]
    update: bool
    insert: bool
    check_moves: bool

    def __call__(self, part: int, pieces: Iterator[pa.Table]) -> KeyDecisions:  # noqa: ARG002 - exchanges pass it
        """Match the rows of one part. The pieces of the source come first."""
        sources: list[pa.Table] = []
        found: _FoundKeys | None = None
        for piece in pieces:
            if piece.schema.metadata[b"side"] == _SOURCE:
                sources.append(piece)
            elif sources:
                found = found or _FoundKeys(_SourceIndex.of(sources, self), self.check_moves)
                found.add(piece)
        if not sources:
            none = np.empty(0, dtype=np.int64)
            return KeyDecisions(
                none, none, np.empty((0, 2), np.uint64), none.reshape(0, 3), 0, [], none.reshape(0, 4), 0, {}, {}
            )
        return (found or _FoundKeys(_SourceIndex.of(sources, self), self.check_moves)).decisions(self)


@dataclass(frozen=True, slots=True, eq=False)
class _SourceIndex:
    """The source rows of a part, one for each key, in the order of their hashes."""

    high: Hashes
    low: Hashes
    files: RowNumbers
    rows: RowNumbers
    partitions: RowNumbers
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
        upper = high[order]
        return cls(
            upper,
            low[order],
            files[order],
            rows[order].astype(np.int64),
            partitions[order],
            bool((upper[1:] == upper[:-1]).any()),
            duplicates,
            examples,
        )

    def first_rows(self) -> dict[int, tuple[int, int]]:
        """Return the part of the source and the number of the first row of each partition."""
        numbers = self.files << 32 | self.rows
        firsts = np.full(int(self.partitions.max(initial=-1)) + 1, np.iinfo(np.int64).max)
        np.minimum.at(firsts, self.partitions, numbers)
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
    groups = _groups(high, low)
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
        ranks = _ranks(columns, how.order_by)
    return len(repeated), examples, choose_rows(groups, how.keep, ranks)


def _numbers(piece: pa.Table, name: str, default: int | None) -> RowNumbers:
    if name in piece.column_names:
        return to_numpy(piece[name])
    return to_numpy(piece["row"]).astype(np.int64) if default is None else np.full(piece.num_rows, default)


@dataclass(slots=True, eq=False)
class _FoundKeys:
    """Collects the rows of files whose keys are in the index."""

    index: _SourceIndex
    check_moves: bool
    own: list[tuple[int, RowNumbers, RowNumbers]] = field(default_factory=list)
    elsewhere: list[tuple[int, RowNumbers, RowNumbers]] = field(default_factory=list)

    def add(self, piece: pa.Table) -> None:
        """Look up the rows of one file."""
        metadata = piece.schema.metadata
        number = int(metadata[b"number"])
        hits, rows = self.index.lookup(to_numpy(piece["high"]), to_numpy(piece["low"]))
        positions = to_numpy(piece["row"])[hits]
        if b"partition" in metadata:
            is_own = self.index.partitions[rows] == int(metadata[b"partition"])
        elif "partition" in piece.column_names:
            is_own = self.index.partitions[rows] == to_numpy(piece["partition"])[hits]
        else:
            self.own.append((number, positions, rows))
            return
        self.own.append((number, positions[is_own], rows[is_own]))
        if self.check_moves:
            self.elsewhere.append((number, positions[~is_own], rows[~is_own]))

    def decisions(self, how: DecideKeys) -> KeyDecisions:
        """Write the decisions for the rows of the source, and return the counts."""
        numbers, positions, rows = _joined(self.own)
        is_matched = np.zeros(len(self.index.high), dtype=bool)
        is_matched[rows] = True
        moves, moved = self._moves(is_matched)
        new = np.flatnonzero(~is_matched) if how.insert else np.empty(0, dtype=np.int64)
        inserts = self._insert_counts(new)
        if not how.update:
            numbers, positions, rows = _joined([])
        files, starts, hits = np.unique(numbers, return_index=True, return_counts=True)  # numbers are ascending
        sums = np.zeros((0, 2), np.uint64)
        if len(files):
            sums = np.add.reduceat(position_sums(positions), starts, axis=0)
        targets = np.concatenate([numbers, -1 - self.index.partitions[new]])
        places = self._write(
            np.concatenate([rows, new]), targets, np.concatenate([positions, np.zeros(len(new), np.uint32)]), how.folder
        )
        duplicates, examples = self.index.duplicates, self.index.examples
        firsts = self.index.first_rows() if how.partitioned else {0: (0, 0)}
        return KeyDecisions(files, hits, sums, inserts, duplicates, examples, moves, moved, firsts, places)

    def _moves(self, is_matched: npt.NDArray[np.bool_]) -> tuple[RowNumbers, int]:
        numbers, positions, rows = _joined(self.elsewhere)
        moving = np.flatnonzero(~is_matched[rows])
        moving = moving[np.lexsort((positions[moving], numbers[moving]))]
        shown = moving[:_SHOWN]
        found = (numbers[shown], positions[shown], self.index.files[rows[shown]], self.index.rows[rows[shown]])
        return np.stack([values.astype(np.int64) for values in found], axis=1), len(moving)

    def _insert_counts(self, new: RowNumbers) -> RowNumbers:
        pairs = self.index.files[new] << 32 | self.index.partitions[new]
        unique, counts = np.unique(pairs, return_counts=True)
        return np.stack([unique >> 32, unique & 0xFFFFFFFF, counts], axis=1)

    def _write(
        self, rows: RowNumbers, targets: RowNumbers, positions: npt.NDArray[np.uint32], folder: TableFolder
    ) -> dict[int, TablePlace]:
        """Write row, target and position of each decision, by part of the source."""
        files = self.index.files[rows]
        order = in_parts(files)
        arrays = [self.index.rows[rows].astype(np.uint32), targets.astype(np.int32), positions.astype(np.uint32)]
        table = pa.table([to_arrow(values[order]) for values in arrays], ["row", "target", "position"])
        with folder.writer() as writer:
            runs = runs_of(files[order])
            return {file: writer.add(table.slice(start, stop - start)) for file, start, stop in runs}


def _joined(
    found: Sequence[tuple[int, RowNumbers, RowNumbers]],
) -> tuple[RowNumbers, npt.NDArray[np.uint32], RowNumbers]:
    numbers = np.repeat([number for number, _, _ in found], [len(rows) for _, _, rows in found]).astype(np.int64)
    positions = np.concatenate([np.empty(0, np.uint32), *(positions for _, positions, _ in found)])
    return numbers, positions, np.concatenate([np.empty(0, np.int64), *(rows for _, _, rows in found)])
