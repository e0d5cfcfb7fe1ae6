"""The path, storage and journal of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from fsspeckit.common.errors import CommitConflictError, DatasetNotFoundError
from fsspeckit.common.text import scrub
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.publishing import Distribute, in_one_batch
from fsspeckit.core.commit.transaction import Terms
from fsspeckit.core.dataset.exported import connected
from fsspeckit.core.storage import Storage, resolve

_LOAD_ATTEMPTS = 10
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Place:
    """A dataset: the path that the caller passed, the root in its storage, and its journal.

    ``settings`` are the names of settings of the engine that configure the storage.
    """

    path: str
    root: str
    storage: Storage
    journal: Journal
    settings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        path: Any,
        filesystem: Any,
        storage_options: Mapping[str, Any] | None,
        terms: Terms = Terms(),  # noqa: B008 - it is frozen
        on_commit: Callable[[Place], None] | None = None,
        distribute: Distribute = in_one_batch,
    ) -> Place:
        """Resolve a path or URL.

        ``on_commit`` is called after every commit and every replay of a commit; ``distribute`` runs the work of a
        commit on its files.
        """
        storage, root = resolve(path, filesystem, storage_options)
        name, journal = scrub(str(path)).rstrip("/"), Journal(storage, root, terms)
        connected(journal, storage, root, name).distribute = distribute
        if on_commit is not None:
            # A place with a journal of its own: a reference cycle would keep the engine and its database open.
            journal.on_commit = partial(on_commit, cls(name, root, storage, Journal(storage, root, terms)))
        return cls(name, root, storage, journal)

    @property
    def keeps_names(self) -> bool:
        """Whether a rewritten file replaces the old one under its name."""
        return self.storage.in_place and self.journal.publish == "replace" and not self.journal.is_exported

    @contextmanager
    def scratch(self) -> Iterator[str]:
        """Create a folder next to the dataset, on its storage, and remove it when the context ends."""
        with self.journal.begin(self.journal.view_to_change(), "scratch") as transaction:
            yield transaction.staging

    def full(self, relative: str) -> str:
        """Return the full path of a file, below the path that the caller passed."""
        return f"{self.path}/{relative}"


def load_unchanged(place: Place, operation: str, load: Callable[[], _T], *, attempts: int = _LOAD_ATTEMPTS) -> _T:
    """Return what ``load`` reads. Call it again if another writer removes a listed file before it is read.

    Raises:
        CommitConflictError: That happened in every attempt.
    """
    for _ in range(attempts - 1):
        try:
            return load()
        except DatasetNotFoundError:
            raise
        except FileNotFoundError:
            continue
    with vanished_file_is_conflict(place, operation):
        return load()


@contextmanager
def vanished_file_is_conflict(place: Place, operation: str) -> Iterator[None]:
    """Turn a missing file into a conflict: another writer removed a file of the snapshot."""
    try:
        yield
    except DatasetNotFoundError:
        raise
    except FileNotFoundError as error:
        raise CommitConflictError(f"{place.path} changed during the {operation} ({error}). Run it again.") from error
