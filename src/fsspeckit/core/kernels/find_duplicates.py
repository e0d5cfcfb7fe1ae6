"""Find the rows of a dataset that have the same key, and which of them is kept. Only keys and order columns are read.

The hash of a key selects a part of the exchange, so that all rows of a key are in one part. If a piece has several rows
of a key, only the one to keep is sent. Keys are compared by `fsspeckit.core.values.keys`, never by their hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import to_arrow, to_numpy
from fsspeckit.common.errors import KeyColumnError
from fsspeckit.common.partitions import typed_values
from fsspeckit.core.kernels.folder_values import check_folder_value
from fsspeckit.core.model import DataFile, KeyColumn, RowNumbers
from fsspeckit.core.parquet.batches import read_groups
from fsspeckit.core.parquet.damage import report_damage
from fsspeckit.core.parquet.reader import check_rows, open_parquet
from fsspeckit.core.storage import Storage, for_each
from fsspeckit.core.values.hashing import cut_by_part, hash_keys, partition_numbers
from fsspeckit.core.values.keys import KeyEncoder, comparable, last_of_each, order_rank, sortable
from fsspeckit.core.values.take import take_rows

_ITEM_ROWS = 1_000_000
_PART_ROWS = 1_500_000
_FILE, _ROW = "file", "row"


@dataclass(frozen=True, slots=True)
class RowGroupSpan:
    """Consecutive row groups of a file; ``number`` is the file number, ``start`` the position of the first row."""

    number: int
    file: DataFile
    row_groups: tuple[int, ...]
    start: int

    @property
    def rows(self) -> int:
        """Rows of the row groups."""
        return sum(self.file.row_groups[group] for group in self.row_groups)


@dataclass(frozen=True, slots=True, eq=False)
class DuplicateRows:
    """Rows to drop: the file number and the position in the file of each."""

    files: RowNumbers
    rows: RowNumbers


def row_group_spans(files: Sequence[DataFile], most_rows: int | None = None) -> list[tuple[RowGroupSpan, ...]]:
    """Split the row groups of all files, in order, into work items of about ``most_rows`` rows."""
    most_rows = most_rows or _ITEM_ROWS
    items: list[tuple[RowGroupSpan, ...]] = []
    item: list[RowGroupSpan] = []
    item_rows = 0
    for number, file in enumerate(files):
        if not file.rows:
            continue
        groups: list[int] = []
        start = position = 0
        for group, rows in enumerate(file.row_groups):
            groups.append(group)
            position += rows
            item_rows += rows
            if item_rows >= most_rows:
                item.append(RowGroupSpan(number, file, tuple(groups), start))
                items.append(tuple(item))
                item, groups, item_rows, start = [], [], 0, position
        if groups:
            item.append(RowGroupSpan(number, file, tuple(groups), start))
    return [*items, tuple(item)] if item else items


def partition_count(rows: int) -> int:
    """Return the number of parts into which the keys of so many rows are split."""
    return max(1, -(-rows // _PART_ROWS))


def read_spanned(storage: Storage, span: RowGroupSpan, names: list[str], operation: str) -> Iterator[pa.Table]:
    """Yield some columns of a span in batches, often one; one batch without columns if there are none."""
    file, groups, rows = span.file, span.row_groups, 0
    with report_damage(operation, file.path), open_parquet(storage, file, verify=True, partial=True) as reader:
        for table in read_groups(reader, groups, names):
            rows += table.num_rows
            yield table
    if names:
        check_rows(rows, file, groups)


@dataclass(frozen=True, slots=True)
class SplitKeys:
    """Reads keys and order columns of a work item and sends each row to the part of its key.

    Attributes:
        lowest: For each order column, whether the row with the lowest value is kept.
        nulls_match: Whether null equals null. Otherwise a null key is an error.
    """

    storage: Storage
    keys: tuple[KeyColumn, ...]
    order_by: tuple[KeyColumn, ...]
    lowest: tuple[bool, ...]
    partitions: tuple[str, ...]
    nulls_match: bool
    parts: int

    def __call__(self, item: tuple[RowGroupSpan, ...]) -> Iterator[tuple[int, pa.Table]]:
        """Yield rows with their keys, and one piece of rows that are duplicates within the item."""
        for table in self._tables(item):
            kept, duplicates = _split(table, len(self.keys), self.lowest)
            if duplicates is not None:
                yield item[0].number % self.parts, duplicates
                table = take_rows(table, kept)  # noqa: PLW2901 - the other rows are not needed
            hashes = hash_keys([table[f"k{i}"] for i in range(len(self.keys))])
            yield from cut_by_part(table, partition_numbers(hashes, self.parts))

    def _tables(self, item: tuple[RowGroupSpan, ...]) -> Iterator[pa.Table]:
        """Yield the rows of an item: in one table, unless it has large row groups."""
        if sum(span.rows for span in item) > 2 * _ITEM_ROWS:
            yield from (table for span in item for table in self._read(span))
        else:
            yield pa.concat_tables(for_each(self.storage, lambda span: pa.concat_tables(self._read(span)), item))

    def _read(self, span: RowGroupSpan) -> Iterator[pa.Table]:
        columns_to_read, file, start = [*self.keys, *self.order_by], span.file, span.start
        names = list(dict.fromkeys(column.name for column in columns_to_read if column.name in file.schema.names))
        for table in read_spanned(self.storage, span, names, "reading keys"):
            rows = span.rows if not names else table.num_rows
            yield self._columns(table, span, start, rows)
            start += rows

    def _columns(self, table: pa.Table, span: RowGroupSpan, start: int, rows: int) -> pa.Table:
        file, columns = span.file, {}
        for i, key in enumerate(self.keys):
            columns[f"k{i}"] = comparable(self._column(table, file, key, rows), key.type)
            if not self.nulls_match and columns[f"k{i}"].null_count:
                raise _null_error(key.name, file.path, columns[f"k{i}"].null_count)
        for i, column in enumerate(self.order_by):
            columns[f"o{i}"] = sortable(self._column(table, file, column, rows).cast(column.type))
        columns[_FILE] = to_arrow(np.full(rows, span.number, dtype=np.int32))
        columns[_ROW] = to_arrow(np.arange(start, start + rows))
        return pa.table(columns)

    def _column(self, table: pa.Table, file: DataFile, column: KeyColumn, rows: int) -> pa.ChunkedArray:
        """Return a column of the file or the value of its folder; nulls if the file has neither."""
        in_folder = column.name in self.partitions and file.partition is not None
        if column.name not in table.column_names:
            return (
                self._from_folder(file, column, rows) if in_folder else pa.chunked_array([pa.nulls(rows, column.type)])
            )
        stored = _decoded(table[column.name])
        if in_folder:
            check_folder_value(stored, file, column.name, self._text(file, column))
        return stored

    def _text(self, file: DataFile, column: KeyColumn) -> str | None:
        assert file.partition is not None
        return file.partition[self.partitions.index(column.name)]

    def _from_folder(self, file: DataFile, column: KeyColumn, rows: int) -> pa.ChunkedArray:
        value = typed_values([self._text(file, column)], column.type, column.name)[0]
        return pa.chunked_array([pa.repeat(value, rows)])


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _null_error(key: str, path: str, count: int) -> KeyColumnError:
    return KeyColumnError(
        f"key column {key!r} of {path} has {count:,} NULL value(s). Replace them, "
        'or pass null_keys="match" to treat NULL as equal to NULL.'
    )


def _split(table: pa.Table, keys: int, lowest: Sequence[bool]) -> tuple[RowNumbers, pa.Table | None]:
    """Return the row numbers of the rows to keep, and file and position of the others, if there are any."""
    codes = KeyEncoder([table[f"k{i}"] for i in range(keys)]).codes
    ranks = [order_rank(table[f"o{i}"]) for i in range(len(lowest))]
    kept = last_of_each(codes, [~rank if low else rank for rank, low in zip(ranks, lowest, strict=True)])
    if len(kept) == table.num_rows:
        return kept, None
    mask = np.ones(table.num_rows, dtype=bool)
    mask[kept] = False
    return kept, table.select([_FILE, _ROW]).filter(to_arrow(mask))


@dataclass(frozen=True, slots=True)
class FindDuplicates:
    """Receives all rows of some keys and returns those to drop."""

    keys: int
    lowest: tuple[bool, ...]

    def __call__(self, part: int, pieces: Iterator[pa.Table]) -> DuplicateRows:  # noqa: ARG002 - all parts are alike
        """Return the duplicates that `SplitKeys` found, and those between work items."""
        candidates: list[pa.Table] = []
        dropped: list[pa.Table] = []
        for piece in pieces:
            (candidates if piece.num_columns > 2 else dropped).append(piece)
        if candidates:
            _, duplicates = _split(pa.concat_tables(candidates), self.keys, self.lowest)
            dropped += [duplicates] if duplicates is not None else []
        return DuplicateRows(
            np.concatenate([to_numpy(piece[_FILE]) for piece in dropped] or [np.empty(0, np.int32)]).astype(np.int64),
            np.concatenate([to_numpy(piece[_ROW]) for piece in dropped] or [np.empty(0, np.int64)]),
        )


@dataclass(frozen=True, slots=True)
class CountDuplicates:
    """Receives all rows of some keys and returns the number of those with a key of another row before them."""

    keys: int

    def __call__(self, part: int, pieces: Iterator[pa.Table]) -> int:
        """Return the number of duplicates."""
        return len(FindDuplicates(self.keys, ())(part, pieces).rows)


def by_file(parts: Sequence[DuplicateRows], files: Sequence[DataFile]) -> Mapping[str, RowNumbers]:
    """Return the positions to drop from each file that has duplicates, ascending."""
    numbers = np.concatenate([duplicates.files for duplicates in parts])
    rows = np.concatenate([duplicates.rows for duplicates in parts])
    order = np.lexsort((rows, numbers))
    numbers, rows = numbers[order], rows[order]
    cuts = np.searchsorted(numbers, np.arange(len(files) + 1))
    return {file.path: rows[cuts[i] : cuts[i + 1]] for i, file in enumerate(files) if cuts[i] < cuts[i + 1]}
