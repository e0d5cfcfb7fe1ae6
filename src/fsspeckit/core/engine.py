"""The engine protocol: three kinds of work over whole sets, so that an engine can distribute them, and a registry.

An engine never decides what to do and never touches the dataset folder: it reads files, and writes staged ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

import pyarrow as pa

from fsspeckit.core.matching import KeyColumn, Match, Scan
from fsspeckit.core.model import Outcome, RowNumbers, Task
from fsspeckit.core.snapshot import Snapshot
from fsspeckit.core.source import Input, Source
from fsspeckit.core.storage import Storage

OnDone = Callable[[int], None]
Scratch = Callable[[], AbstractContextManager[str]]


@dataclass(frozen=True, slots=True, eq=False)
class KeySetSpec:
    """Source rows to look for, and the key columns to compare."""

    rows: range | RowNumbers
    keys: tuple[KeyColumn, ...]


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What a reader wants of a snapshot."""

    columns: tuple[str, ...] | None = None
    filters: Any = None
    include_file_path: bool = False
    use_threads: bool = True


class Engine(Protocol):
    """Runs the work that operations plan."""

    name: str

    def open_source(self, given: Input, storage: Storage, scratch: Scratch) -> AbstractContextManager[Source]:
        """Take in the caller's rows so that they can be read more than once.

        ``scratch`` gives a folder on the dataset's storage that is gone afterwards, for engines that must share rows.
        """

    def match(
        self, storage: Storage, source: Source, specs: Sequence[KeySetSpec], scans: Sequence[Scan], on_done: OnDone
    ) -> list[Match]:
        """Find, for each scan, the rows whose key stands among the source rows of its key set."""

    def run(
        self, storage: Storage, source: Source, tasks: Sequence[Task], staging: str | None, on_done: OnDone
    ) -> list[Outcome]:
        """Run tasks into ``staging``; without it, only compare and count."""

    def read(
        self, storage: Storage, snapshot: Snapshot, request: ReadRequest, path_of: Callable[[str], str]
    ) -> pa.Table:
        """Read a snapshot; ``path_of`` spells a file's path for the caller."""


_HOMES = {"pyarrow": "fsspeckit.datasets.pyarrow.engine", "duckdb": "fsspeckit.datasets.duckdb.engine"}


def get_engine(name: str) -> Engine:
    """The engine of a name, imported when first used."""
    if name not in _HOMES:
        raise ValueError(f"engine {name!r} is unknown; choose one of {', '.join(map(repr, _HOMES))}")
    return cast("Engine", import_module(_HOMES[name]).ENGINE)
