"""The order of concurrent commits: who holds the lock of the journal, and how a commit continues after others.

A commit that finds its view outdated looks at a newer one, and asks the operation whether its change is right for that
too. If few files are new, it does so with the lock, and commits at once. Otherwise it first examines them without the
lock, because others may have committed much; what they commit meanwhile is examined with the lock, so that they cannot
commit again and again before this commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from fsspeckit.core.commit.conflicts import OutdatedViewError
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.log import Log
from fsspeckit.core.storage import Storage

ATTEMPTS = 100
"""How often a commit is tried before it gives up against other writers."""
_LONGEST_WAIT_SECONDS = 10.0
"""So long a commit lets a writer go first that has lost against others several times."""
_SHORT_WAIT_SECONDS = 0.005
_FEW_FILES = 16
_FEW_BYTES = 16 * 2**20
_T = TypeVar("_T")

Revalidate = Callable[[View, frozenset[str]], None]
"""Raises :class:`CommitConflictError` if a change that was planned on an older view is not right for this view.

The second argument has the paths of the files that are not in the older view."""


@dataclass(frozen=True, slots=True)
class NewerView:
    """A view after other commits, and the paths of the files that are not in the older one."""

    view: View
    new: frozenset[str]

    @property
    def has_few_new_files(self) -> bool:
        """Return whether the new files can be examined while other commits wait."""
        sizes = [file.size for file in self.view.files if file.path in self.new] if len(self.new) <= _FEW_FILES else []
        return len(self.new) <= _FEW_FILES and sum(sizes) <= _FEW_BYTES


class Queue:
    """The lock of a journal, as one of its writers sees it."""

    def __init__(self, storage: Storage, log: Log) -> None:
        self._storage, self._log = storage, log
        self.is_first = False

    @contextmanager
    def first(self) -> Iterator[None]:
        """Let the commits of others wait, for a limited time and where the storage has locks, until the context ends.

        It saves a writer from losing against faster ones again and again; no check depends on it.
        """
        with self._storage.lock(self._log.queue_path):
            with self._storage.lock(self._log.lock_path):
                pass  # a commit that has begun ends first
            self.is_first = True
            try:
                yield
            finally:
                self.is_first = False

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Lock the journal, after the commit of a writer that is first in the queue."""
        last = time.monotonic() + _LONGEST_WAIT_SECONDS
        while True:
            with self._storage.lock(self._log.lock_path):
                is_late = self.is_first or time.monotonic() >= last
                if is_late or not self._storage.is_locked(self._log.queue_path):
                    yield
                    return
            time.sleep(_SHORT_WAIT_SECONDS)


def commit_in_turn(
    queue: Queue, commit: Callable[[], _T], look: Callable[[], NewerView], accept: Callable[[NewerView], None]
) -> _T | None:
    """Commit a change, on a newer view if that is needed and possible. Return None if others always commit first.

    Args:
        queue: The lock of the journal.
        commit: Raises `OutdatedViewError` if others committed since the view.
        look: Returns a newer view.
        accept: Continues on a newer view, or raises if the change is not right for it.
    """
    with queue.turn():
        with suppress(OutdatedViewError):
            return commit()
        newer = look()
        if newer.has_few_new_files:
            return _commit_with_lock(commit, lambda: newer, look, accept)
    with suppress(FileNotFoundError):  # another commit removed a file of the view, so it is outdated again
        accept(newer)
    with queue.turn():
        with suppress(OutdatedViewError):
            return commit()
        return _commit_with_lock(commit, look, look, accept)


def _commit_with_lock(
    commit: Callable[[], _T],
    first: Callable[[], NewerView],
    look: Callable[[], NewerView],
    accept: Callable[[NewerView], None],
) -> _T | None:
    """Continue on a newer view and commit; again on the next one, if another program changes the dataset meanwhile."""
    for number in range(ATTEMPTS):
        with suppress(FileNotFoundError):
            accept(first() if number == 0 else look())
        with suppress(OutdatedViewError):
            return commit()
    return None
