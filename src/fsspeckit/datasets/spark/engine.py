"""The Spark engine: Spark schedules, retries and spreads; the rows are handled by the same Arrow kernels as everywhere.

Planning happens on the driver. Executors scan key columns and run the file kernel, one task for each affected file or
for a bundle of small ones. Rows of the target are never shuffled.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fsspeckit.core.engine import KeySetSpec, OnDone, ReadRequest, Scratch
from fsspeckit.core.keys import KeyIndex
from fsspeckit.core.matching import Match, Scan, batches, match_files, rows_worth
from fsspeckit.core.model import Outcome, RewriteTask, Task
from fsspeckit.core.profile import plain_keys
from fsspeckit.core.reading import read_snapshot
from fsspeckit.core.rewrite import run_task
from fsspeckit.core.snapshot import Snapshot
from fsspeckit.core.source import Input, Source, open_source
from fsspeckit.core.storage import Storage, parent
from fsspeckit.datasets.spark.errors import invisible
from fsspeckit.datasets.spark.handshake import greet, slots
from fsspeckit.datasets.spark.jobs import run_items
from fsspeckit.datasets.spark.shared import INLINE_BYTES, Handle, SharedSource, share_frame, share_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALL_TASK_BYTES = 32 * 1024 * 1024
_SMALL_SCAN_ROWS = 1_000_000


class SparkEngine:
    """See `fsspeckit.core.engine.Engine`."""

    name = "spark"

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @contextmanager
    def open_source(self, given: Input, storage: Storage, scratch: Scratch) -> Iterator[Source]:
        """Put the rows where executors reach them."""
        greet(self.spark, storage, scratch)
        if is_spark_frame(given.data):
            with scratch() as folder:
                yield from _until_done(share_frame(self.spark, given.data, storage, folder))
            return
        table = open_source(given).table
        if table.nbytes <= INLINE_BYTES:
            yield from _until_done(share_table(table, storage, None))
            return
        with scratch() as folder:
            yield from _until_done(share_table(table, storage, folder))

    def match(
        self, storage: Storage, source: Source, specs: Sequence[KeySetSpec], scans: Sequence[Scan], on_done: OnDone
    ) -> list[Match]:
        """Scan key columns in executors."""
        assert isinstance(source, SharedSource)
        work = [
            _ScanItem(storage, source.handle, specs[batch[0].group], tuple(batch))
            for batch in batches(scans, [rows_worth(len(spec.rows), spec.keys) for spec in specs])
        ]
        size = sum(scan.rows for scan in scans) // _SMALL_SCAN_ROWS + 1
        told = _by_scans(work, on_done)
        found = run_items(self.spark, _scan, work, max(size, slots(self.spark)), told)
        return [match for matches in found for match in matches]

    def run(
        self, storage: Storage, source: Source, tasks: Sequence[Task], staging: str | None, on_done: OnDone
    ) -> list[Outcome]:
        """Run the file kernel in executors."""
        assert isinstance(source, SharedSource)
        work = [_TaskItem(storage, source.handle, task, staging) for task in tasks]
        size = sum(_task_bytes(task) for task in tasks) // _SMALL_TASK_BYTES + 1
        return run_items(self.spark, _run, work, max(size, slots(self.spark)), on_done)

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


def _until_done(source: SharedSource) -> Iterator[Source]:
    try:
        yield source
    finally:
        source.handle.forget()


@dataclass(frozen=True, slots=True)
class _ScanItem:
    storage: Storage
    handle: Handle
    spec: KeySetSpec
    scans: tuple[Scan, ...]


@dataclass(frozen=True, slots=True)
class _TaskItem:
    storage: Storage
    handle: Handle
    task: Task
    staging: str | None


def _by_scans(work: Sequence[_ScanItem], on_done: OnDone) -> OnDone:
    """Batches of scans are what is run, scans are what is told."""
    left = [len(item.scans) for item in reversed(work)]

    def told(count: int) -> None:
        on_done(sum(left.pop() for _ in range(count)))

    return told


def _scan(item: _ScanItem) -> list[Match]:
    _check_visible(item.storage, parent(item.scans[0].file.location))
    source = item.handle.open()
    rows = None if isinstance(item.spec.rows, range) else item.spec.rows
    index = KeyIndex(plain_keys(source, item.spec.keys, item.spec.rows), rows)
    return match_files(item.storage, item.scans, index, item.spec.keys)


def _check_visible(storage: Storage, folder: str) -> None:
    """A local folder that the driver sees and this executor does not is no shared folder."""
    if storage.is_local and storage.stat(folder) is None:
        raise invisible(folder, platform.node())


def _run(item: _TaskItem) -> Outcome:
    if item.staging is not None:
        _check_visible(item.storage, item.staging)
    source = item.handle.open()
    return run_task(item.task, source.take, item.storage, item.staging, at_once=1)


def _task_bytes(task: Task) -> int:
    return task.file.size if isinstance(task, RewriteTask) else 64 * len(task.rows)
