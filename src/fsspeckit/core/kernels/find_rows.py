"""Find the rows of a file for which a condition is true, from the columns that the condition reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fsspeckit.core.expressions.evaluate import matching_rows
from fsspeckit.core.expressions.tree import Expression, columns_of
from fsspeckit.core.kernels.read_columns import read_columns
from fsspeckit.core.model import NO_ROWS, RowNumbers, Scan
from fsspeckit.core.storage import Storage


@dataclass(frozen=True, slots=True)
class FindRows:
    """Evaluates a condition on scans of files; ``schema`` has the types of the columns over the whole dataset."""

    storage: Storage
    schema: pa.Schema

    def __call__(self, item: tuple[Scan, Expression]) -> RowNumbers:
        """Return the positions of the matching rows of one file, ascending."""
        scan, condition = item
        names = columns_of(condition)
        schema = pa.schema([field for field in self.schema if field.name in names])
        found = [
            np.flatnonzero(matching_rows(condition, table)) + start
            for start, table in read_columns(self.storage, scan.file, scan.row_groups, schema)
        ]
        return np.concatenate(found) if found else NO_ROWS
