"""Report the progress of a running Spark job, and cancel it if the caller fails or is interrupted.

A unique tag identifies the job, so a job group of the caller and the configuration of the session do not change. On
classic Spark the status tracker is polled; on Spark Connect the server sends progress messages.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from fsspeckit.datasets.spark.errors import translated
from fsspeckit.datasets.spark.versions import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OnTasks = Callable[[int, int], None]
_EVERY = 0.2
_PATIENCE = 10.0


class Counted:
    """Forwards counts of ended tasks; `all` reports every task as ended."""

    def __init__(self, on_tasks: OnTasks, known: int = 0) -> None:
        self._on_tasks, self._ended, self._known = on_tasks, 0, known

    def __call__(self, ended: int, known: int) -> None:
        """Report the number of ended tasks and of known tasks."""
        self._ended, self._known = ended, known
        self._on_tasks(ended, known)

    def more(self, count: int) -> None:
        """Report this many more ended tasks."""
        self(self._ended + count, self._known)

    def all(self) -> None:
        """Report the end of the job; a job that ended before the first poll counts as one task."""
        self(max(self._known, 1), max(self._known, 1))


@contextmanager
def watched(spark: SparkSession, on_tasks: OnTasks | None = None) -> Iterator[None]:
    """Report the progress of the job that runs in the block.

    ``on_tasks`` is called with the numbers of ended and of known tasks; on classic Spark, from another thread. If the
    block raises, also by Ctrl-C, running tasks are cancelled. On classic Spark they are also awaited, so that no task
    writes while the caller cleans up.
    """
    watch = _remote_watch if is_remote(spark) else _classic_watch
    with translated(), watch(spark, f"fsspeckit-{uuid.uuid4().hex}", on_tasks):
        yield


@contextmanager
def _classic_watch(spark: SparkSession, tag: str, on_tasks: OnTasks | None) -> Iterator[None]:
    context = spark.sparkContext
    jobs = _Jobs(context, tag)
    context.addJobTag(tag)
    try:
        with _polling(jobs, on_tasks):
            yield
    except BaseException:
        jobs.cancel()
        raise
    finally:
        context.removeJobTag(tag)


class _Jobs:
    """The jobs of one tag."""

    def __init__(self, context: Any, tag: str) -> None:
        self._context, self._tag = context, tag

    def tasks(self) -> tuple[int, int, int]:
        """Return the numbers of active, ended and known tasks."""
        tracker = self._context._jsc.sc().statusTracker()
        active = ended = known = 0
        for job in tracker.getJobIdsForTag(self._tag):
            info = self._context.statusTracker().getJobInfo(job)
            for number in info.stageIds if info is not None else ():
                stage = self._context.statusTracker().getStageInfo(number)
                if stage is not None:
                    active += stage.numActiveTasks
                    ended += stage.numCompletedTasks
                    known += stage.numTasks
        return active, ended, known

    def cancel(self) -> None:
        """Cancel the jobs and wait up to ten seconds for their tasks to end. A stopped session has no tasks."""
        from py4j.protocol import Py4JError

        with suppress(Py4JError, OSError):
            self._context.cancelJobsWithTag(self._tag)
            until = time.monotonic() + _PATIENCE
            while self.tasks()[0] and time.monotonic() < until:
                time.sleep(0.05)


@contextmanager
def _polling(jobs: _Jobs, on_tasks: OnTasks | None) -> Iterator[None]:
    if on_tasks is None:
        yield
        return
    stop = threading.Event()
    failures: list[BaseException] = []
    thread = threading.Thread(target=_poll, args=(jobs, on_tasks, stop, failures), daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        if failures:
            raise failures[0] from None
        raise
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


def _poll(jobs: _Jobs, on_tasks: OnTasks, stop: threading.Event, failures: list[BaseException]) -> None:
    from py4j.protocol import Py4JError

    reported = -1
    while not stop.wait(_EVERY):
        try:
            _, ended, known = jobs.tasks()
        except (Py4JError, OSError):
            return
        if not known or ended <= reported:
            continue
        try:
            on_tasks(ended, known)
        except BaseException as error:  # noqa: BLE001 - an error of the callback, raised again in the caller's thread
            failures.append(error)
            jobs.cancel()
            return
        reported = ended


@contextmanager
def _remote_watch(spark: SparkSession, tag: str, on_tasks: OnTasks | None) -> Iterator[None]:
    owner = threading.get_ident()

    def on_stages(stages: Any, **_: Any) -> None:
        # The client reads the server's messages in the thread that waits for the result.
        if on_tasks is not None and threading.get_ident() == owner:
            counts = [(stage.num_completed_tasks, stage.num_tasks) for stage in stages or ()]
            on_tasks(sum(ended for ended, _ in counts), sum(known for _, known in counts))

    handler: Any = on_stages
    has_progress = hasattr(spark, "registerProgressHandler")  # since PySpark 4.0
    spark.addTag(tag)
    if has_progress:
        spark.registerProgressHandler(handler)
    try:
        yield
    except BaseException:
        spark.interruptTag(tag)
        raise
    finally:
        if has_progress:
            spark.removeProgressHandler(handler)
        spark.removeTag(tag)
