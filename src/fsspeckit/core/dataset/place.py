"""A dataset as the caller named it: its path, its storage and its journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from fsspeckit.common.errors import CommitConflictError, DatasetNotFoundError
from fsspeckit.common.text import scrub
from fsspeckit.core.commit.transaction import Journal, Terms
from fsspeckit.core.storage import Storage, resolve


@dataclass(frozen=True, slots=True)
class Place:
    """A dataset as the caller named it."""

    path: str
    root: str
    storage: Storage
    journal: Journal

    @classmethod
    def of(
        cls,
        path: Any,
        filesystem: Any,
        storage_options: Mapping[str, Any] | None,
        terms: Terms = Terms(),  # noqa: B008 - it is frozen
        on_commit: Callable[[Place], None] | None = None,
    ) -> Place:
        """Resolve a path or URL; ``on_commit`` is called after every commit and every replay of one."""
        storage, root = resolve(path, filesystem, storage_options)
        name, journal = scrub(str(path)).rstrip("/"), Journal(storage, root, terms)
        if on_commit is not None:
            # A place with a journal of its own: a reference cycle would keep the engine and its database open.
            journal.on_commit = partial(on_commit, cls(name, root, storage, Journal(storage, root, terms)))
        return cls(name, root, storage, journal)

    @contextmanager
    def scratch(self) -> Iterator[str]:
        """A folder beside the dataset, on its storage, that is gone afterwards."""
        with self.journal.begin(self.journal.view_to_change(), "scratch") as transaction:
            yield transaction.staging

    def full(self, relative: str) -> str:
        """A file's path in the caller's spelling."""
        return f"{self.path}/{relative}"


@contextmanager
def vanished_file_is_conflict(place: Place, operation: str) -> Iterator[None]:
    """A file of the snapshot that is gone was removed by another writer."""
    try:
        yield
    except DatasetNotFoundError:
        raise
    except FileNotFoundError as error:
        raise CommitConflictError(f"{place.path} changed during the {operation} ({error}); run it again") from error
