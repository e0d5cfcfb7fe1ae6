"""The Spark engine: Spark schedules, retries and spreads; the rows are handled by the same Arrow kernels as everywhere.

Planning happens on the driver. Executors scan key columns, unless there are few, and run the file kernel, one task for
each affected file or for a bundle of small ones. Rows of the target are never shuffled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from operator import itemgetter
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.dataset.source import Input, RowFiles, Source, open_source, source_files
from fsspeckit.core.engine.local import LocalEngine
from fsspeckit.core.engine.protocol import OnDone, ReadRequest, Scratch
from fsspeckit.core.engine.read import read_snapshot
from fsspeckit.core.kernels.match_keys import batches
from fsspeckit.core.model import NO_MATCH, KeySetSpec, Match, Outcome, RewriteTask, Scan, Task, WriteTask
from fsspeckit.core.storage import Storage, resolve
from fsspeckit.datasets.spark.exchange import exchange
from fsspeckit.datasets.spark.executor_check import check_executors, is_one_machine, slots
from fsspeckit.datasets.spark.file_source import is_small
from fsspeckit.datasets.spark.frame_source import share_frame
from fsspeckit.datasets.spark.job_progress import Counted, OnTasks
from fsspeckit.datasets.spark.jobs import run_items
from fsspeckit.datasets.spark.large_source import (
    RunRouted,
    SplitKeys,
    SplitRows,
    gather_keys,
    key_items,
    matches,
    routes,
    without_rows,
)
from fsspeckit.datasets.spark.session import active_session, get_session, refresh
from fsspeckit.datasets.spark.shared_source import INLINE_BYTES, SharedSource, share_inline, share_table, spilled
from fsspeckit.datasets.spark.tasks import Runner, Scanner, Scans, SpillFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
_R = TypeVar("_R")
_TASK_BYTES = 256 * 1024 * 1024
_TASK_SCAN_ROWS = 4_000_000
_PART_KEYS = 2_000_000
_WAVES = 4
_LOCAL_WAVES = 2
_MANY_TASKS = 200
DRIVER_ROWS = 500_000
"""Rows of the target whose keys the driver scans itself."""
LOCAL_ROWS = 20_000_000
"""The same where the executors are on the driver's own machine: they would only take turns with it."""
SHARE_LIMIT = 256 * 1024 * 1024
"""Bytes of source rows up to which every executor may open all of them; larger sources go by exchange."""
LOCAL_SHARE_LIMIT = 1024 * 1024 * 1024
"""The same on one machine, where all executors map one copy of them."""


class SparkEngine:
    """See `fsspeckit.core.engine.protocol.Engine`."""

    name = "spark"

    def __init__(self, spark: SparkSession | None = None, share_limit: int | None = None) -> None:
        known = share_limit is None or (isinstance(share_limit, int) and not isinstance(share_limit, bool))
        if not known or (share_limit or 0) < 0:
            raise ValueError(f"share_limit={share_limit!r} must be a number of bytes, 0 or more")
        self._given, self._share_limit = spark, share_limit

    @cached_property
    def spark(self) -> SparkSession:
        """The session, found or started when it is first needed: reading into Arrow needs none."""
        return get_session(self._given)

    @property
    def share_limit(self) -> int:
        """Bytes of source rows up to which every executor may open all of them: as asked, else by where they run."""
        if self._share_limit is not None:
            return self._share_limit
        return LOCAL_SHARE_LIMIT if is_one_machine(self.spark) else SHARE_LIMIT

    def committed(self, place: Place) -> None:
        """Let Spark list the dataset again; where there is no session, nothing is cached."""
        session = vars(self).get("spark") or self._given or active_session()
        if session is not None:
            refresh(session, place)

    @contextmanager
    def open_source(self, given: Input, storage: Storage, scratch: Scratch) -> Iterator[Source]:
        """Put the rows where executors reach them."""
        check_executors(self.spark, storage, scratch)
        files = _many_files(given)
        if not is_spark_frame(given.data) and files is None:
            table = open_source(given).table
            if table.nbytes <= min(INLINE_BYTES, self.share_limit):
                yield share_inline(table)
                return
        with self._spill_place(storage, scratch) as (place, folder):
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
    def _spill_place(self, storage: Storage, scratch: Scratch) -> Iterator[tuple[Storage, str]]:
        """A folder for spilled rows: of this machine where all executors are on it, else on the dataset's storage."""
        if not is_one_machine(self.spark):
            with scratch() as folder:
                yield storage, folder
            return
        with TemporaryDirectory(prefix="fsspeckit-") as folder:
            yield resolve(os.path.realpath(folder))

    def _share_files(self, files: RowFiles, storage: Storage, folder: str, on_tasks: OnTasks) -> SharedSource:
        """Let executors turn the files that are the source into spilled ones."""
        count = len(files.files)
        counted = Counted(on_tasks, count)
        found = run_items(self.spark, SpillFiles(files, storage, folder), range(count), count, counted.more)
        return spilled(found, files.schema, storage, self.share_limit)

    def match(
        self, storage: Storage, source: Source, specs: Sequence[KeySetSpec], scans: Sequence[Scan], on_done: OnDone
    ) -> list[Match]:
        """Scan key columns in executors, or here where there are few."""
        assert isinstance(source, SharedSource)
        total, is_large = sum(scan.rows for scan in scans), source.route == "exchange"
        if self.scans_here(total + is_large * source.rows):
            return LocalEngine().match(storage, source, specs, scans, on_done)
        if is_large:
            return self._match_by_exchange(storage, source, specs, scans, on_done)
        wanted = [(len(spec.rows), spec.keys) for spec in specs]
        found_batches = batches(scans, wanted, slots(self.spark))
        work = [Scans(specs[batch[0].group], tuple(batch)) for batch in found_batches]
        told = _by_scans(work, on_done)
        body = Scanner(storage, source.handle)
        found = run_items(self.spark, body, work, self._tasks(total, _TASK_SCAN_ROWS), told)
        return [match for matches in found for match in matches]

    def scans_here(self, rows: int) -> bool:
        """Whether the driver takes less time for keys of so many rows than a job of executors."""
        return rows <= (LOCAL_ROWS if is_one_machine(self.spark) else DRIVER_ROWS)

    def _match_by_exchange(
        self,
        storage: Storage,
        source: SharedSource,
        specs: Sequence[KeySetSpec],
        scans: Sequence[Scan],
        on_done: OnDone,
    ) -> list[Match]:
        """Bring equal keys together, once for each set of key columns: partition folders may hold some of them."""
        results: list[Match] = [NO_MATCH] * len(scans)
        for keys in dict.fromkeys(specs[scan.group].keys for scan in scans):
            members = [i for i, scan in enumerate(scans) if specs[scan.group].keys == keys]
            items = key_items(source.handle, specs, [(n, scans[i]) for n, i in enumerate(members)])
            rows = source.rows + sum(scans[i].rows for i in members)
            parts = max(slots(self.spark), rows // _PART_KEYS + 1)
            grouped = len({scans[i].group for i in members}) > 1
            split = SplitKeys(storage, source.handle, keys, grouped, parts)
            tasks = self._tasks(rows, _TASK_SCAN_ROWS)
            with self.packets() as folder:
                found = exchange(self.spark, split, items, gather_keys, parts, tasks, lambda _: None, folder)
            for i, match in zip(members, matches(found, len(members)), strict=True):
                results[i] = match
            on_done(len(members))
        return results

    def run(
        self, storage: Storage, source: Source, tasks: Sequence[Task], staging: str | None, on_done: OnDone
    ) -> list[Outcome]:
        """Run the file kernel in executors."""
        assert isinstance(source, SharedSource)
        if source.route == "exchange":
            return self._run_by_exchange(storage, source, tasks, staging, on_done)
        count = self._tasks(sum(task.weight for task in tasks), _TASK_BYTES)
        return run_items(self.spark, Runner(storage, source.handle, staging), tasks, count, on_done)

    def _tasks(self, total: int, each: int) -> int:
        """How many Spark tasks there are: a few for each slot, since starting one costs as much as a small file.

        Fewer where all slots are on one machine and none of them falls behind.
        """
        waves = _LOCAL_WAVES if is_one_machine(self.spark) else _WAVES
        few = min(total // (each // 8) + 1, waves * slots(self.spark))
        return max(few, total // each + 1, slots(self.spark))

    def _run_by_exchange(
        self, storage: Storage, source: SharedSource, tasks: Sequence[Task], staging: str | None, on_done: OnDone
    ) -> list[Outcome]:
        """Send source rows to the tasks that need them."""
        wanting = [task for task in tasks if isinstance(task, (RewriteTask, WriteTask))]
        assert len(wanting) == len(tasks)
        if not wanting:
            return []
        parts = min(len(wanting), self._tasks(sum(task.weight for task in wanting), _TASK_BYTES))
        part_of = np.arange(len(wanting)) % parts
        bundles = tuple(
            tuple((n, without_rows(wanting[n])) for n in range(part, len(wanting), parts)) for part in range(parts)
        )
        body = RunRouted(storage, source.schema, bundles, staging)
        split = SplitRows(source.handle, part_of)
        items = routes(source.handle, wanting)
        with self.packets() as folder:
            found = exchange(self.spark, split, items, body, parts, self._many, lambda _: None, folder)
        on_done(len(tasks))
        return [outcome for _, outcome in sorted((pair for pairs in found for pair in pairs), key=itemgetter(0))]

    def map(self, function: Callable[[_T], _R], items: Sequence[_T], on_done: OnDone) -> list[_R]:
        """Run a function over all items on the executors."""
        return run_items(self.spark, function, items, self._many, on_done)

    def exchange(
        self,
        split: Callable[[_T], Iterable[tuple[int, pa.Table]]],
        items: Sequence[_T],
        gather: Callable[[int, Iterator[pa.Table]], _R],
        parts: int,
        on_done: OnDone,
    ) -> list[_R]:
        """Bring together what belongs together, by the blob exchange."""
        with self.packets() as folder:
            return exchange(self.spark, split, items, gather, parts, self._many, on_done, folder)

    @contextmanager
    def packets(self) -> Iterator[str | None]:
        """Where packets of an exchange stand: in files where all executors are on one machine, else in the shuffle."""
        if not is_one_machine(self.spark):
            yield None
            return
        place = self.spark.sparkContext._temp_dir
        os.makedirs(place, exist_ok=True)  # a long session may outlive it
        with TemporaryDirectory(prefix="fsspeckit-", dir=place, ignore_cleanup_errors=True) as folder:
            yield folder

    @property
    def _many(self) -> int:
        """The most tasks that work of unknown weight is dealt out to."""
        return max(_WAVES * slots(self.spark), _MANY_TASKS)

    def read(
        self, storage: Storage, snapshot: Snapshot, request: ReadRequest, path_of: Callable[[str], str]
    ) -> pa.Table:
        """Read all files into one Arrow table, on the driver."""
        return read_snapshot(storage, snapshot, request, path_of)


def is_spark_frame(data: Any) -> bool:
    """Whether data is a Spark DataFrame; asked before anything else, since those offer Arrow's stream too."""
    return any(
        base.__module__.startswith("pyspark.sql") and base.__name__ == "DataFrame" for base in type(data).__mro__
    )


def _many_files(given: Input) -> RowFiles | None:
    """The files of a source, where they are worth reading on executors."""
    if is_spark_frame(given.data):
        return None
    if isinstance(given.data, RowFiles):
        return None if is_small(given.data.files) else given.data
    if not isinstance(given.data, (str, os.PathLike)):
        return None
    files = source_files(given.data, given.filesystem, given.storage_options)
    return None if not files.storage.is_shared or is_small(files.files) else files


def _by_scans(work: Sequence[Scans], on_done: OnDone) -> OnDone:
    """Batches of scans are what is run, scans are what is told."""
    left = [len(item.scans) for item in reversed(work)]

    def told(count: int) -> None:
        on_done(sum(left.pop() for _ in range(count)))

    return told
