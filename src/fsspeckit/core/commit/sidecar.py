"""Find and create the sidecar of a dataset, the folder of its journal."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fsspeckit.common.errors import NestedDatasetError, StorageError
from fsspeckit.core.commit.exclusive_create import ensure_exclusive_create
from fsspeckit.core.commit.log import Log, LogState, Survey
from fsspeckit.core.commit.nesting import (
    INSIDE,
    check_contains_no_dataset,
    check_not_inside_dataset,
    sidecar_beside,
)
from fsspeckit.core.storage import Storage, for_each, join, parent
from fsspeckit.core.storage.base import LOCK

_logger = logging.getLogger(__name__)


class SidecarLocations:
    """The two possible paths of a dataset's sidecar: inside the dataset, and beside it if it has a parent folder."""

    def __init__(self, storage: Storage, root: str) -> None:
        self._storage = storage
        self.root = root
        canonical = storage.canonical(root)
        folder = storage.sidecar_parent(canonical)
        name = canonical.rstrip("/").rpartition("/")[2]
        self.inside = join(canonical, INSIDE)
        self.beside = None if folder is None else sidecar_beside(folder, name)
        self._current: str | None = None

    @property
    def is_known(self) -> bool:
        """Return whether a sidecar was found."""
        return self._current is not None

    def find(self) -> str | None:
        """Return the path of the dataset's sidecar, or None. The first result is cached."""
        return self._current or self.refresh()

    def survey(self) -> Survey:
        """Find the sidecar and list it.

        On an object store, a sidecar beside the dataset that has records is used without looking inside the dataset:
        no writer creates a sidecar inside while it sees one beside. The listing of the dataset shows if there is one.
        """
        beside = None
        if self._current is None and self.beside is not None and not self._storage.has_folders:
            beside = self._survey_beside(self.beside)
            if beside.state.records:
                self._current = self.beside
                return beside
        sidecar = self._current or self.refresh(None if beside is None else beside.exists)
        if beside is not None and sidecar == self.beside:
            return beside
        return Survey(None) if sidecar is None else Log(self._storage, sidecar).survey()

    def _survey_beside(self, path: str) -> Survey:
        try:
            return Log(self._storage, path).survey()
        except PermissionError:
            return Survey(path)

    def refresh(self, has_beside: bool | None = None) -> str | None:
        """Locate the sidecar again without the cache. ``has_beside``: whether there is one beside, if that is known."""
        known = {} if has_beside is None else {self.beside: has_beside}
        paths = [path for path in (self.inside, self.beside) if path is not None]
        exist = for_each(self._storage, lambda path: known[path] if path in known else self._exists(path), paths)
        found = [path for path, exists in zip(paths, exist, strict=True) if exists]
        self._current = self._choose(found) if len(found) > 1 else next(iter(found), None)
        if self._current is not None and self._storage.is_local:
            self._storage.refuse_links(self._current)
            self._storage.list_names(self._current)
        return self._current

    def _choose(self, sidecars: Sequence[str]) -> str:
        """Return the sidecar with records, or the first one. An empty one must not hide a commit of the other."""
        used = [path for path in sidecars if self._has_records(path)]
        if len(used) > 1:
            raise StorageError(
                f"{self.root} has two journals with records, {used[0]} and {used[1]}. "
                "Delete the one that belongs to another copy of the dataset."
            )
        return next(iter(used or sidecars))

    def _has_records(self, sidecar: str) -> bool:
        try:
            return bool(Log(self._storage, sidecar).state().records)
        except PermissionError:
            if sidecar != self.beside:
                raise
            return False

    def _exists(self, path: str) -> bool:
        try:
            listed = self._storage.list_below(path)
            return self._storage.stat(path) is not None if listed is None else bool(listed)
        except PermissionError:
            if path != self.beside:
                raise
            return False  # a reader with access to the dataset folder only reads it without the journal

    def create(self) -> str:
        """Create the sidecar beside the dataset, or inside it if its parent folder is not writable.

        Each writer checks the other path after it created its own, so two writers always agree on one sidecar. The
        same order of steps protects an outer and an inner dataset that are created at the same time.
        """
        sidecar = self._create_beside_or_inside()
        try:
            self._check_contains_no_dataset()
            check_not_inside_dataset(self._storage, self.root)
            ensure_exclusive_create(self._storage, Log(self._storage, sidecar), LogState())
        except (NestedDatasetError, StorageError):
            self._remove_if_unused(sidecar)
            raise
        return sidecar

    def _check_contains_no_dataset(self) -> None:
        try:
            tree = self._storage.list_tree(self.root)
        except FileNotFoundError:
            return
        check_contains_no_dataset(self.root, tree)

    def _create_beside_or_inside(self) -> str:
        if self.beside is not None:
            try:
                self._create_at(self.beside)
            except PermissionError:
                _logger.info("cannot write %s, keeping the journal inside the dataset", self.beside)
            else:
                return self.refresh() or self.beside
        self._create_at(self.inside)
        if self.beside is not None and self._storage.stat(self.beside):
            self._remove_if_unused(self.inside)
        return self.refresh() or self.inside

    def _remove_if_unused(self, sidecar: str) -> None:
        """Remove a sidecar that was just created, unless another writer already uses it."""
        if set(self._storage.list_names(sidecar)) - {LOCK, "log"}:
            return
        self._storage.remove(join(sidecar, LOCK))
        self._storage.remove_dir_if_empty(join(sidecar, "log"))
        self._storage.remove_dir_if_empty(sidecar)
        self._current = None

    def _create_at(self, path: str) -> None:
        created = self._storage.make_dirs(join(path, "log"))
        self._storage.sync_dirs(parent(folder) for folder in created)
        if self._storage.is_local:
            # An existing lock file is neither replaced nor written: another writer may hold its lock.
            with self._storage.lock(join(path, LOCK)):
                return
        self._storage.write_bytes(join(path, LOCK), b"")
