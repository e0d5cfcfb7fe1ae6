"""The work of a commit on single files: check staged files, and publish them.

Each function object is picklable and takes a batch of files, so an engine can run batches on its workers. Within a
batch, calls to an object store run in threads. A batch that runs twice, or at the same time on two machines, has the
same effect as one run: a published file is a complete copy of its staged file.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from fsspeckit.common.errors import StorageError
from fsspeckit.core.parquet.footer import check_staged
from fsspeckit.core.storage import Entry, Storage, for_each, parent

_T = TypeVar("_T")
_R = TypeVar("_R")


class Distribute(Protocol):
    """Applies a function to batches of items and returns all results in order."""

    def __call__(self, storage: Storage, function: Callable[[Sequence[_T]], list[_R]], items: Sequence[_T]) -> list[_R]:
        """Apply the function. The items of one batch are consecutive."""


def in_one_batch(storage: Storage, function: Callable[[Sequence[Any]], list[Any]], items: Sequence[Any]) -> list[Any]:  # noqa: ARG001
    """Apply a function to all items, here."""
    return function(items)


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged file to check; ``entry`` is what a listing says about it."""

    path: str
    entry: Entry | None
    rows: int


@dataclass(frozen=True, slots=True)
class CheckStaged:
    """Returns the entries and footers of staged files, or None for a missing file. Raises if a file is damaged."""

    storage: Storage

    def __call__(self, batch: Sequence[Staged]) -> list[tuple[Entry, bytes] | None]:
        """Check a batch."""
        return for_each(self.storage, self._check, batch)

    def _check(self, item: Staged) -> tuple[Entry, bytes] | None:
        try:
            return check_staged(self.storage, item.path, item.entry, item.rows)
        except FileNotFoundError:
            return None


def check_staged_files(
    storage: Storage,
    distribute: Distribute,
    staging: str,
    listed: Mapping[str, Entry] | None,
    files: Sequence[tuple[str, int]],
) -> list[tuple[Entry, bytes]]:
    """Return the entries and footers of staged files, by their paths and rows. Raise if one is missing or damaged.

    ``listed`` are the entries of the staging folder by name, if it was listed.
    """
    names = [path.rpartition("/")[2] for path, _ in files]
    if listed is not None:
        _check_none_missing(staging, (name for name in names if name not in listed))
    entries = [None if listed is None else listed[name] for name in names]
    items = [Staged(path, entry, rows) for (path, rows), entry in zip(files, entries, strict=True)]
    checked = distribute(storage, CheckStaged(storage), items)
    _check_none_missing(staging, (name for name, found in zip(names, checked, strict=True) if found is None))
    return [found for found in checked if found is not None]


def _check_none_missing(staging: str, names: Iterable[str]) -> None:
    missing = next(iter(names), None)
    if missing is not None:
        raise StorageError(f"{missing} is missing in {staging}. Nothing was changed. Run the operation again.")


@dataclass(frozen=True, slots=True)
class Copy:
    """A file, the path that it gets, and its size."""

    staged: str
    path: str
    size: int


class Publication(NamedTuple):
    """A file is there if it was published, now or before. It is over if no request to publish it is still running."""

    is_there: bool
    is_over: bool


_PROCESS = uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class PublishFiles:
    """Publishes staged files. What another process publishes is not over: an engine may run it twice at once."""

    storage: Storage
    process: str = field(default_factory=lambda: _PROCESS)

    def __call__(self, batch: Sequence[Copy]) -> list[Publication]:
        """Publish a batch."""
        return for_each(self.storage, self._publish, batch)

    def _publish(self, copy: Copy) -> Publication:
        is_here = self.process == _PROCESS
        try:
            is_over = self.storage.publish(copy.staged, copy.path, copy.size)
        except FileNotFoundError:
            if self.storage.stat_file(copy.staged) is None:
                return Publication(self.storage.stat_file(copy.path) is not None, is_over=is_here)
            # The staged file exists, so another program removed the target folder.
            self.storage.sync_dirs(map(parent, self.storage.make_dirs(parent(copy.path))))
            is_over = self.storage.publish(copy.staged, copy.path, copy.size)
        return Publication(is_there=True, is_over=is_over and is_here)


@dataclass(frozen=True, slots=True)
class KeepFiles:
    """Gives files of the dataset a second path. Returns for each whether it was there."""

    storage: Storage

    def __call__(self, batch: Sequence[Copy]) -> list[bool]:
        """Keep a batch."""
        return for_each(self.storage, self._keep, batch)

    def _keep(self, copy: Copy) -> bool:
        try:
            self.storage.duplicate(copy.staged, copy.path, copy.size)
        except FileNotFoundError:
            if self.storage.stat_file(copy.staged) is not None:
                raise  # the file exists, so the folder of kept files is missing
            return False
        return True
