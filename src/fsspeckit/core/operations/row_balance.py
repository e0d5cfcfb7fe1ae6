"""Row counts before a commit: rows read, minus rows dropped, plus rows added, must equal rows written.

Kernels count the rows that they decode and write, so a footer with a wrong row count is detected before the commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsspeckit.common.errors import DamagedFileError
from fsspeckit.core.model import Outcome, RewriteTask, Task


def check_balance(tasks: Sequence[Task], outcomes: Sequence[Outcome], path: str) -> None:
    """Raise if a task did not write the expected number of rows."""
    for task, outcome in zip(tasks, outcomes, strict=True):
        if outcome.rows != task.rows_out:
            raise _row_count_error(_name(task), task.rows_out, outcome.rows, path)


def check_total(expected: int, outcomes: Sequence[Outcome], path: str) -> None:
    """Raise if files together do not have the expected number of rows."""
    written = sum(outcome.rows for outcome in outcomes)
    if written != expected:
        raise _row_count_error("the new files", expected, written, path)


def _row_count_error(what: str, expected: int, written: int, path: str) -> DamagedFileError:
    return DamagedFileError(
        f"{path}: {what} would have {written:,} rows instead of {expected:,}, so an input is damaged or was changed. "
        "Nothing was changed; check the files with another reader, then run again."
    )


def _name(task: Task) -> str:
    return task.file.path if isinstance(task, RewriteTask) else task.path
