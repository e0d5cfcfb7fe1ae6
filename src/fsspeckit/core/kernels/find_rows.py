"""Find the rows of a file for which a condition is true, from the columns that the condition reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.schema import cast_schema
from fsspeckit.core.expressions.evaluate import matching_rows
from fsspeckit.core.expressions.tree import Expression, columns_of
from fsspeckit.core.model import NO_ROWS, RowNumbers, Scan
from fsspeckit.core.parquet.reader import check_int96, check_rows, open_parquet, report_damage
from fsspeckit.core.storage import Storage


@dataclass(frozen=True, slots=True)
class FindRows:
    """Evaluates a condition on scans of files; ``schema`` has the types of the columns over the whole dataset."""

    storage: Storage
    schema: pa.Schema

    def __call__(self, item: tuple[Scan, Expression]) -> RowNumbers:
        """Return the positions of the matching rows of one file, ascending."""
        scan, condition = item
        wanted = columns_of(condition)
        names = [name for name in self.schema.names if wanted is None or name in wanted]
        own = [name for name in names if name in scan.file.schema.names]
        check_int96(self.storage, scan.file, scan.row_groups, own)
        starts = np.concatenate([[0], np.cumsum(scan.file.row_groups)])
        found = []
        with (
            report_damage("reading", scan.file.path),
            open_parquet(self.storage, scan.file, verify=True, partial=True) as reader,
        ):
            for group in scan.row_groups:
                table = reader.read_row_group(group, own, use_threads=False).select(own)
                check_rows(table.num_rows if own else scan.file.row_groups[group], scan.file, [group])
                found.append(np.flatnonzero(self._mask(table, names, scan, group, condition)) + starts[group])
        return np.concatenate(found) if found else NO_ROWS

    def _mask(
        self, table: pa.Table, names: list[str], scan: Scan, group: int, condition: Expression
    ) -> npt.NDArray[np.bool_]:
        if not table.num_columns:  # a table without columns would have no rows
            table = pa.table({"": pa.nulls(scan.file.row_groups[group])})
        fields = [self.schema.field(name) for name in names] or [pa.field("", pa.null())]
        table = cast_schema(table, pa.schema(fields), fill_missing=True, operation="reading", path=scan.file.path)
        return matching_rows(condition, table)
