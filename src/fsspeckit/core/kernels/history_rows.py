"""Read history rows and changes of a feed, and change the history of each key, also distributed by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import to_arrow, to_numpy
from fsspeckit.common.partitions import typed_values
from fsspeckit.common.schema import cast_schema
from fsspeckit.core.kernels.read_values import ReadValues
from fsspeckit.core.model import DataFile, KeyColumn, RowNumbers
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.hashing import cut_by_part, hash_keys, partition_numbers
from fsspeckit.core.values.history import (
    CHANGE,
    DELETE,
    VALID_FROM,
    HistoryChanges,
    HistoryInput,
    HistoryLayout,
    change_history,
)
from fsspeckit.core.values.keys import comparable
from fsspeckit.core.values.take import filter_rows

Sink = Callable[[pa.Table], Any]
"""Stores the rows of a part and returns a reference to them."""


class Columns(Protocol):
    """Rows of a feed that can be read in another process."""

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows."""


@dataclass(frozen=True, slots=True, eq=False)
class FeedChunk:
    """Consecutive rows of a feed: the number of the first one, and which rows delete their key."""

    first: int
    rows: Columns
    deletes: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class OldRows:
    """History rows of one file: its number, and the positions of the rows, ascending."""

    number: int
    file: DataFile
    positions: RowNumbers


@dataclass(frozen=True, slots=True)
class ReadHistory:
    """Reads changes and history rows with one schema, in which every column is nullable.

    Attributes:
        written: The columns of the schema that changes have.
        in_folders: Partition columns that files do not have, and their place among the partition values of a file.
    """

    storage: Storage
    schema: pa.Schema
    keys: tuple[str, ...]
    written: tuple[str, ...]
    sequence_by: str
    in_folders: tuple[tuple[str, int], ...]

    def __call__(self, item: FeedChunk | OldRows) -> HistoryInput:
        """Return the rows of one item."""
        return self._changes(item) if isinstance(item, FeedChunk) else self._old_rows(item)

    def _changes(self, item: FeedChunk) -> HistoryInput:
        """A change that deletes its key needs only key and sequence: other columns may be null, or not fit."""
        table = item.rows.columns(list(dict.fromkeys((*self.written, self.sequence_by))))
        sequence = table[self.sequence_by]
        table = table.select(list(self.written)).append_column(VALID_FROM, sequence)
        keys = table.select([*self.keys, VALID_FROM])
        parts = [filter_rows(table, ~item.deletes), filter_rows(keys, item.deletes)]
        same = [cast_schema(part, self.schema, fill_missing=True, operation="source") for part in parts]
        order = np.concatenate([np.flatnonzero(~item.deletes), np.flatnonzero(item.deletes)])
        kind = np.where(item.deletes[order], DELETE, CHANGE)
        return HistoryInput(kind, order + item.first, pa.concat_tables(same))

    def _old_rows(self, item: OldRows) -> HistoryInput:
        table = ReadValues(self.storage, self.schema)((item.file, item.positions))
        for name, place in self.in_folders:
            text = None if item.file.partition is None else item.file.partition[place]
            field = self.schema.field(name)
            value = typed_values([text], field.type, name)[0]
            column = pa.repeat(value, table.num_rows)
            table = table.set_column(self.schema.get_field_index(name), field, column)
        return HistoryInput(np.full(table.num_rows, item.number), item.positions, table)


def join(parts: Iterable[HistoryInput], schema: pa.Schema) -> HistoryInput:
    """Return all rows."""
    found = [part for part in parts if part.table.num_rows]
    nothing = np.empty(0, dtype=np.int64)
    return HistoryInput(
        np.concatenate([nothing, *(part.files for part in found)]),
        np.concatenate([nothing, *(part.positions for part in found)]),
        pa.concat_tables([schema.empty_table(), *(part.table for part in found)]),
    )


@dataclass(frozen=True, slots=True)
class SplitHistory:
    """Splits rows by the hash of their key; the first two columns of a piece are file and position."""

    read: ReadHistory
    keys: tuple[KeyColumn, ...]
    parts: int

    def __call__(self, item: FeedChunk | OldRows) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows of one item by part."""
        rows = self.read(item)
        numbers = [to_arrow(rows.files), to_arrow(rows.positions)]
        table = pa.table([*numbers, *rows.table.columns], ["file", "position", *rows.table.column_names])
        hashes = hash_keys([comparable(rows.table[key.name], key.type) for key in self.keys])
        yield from cut_by_part(table, partition_numbers(hashes, self.parts))


@dataclass(frozen=True, slots=True)
class ChangeHistory:
    """Changes the history of the keys of a part and stores the rows that change."""

    schema: pa.Schema
    layout: HistoryLayout
    sink: Sink

    def __call__(self, part: int, pieces: Iterator[pa.Table]) -> HistoryChanges:  # noqa: ARG002 - see `Engine.exchange`
        """Return the changes, with a reference to the stored rows instead of a table."""
        found = [
            HistoryInput(
                to_numpy(piece.column(0)), to_numpy(piece.column(1)), pa.table(piece.columns[2:], schema=self.schema)
            )
            for piece in pieces
        ]
        changes = change_history(join(found, self.schema), self.layout)
        return replace(changes, table=self.sink(changes.table))
