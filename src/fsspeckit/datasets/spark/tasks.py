"""The tasks of executors: scan keys, run the file kernel, spill rows of a source.

Every new Python process of an executor imports this module, so it must not import planning or sessions.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import binary_array, to_arrow
from fsspeckit.core.dataset.source import RowFiles
from fsspeckit.core.engine.local import key_index
from fsspeckit.core.kernels.match_keys import match_files
from fsspeckit.core.kernels.run_task import run_task
from fsspeckit.core.model import KeySetSpec, Match, Outcome, Scan, Task
from fsspeckit.core.storage import Storage, parent
from fsspeckit.core.values.keys import KeyIndex
from fsspeckit.datasets.spark.errors import invisible
from fsspeckit.datasets.spark.shared_source import Handle, SpillFile, write_spill


class SpillRows:
    """Writes the rows of one partition of a DataFrame to a file and reports it."""

    def __init__(self, storage: Storage, folder: str, names: list[str]) -> None:
        self._storage, self._folder, self._names = storage, folder, names

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row that describes the file; none if there are no rows."""
        from pyspark import TaskContext

        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        named = (pa.RecordBatch.from_arrays(list(map(_in_utc, batch.columns)), self._names) for batch in batches)
        file = write_spill(named, None, self._storage, self._folder)
        if file is not None:
            numbers = [to_arrow(np.array([value])) for value in (part, file.rows, file.size)]
            path = binary_array([file.path.encode()], pa.binary())
            yield pa.RecordBatch.from_arrays([*numbers, path], ["part", "rows", "size", "path"])


def _in_utc(values: pa.Array) -> pa.Array:
    """Return instants in UTC as in `arrow_schema`; Spark sends them in the zone of the session."""
    is_instant = pa.types.is_timestamp(values.type) and values.type.tz is not None
    return values.cast(pa.timestamp(values.type.unit, "UTC")) if is_instant else values


@dataclass(frozen=True, slots=True)
class SpillFiles:
    """Converts source files to spill files."""

    files: RowFiles
    storage: Storage
    folder: str

    def __call__(self, number: int) -> SpillFile | None:
        """Convert one file; return None if it has no rows."""
        return write_spill(self.files.batches(number), self.files.schema, self.storage, self.folder)


@dataclass(frozen=True, slots=True)
class Scans:
    """Files that are scanned together, and the keys to look for."""

    spec: KeySetSpec
    scans: tuple[Scan, ...]


def _check_visible(storage: Storage, folder: str) -> None:
    """Raise if a local folder does not exist on this executor."""
    if storage.is_local and storage.stat(folder) is None:
        raise invisible(folder, platform.node())


class Scanner:
    """Scans key columns of files. The source is sent once for all scans; batches of one task share the key index."""

    def __init__(self, storage: Storage, handle: Handle) -> None:
        self._storage, self._handle = storage, handle
        self._indexed: tuple[KeySetSpec, KeyIndex] | None = None

    def __call__(self, item: Scans) -> list[Match]:
        """Return the matches of each file."""
        _check_visible(self._storage, parent(item.scans[0].file.location))
        return match_files(self._storage, item.scans, self._index(item.spec), item.spec.keys)

    def _index(self, spec: KeySetSpec) -> KeyIndex:
        if self._indexed is None or self._indexed[0] is not spec:
            self._indexed = spec, key_index(self._handle.open(), spec)
        return self._indexed[1]


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs the file kernel; the source is sent once for all tasks."""

    storage: Storage
    handle: Handle
    staging: str | None

    def __call__(self, task: Task) -> Outcome:
        """Run one task."""
        if self.staging is not None:
            _check_visible(self.storage, self.staging)
        outcome = run_task(task, self.handle.open().take, self.storage, self.staging, at_once=1)
        if outcome.staged and self.storage.is_local:
            _sync_thread().submit(self.storage.sync_files, [outcome.staged])
        return outcome


@cache
def _sync_thread() -> ThreadPoolExecutor:
    """Return the thread that syncs finished files to disk while the next is encoded; the commit syncs the rest."""
    return ThreadPoolExecutor(1, thread_name_prefix="fsspeckit-sync")
