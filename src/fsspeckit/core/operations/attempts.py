"""Repeat an operation after a conflict, in one transaction, and use the staged files again whose inputs are unchanged.

The plan of each attempt is made from a new snapshot, so an attempt that commits has read what it depends on.
"""

from __future__ import annotations

import hashlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from numbers import Integral
from posixpath import dirname
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from fsspeckit.common.errors import CommitConflictError
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.transaction import Transaction
from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.expressions.tree import text_of
from fsspeckit.core.model import CombineTask, MoveTask, Outcome, RewriteTask, RowNumbers, Task, WriteTask

_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 5.0
_SHORT_ATTEMPT_SECONDS = 5.0
"""Only an operation that takes less time lets the commits of others wait."""
_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


def check_retries(retries: Any) -> int:
    """Return a number of retries as an int. Raise if it is not a whole number, zero or above."""
    if isinstance(retries, bool) or not isinstance(retries, Integral) or retries < 0:
        raise ValueError(f"retries={retries!r} must be a whole number, zero or above.")
    return int(retries)


class Attempts:
    """The attempts of one operation. The transaction of the first one is that of all, unless its files were removed."""

    def __init__(self, place: Place, retries: int) -> None:
        self._place, self._retries = place, retries
        self._failed = 0
        self._transaction: Transaction | None = None
        self._open, self._queue = ExitStack(), ExitStack()
        self.staged = StagedTasks()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._queue.close()
        self._open.__exit__(kind, error, traceback)

    def run(self, attempt: Callable[[], _T]) -> _T:
        """Return the result of the first attempt without a conflict.

        Raises:
            CommitConflictError: The last attempt had a conflict too.
        """
        while True:
            started = time.perf_counter()
            try:
                return attempt()
            except CommitConflictError as error:
                if self._failed >= self._retries:
                    raise
                self._prepare_next(error, time.perf_counter() - started)
            except OSError as error:
                conflict = None if self._transaction is None else self._transaction.lost()
                if conflict is None:
                    raise
                if self._failed >= self._retries:
                    raise conflict from error
                self._prepare_next(conflict, time.perf_counter() - started)

    def begin(self, view: View, label: str) -> Transaction:
        """Return the transaction of this attempt, on its view."""
        if self._transaction is None:
            with vanished_file_is_conflict(self._place, label):  # `forget` has removed the journal
                self._transaction = self._open.enter_context(self._place.journal.begin(view, label))
        else:
            self._transaction.rebase(view)
        return self._transaction

    def end(self) -> None:
        """End the transaction. The next one of this operation has its own staging folder."""
        self._queue.close()
        self._open.close()
        self._transaction, self.staged = None, StagedTasks()

    def _prepare_next(self, error: CommitConflictError, seconds: float) -> None:
        """Wait, longer after each conflict. From the second one on, be first in the queue of writers."""
        self._failed += 1
        _logger.info("attempt %d of %d had a conflict: %s", self._failed, 1 + self._retries, error)
        longest = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2**self._failed)
        time.sleep(longest * random.uniform(0.25, 1))  # noqa: S311 - writers that collided must not do so again
        if self._transaction is not None and not self._transaction.is_alive:
            self.end()
        is_short = seconds < _SHORT_ATTEMPT_SECONDS
        if self._transaction is not None and self._failed > 1 and is_short and not self._transaction.queue.is_first:
            self._queue.enter_context(self._transaction.queue.first())


class StagedTasks:
    """Runs tasks, and keeps their outcomes for the next attempt."""

    def __init__(self) -> None:
        self._done: list[tuple[Task, Outcome]] = []
        self._rows: object = None

    def run(self, rows: object, tasks: Sequence[Task], run: Callable[[Sequence[Task]], list[Outcome]]) -> list[Outcome]:
        """Return the outcomes of tasks. A task of an earlier attempt, with the same inputs, is not run again.

        ``rows`` are the source rows that tasks name by their numbers.
        """
        known = {_key(task): outcome for task, outcome in self._done} if rows is self._rows else {}
        found = [known.pop(_key(task), None) if known else None for task in tasks]
        new = iter(run([task for task, outcome in zip(tasks, found, strict=True) if outcome is None]))
        outcomes = [next(new) if outcome is None else outcome for outcome in found]
        self._done, self._rows = list(zip(tasks, outcomes, strict=True)), rows
        return outcomes


def _key(task: Task) -> bytes:
    """Return a digest of all that determines the content of the new file. Its name is not part of it."""
    digest = hashlib.sha256(type(task).__name__.encode())
    for part in _parts(task):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def _parts(task: Task) -> list[bytes]:
    common = [task.schema.serialize().to_pybytes(), repr(task.options).encode()]
    match task:
        case RewriteTask():
            file, change = task.file, task.change
            computed = [(name, str(value.type), text_of(value)) for name, value in sorted(change.computed.items())]
            values = (change.drop_others, change.columns, computed, change.keep_for_null)
            facts = (file.path, file.size, file.stamp, values, task.key_columns, task.skip_unchanged)
            rows = (change.replaced, change.source_rows, change.dropped)
            return [*common, repr(facts).encode(), *map(_bytes, rows)]
        case WriteTask():
            return [*common, dirname(task.path).encode(), _bytes(task.rows)]
        case MoveTask():
            return [*common, dirname(task.path).encode(), *map(_key, task.parts)]
        case CombineTask():
            files = [(file.path, file.size, file.stamp) for file in task.files]
            drops = [part for path, rows in sorted(task.drops.items()) for part in (path.encode(), _bytes(rows))]
            return [*common, repr(files).encode(), *drops]


def _bytes(rows: range | RowNumbers) -> bytes:
    return repr(rows).encode() if isinstance(rows, range) else np.ascontiguousarray(rows).tobytes()
