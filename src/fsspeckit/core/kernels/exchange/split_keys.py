"""Split the keys of a large source and those of files by their hashes.

The hash of a key selects a part of the exchange. The hashes of source rows meet those of the scanned rows of files
there, with the columns that conditions compare, and `decide_keys.py` decides about them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import text_array, to_arrow, to_numpy
from fsspeckit.common.errors import UnsupportedDataError
from fsspeckit.common.partitions import partition_folders
from fsspeckit.common.schema import cast_schema
from fsspeckit.core.kernels.exchange.stored_rows import StoredRows
from fsspeckit.core.kernels.exchange.table_files import TableFolder, in_chunks
from fsspeckit.core.kernels.match_keys import in_file, plain_columns, read_keys
from fsspeckit.core.kernels.row_rules import RowRules
from fsspeckit.core.model import KeyColumn, RowNumbers, Scan
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.hashing import Hashes, runs_of
from fsspeckit.core.values.key_hash import KeyHasher
from fsspeckit.core.values.keys import comparable, last_of_each, order_rank, sortable
from fsspeckit.core.values.take import filter_rows, take_rows

Keep = Literal["first", "last", "highest"]
_BUCKETS = 1 << 16
_SKEW_ROWS = 1 << 16
_MOST_ROWS = (1 << 32) - 1  # positions have 32 bits
SOURCE_SIDE, TARGET_SIDE, TOMBSTONES = b"source", b"target", b"tombstones"


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
    ``constants`` has the columns that conditions read and the file does not have. ``scope`` has the rows that a full
    merge may delete; None stands for all rows. ``place`` is the folder of the partition, if it is compared.
    ``is_tombstones`` says that the file has tombstones, which have all key columns in their rows.
    """

    number: int
    scan: Scan
    folder_key: str
    partition: int | None
    constants: Mapping[str, pa.Scalar] = field(default_factory=dict)
    scope: StoredRows | None = None
    place: str = ""
    is_tombstones: bool = False


@dataclass(frozen=True, slots=True)
class SplitKeyHashes:
    """Splits the key hashes of source rows and of scanned rows by part.

    Attributes:
        keys: The key columns that are in the files.
        folder_keys: The key columns that are only in the names of folders.
        partitions: The partition columns.
        stored: Partition columns that files outside partition folders have in their rows, if there are such files.
        body: The columns of files after the merge.
        identities: The partitions of the source; their numbers are sent.
        order_by: The columns that decide which row of a key is kept, and whether the lowest value is.
        rules: The conditions, whose columns are sent.
        folder: Where the positions of rows in a scope are.
        sends_places: Whether the folder of the partition of each row of a file is sent.
        tombstones: Compares the sequence of source rows with that of tombstones.
    """

    storage: Storage
    hasher: KeyHasher
    parts: int
    keys: tuple[KeyColumn, ...]
    folder_keys: tuple[str, ...]
    partitions: tuple[str, ...]
    stored: tuple[KeyColumn, ...]
    body: pa.Schema
    identities: tuple[str, ...]
    keep: Keep
    order_by: tuple[tuple[str, bool], ...]
    rules: RowRules
    folder: TableFolder
    sends_places: bool
    tombstones: RowRules = RowRules()  # noqa: RUF009 - it is frozen

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
        metadata, first = {b"side": SOURCE_SIDE, b"number": b"%d" % item.number}, 0
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
            if self.stored:
                names.append("stored")
                arrays.append(to_arrow(self._stored_values(table)))
            for number, (name, _) in enumerate(self.order_by):
                names.append(f"order{number}")
                arrays.append(sortable(table[name]))
            for name, values in self.rules.source_values(table):
                names.append(name)
                arrays.append(values)
            yield self._without_skew(pa.table(arrays, names)).replace_schema_metadata(metadata)
            first += table.num_rows

    def _stored_values(self, table: pa.Table) -> Hashes:
        """Return hashes of the partition values of source rows. Rows that delete their key may have any values."""
        written, values = ~self.rules.deleting(table), table.select([key.name for key in self.stored])
        hashes = np.zeros(table.num_rows, dtype=np.uint64)
        hashes[written] = self.hasher.hash(plain_columns(filter_rows(values, written), self.stored))[0]
        return hashes

    def _without_skew(self, table: pa.Table) -> pa.Table:
        """Return one row for each key, with the number of its rows, if a key occurs very often."""
        high, low = to_numpy(table["high"]), to_numpy(table["low"])
        counts = np.bincount((high >> np.uint64(48)).astype(np.int64), minlength=_BUCKETS)
        if int(counts.max(initial=0)) < _SKEW_ROWS + 4 * table.num_rows // _BUCKETS:
            return table
        groups = key_groups(high, low)
        chosen = choose_rows(groups, self.keep, key_ranks(table, self.order_by))
        rows = np.bincount(groups)[groups[chosen]]
        firsts = np.full(int(groups.max()) + 1, table.num_rows, dtype=np.int64)
        np.minimum.at(firsts, groups, np.arange(table.num_rows))
        first = to_numpy(table["row"])[firsts[groups[chosen]]].astype(np.int64)
        return take_rows(table, chosen).append_column("rows", to_arrow(rows)).append_column("first", to_arrow(first))

    def _target_rows(self, item: TargetKeys) -> pa.Table:
        if item.scan.file.rows > _MOST_ROWS:
            raise UnsupportedDataError(f"{item.scan.file.path} has more than {_MOST_ROWS:,} rows. Split it first.")
        if item.is_tombstones:
            return self._tombstones(item)
        by_row = item.partition is None and bool(self.partitions)
        wanted = dict.fromkeys((*self.keys, *(self._in_rows(item) if by_row else ())))
        table = read_keys(self.storage, item.scan, list(wanted))
        columns = plain_columns(table, self.keys)
        if self.folder_keys:
            columns.append(_repeated(item.folder_key, table.num_rows))
        positions = in_file(item.scan, np.arange(table.num_rows))
        high, low = self.hasher.hash(columns)
        found: dict[str, Any] = {"high": high, "low": low, "row": positions.astype(np.uint32)}
        metadata = {b"side": TARGET_SIDE, b"number": b"%d" % item.number}
        if by_row and self.stored:
            found["stored"] = self.hasher.hash(plain_columns(table, self.stored))[0]
        elif item.partition is not None and self.partitions:
            metadata[b"partition"] = b"%d" % item.partition
        if item.scope is not None:
            found["scope"] = item.scope.mask(self.folder, positions)
        arrays = {name: to_arrow(values) for name, values in found.items()}
        if self.sends_places and by_row:
            arrays["place"] = self._places(table)
        elif self.sends_places:
            metadata[b"place"] = item.place.encode()
        arrays |= self.rules.target_values(self.storage, item.scan, item.constants)
        return pa.table(arrays).replace_schema_metadata(metadata)

    def _tombstones(self, item: TargetKeys) -> pa.Table:
        in_rows = [KeyColumn(name, item.scan.file.schema.field(name).type) for name in self.folder_keys]
        table = read_keys(self.storage, item.scan, [*self.keys, *in_rows])
        columns = plain_columns(table, self.keys)
        if self.folder_keys:
            columns.append(_folder_texts(table, self.folder_keys))
        high, low = self.hasher.hash(columns)
        positions = in_file(item.scan, np.arange(table.num_rows)).astype(np.uint32)
        arrays = {"high": to_arrow(high), "low": to_arrow(low), "row": to_arrow(positions)}
        arrays |= self.tombstones.target_values(self.storage, item.scan, {})
        return pa.table(arrays).replace_schema_metadata({b"side": TOMBSTONES, b"number": b"%d" % item.number})

    def _in_rows(self, item: TargetKeys) -> list[KeyColumn]:
        """Return the partition columns that are read from the rows of a file."""
        keys = {key.name: key for key in self.keys}
        names = self.partitions if self.sends_places else [key.name for key in self.stored]
        return [keys.get(name) or KeyColumn(name, item.scan.file.schema.field(name).type) for name in names]

    def _places(self, table: pa.Table) -> pa.Array:
        """Return the folders of the partitions of rows that have the values."""
        wanted = pa.schema([self.body.field(name) for name in self.partitions])
        return partition_folders(cast_schema(table.select(wanted.names), wanted, operation="reading"))

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


def key_groups(high: Hashes, low: Hashes) -> RowNumbers:
    """Return the same number for rows with the same hash."""
    order = np.lexsort((low, high))
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (high[order[1:]] != high[order[:-1]]) | (low[order[1:]] != low[order[:-1]])
    groups = np.empty(len(order), dtype=np.int64)
    groups[order] = np.cumsum(is_new) - 1
    return groups


def key_ranks(table: pa.Table, order_by: Sequence[tuple[str, bool]]) -> list[RowNumbers]:
    """Return for each order column the ranks of its values, of which the highest is kept."""
    ranks = [order_rank(table[f"order{number}"]) for number in range(len(order_by))]
    return [~values if lowest else values for values, (_, lowest) in zip(ranks, order_by, strict=True)]


def choose_rows(groups: RowNumbers, keep: Keep, ranks: Sequence[RowNumbers]) -> RowNumbers:
    """Return the row to keep of each group, ascending."""
    if keep == "first":
        return np.sort(len(groups) - 1 - last_of_each(groups[::-1], []))
    return last_of_each(groups, ranks if keep == "highest" else [])
