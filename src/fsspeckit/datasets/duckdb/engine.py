"""The DuckDB engine: DuckDB joins match keys, and the kernels of the local engine rewrite files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from fsspeckit.core.dataset.source import Input, Source, open_source
from fsspeckit.core.engine.local import LocalEngine
from fsspeckit.core.engine.protocol import OnDone, Scratch
from fsspeckit.core.kernels.match_keys import is_searched
from fsspeckit.core.model import KeySetSpec, Match, Scan
from fsspeckit.core.storage import Storage
from fsspeckit.datasets.duckdb.connection import Database
from fsspeckit.datasets.duckdb.matching import match_by_join
from fsspeckit.datasets.duckdb.relations import is_relation, relation_reader

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_T = TypeVar("_T")
_R = TypeVar("_R")


class DuckDBEngine(LocalEngine):
    """The local engine with DuckDB for relations and joins."""

    name = "duckdb"

    def __init__(
        self,
        connection: DuckDBPyConnection | None = None,
        memory_limit: int | str | None = None,
        temp_directory: Any = None,
    ) -> None:
        self.database = Database(connection, memory_limit, temp_directory)

    @property
    def threads(self) -> int | None:
        """The number of threads that fit into the memory limit of the database."""
        return self.database.threads

    @contextmanager
    def open_source(self, given: Input, storage: Storage, scratch: Scratch) -> Iterator[Source]:  # noqa: ARG002
        """Run a relation once, in its own connection. Other data is opened like in the local engine."""
        if is_relation(given.data):
            given = replace(given, data=relation_reader(given.data))
        with self.database.spilling():
            source = open_source(given)
        yield source

    def match(
        self, storage: Storage, source: Source, specs: Sequence[KeySetSpec], scans: Sequence[Scan], on_done: OnDone
    ) -> list[Match]:
        """Match keys with a join. Keys that need little hashing are matched by the local engine, which is faster."""
        is_local = [is_searched(len(spec.rows), spec.keys) for spec in specs]
        local = [i for i, scan in enumerate(scans) if is_local[scan.group]]
        joined = sorted(set(range(len(scans))) - set(local))
        matches = super().match(storage, source, specs, [scans[i] for i in local], on_done)
        if joined:
            with self.database.cursor() as cursor:
                matches += match_by_join(cursor, storage, source, specs, [scans[i] for i in joined], on_done)
        return [match for _, match in sorted(zip([*local, *joined], matches, strict=True), key=lambda pair: pair[0])]

    def exchange(
        self,
        split: Callable[[_T], Iterable[tuple[int, pa.Table]]],
        items: Sequence[_T],
        gather: Callable[[int, Iterator[pa.Table]], _R],
        parts: int,
        on_done: OnDone,
    ) -> list[_R]:
        """Exchange pieces in memory, and in files in ``temp_directory`` beyond a limit."""
        with self.database.spilling():
            return super().exchange(split, items, gather, parts, on_done)
