"""Write rows that leave their files, with new values, as one new file. All engines call this kernel.

The files that the rows leave are rewritten without them by other tasks of the same commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

import pyarrow as pa

from fsspeckit.common.schema import cast_schema
from fsspeckit.core.kernels.changed_rows import ChangedRowsReader, TakeRows
from fsspeckit.core.kernels.join_files import Output, RowForm
from fsspeckit.core.model import MoveTask, Outcome, RewriteTask
from fsspeckit.core.parquet.damage import report_damage
from fsspeckit.core.parquet.reader import open_parquet
from fsspeckit.core.parquet.writer_options import DEFAULT_ROW_GROUP
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.take import needs_wider_codes, with_wide_codes


def move_rows(task: MoveTask, take: TakeRows, storage: Storage, staged: str | None) -> Outcome:
    """Write the moved rows of all parts to ``staged``. Without ``staged``, only compute and count them.

    If the dictionary of a column gets too many values for its codes, the file is written with wider codes.
    """
    try:
        return _write(task, take, storage, staged)
    except pa.ArrowInvalid as error:
        wider = with_wide_codes(task.schema)
        if wider is task.schema or not needs_wider_codes(error):
            raise
        parts = tuple(replace(part, schema=wider) for part in task.parts)
        return _write(replace(task, parts=parts, schema=wider), take, storage, staged)


def _write(task: MoveTask, take: TakeRows, storage: Storage, staged: str | None) -> Outcome:
    tables = (table for part in task.parts for table in _moved(part, take, storage))
    if staged is None:
        return Outcome("", sum(table.num_rows for table in tables), 0, 0, True)
    group_rows = min(task.options.row_group_size or DEFAULT_ROW_GROUP, task.options.batch_rows or DEFAULT_ROW_GROUP)
    row_form = RowForm(task.schema, (), recast=True, new_schema=True)
    with Output(partial(storage.open_output, staged), row_form, None, task.options, group_rows) as output:
        for table in tables:
            output.add(table)
        size = output.finish()
        return Outcome(staged, output.rows, size, 0, True)


def _moved(part: RewriteTask, take: TakeRows, storage: Storage) -> Iterator[pa.Table]:
    """Yield the moved rows of one file, one row group or batch at a time."""
    with report_damage("moving rows of", part.file.path):
        parquet = open_parquet(storage, part.file, verify=True)
    with closing(parquet):
        reader = ChangedRowsReader(part, take, parquet, skip_keys=False)
        for rows in reader.read_replaced():
            yield cast_schema(rows.new_rows(), part.schema, operation="moving rows of", path=part.file.path)
