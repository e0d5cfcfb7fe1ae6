"""Telling the caller how far an operation is: a callback, or a rich progress bar where one is asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """A step of an operation: ``done`` of ``total`` files of a stage (``match``, ``write``, ``sort``).

    ``rows`` and ``bytes`` say how much the whole stage goes through; 0 stands for unknown. ``unit`` says what is
    counted: files, or the tasks of a Spark query that makes the rows or checks them, whose total may grow.
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
    """Counts steps of a stage, from any thread, and passes them on."""

    def __init__(self, operation: str, callback: ProgressCallback | None) -> None:
        self._operation, self._callback = operation, callback
        self._lock = threading.Lock()

    def stage(self, stage: str, total: int, *, rows: int = 0, size: int = 0) -> Callable[[int], None]:
        """Start a stage of so many files, rows and bytes; the returned function is told of each file that is done."""
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
        """For a stage that an engine runs as tasks of its own: the returned function is told how many of how many."""

        def tell(done: int, total: int) -> None:
            if self._callback is not None:
                with self._lock:
                    self._callback(ProgressEvent(self._operation, stage, done, total, unit="tasks"))

        return tell


@contextmanager
def reporting(operation: str, progress: Progress) -> Iterator[Reporter]:
    """A reporter for one operation; ``progress=True`` shows a bar on the terminal."""
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
