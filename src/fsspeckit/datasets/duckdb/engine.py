"""The DuckDB engine: keys are matched by DuckDB's joins, files are rewritten by the same kernel as everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.dataset.source import Input, Source, open_source
from fsspeckit.core.engine import KeySetSpec, OnDone, ReadRequest, Scratch
from fsspeckit.core.kernels.match_keys import is_searched
from fsspeckit.core.model import Match, Outcome, Scan, Task
from fsspeckit.core.reading import read_snapshot
from fsspeckit.core.storage import Storage
from fsspeckit.core.threads import exchange_in_threads, map_in_threads, match_in_threads, run_in_threads
from fsspeckit.datasets.duckdb.conditions import condition_database
from fsspeckit.datasets.duckdb.connection import Database
from fsspeckit.datasets.duckdb.matching import match_by_join
from fsspeckit.datasets.duckdb.reading import read_where
from fsspeckit.datasets.duckdb.relations import is_relation, relation_reader

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_T = TypeVar("_T")
_R = TypeVar("_R")


class DuckDBEngine:
    """See `fsspeckit.core.engine.Engine`."""

    name = "duckdb"

    def __init__(
        self,
        connection: DuckDBPyConnection | None = None,
        memory_limit: int | str | None = None,
        temp_directory: Any = None,
    ) -> None:
        self.database = Database(connection, memory_limit, temp_directory)

    @cached_property
    def _conditions(self) -> Database:
        return condition_database()

    @contextmanager
    def open_source(self, given: Input, storage: Storage, scratch: Scratch) -> Iterator[Source]:  # noqa: ARG002
        """Run a relation once, in its own connection; anything else is Arrow data already."""
        if is_relation(given.data):
            given = replace(given, data=relation_reader(given.data))
        with self.database.spilling():
            source = open_source(given)
        yield source

    def match(
        self, storage: Storage, source: Source, specs: Sequence[KeySetSpec], scans: Sequence[Scan], on_done: OnDone
    ) -> list[Match]:
        """Join, except where the shared lookup hashes next to nothing and is faster still."""
        search = [is_searched(len(spec.rows), spec.keys) for spec in specs]
        searched = [i for i, scan in enumerate(scans) if search[scan.group]]
        joined = sorted(set(range(len(scans))) - set(searched))
        found = match_in_threads(storage, source, specs, [scans[i] for i in searched], on_done)
        if joined:
            with self.database.cursor() as cursor:
                found += match_by_join(cursor, storage, source, specs, [scans[i] for i in joined], on_done)
        return [match for _, match in sorted(zip([*searched, *joined], found, strict=True), key=lambda pair: pair[0])]

    def run(
        self, storage: Storage, source: Source, tasks: Sequence[Task], staging: str | None, on_done: OnDone
    ) -> list[Outcome]:
        """Run the file kernel, a file in each thread."""
        return run_in_threads(storage, source, tasks, staging, on_done, self.database.threads)

    def read(
        self, storage: Storage, snapshot: Snapshot, request: ReadRequest, path_of: Callable[[str], str]
    ) -> pa.Table:
        """Read all files into one table; a filter may be an SQL condition."""
        if isinstance(request.filters, str):
            return read_where(self._conditions, storage, snapshot, request, path_of)
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
        """Let pieces wait in memory while they are few, else in files below ``temp_directory``."""
        with self.database.spilling():
            return exchange_in_threads(split, items, gather, parts, on_done, self.database.threads)


ENGINE = DuckDBEngine()
