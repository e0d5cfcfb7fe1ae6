"""Read some columns of some row groups of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from fsspeckit.common.schema import cast_schema
from fsspeckit.core.model import DataFile
from fsspeckit.core.parquet.batches import read_batches
from fsspeckit.core.parquet.damage import report_damage, unreadable_columns
from fsspeckit.core.parquet.reader import check_rows, open_parquet
from fsspeckit.core.storage import Storage


def read_columns(
    storage: Storage, file: DataFile, row_groups: Sequence[int], schema: pa.Schema
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of row groups in batches, with the position of the first row in the file.

    They have the columns and types of a schema; columns that the file lacks are null.
    """
    names = [name for name in schema.names if name in file.schema.names]
    with (
        report_damage("reading", file.path, partial(unreadable_columns, storage, file)),
        open_parquet(storage, file, verify=True, partial=True) as reader,
    ):
        for group in row_groups:
            first = start = sum(file.row_groups[:group])
            if not names:
                yield first, _nulls(schema, file.row_groups[group])
                continue
            for table in read_batches(reader, group, names):
                same = cast_schema(table.select(names), schema, fill_missing=True, operation="reading", path=file.path)
                yield start, same
                start += table.num_rows
            check_rows(start - first, file, [group])


def _nulls(schema: pa.Schema, rows: int) -> pa.Table:
    """Rows without a value; a table without columns would have no rows."""
    fields = list(schema) or [pa.field("", pa.null())]
    return pa.table([pa.nulls(rows, field.type) for field in fields], schema=pa.schema(fields))
