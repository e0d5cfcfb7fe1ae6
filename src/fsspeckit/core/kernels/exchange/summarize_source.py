"""Summarize a part of a source for planning: rows, nulls and ranges of keys, partitions. Values are checked to fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.errors import ExpressionError, SchemaMismatchError
from fsspeckit.common.partitions import partition_folders
from fsspeckit.common.schema import check_fit
from fsspeckit.core.expressions.conditions import errors_name
from fsspeckit.core.expressions.evaluate import matching_rows
from fsspeckit.core.expressions.tree import Expression, columns_of
from fsspeckit.core.model import KeyColumn
from fsspeckit.core.values.key_ranges import KeyRanges, key_ranges
from fsspeckit.core.values.keys import in_key_type, missing_sequence
from fsspeckit.core.values.take import filter_rows

_MOST_DISTINCT = 1 << 16  # more values than codes of 16 bits
ValueFailure = tuple[int, Exception]
"""A failure of a part of a source: the number of the column, or -1 for a condition, and the error."""


def raise_first_failure(failures: Iterable[ValueFailure | None]) -> None:
    """Raise the failure of the first column that has one, in the first part that has it."""
    found = min((each for each in failures if each is not None), key=lambda each: each[0], default=None)
    if found is not None:
        raise found[1]


@dataclass(frozen=True, slots=True, eq=False)
class SourceSummary:
    """What planning needs to know of a part of a source.

    Attributes:
        keys: The ranges of each key column.
        partitions: The partitions of the rows, in the order of their first rows.
        distinct: The distinct values of each column of dictionaries that has few codes.
        no_sequence: The number of NULL values of the column that orders changes, and whether it has NaN.
        failure: Why the values of the part cannot be merged; then nothing else is known.
    """

    rows: int
    keys: tuple[KeyRanges, ...] = ()
    partitions: tuple[str, ...] = ()
    distinct: tuple[pa.Array, ...] = ()
    no_sequence: tuple[int, bool] = (0, False)
    failure: ValueFailure | None = None


@dataclass(frozen=True, slots=True)
class SummarizeSource:
    """Summarizes parts of a source.

    Attributes:
        ranges: The most ranges of a key column.
        casts: Checks the columns whose values may not fit.
        coded: The columns whose distinct values are needed.
        deletes: The condition of rows that only delete their key: their other values are not written.
        sequence: The column that orders changes.
    """

    keys: tuple[KeyColumn, ...]
    partitions: tuple[str, ...]
    ranges: int
    casts: CheckCasts
    coded: tuple[str, ...]
    deletes: Expression | None = None
    sequence: str | None = None

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        keys = [key.name for key in self.keys]
        others = [] if self.deletes is None else sorted(columns_of(self.deletes))
        sequence = [] if self.sequence is None else [self.sequence]
        return list(dict.fromkeys([*keys, *self.partitions, *self.casts.schema.names, *self.coded, *others, *sequence]))

    def __call__(self, piece: Any) -> SourceSummary:
        """Summarize the rows of one piece."""
        table = piece.read()
        try:
            mask = self._written(table)
        except ExpressionError as error:
            return SourceSummary(table.num_rows, failure=(-1, error))
        written = table if mask is None else filter_rows(table, mask)
        failure = self.casts.check(table, piece.first_row, mask)
        if failure is not None:
            return SourceSummary(table.num_rows, failure=failure)
        return SourceSummary(
            table.num_rows,
            tuple(key_ranges(in_key_type(table[key.name], key.type), self.ranges) for key in self.keys),
            tuple(_partitions(written, self.partitions)),
            tuple(_distinct(table[name]) for name in self.coded),
            (0, False) if self.sequence is None else missing_sequence(table[self.sequence]),
        )

    def _written(self, table: pa.Table) -> npt.NDArray[np.bool_] | None:
        """Return which rows are written, or None for all."""
        if self.deletes is None:
            return None
        with errors_name("delete_when"):
            return ~matching_rows(self.deletes, table)


@dataclass(frozen=True, slots=True)
class CheckCasts:
    """Finds the first column of a piece with a value that does not fit its type in a schema."""

    schema: pa.Schema
    operation: str
    path: str
    compared: pa.Schema | None = None
    """Columns whose values must fit in all rows, also in those that are not written."""

    def __call__(self, piece: Any) -> ValueFailure | None:
        """Check the rows of one piece."""
        return self.check(piece.read(), piece.first_row)

    def check(
        self, table: pa.Table, first_row: int, written: npt.NDArray[np.bool_] | None = None
    ) -> ValueFailure | None:
        """Check the rows of a table, or those of them that are ``written``."""
        numbers = first_row + (np.arange(table.num_rows) if written is None else np.flatnonzero(written))
        kept = table if written is None else filter_rows(table, written)
        all_rows = first_row + np.arange(table.num_rows)
        columns = [(field, table, all_rows) for field in self.compared or ()]
        columns += [(field, kept, numbers) for field in self.schema]
        for number, (field, some, rows) in enumerate(columns):
            try:
                check_fit(some[field.name], field, operation=self.operation, path=self.path, rows=rows)
            except SchemaMismatchError as error:
                return number, error
        return None


def _partitions(table: pa.Table, columns: Sequence[str]) -> list[str]:
    if not columns:
        return [""]
    return list(pc.unique(partition_folders(table.select(list(columns)))).to_pylist())


def _distinct(column: pa.ChunkedArray) -> pa.Array:
    values = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    return pc.unique(values).slice(0, _MOST_DISTINCT)
