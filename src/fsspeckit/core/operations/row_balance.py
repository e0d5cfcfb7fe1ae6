"""Row counts before a commit: what was read, less what was dropped, plus what was added, is what was written.

Kernels count the rows that they decode and the rows that they write, so a file whose footer does not tell the truth is
found here at the latest, while nothing is published yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsspeckit.common.errors import DamagedFileError
from fsspeckit.core.model import CombineTask, Outcome, Task, WriteTask


def check_balance(tasks: Sequence[Task], outcomes: Sequence[Outcome], path: str) -> None:
    """Raise where a task did not write as many rows as it had to."""
    for task, outcome in zip(tasks, outcomes, strict=True):
        if outcome.rows != task.rows_out:
            raise unbalanced(_name(task), task.rows_out, outcome.rows, path)


def check_total(expected: int, outcomes: Sequence[Outcome], path: str) -> None:
    """Raise where files together do not have as many rows as they must."""
    found = sum(outcome.rows for outcome in outcomes)
    if found != expected:
        raise unbalanced("the new files", expected, found, path)


def unbalanced(what: str, expected: int, found: int, path: str) -> DamagedFileError:
    """The error for rows that went missing, or came from nowhere."""
    return DamagedFileError(
        f"{path}: {what} would have {found:,} rows instead of {expected:,}, so an input is damaged or was changed. "
        "Nothing was changed; check the files with another reader, then run again."
    )


def _name(task: Task) -> str:
    return task.path if isinstance(task, WriteTask | CombineTask) else task.file.path
