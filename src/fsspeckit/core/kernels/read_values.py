"""Read some columns of some rows of a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import empty_table
from fsspeckit.core.kernels.read_columns import read_columns
from fsspeckit.core.model import DataFile, RowNumbers
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.take import take_ascending


def read_values(storage: Storage, file: DataFile, positions: RowNumbers, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the columns of the rows at ascending positions, in batches; columns that the file lacks are null."""
    starts = np.concatenate([[0], np.cumsum(file.row_groups)])
    cuts = np.searchsorted(positions, starts)
    groups = np.flatnonzero(np.diff(cuts)).tolist()
    for start, table in read_columns(storage, file, groups, schema):
        low, high = np.searchsorted(positions, [start, start + table.num_rows])
        if low < high:
            yield take_ascending(table, positions[low:high] - start)


@dataclass(frozen=True, slots=True)
class ReadValues:
    """Reads columns of rows by position; ``schema`` has the columns and their types."""

    storage: Storage
    schema: pa.Schema

    def __call__(self, item: tuple[DataFile, RowNumbers]) -> pa.Table:
        """Return the columns of the rows at ascending positions; columns that the file lacks are null."""
        parts = list(read_values(self.storage, *item, self.schema))
        return pa.concat_tables(parts) if parts else empty_table(self.schema)
