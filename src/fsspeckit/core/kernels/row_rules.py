"""Conditions about the rows of an exchange: the columns that they read are sent with the keys of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import scalar, to_arrow, to_numpy
from fsspeckit.common.schema import cast_schema
from fsspeckit.core.expressions import compute
from fsspeckit.core.expressions.conditions import errors_name
from fsspeckit.core.expressions.evaluate import matching_rows
from fsspeckit.core.expressions.tree import Expression, columns_of
from fsspeckit.core.kernels.read_columns import read_columns
from fsspeckit.core.model import Scan
from fsspeckit.core.storage import Storage

Mask = npt.NDArray[np.bool_]
SOURCE, TARGET = "source", "target"
_DELETES, _SEQUENCE = "deletes", "sequence"


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
            wanted = pa.schema([(self.sequence.name, self.sequence.type)])
            yield _SEQUENCE, cast_schema(table.select(wanted.names), wanted, operation="source")[0]

    @property
    def sent(self) -> list[str]:
        """The names of the columns that are sent for source rows."""
        flags = [(_DELETES, self.deletes), (_SEQUENCE, self.sequence)]
        return [*(f"{SOURCE}.{name}" for name in self.source), *(name for name, rule in flags if rule is not None)]

    @property
    def source_columns(self) -> list[str]:
        """The columns of the source that are read."""
        deletes = sorted(columns_of(self.deletes)) if self.deletes is not None else []
        return [*self.source, *deletes, *([] if self.sequence is None else [self.sequence.name])]

    @property
    def compares(self) -> bool:
        """Whether matched rows are looked at: ``updates`` may read only the source."""
        return self.updates is not None or self.sequence is not None

    def target_values(
        self, storage: Storage, scan: Scan, constants: Mapping[str, pa.Scalar]
    ) -> Iterator[tuple[str, pa.ChunkedArray | pa.Array]]:
        """Yield the columns that are sent for scanned rows; ``constants`` has those that the file does not have."""
        read = pa.schema([field for field in self.target if field.name not in constants])
        if read.names:
            groups = [table for _, table in read_columns(storage, scan.file, scan.row_groups, read)]
            table = pa.concat_tables(groups)
            yield from ((f"{TARGET}.{name}", table[name]) for name in read.names)
        for name in self.target.names:
            if name in constants:
                yield f"{TARGET}.{name}", pa.repeat(constants[name], scan.rows)

    def deleting(self, table: pa.Table) -> Mask:
        """Return which rows of the source delete their key."""
        if self.deletes is None:
            return np.zeros(table.num_rows, dtype=bool)
        with errors_name("delete_when"):
            return matching_rows(self.deletes, table)

    def newer(self, source: pa.Table, target: pa.Table) -> Mask:
        """Return which of the matched rows are newer in the source."""
        if self.sequence is None:
            return np.ones(source.num_rows, dtype=bool)
        old = target[f"{TARGET}.{self.sequence.name}"].cast(self.sequence.target).cast(self.sequence.type)
        return newer_rows(source[_SEQUENCE].combine_chunks(), old.combine_chunks())

    def updating(self, source: pa.Table, target: pa.Table) -> Mask:
        """Return which of the matched rows are replaced."""
        if self.updates is None:
            return np.ones(source.num_rows, dtype=bool)
        table = source
        for name in target.column_names:
            table = table.append_column(name, target[name])
        with errors_name("update_when"):
            return matching_rows(self.updates, table)

    def inserting(self, source: pa.Table) -> Mask:
        """Return which of the new rows are inserted."""
        if self.inserts is None:
            return np.ones(source.num_rows, dtype=bool)
        with errors_name("insert_when"):
            return matching_rows(self.inserts, source)


def flags_of(values: pa.Table) -> Mask:
    """Return which of the sent source rows delete their key."""
    if _DELETES not in values.column_names:
        return np.zeros(values.num_rows, dtype=bool)
    return to_numpy(values[_DELETES])
