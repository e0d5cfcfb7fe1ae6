"""Find the partitions that rows of a file belong to after new values are computed from the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import to_numpy
from fsspeckit.common.partitions import partition_folders
from fsspeckit.core.expressions.evaluate import evaluate
from fsspeckit.core.expressions.tree import Expression, columns_of
from fsspeckit.core.kernels.read_values import read_values
from fsspeckit.core.model import NO_ROWS, DataFile, RowNumbers
from fsspeckit.core.storage import Storage

STAYS = -1
"""The number of a row that stays in its partition."""


@dataclass(frozen=True, slots=True, eq=False)
class PartitionChange:
    """Rows of a file at ascending positions, and the expressions of their old and new partition values."""

    file: DataFile
    positions: RowNumbers
    old: Mapping[str, Expression]
    new: Mapping[str, Expression]

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the file that must be read."""
        return frozenset[str]().union(*map(columns_of, (*self.old.values(), *self.new.values())))


@dataclass(frozen=True, slots=True, eq=False)
class NewPartitions:
    """The folders that rows move to, and for each row the number of its folder, or `STAYS`."""

    folders: tuple[str, ...]
    numbers: RowNumbers


@dataclass(frozen=True, slots=True)
class FindNewPartitions:
    """Computes partition values of rows; ``schema`` has the types of the columns over the whole dataset."""

    storage: Storage
    schema: pa.Schema

    def __call__(self, item: PartitionChange) -> NewPartitions:
        """Return the new partitions of the rows of one file. A file is opened only if a value depends on its rows."""
        folders: dict[str, int] = {}
        numbers = [NO_ROWS]
        for table in self._tables(item):
            old, new = _folders(item.old, table), _folders(item.new, table)
            encoded = pc.dictionary_encode(new)
            known = [folders.setdefault(name, len(folders)) for name in encoded.dictionary.to_pylist()]
            found = np.array(known, dtype=np.int64)[to_numpy(encoded.indices)]
            numbers.append(np.where(to_numpy(pc.equal(old, new)), STAYS, found))
        found = np.concatenate(numbers)
        return NewPartitions(tuple(folders), found if item.columns else np.repeat(found, len(item.positions)))

    def _tables(self, item: PartitionChange) -> Iterator[pa.Table]:
        names = item.columns
        if not len(item.positions):
            return iter(())
        if not names:
            return iter([pa.table({"": pa.nulls(1)})])
        schema = pa.schema([field for field in self.schema if field.name in names])
        return read_values(self.storage, item.file, item.positions, schema)


def _folders(values: Mapping[str, Expression], table: pa.Table) -> pa.Array:
    return partition_folders({name: evaluate(value, table) for name, value in values.items()})
