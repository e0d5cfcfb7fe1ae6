"""The engine protocol: a few kinds of work over whole sets, so that an engine can distribute them.

An engine never decides what to do and never touches the dataset folder: it reads files, and writes staged ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.dataset.source import Input, Source
from fsspeckit.core.expressions.tree import Expression
from fsspeckit.core.model import DataFile, KeySetSpec, Match, Outcome, Scan, Task
from fsspeckit.core.storage import Storage

I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")
OnDone = Callable[[int], None]
Scratch = Callable[[], AbstractContextManager[str]]


@dataclass(frozen=True, slots=True, eq=False)
class RowSelection:
    """Rows of a file: those of some row groups for which a condition is true, or all of them without a condition."""

    row_groups: tuple[int, ...]
    condition: Expression | None


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What a reader wants of a snapshot.

    Attributes:
        filters: As the caller passes them; an engine gets filters of pyarrow only.
        selections: The rows to read, by the paths of files; other files are not read. ``None`` means all rows.
    """

    columns: tuple[str, ...] | None = None
    filters: Any = None
    include_file_path: bool = False
    use_threads: bool = True
    selections: Mapping[str, RowSelection] | None = None

    def files_of(self, snapshot: Snapshot) -> tuple[DataFile, ...]:
        """Return the files to read."""
        wanted = self.selections
        return snapshot.files if wanted is None else tuple(file for file in snapshot.files if file.path in wanted)


class Engine(Protocol):
    """Runs the work that operations plan."""

    name: str

    def committed(self, place: Place) -> None:
        """Forget what was cached of a dataset that has changed."""

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

    def map(self, function: Callable[[I], R], items: Sequence[I], on_done: OnDone) -> list[R]:
        """Apply a function to all items, side by side, and keep their order. Function and items are picklable."""

    def exchange(
        self,
        split: Callable[[I], Iterable[tuple[int, pa.Table]]],
        items: Sequence[I],
        gather: Callable[[int, Iterator[pa.Table]], R],
        parts: int,
        on_done: OnDone,
    ) -> list[R]:
        """Bring together what belongs together, with memory bounded by items and parts, never by all of them.

        ``split`` runs once for each item and gives ``(part, table)`` pieces; ``gather`` runs once for each part, also
        for one without pieces, and gets its pieces in the order of items and, within an item, of giving. Results come
        in the order of parts. Both functions, and the items, are picklable; they write staged files by themselves.
        """
