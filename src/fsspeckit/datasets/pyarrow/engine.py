"""The embedded engine: PyArrow in a pool of threads, one file at a time in each, no JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import pyarrow as pa

from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.dataset.source import Input, Source, open_source
from fsspeckit.core.engine import KeySetSpec, OnDone, ReadRequest, Scratch
from fsspeckit.core.model import Match, Outcome, Scan, Task
from fsspeckit.core.reading import read_snapshot
from fsspeckit.core.storage import Storage
from fsspeckit.core.threads import exchange_in_threads, map_in_threads, match_in_threads, run_in_threads

_T = TypeVar("_T")
_R = TypeVar("_R")


class PyarrowEngine:
    """See `fsspeckit.core.engine.Engine`."""

    name = "pyarrow"

    @contextmanager
    def open_source(self, given: Input, storage: Storage, scratch: Scratch) -> Iterator[Source]:  # noqa: ARG002
        """Spool what can be read only once; threads share memory, so nothing else is needed."""
        yield open_source(given)

    def match(
        self, storage: Storage, source: Source, specs: Sequence[KeySetSpec], scans: Sequence[Scan], on_done: OnDone
    ) -> list[Match]:
        """Scan key columns, a batch of files in each thread."""
        return match_in_threads(storage, source, specs, scans, on_done)

    def run(
        self, storage: Storage, source: Source, tasks: Sequence[Task], staging: str | None, on_done: OnDone
    ) -> list[Outcome]:
        """Run the file kernel, a file in each thread."""
        return run_in_threads(storage, source, tasks, staging, on_done)

    def read(
        self, storage: Storage, snapshot: Snapshot, request: ReadRequest, path_of: Callable[[str], str]
    ) -> pa.Table:
        """Read all files into one table."""
        return read_snapshot(storage, snapshot, request, path_of)

    def map(self, function: Callable[[_T], _R], items: Sequence[_T], on_done: OnDone) -> list[_R]:
        """Apply a function to all items, one in each thread."""
        return map_in_threads(function, items, on_done)

    def exchange(
        self,
        split: Callable[[_T], Iterable[tuple[int, pa.Table]]],
        items: Sequence[_T],
        gather: Callable[[int, Iterator[pa.Table]], _R],
        parts: int,
        on_done: OnDone,
    ) -> list[_R]:
        """Let pieces wait in memory while they are few, else in temporary files."""
        return exchange_in_threads(split, items, gather, parts, on_done)


ENGINE = PyarrowEngine()
