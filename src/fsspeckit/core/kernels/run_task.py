"""One task, run where an engine wants it: the kernel of its kind, with batches that fit into memory.

The same function on every engine.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

import pyarrow as pa

from fsspeckit.core.kernels.join_files import combine_files
from fsspeckit.core.kernels.replace_rows import TakeRows, rewrite_file
from fsspeckit.core.model import CombineTask, Outcome, RewriteTask, Task, WriteTask
from fsspeckit.core.parquet.writer import StagedFile
from fsspeckit.core.parquet.writer_options import DEFAULT_ROW_GROUP, for_new_file
from fsspeckit.core.storage import Storage

_COPIES = 4  # a decoded part, its source rows, the result and the encoder's pages
_TEXT_BYTES = 64
_FEWEST_ROWS = 1024


def run_task(task: Task, take: TakeRows, storage: Storage, staging: str | None, *, at_once: int) -> Outcome:
    """Run one task into a new file of the staging folder; ``at_once`` tasks share the memory limit."""
    staged = None if staging is None else f"{staging}/{uuid.uuid4().hex}.staged"
    task = _within_memory(task, at_once)
    if isinstance(task, RewriteTask):
        return rewrite_file(task, take, storage, staged)
    assert staged is not None
    if isinstance(task, CombineTask):
        return combine_files(task, storage, staged)
    return write_rows(task, take, storage, staged)


def _within_memory(task: Task, at_once: int) -> Task:
    """Smaller batches where row groups in work would not fit the memory limit."""
    options = task.options
    if options.memory_limit is None or options.batch_rows is not None or not isinstance(task, RewriteTask | WriteTask):
        return task
    if isinstance(task, RewriteTask):
        row_bytes = task.file.uncompressed // max(1, task.file.rows)
    else:
        row_bytes = sum(_width(field.type) for field in task.schema)
    rows = options.memory_limit // (_COPIES * at_once * max(1, row_bytes))
    return replace(task, options=replace(options, batch_rows=max(_FEWEST_ROWS, rows)))


def _width(type_: pa.DataType) -> int:
    """Bytes of a value, guessed for types that do not tell."""
    try:
        return max(1, int(type_.bit_width) // 8)
    except ValueError:
        return _TEXT_BYTES


def write_rows(task: WriteTask, take: TakeRows, storage: Storage, staged: str) -> Outcome:
    """Write a task's source rows as one new file, a row group at a time."""
    step = min(task.options.row_group_size or DEFAULT_ROW_GROUP, task.options.batch_rows or DEFAULT_ROW_GROUP)
    writer: StagedFile | None = None
    rows = 0
    try:
        for start in range(0, max(1, len(task.rows)), step):
            table = take(task.rows[start : start + step], task.schema)
            if writer is None:
                writer = StagedFile(storage.open_output(staged), task.schema, for_new_file(table, task.options))
            writer.write(table, step)
            rows += table.num_rows
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise
    assert writer is not None
    return Outcome(staged, rows, writer.close(), 0, True)
