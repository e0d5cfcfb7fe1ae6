"""Progress bars: shown after two seconds, on standard error, and only on a terminal."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from fsspeckit.core.progress import ProgressEvent

PATIENCE = 2.0
SHORT_PATIENCE = 0.5
"""Seconds until a bar is drawn if the command waits for another program to start."""
_WAITING = ("", "")


class Bars:
    """A callback for an operation's progress; rich is loaded when the first bar is drawn."""

    def __init__(self, title: str, waits_for: str = "") -> None:
        self._title = f"{title}: {waits_for}" if waits_for else title
        # A copy of standard error: while Spark starts, the original is redirected to a file.
        self._terminal = os.fdopen(os.dup(2), "w", encoding="utf-8")
        self._lock = threading.Lock()
        self._timer = threading.Timer(SHORT_PATIENCE if waits_for else PATIENCE, self._show)
        self._timer.daemon = True
        self._closed = False
        self._bar: Any = None
        self._tasks: dict[tuple[str, str], Any] = {}
        self._latest: dict[tuple[str, str], ProgressEvent] = {}

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._bar is not None:
                self._bar.stop()
                self._bar = None
        self._terminal.close()

    def __call__(self, event: ProgressEvent) -> None:
        """Record an event; any thread may call this."""
        with self._lock:
            self._latest[event.operation, event.stage] = event
            if self._bar is not None:
                self._draw(event)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[files]}", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with self._lock:
            if self._closed:
                return
            self._bar = Progress(*columns, console=Console(file=self._terminal), transient=True)
            self._bar.start()
            self._tasks[_WAITING] = self._bar.add_task(self._title, total=None, files="")
            for event in self._latest.values():
                self._draw(event)

    def _draw(self, event: ProgressEvent) -> None:
        key = event.operation, event.stage
        if _WAITING in self._tasks:
            self._bar.remove_task(self._tasks.pop(_WAITING))
        if event.done == 0 and key in self._tasks:
            # The stage starts again in another pipeline step: draw a new bar below the existing ones.
            self._bar.remove_task(self._tasks.pop(key))
        if key not in self._tasks:
            self._tasks[key] = self._bar.add_task(f"{event.operation}: {event.stage}", files="")
        self._bar.update(self._tasks[key], completed=event.done, total=event.total, files=amounts(event))


def amounts(event: ProgressEvent) -> str:
    """Return the finished and total files (or Spark tasks), and the rows and bytes of the stage."""
    from fsspeckit.common.text import counted
    from fsspeckit.core.result_view import readable_bytes

    parts = [f"{event.done:,}/{event.total:,} {event.unit}"]
    parts += [counted(event.rows, "row")] if event.rows else []
    parts += [readable_bytes(event.bytes)] if event.bytes else []
    return ", ".join(parts)


def wanted(*, quiet: bool, no_progress: bool) -> bool:
    """Return whether to show progress bars: standard error is a terminal and no option disables them."""
    return not quiet and not no_progress and sys.stderr.isatty()
