"""The engine protocol. Each method processes a whole set of items, so that an engine can distribute it.

An engine does not decide what to do: it reads files and writes staged files. Only the functions of a commit, which it
distributes, change the dataset folder.
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
"""Called with the number of items that are done since the last call."""
Scratch = Callable[[], AbstractContextManager[str]]
"""Creates a folder on the dataset's storage that is removed when the context ends."""


@dataclass(frozen=True, slots=True, eq=False)
class RowSelection:
    """Rows of a file: those of some row groups for which a condition is true, or all of them without a condition."""

    row_groups: tuple[int, ...]
    condition: Expression | None


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The options of a read.

    Attributes:
        filters: As the caller passes them; an engine gets filters of pyarrow only.
        selections: The rows to read, by the paths of files; other files are not read. ``None`` means all rows.
    """

    columns: tuple[str, ...] | None = None
    filters: Any = None
    include_file_path: bool = False
    use_threads: bool = True
    selections: Mapping[str, RowSelection] | None = None

    def files_of(self, snapshot: Snapshot) -> Sequence[DataFile]:
        """Return the files to read."""
        wanted = self.selections
        return snapshot.files if wanted is None else tuple(file for file in snapshot.files if file.path in wanted)


class Engine(Protocol):
    """Runs the work that operations plan."""

    name: str
    distributes: bool
    """Whether `map` runs on other machines."""

    def committed(self, place: Place) -> None:
        """Discard what is cached of a dataset. Called after every commit."""

    def distribute(self, storage: Storage, function: Callable[[Sequence[I]], list[R]], items: Sequence[I]) -> list[R]:
        """Apply a function to batches of items, one for each of many files, and return all results in order.

        A commit checks and publishes its files this way. Function and items are picklable, and a batch can be repeated.
        """

    def open_source(self, given: Input, storage: Storage, scratch: Scratch) -> AbstractContextManager[Source]:
        """Open the caller's data as a source that can be read more than once.

        ``scratch`` is for engines that share source rows with their workers.
        """

    def match(
        self, storage: Storage, source: Source, specs: Sequence[KeySetSpec], scans: Sequence[Scan], on_done: OnDone
    ) -> list[Match]:
        """Return, for each scan, the rows whose key is among the source rows of its key set."""

    def run(
        self, storage: Storage, source: Source, tasks: Sequence[Task], staging: str | None, on_done: OnDone
    ) -> list[Outcome]:
        """Run tasks that write files to the folder ``staging``. Without it, only compare and count rows."""

    def read(
        self, storage: Storage, snapshot: Snapshot, request: ReadRequest, path_of: Callable[[str], str]
    ) -> pa.Table:
        """Read a snapshot; ``path_of`` returns the full path of a file for the caller."""

    def map(self, function: Callable[[I], R], items: Sequence[I], on_done: OnDone) -> list[R]:
        """Apply a function to all items in parallel and return results in order. Function and items are picklable."""

    def exchange(
        self,
        split: Callable[[I], Iterable[tuple[int, pa.Table]]],
        items: Sequence[I],
        gather: Callable[[int, Iterator[pa.Table]], R],
        parts: int,
        on_done: OnDone,
    ) -> list[R]:
        """Shuffle rows from items to parts. Memory is bounded by the size of an item and of a part.

        Args:
            split: Called once for each item; yields ``(part, table)`` pieces. Picklable.
            items: The items. Picklable.
            gather: Called once for each part, also for a part without pieces, with its pieces in the order of items
                and, within an item, in the order of ``split``. Picklable. It may write staged files.
            parts: The number of parts.
            on_done: Called for each item and each part that is done.

        Returns:
            The results of ``gather``, in the order of parts.
        """
