"""The conditions of a merge about source rows and matched rows.

An exchange sends the columns that they read with the keys of rows. A condition that cannot be computed is data: the
planner raises the first failure after all other checks, so the error does not depend on how rows are divided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import scalar, to_arrow, to_numpy
from fsspeckit.common.errors import ExpressionError, SchemaMismatchError
from fsspeckit.common.schema import cast_schema
from fsspeckit.core.expressions import compute
from fsspeckit.core.expressions.conditions import errors_name
from fsspeckit.core.expressions.evaluate import first_failure, matching_rows
from fsspeckit.core.expressions.tree import Expression, columns_of
from fsspeckit.core.kernels.read_columns import read_columns
from fsspeckit.core.model import RowNumbers, Scan
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.take import take_rows

Mask = npt.NDArray[np.bool_]
SOURCE, TARGET = "source", "target"
_DELETES, _SEQUENCE = "deletes", "sequence"
_FAILURES = (ExpressionError, SchemaMismatchError)
_ORDER = ("newer_by", "update_when", "insert_when")

Failure = tuple[int, int, Exception]
"""A condition that cannot be computed: its place in the order of errors, the place of the row, and the error."""


def raise_first(failures: Iterable[Failure]) -> None:
    """Raise the failure that comes first in the order of errors and of rows, if there is any."""
    found = min(failures, key=lambda failure: failure[:2], default=None)
    if found is not None:
        raise found[2]


def row_places(numbers: RowNumbers | int, positions: RowNumbers) -> RowNumbers:
    """Return the order of rows for `raise_first`: by the number of their file or part, and their position in it."""
    return np.asarray(numbers, dtype=np.int64) << 32 | positions


def newer_rows(new: pa.ChunkedArray | pa.Array, old: pa.ChunkedArray | pa.Array) -> Mask:
    """Return which values are greater than the old ones of the same type; NULL is below every value."""
    greater = to_numpy(compute.compare("greater", new, old).fill_null(scalar(False)))
    return np.where(to_numpy(old.is_null()), to_numpy(new.is_valid()), greater)


@dataclass(frozen=True, slots=True)
class SequenceColumn:
    """The column that orders changes: the type in which it is compared, and its plain type in the dataset."""

    name: str
    type: pa.DataType
    target: pa.DataType

    def comparable(self, values: pa.ChunkedArray, side: str) -> pa.Array:
        """Return values of the source or the target in the type of the comparison."""
        column = pa.table({self.name: values if side == SOURCE else values.cast(self.target)})
        wanted = pa.schema([(self.name, self.type)])
        return cast_schema(column, wanted, operation=f"newer_by of the {side}")[0].combine_chunks()


@dataclass(frozen=True, slots=True)
class RowRules:
    """The conditions of a merge; one that was not given is None.

    Attributes:
        deletes: Over the columns of the source: which rows delete their key.
        inserts: Over columns with the prefix ``source.``: which new rows are inserted.
        updates: Over columns with the prefixes ``source.`` and ``target.``: which matched rows are replaced.
        sequence: The column in which a row must be newer than the row that it changes.
        source: The columns of the source that ``inserts`` and ``updates`` read.
        target: The columns of the dataset that ``updates`` and ``sequence`` read, with their types.
    """

    deletes: Expression | None = None
    inserts: Expression | None = None
    updates: Expression | None = None
    sequence: SequenceColumn | None = None
    source: tuple[str, ...] = ()
    target: pa.Schema = field(default_factory=lambda: pa.schema([]))

    def source_values(self, table: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray | pa.Array]]:
        """Yield the columns that are sent for source rows, with their names."""
        for name in self.source:
            yield f"{SOURCE}.{name}", table[name]
        if self.deletes is not None:
            yield _DELETES, to_arrow(self.deleting(table))
        if self.sequence is not None:
            yield _SEQUENCE, table[self.sequence.name]

    @property
    def sent(self) -> list[str]:
        """The names of the columns that are sent for source rows."""
        flags = [(_DELETES, self.deletes), (_SEQUENCE, self.sequence)]
        return [*(f"{SOURCE}.{name}" for name in self.source), *(name for name, rule in flags if rule is not None)]

    @property
    def source_columns(self) -> list[str]:
        """The columns of the source that are read."""
        deletes = sorted(columns_of(self.deletes)) if self.deletes is not None else []
        sequence = [] if self.sequence is None else [self.sequence.name]
        return list(dict.fromkeys([*self.source, *deletes, *sequence]))

    def for_deletes(self) -> RowRules:
        """Return the rules for source rows that delete their key: only their sequence is compared."""
        names = [] if self.sequence is None else [self.sequence.name]
        target = pa.schema([each for each in self.target if each.name in names])
        return replace(self, updates=None, source=(), target=target)

    @property
    def compares(self) -> bool:
        """Whether matched rows are looked at: ``updates`` may read only the source."""
        return self.updates is not None or self.sequence is not None

    def target_values(
        self, storage: Storage, scan: Scan, constants: Mapping[str, pa.Scalar]
    ) -> dict[str, pa.ChunkedArray | pa.Array]:
        """Return the columns that are sent for scanned rows; ``constants`` has those that the file does not have."""
        read = pa.schema([field for field in self.target if field.name not in constants])
        groups = read_columns(storage, scan.file, scan.row_groups, read) if read.names else ()
        tables = [table for _, table in groups]
        return self.with_constants(pa.concat_tables(tables) if tables else pa.table({}), constants, scan.rows)

    def with_constants(
        self, stored: pa.Table, constants: Mapping[str, pa.Scalar], rows: int
    ) -> dict[str, pa.ChunkedArray | pa.Array]:
        """Return the columns of rows of the dataset by the names that conditions have for them."""
        return {
            f"{TARGET}.{name}": pa.repeat(constants[name], rows) if name in constants else stored[name]
            for name in self.target.names
        }

    def deleting(self, table: pa.Table) -> Mask:
        """Return which rows of the source delete their key."""
        if self.deletes is None:
            return np.zeros(table.num_rows, dtype=bool)
        with errors_name("delete_when"):
            return matching_rows(self.deletes, table)

    def newer(self, source: pa.Table, target: pa.Table, places: RowNumbers, failures: list[Failure]) -> Mask:
        """Return which of the matched rows are newer in the source. Values of other rows need not be comparable.

        ``places`` has the `row_places` of the rows of the target.
        """
        sequence = self.sequence
        if sequence is None:
            return np.ones(source.num_rows, dtype=bool)
        values = pa.table({SOURCE: source[_SEQUENCE], TARGET: target[f"{TARGET}.{sequence.name}"]})

        def compare(rows: pa.Table) -> Mask:
            return newer_rows(sequence.comparable(rows[SOURCE], SOURCE), sequence.comparable(rows[TARGET], TARGET))

        return _checked("newer_by", compare, values, places, failures)

    def updating(self, source: pa.Table, target: pa.Table, places: RowNumbers, failures: list[Failure]) -> Mask:
        """Return which of the matched rows are replaced; ``places`` as for `newer`."""
        table = source
        for name in target.column_names:
            table = table.append_column(name, target[name])
        return _holding("update_when", self.updates, table, places, failures)

    def inserting(self, source: pa.Table, places: RowNumbers, failures: list[Failure]) -> Mask:
        """Return which of the new rows are inserted; ``places`` has the `row_places` of the rows of the source."""
        return _holding("insert_when", self.inserts, source, places, failures)


def _holding(
    argument: str, condition: Expression | None, table: pa.Table, places: RowNumbers, failures: list[Failure]
) -> Mask:
    if condition is None:
        return np.ones(table.num_rows, dtype=bool)

    def holds(rows: pa.Table) -> Mask:
        with errors_name(argument):
            return matching_rows(condition, rows)

    return _checked(argument, holds, table, places, failures)


def _checked(
    argument: str, evaluate: Callable[[pa.Table], Mask], table: pa.Table, places: RowNumbers, failures: list[Failure]
) -> Mask:
    """Return for which rows a condition holds. If it cannot be computed, keep the failure of the row that comes first.

    Then no row holds, but that has no effect, because the planner raises the failure.
    """
    try:
        return evaluate(table)
    except _FAILURES as error:
        order = np.argsort(places)
        found = first_failure(
            len(order), lambda first, rows: evaluate(take_rows(table, order[first : first + rows])), _FAILURES
        )
        at, failure = found or (0, error)
        failures.append((_ORDER.index(argument), int(places[order[at]]), failure))
        return np.zeros(table.num_rows, dtype=bool)


def flags_of(values: pa.Table) -> Mask:
    """Return which of the sent source rows delete their key."""
    if _DELETES not in values.column_names:
        return np.zeros(values.num_rows, dtype=bool)
    return to_numpy(values[_DELETES])
