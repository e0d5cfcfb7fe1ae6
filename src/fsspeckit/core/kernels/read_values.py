"""Read some columns of some rows of a file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fsspeckit.common.schema import cast_schema
from fsspeckit.core.model import DataFile, RowNumbers
from fsspeckit.core.parquet.reader import check_int96, check_rows, open_parquet, report_damage
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.take import take_ascending


@dataclass(frozen=True, slots=True)
class ReadValues:
    """Reads columns of rows by position; ``schema`` has the columns and their types."""

    storage: Storage
    schema: pa.Schema

    def __call__(self, item: tuple[DataFile, RowNumbers]) -> pa.Table:
        """Return the columns of the rows at ascending positions; columns that the file lacks are null."""
        file, positions = item
        names = [name for name in self.schema.names if name in file.schema.names]
        starts = np.concatenate([[0], np.cumsum(file.row_groups)])
        groups = np.flatnonzero(np.diff(np.searchsorted(positions, starts))).tolist()
        check_int96(self.storage, file, groups, names)
        parts = []
        with (
            report_damage("reading", file.path),
            open_parquet(self.storage, file, verify=True, partial=True) as reader,
        ):
            for group in groups:
                table = reader.read_row_group(group, names, use_threads=False).select(names)
                check_rows(table.num_rows if names else file.row_groups[group], file, [group])
                low, high = np.searchsorted(positions, [starts[group], starts[group + 1]])
                part = take_ascending(table, positions[low:high] - starts[group])
                parts.append(self._typed(part, int(high - low), file))
        return pa.concat_tables(parts) if parts else self.schema.empty_table()

    def _typed(self, table: pa.Table, rows: int, file: DataFile) -> pa.Table:
        if not table.num_columns:
            return pa.table([pa.nulls(rows, field.type) for field in self.schema], schema=self.schema)
        return cast_schema(table, self.schema, fill_missing=True, operation="reading", path=file.path)
