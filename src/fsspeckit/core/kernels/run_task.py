"""Run one task with the kernel of its kind, in batches that fit the memory limit. All engines call this function."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TypeVar

from fsspeckit.common.causes import report_writing
from fsspeckit.core.kernels.changed_rows import TakeRows
from fsspeckit.core.kernels.join_files import combine_files
from fsspeckit.core.kernels.move_rows import move_rows
from fsspeckit.core.kernels.replace_rows import rewrite_file
from fsspeckit.core.model import CombineTask, MoveTask, Outcome, RewriteTask, Task, WriteTask
from fsspeckit.core.parquet.batches import value_bytes
from fsspeckit.core.parquet.writer import StagedFile
from fsspeckit.core.parquet.writer_options import DEFAULT_ROW_GROUP, for_new_file
from fsspeckit.core.storage import Storage

_COPIES = 4  # decoded rows, their source rows, the result and the encoder's pages
_TEXT_BYTES = 64
_FEWEST_ROWS = 1024
_T = TypeVar("_T", bound=Task)


def run_task(task: Task, take: TakeRows, storage: Storage, staging: str | None, *, at_once: int) -> Outcome:
    """Run one task and return its outcome.

    Args:
        task: The task.
        take: Returns source rows by row number.
        storage: Where the files are.
        staging: The folder for the new file. Without it, a rewrite or a move only computes rows and writes nothing.
        at_once: The number of tasks that share the memory limit.
    """
    staged = None if staging is None else f"{staging}/{uuid.uuid4().hex}.staged"
    task = _within_memory(task, at_once)
    with report_writing(staged or ""):
        return _run(task, take, storage, staged)


def _run(task: Task, take: TakeRows, storage: Storage, staged: str | None) -> Outcome:
    if isinstance(task, RewriteTask):
        return rewrite_file(task, take, storage, staged)
    if isinstance(task, MoveTask):
        return move_rows(task, take, storage, staged)
    assert staged is not None
    if isinstance(task, CombineTask):
        return combine_files(task, storage, staged)
    return write_rows(task, take, storage, staged)


def _within_memory(task: _T, at_once: int) -> _T:
    """Set the batch size of a task from its memory limit, unless it has a batch size."""
    options = task.options
    if isinstance(task, MoveTask):
        parts = tuple(_within_memory(part, at_once) for part in task.parts)
        batches = [part.options.batch_rows for part in parts if part.options.batch_rows]
        return replace(task, parts=parts, options=replace(options, batch_rows=min(batches, default=None)))
    if options.memory_limit is None or options.batch_rows is not None or not isinstance(task, RewriteTask | WriteTask):
        return task
    if isinstance(task, RewriteTask):
        width = sum(value_bytes(field.type, 0) for field in task.schema)  # a dictionary may have few bytes
        row_bytes = max(width, task.file.uncompressed // max(1, task.file.rows))
    else:
        row_bytes = sum(value_bytes(field.type, _TEXT_BYTES) for field in task.schema)
    rows = options.memory_limit // (_COPIES * at_once * max(1, row_bytes))
    return replace(task, options=replace(options, batch_rows=max(_FEWEST_ROWS, rows)))


def write_rows(task: WriteTask, take: TakeRows, storage: Storage, staged: str) -> Outcome:
    """Write the source rows of a task as one new file, one row group at a time."""
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
