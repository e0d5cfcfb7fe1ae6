"""The Spark engine: Spark schedules and retries tasks; the tasks run the same Arrow kernels as the local engine.

Planning happens on the driver. Executors scan key columns, unless there are few rows, and run the file kernel, one task
for each affected file or for a bundle of small ones. Rows of the target are never shuffled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.dataset.source import Input, RowFiles, Source, open_source, source_files
from fsspeckit.core.engine.local import LocalEngine
from fsspeckit.core.engine.protocol import OnDone, ReadRequest, Scratch
from fsspeckit.core.engine.read import read_snapshot
from fsspeckit.core.kernels.match_keys import batches
from fsspeckit.core.model import KeySetSpec, Match, Outcome, Scan, Task
from fsspeckit.core.storage import Storage, resolve
from fsspeckit.datasets.spark.exchange import exchange
from fsspeckit.datasets.spark.executor_check import check_executors, check_shared, is_one_machine, slots
from fsspeckit.datasets.spark.file_source import is_small
from fsspeckit.datasets.spark.frame_source import share_frame
from fsspeckit.datasets.spark.job_progress import Counted, OnTasks
from fsspeckit.datasets.spark.jobs import run_items
from fsspeckit.datasets.spark.session import active_session, get_session, is_configured, refresh
from fsspeckit.datasets.spark.shared_source import INLINE_BYTES, SharedSource, share_inline, share_table, spilled
from fsspeckit.datasets.spark.tasks import Runner, Scanner, Scans, SpillFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
_R = TypeVar("_R")
_TASK_BYTES = 256 * 1024 * 1024
_TASK_SCAN_ROWS = 4_000_000
_WAVES = 4
_LOCAL_WAVES = 2
_TASK_ITEMS = 8
_BATCH_FILES = 100
_LARGEST_BATCH = 5_000
DISTRIBUTED_FILES = 500
"""Number of files in a commit on an object store from which on executors check and publish them."""
DRIVER_ROWS = 500_000
"""Rows of the target whose keys the driver scans itself."""
LOCAL_ROWS = 20_000_000
"""The same if the executors are on the driver's machine, where they share its cores."""
SHARE_LIMIT = 256 * 1024 * 1024
"""Bytes of source rows up to which every executor may open all of them; larger sources use an exchange."""
LOCAL_SHARE_LIMIT = 1024 * 1024 * 1024
"""The same on one machine, where all executors memory-map one copy."""


class SparkEngine:
    """See `fsspeckit.core.engine.protocol.Engine`."""

    name = "spark"
    distributes = True

    def __init__(self, spark: SparkSession | None = None, share_limit: int | None = None) -> None:
        known = share_limit is None or (isinstance(share_limit, int) and not isinstance(share_limit, bool))
        if not known or (share_limit or 0) < 0:
            raise ValueError(f"share_limit={share_limit!r} must be a number of bytes, 0 or more")
        self._given, self._share_limit = spark, share_limit
        self._unchecked: list[tuple[Storage, Scratch]] = []

    @cached_property
    def spark(self) -> SparkSession:
        """The session, found or started on first use; reading into Arrow needs none."""
        return get_session(self._given)

    @property
    def _is_unstarted(self) -> bool:
        """Whether a session would have to be started, on this machine. An operation without work needs none."""
        is_known = self._given is not None or "spark" in vars(self) or active_session() is not None
        return not is_known and not is_configured()

    def _checked(self) -> SparkSession:
        """Return the session, after the checks that had to wait for it."""
        while self._unchecked:
            check_executors(self.spark, *self._unchecked.pop())
        return self.spark

    @property
    def is_one_machine(self) -> bool:
        """Whether the executors are threads of the driver's Java process."""
        return self._is_unstarted or is_one_machine(self.spark)

    @property
    def share_limit(self) -> int:
        """Bytes of source rows up to which every executor may open all of them; the default depends on the master."""
        if self._share_limit is not None:
            return self._share_limit
        return LOCAL_SHARE_LIMIT if self.is_one_machine else SHARE_LIMIT

    def committed(self, place: Place) -> None:
        """Refresh Spark's cached file listing of the dataset; without a session nothing is cached."""
        session = vars(self).get("spark") or self._given or active_session()
        if session is not None:
            refresh(session, place)

    def distribute(
        self, storage: Storage, function: Callable[[Sequence[_T]], list[_R]], items: Sequence[_T]
    ) -> list[_R]:
        """Apply a function to batches of files on the executors; to few files, or files of a disk, on the driver."""
        session = vars(self).get("spark") or self._given
        if len(items) < DISTRIBUTED_FILES or storage.has_folders or not storage.is_shared or session is None:
            return function(items)
        count = min(_WAVES * slots(session), len(items) // _BATCH_FILES + 1)
        size = min(-(-len(items) // count), _LARGEST_BATCH)
        batches = [items[first : first + size] for first in range(0, len(items), size)]
        found = run_items(session, function, batches, len(batches), lambda _: None)
        return [result for results in found for result in results]

    @contextmanager
    def open_source(self, given: Input, storage: Storage, scratch: Scratch) -> Iterator[Source]:
        """Make the rows of a source accessible to the executors."""
        if self._is_unstarted and not is_spark_frame(given.data):
            check_shared(storage)
            self._unchecked.append((storage, scratch))
        else:
            check_executors(self.spark, storage, scratch)
        files = _many_files(given)
        if not is_spark_frame(given.data) and files is None:
            table = open_source(given).table
            if table.nbytes <= min(INLINE_BYTES, self.share_limit):
                yield share_inline(table)
                return
        with self._spill_folder(storage, scratch) as (place, folder):
            if is_spark_frame(given.data):
                source = share_frame(self.spark, given.data, place, folder, self.share_limit, given.on_tasks)
            elif files is not None:
                source = self._share_files(files, place, folder, given.on_tasks)
            else:
                source = share_table(table, place, folder, self.share_limit)
            try:
                yield source
            finally:
                source.handle.forget()

    @contextmanager
    def _spill_folder(self, storage: Storage, scratch: Scratch) -> Iterator[tuple[Storage, str]]:
        """Yield a folder for spill files: local if all executors are on this machine, else on the dataset's storage."""
        if not self.is_one_machine:
            with scratch() as folder:
                yield storage, folder
            return
        with TemporaryDirectory(prefix="fsspeckit-") as folder:
            yield resolve(os.path.realpath(folder))

    def _share_files(self, files: RowFiles, storage: Storage, folder: str, on_tasks: OnTasks) -> SharedSource:
        """Convert the source files to spill files on the executors."""
        count = len(files.files)
        counted = Counted(on_tasks, count)
        found = run_items(self._checked(), SpillFiles(files, storage, folder), range(count), count, counted.more)
        return spilled(found, files.schema, storage, self.share_limit)

    def match(
        self, storage: Storage, source: Source, specs: Sequence[KeySetSpec], scans: Sequence[Scan], on_done: OnDone
    ) -> list[Match]:
        """Scan key columns on the executors, or on the driver if there are few rows."""
        assert isinstance(source, SharedSource)
        total = sum(scan.rows for scan in scans)
        if self.scans_here(total):
            return LocalEngine().match(storage, source, specs, scans, on_done)
        self._checked()
        wanted = [(len(spec.rows), spec.keys) for spec in specs]
        scan_batches = batches(scans, wanted, slots(self.spark))
        work = [Scans(specs[batch[0].group], tuple(batch)) for batch in scan_batches]
        on_batches = _by_scans(work, on_done)
        body = Scanner(storage, source.handle)
        found = run_items(self.spark, body, work, self._tasks(total, _TASK_SCAN_ROWS), on_batches)
        return [match for matches in found for match in matches]

    def scans_here(self, rows: int) -> bool:
        """Return whether the driver scans the keys of this many rows faster than a Spark job."""
        return rows <= (LOCAL_ROWS if self.is_one_machine else DRIVER_ROWS)

    def run(
        self, storage: Storage, source: Source, tasks: Sequence[Task], staging: str | None, on_done: OnDone
    ) -> list[Outcome]:
        """Run the file kernel on the executors."""
        assert isinstance(source, SharedSource)
        if not tasks:
            return []
        self._checked()
        count = self._tasks(sum(task.weight for task in tasks), _TASK_BYTES)
        return run_items(self.spark, Runner(storage, source.handle, staging), tasks, count, on_done)

    def _tasks(self, total: int, each: int) -> int:
        """Return the number of Spark tasks: a few per slot, since starting a task costs as much as a small file.

        There are fewer on one machine, where all slots are equally fast.
        """
        waves = _LOCAL_WAVES if is_one_machine(self.spark) else _WAVES
        few = min(total // (each // 8) + 1, waves * slots(self.spark))
        return max(few, total // each + 1, slots(self.spark))

    def map(self, function: Callable[[_T], _R], items: Sequence[_T], on_done: OnDone) -> list[_R]:
        """Apply a function to all items on the executors."""
        return run_items(self._checked(), function, items, self._bundles(items), on_done) if items else []

    def exchange(
        self,
        split: Callable[[_T], Iterable[tuple[int, pa.Table]]],
        items: Sequence[_T],
        gather: Callable[[int, Iterator[pa.Table]], _R],
        parts: int,
        on_done: OnDone,
    ) -> list[_R]:
        """Split items into tables by part, shuffle them, and gather each part. See `exchange`."""
        self._checked()
        with self.packets() as folder:
            return exchange(self.spark, split, items, gather, parts, self._bundles(items), on_done, folder)

    @contextmanager
    def packets(self) -> Iterator[str | None]:
        """Yield the folder for exchanged tables if all executors are on one machine; None to use the shuffle."""
        if not is_one_machine(self.spark):
            yield None
            return
        parent = self.spark.sparkContext._temp_dir
        os.makedirs(parent, exist_ok=True)  # it may have been deleted during a long session
        with TemporaryDirectory(prefix="fsspeckit-", dir=parent, ignore_cleanup_errors=True) as folder:
            yield folder

    def _bundles(self, items: Sequence[object]) -> int:
        """The number of tasks for items of unknown size: a few for each slot, and few items for each task."""
        return max(_WAVES * slots(self.spark), -(-len(items) // _TASK_ITEMS))

    def read(
        self, storage: Storage, snapshot: Snapshot, request: ReadRequest, path_of: Callable[[str], str]
    ) -> pa.Table:
        """Read all files into one Arrow table, on the driver."""
        return read_snapshot(storage, snapshot, request, path_of)


def is_spark_frame(data: Any) -> bool:
    """Return whether data is a Spark DataFrame. Check this first: DataFrames also have the Arrow stream interface."""
    return any(
        base.__module__.startswith("pyspark.sql") and base.__name__ == "DataFrame" for base in type(data).__mro__
    )


def _many_files(given: Input) -> RowFiles | None:
    """Return the files of a source if they are large enough to read on executors, else None."""
    if is_spark_frame(given.data):
        return None
    if isinstance(given.data, RowFiles):
        return None if is_small(given.data.files) else given.data
    if not isinstance(given.data, (str, os.PathLike)):
        return None
    files = source_files(given.data, given.filesystem, given.storage_options)
    return None if not files.storage.is_shared or is_small(files.files) else files


def _by_scans(work: Sequence[Scans], on_done: OnDone) -> OnDone:
    """Return a callback that takes a number of finished batches and reports their scans to ``on_done``."""
    remaining = [len(item.scans) for item in reversed(work)]

    def on_batches(count: int) -> None:
        on_done(sum(remaining.pop() for _ in range(count)))

    return on_batches
