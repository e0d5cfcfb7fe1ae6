"""Which rows of a dataset have the same key, and which of them stays: found from keys, order columns and positions.

The rows themselves are not read. Keys travel to the part of the exchange that their hash names, so all rows of a key
meet in one place; a piece that holds several rows of a key sends only the one that wins there. When keys are equal is
decided by `fsspeckit.core.values.keys`, never by a hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import to_arrow, to_numpy
from fsspeckit.common.errors import KeyColumnError, PartitionError
from fsspeckit.common.partitions import typed_values
from fsspeckit.core.model import DataFile, KeyColumn, RowNumbers
from fsspeckit.core.parquet.reader import check_int96, check_rows, open_parquet, report_damage
from fsspeckit.core.storage import Storage, for_each
from fsspeckit.core.values.hashing import cut_by_part, hash_keys, partition_numbers
from fsspeckit.core.values.keys import KeyEncoder, comparable, last_of_each, order_rank, sortable
from fsspeckit.core.values.take import take_rows

_ITEM_ROWS = 1_000_000
_PART_ROWS = 1_500_000
_FILE, _ROW = "file", "row"


@dataclass(frozen=True, slots=True)
class RowGroupSpan:
    """Neighbouring row groups of a file; ``number`` counts files, ``start`` is the first row."""

    number: int
    file: DataFile
    row_groups: tuple[int, ...]
    start: int


@dataclass(frozen=True, slots=True, eq=False)
class DuplicateRows:
    """Rows that go: the number of the file and the position in it, of each."""

    files: RowNumbers
    rows: RowNumbers


def row_group_spans(files: Sequence[DataFile], most_rows: int | None = None) -> list[tuple[RowGroupSpan, ...]]:
    """All row groups of all files in order, in items of about so many rows."""
    most_rows = most_rows or _ITEM_ROWS
    items: list[tuple[RowGroupSpan, ...]] = []
    item: list[RowGroupSpan] = []
    held = 0
    for number, file in enumerate(files):
        if not file.rows:
            continue
        start, groups = 0, []
        first = 0
        for group, rows in enumerate(file.row_groups):
            groups.append(group)
            start += rows
            held += rows
            if held >= most_rows:
                item.append(RowGroupSpan(number, file, tuple(groups), first))
                items.append(tuple(item))
                item, groups, held, first = [], [], 0, start
        if groups:
            item.append(RowGroupSpan(number, file, tuple(groups), first))
    return [*items, tuple(item)] if item else items


def partition_count(rows: int) -> int:
    """Into how many parts the keys of so many rows are split."""
    return max(1, -(-rows // _PART_ROWS))


@dataclass(frozen=True, slots=True)
class SplitKeys:
    """Reads keys and order columns of some row groups and sends each row to the part of its key."""

    storage: Storage
    keys: tuple[KeyColumn, ...]
    order_by: tuple[KeyColumn, ...]
    lowest: tuple[bool, ...]
    partitions: tuple[str, ...]
    nulls_match: bool
    parts: int

    def __call__(self, item: tuple[RowGroupSpan, ...]) -> Iterator[tuple[int, pa.Table]]:
        """Pieces of keys, and one of rows that lost already."""
        table = pa.concat_tables(for_each(self.storage, self._read, item))
        winners = last_of_each(_codes(table, len(self.keys)), _ranks(table, self.lowest))
        if len(winners) < table.num_rows:
            lost = np.ones(table.num_rows, dtype=bool)
            lost[winners] = False
            yield item[0].number % self.parts, table.select([_FILE, _ROW]).filter(to_arrow(lost))
            table = take_rows(table, winners)
        hashes = hash_keys([table[f"k{i}"] for i in range(len(self.keys))])
        yield from cut_by_part(table, partition_numbers(hashes, self.parts))

    def _read(self, stretch: RowGroupSpan) -> pa.Table:
        file = stretch.file
        wanted = [*self.keys, *self.order_by]
        names = list(dict.fromkeys(column.name for column in wanted if column.name in file.schema.names))
        with (
            report_damage("reading keys", file.path),
            open_parquet(self.storage, file, verify=True, partial=True) as reader,
        ):
            table = reader.read_row_groups(list(stretch.row_groups), names, use_threads=False)
        rows = sum(file.row_groups[group] for group in stretch.row_groups)
        if names:
            check_rows(table.num_rows, file, stretch.row_groups)
            check_int96(self.storage, file, stretch.row_groups, names)
        columns = {}
        for i, key in enumerate(self.keys):
            columns[f"k{i}"] = comparable(self._column(table, file, key, rows), key.type)
            if not self.nulls_match and columns[f"k{i}"].null_count:
                raise _null_error(key.name, file.path, columns[f"k{i}"].null_count)
        for i, column in enumerate(self.order_by):
            columns[f"o{i}"] = sortable(self._column(table, file, column, rows).cast(column.type))
        columns[_FILE] = to_arrow(np.full(rows, stretch.number, dtype=np.int32))
        columns[_ROW] = to_arrow(np.arange(stretch.start, stretch.start + rows))
        return pa.table(columns)

    def _column(self, table: pa.Table, file: DataFile, column: KeyColumn, rows: int) -> pa.ChunkedArray:
        """A column of the file, of its folder, or nulls where the file is older than the column."""
        in_folder = column.name in self.partitions and file.partition is not None
        if column.name not in table.column_names:
            return self._of_folder(file, column, rows) if in_folder else pa.chunked_array([pa.nulls(rows, column.type)])
        found = _decoded(table[column.name])
        if in_folder and not comparable(found, column.type).equals(
            comparable(self._of_folder(file, column, rows), column.type)
        ):
            raise PartitionError(
                f"{column.name!r} in the rows of {file.path} is not what its folder says, so readers do not agree on "
                "which rows have the same key; rewrite the file, or name other columns"
            )
        return found

    def _of_folder(self, file: DataFile, column: KeyColumn, rows: int) -> pa.ChunkedArray:
        assert file.partition is not None
        text = file.partition[self.partitions.index(column.name)]
        return pa.chunked_array([pa.repeat(typed_values([text], column.type, column.name)[0], rows)])


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _null_error(key: str, path: str, count: int) -> KeyColumnError:
    return KeyColumnError(
        f"key column {key!r} of {path} has {count:,} NULL value(s); fill them, "
        'or pass null_keys="match" to treat NULL as equal to NULL'
    )


def _codes(table: pa.Table, keys: int) -> npt.NDArray[np.int64]:
    return KeyEncoder([table[f"k{i}"] for i in range(keys)]).codes


def _ranks(table: pa.Table, lowest: Sequence[bool]) -> list[npt.NDArray[np.int64]]:
    found = [order_rank(table[f"o{i}"]) for i in range(len(lowest))]
    return [~rank if low else rank for rank, low in zip(found, lowest, strict=True)]


@dataclass(frozen=True, slots=True)
class FindDuplicates:
    """Meets all rows of its keys and names those that go."""

    keys: int
    lowest: tuple[bool, ...]

    def __call__(self, part: int, pieces: Iterator[pa.Table]) -> DuplicateRows:  # noqa: ARG002 - any part is like any other
        """Rows that lost before, and rows that lose now."""
        rivals: list[pa.Table] = []
        lost: list[pa.Table] = []
        for piece in pieces:
            (rivals if piece.num_columns > 2 else lost).append(piece)
        if rivals:
            table = pa.concat_tables(rivals)
            winners = last_of_each(_codes(table, self.keys), _ranks(table, self.lowest))
            if len(winners) < table.num_rows:
                mask = np.ones(table.num_rows, dtype=bool)
                mask[winners] = False
                lost.append(table.select([_FILE, _ROW]).filter(to_arrow(mask)))
        return DuplicateRows(
            np.concatenate([to_numpy(piece[_FILE]) for piece in lost] or [np.empty(0, np.int32)]).astype(np.int64),
            np.concatenate([to_numpy(piece[_ROW]) for piece in lost] or [np.empty(0, np.int64)]),
        )


def by_file(found: Sequence[DuplicateRows], files: Sequence[DataFile]) -> Mapping[str, RowNumbers]:
    """Positions that go from each file that loses any, ascending."""
    numbers = np.concatenate([duplicates.files for duplicates in found])
    rows = np.concatenate([duplicates.rows for duplicates in found])
    order = np.lexsort((rows, numbers))
    numbers, rows = numbers[order], rows[order]
    cuts = np.searchsorted(numbers, np.arange(len(files) + 1))
    return {file.path: rows[cuts[i] : cuts[i + 1]] for i, file in enumerate(files) if cuts[i] < cuts[i + 1]}
