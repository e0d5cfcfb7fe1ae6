"""The engine that runs in one process, in a thread pool with one file per thread.

Decoding, matching and encoding release the interpreter lock, so one thread per core uses all cores. The PyArrow engine
is this one, and the DuckDB engine extends it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeVar

import pyarrow as pa

from fsspeckit.core.commit.publishing import in_one_batch
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.dataset.source import Input, Source, open_source
from fsspeckit.core.dataset.source_keys import plain_keys
from fsspeckit.core.engine.protocol import OnDone, ReadRequest, Scratch
from fsspeckit.core.engine.read import read_snapshot
from fsspeckit.core.kernels.match_keys import batches, match_files
from fsspeckit.core.kernels.run_task import run_task
from fsspeckit.core.model import KeySetSpec, Match, Outcome, Scan, Task
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.keys import KeyIndex
from fsspeckit.core.values.spill import Spill

_T = TypeVar("_T")
_R = TypeVar("_R")
_REMOTE_WORKERS = 16
_PIECES_IN_MEMORY = 192 * 1024 * 1024


class LocalEngine:
    """See `fsspeckit.core.engine.protocol.Engine`."""

    name = "pyarrow"
    distributes = False

    @property
    def threads(self) -> int | None:
        """The most threads for work that needs much memory; ``None`` means one per core."""
        return None

    def committed(self, place: Place) -> None:
        """Do nothing: nothing is cached."""

    def distribute(
        self, storage: Storage, function: Callable[[Sequence[_T]], list[_R]], items: Sequence[_T]
    ) -> list[_R]:
        """Apply the function to all items as one batch, which uses threads on an object store."""
        return in_one_batch(storage, function, items)

    @contextmanager
    def open_source(self, given: Input, storage: Storage, scratch: Scratch) -> Iterator[Source]:  # noqa: ARG002
        """Open the source; data that can be read only once is spooled to disk."""
        yield open_source(given)

    def match(
        self, storage: Storage, source: Source, specs: Sequence[KeySetSpec], scans: Sequence[Scan], on_done: OnDone
    ) -> list[Match]:
        """Scan key columns, one batch of files per thread."""
        names = list(dict.fromkeys(key.name for spec in specs for key in spec.keys))
        indexes = _Indexes(Source(source.columns(names)), specs)

        def match_batch(batch: list[Scan]) -> list[Match]:
            spec = specs[batch[0].group]
            matches = match_files(storage, batch, indexes.get(batch[0].group), spec.keys)
            on_done(len(batch))
            return matches

        work = list(batches(scans, [(len(spec.rows), spec.keys) for spec in specs], cores()))
        return [match for matches in run_in_threads(workers(storage), match_batch, work) for match in matches]

    def run(
        self, storage: Storage, source: Source, tasks: Sequence[Task], staging: str | None, on_done: OnDone
    ) -> list[Outcome]:
        """Run one task per thread. Another thread syncs finished files to disk."""
        with ThreadPoolExecutor(1) as disk:
            synced: list[Future[None]] = []

            def run_one(task: Task) -> Outcome:
                outcome = run_task(task, source.take, storage, staging, at_once=workers(storage))
                if outcome.staged and storage.is_local:
                    synced.append(disk.submit(storage.sync_files, [outcome.staged]))
                on_done(1)
                return outcome

            outcomes = run_in_threads(min(workers(storage), self.threads or len(tasks)), run_one, tasks)
            for future in synced:
                future.result()
        return outcomes

    def read(
        self, storage: Storage, snapshot: Snapshot, request: ReadRequest, path_of: Callable[[str], str]
    ) -> pa.Table:
        """Read all files into one table."""
        return read_snapshot(storage, snapshot, request, path_of)

    def map(self, function: Callable[[_T], _R], items: Sequence[_T], on_done: OnDone) -> list[_R]:
        """Apply a function to all items, one item per thread."""

        def apply(item: _T) -> _R:
            result = function(item)
            on_done(1)
            return result

        return run_in_threads(cores(), apply, items)

    def exchange(
        self,
        split: Callable[[_T], Iterable[tuple[int, pa.Table]]],
        items: Sequence[_T],
        gather: Callable[[int, Iterator[pa.Table]], _R],
        parts: int,
        on_done: OnDone,
    ) -> list[_R]:
        """Exchange pieces in memory, and in temporary files beyond a limit."""
        threads = min(cores(), self.threads or cores())
        with Spill(parts, _PIECES_IN_MEMORY) as spill:

            def split_one(number: int) -> None:
                with spill.writer(number) as writer:
                    for part, table in split(items[number]):
                        writer.add(part, table)
                on_done(1)

            def gather_one(part: int) -> _R:
                result = gather(part, spill.take(part))
                on_done(1)
                return result

            run_in_threads(threads, split_one, range(len(items)))
            return run_in_threads(threads, gather_one, range(parts))


class _Indexes:
    """Key indexes. The first thread that needs an index builds it."""

    def __init__(self, source: Source, specs: Sequence[KeySetSpec]) -> None:
        self._source, self._specs = source, specs
        self._built: dict[int, KeyIndex] = {}
        self._lock = threading.Lock()

    def get(self, number: int) -> KeyIndex:
        with self._lock:
            if number not in self._built:
                self._built[number] = key_index(self._source, self._specs[number])
            return self._built[number]


def key_index(source: Source, spec: KeySetSpec) -> KeyIndex:
    """Return an index of the keys of some source rows."""
    return KeyIndex(plain_keys(source, spec.keys, spec.rows), None if isinstance(spec.rows, range) else spec.rows)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers(storage: Storage) -> int:
    """Return the number of threads: one per core, and more for remote storage."""
    return cores() if storage.is_local else max(cores(), _REMOTE_WORKERS)


def run_in_threads(threads: int, function: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """Call a function with all items in threads. The first error cancels calls that have not started."""
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items))) as pool:
        futures = [pool.submit(copy_context().run, function, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
