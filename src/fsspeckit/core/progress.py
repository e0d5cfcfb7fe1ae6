"""Report the progress of an operation to a callback or to a progress bar of rich."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fsspeckit.common.text import counted

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """The progress of an operation: ``done`` of ``total`` files of a stage (``match``, ``write``, ``sort``).

    ``rows`` and ``bytes`` are those of the whole stage; 0 means unknown. ``unit`` is ``"files"``, or ``"tasks"`` for
    the tasks of a Spark query that computes or checks the source, whose total may grow.
    """

    operation: str
    stage: str
    done: int
    total: int
    rows: int = 0
    bytes: int = 0
    unit: str = "files"


ProgressCallback = Callable[[ProgressEvent], None]
Progress = ProgressCallback | bool | None


class Reporter:
    """Counts the finished items of a stage and calls the callback. Thread-safe."""

    def __init__(self, operation: str, callback: ProgressCallback | None) -> None:
        self._operation, self._callback = operation, callback
        self._lock = threading.Lock()

    def stage(self, stage: str, total: int, *, rows: int = 0, size: int = 0) -> Callable[[int], None]:
        """Start a stage of ``total`` files. Call the returned function with the number of finished files."""
        if self._operation:
            amount = f" with {counted(rows, 'row')}" if rows else ""
            _logger.info("%s: %s %s%s", self._operation, stage, counted(total, "file"), amount)
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            if self._callback is None:
                return
            with self._lock:
                done += count
                self._callback(ProgressEvent(self._operation, stage, done, total, rows, size))

        advance(0)
        return advance

    def tasks(self, stage: str) -> Callable[[int, int], None]:
        """Start a stage that an engine runs as tasks. Call the returned function with finished tasks and all tasks."""

        def report(done: int, total: int) -> None:
            if self._callback is not None:
                with self._lock:
                    self._callback(ProgressEvent(self._operation, stage, done, total, unit="tasks"))

        return report


SILENT = Reporter("", None)
"""Reports nothing: for work that other writers wait for, in which no callback of the caller may run."""


@contextmanager
def reporting(operation: str, progress: Progress) -> Iterator[Reporter]:
    """Return a reporter for one operation; ``progress=True`` shows a progress bar on the terminal."""
    if progress is not True:
        yield Reporter(operation, progress or None)
        return
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    with Bar(transient=True) as bar:
        shown: dict[str, TaskID] = {}

        def show(event: ProgressEvent) -> None:
            if event.stage not in shown:
                shown[event.stage] = bar.add_task(f"{event.operation}: {event.stage}")
            bar.update(shown[event.stage], completed=event.done, total=event.total, refresh=event.done == 0)

        yield Reporter(operation, show)
