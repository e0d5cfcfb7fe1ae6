"""Replace single files of a dataset, for callers that write files themselves.

The staging directory is that of a journaled transaction, so a replacement has the guarantees of a commit: all files or
none, consistent reads, and recovery by the next writer after a crash.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from posixpath import basename, commonpath
from typing import Any

from fsspeckit.common.errors import DatasetNotFoundError, StorageError
from fsspeckit.common.logging import log_unexpected, release_all
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.sidecar import SidecarLocations
from fsspeckit.core.commit.transaction import Changes, Publish, Transaction
from fsspeckit.core.dataset.exported import connected
from fsspeckit.core.dataset.snapshot import load_snapshot, single_file_view
from fsspeckit.core.file_names import rewritten_name
from fsspeckit.core.storage import Storage, join, parent, resolve

_COPY_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class _NewFile:
    """A file to publish: its location, and the number of its rows."""

    storage: Storage
    location: str
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class _Staging:
    """An open transaction on one dataset."""

    storage: Storage
    view: View
    transaction: Transaction
    keeps_names: bool

    @classmethod
    def begin(cls, storage: Storage, root: str) -> _Staging:
        journal = connected(Journal(storage, root), storage, root, root)
        journal.recover()
        view = journal.view_to_change()
        return cls(storage, view, journal.begin(view, "replace files"), storage.in_place and not journal.is_exported)

    @property
    def folder(self) -> str:
        return self.transaction.staging

    def covers(self, storage: Storage, locations: Sequence[str]) -> bool:
        inside = all(location.startswith(f"{self.view.root}/") for location in locations)
        return inside and storage.is_local == self.storage.is_local

    def drop(self) -> None:
        with self.transaction:
            pass  # a transaction without a commit removes its folder
        if self.storage.staging_exists(self.folder):
            raise StorageError(f"cannot remove {self.folder}. The next writer of the dataset removes it.")

    def stage(self, file: _NewFile) -> str:
        """Return the path of a file in the staging folder. Copy it if it is elsewhere."""
        if parent(file.location) == self.folder:
            return file.location
        staged = self.transaction.staged_path()
        with file.storage.open_input(file.location) as source, self.storage.open_output(staged) as sink:
            shutil.copyfileobj(source, sink, _COPY_BYTES)
        return staged

    def replace(self, files: Sequence[_NewFile], targets: Sequence[str]) -> None:
        """Publish files with the names of the targets in one commit, and close the transaction."""
        known = {file.path for file in self.view.files}
        publish, retire = [], []
        with self.transaction:
            for file, target in zip(files, targets, strict=True):
                path, staged = target.removeprefix(f"{self.view.root}/"), self.stage(file)
                if path in known and not self.keeps_names:
                    retire.append(path)
                    publish.append(Publish(staged, rewritten_name(path), file.rows))
                else:
                    publish.append(Publish(staged, path, file.rows, replaces=path in known))
            self.transaction.commit(Changes(tuple(publish), tuple(retire)))


class IncrementalFileManager:
    """Replaces files of a dataset with files that the caller wrote: all of them or none.

    Examples:
        >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
        >>> from fsspeckit.core.incremental import list_dataset_files, merge
        >>> folder = tempfile.mkdtemp() + "/events"
        >>> _ = merge(pa.table({"id": [1, 2]}), folder, "insert", ["id"])
        >>> [target] = list_dataset_files(folder)
        >>> manager = IncrementalFileManager()
        >>> staging = manager.create_staging_directory(folder)
        >>> pq.write_table(pa.table({"id": [1, 2, 3]}), staging + "/new.parquet")
        >>> manager.atomic_replace_files([staging + "/new.parquet"], [target])
        >>> pq.read_table(target).num_rows
        3
    """

    def __init__(self) -> None:
        self._open: list[_Staging] = []

    def create_staging_directory(self, base_path: str) -> str:
        """Create a staging folder for the current state of a dataset.

        A staging folder is for one replacement, which removes it with all remaining files. If another writer changes
        a target file before, the replacement raises a conflict.

        Args:
            base_path: The dataset's folder, a path or URL.

        Returns:
            Path of a new, empty ``.staging_<uuid>`` folder on the dataset's storage.
        """
        storage, root = resolve(base_path)
        with log_unexpected("create staging directory", str(base_path)):
            staging = _Staging.begin(storage, root)
        self._open.append(staging)
        return _spelled_like(str(base_path), storage, root, staging.folder)

    def atomic_replace_files(self, source_files: list[str], target_files: list[str], filesystem: Any = None) -> None:
        """Replace each target file with the source file at the same index, in one commit.

        All checks come before the first change. A source file in the staging folder is moved; any other is copied. A
        target that does not exist is a new file of the dataset. Without a staging folder, the dataset is the common
        folder of the targets, without its hive folders.

        On storages that do not replace files in place (object stores, memory) the new file gets a new name in the
        folder of the old one, because readers may still read the old file. List the dataset to get the name.

        Args:
            source_files: Parquet files with the new content.
            target_files: Files of one dataset, one for each source file.
            filesystem: An fsspec filesystem that all paths belong to.

        Raises:
            ValueError: The lists differ in length, name a file twice, or name files of several datasets.
            FileNotFoundError: A source file is missing.
            DamagedFileError: A source file is not a complete Parquet file.
            CommitConflictError: Another writer changed a target; nothing was changed.
        """
        if len(source_files) != len(target_files):
            raise ValueError(
                f"{len(source_files)} source file(s) for {len(target_files)} target file(s). Name one for each target."
            )
        if not source_files:
            return
        with log_unexpected("replace files", str(target_files[0])):
            sources = [_new_file(*resolve(path, filesystem), path) for path in source_files]
            storage, _ = resolve(target_files[0], filesystem)
            found = [resolve(path, storage if filesystem is None else filesystem)[1] for path in target_files]
            targets = [join(storage.canonical(parent(path)), basename(path)) for path in found]
            _check_distinct("source_files", [file.location for file in sources])
            _check_distinct("target_files", targets)
            self._staging_for(storage, sources, targets).replace(sources, targets)

    def cleanup_staging_files(self) -> None:
        """Remove every open staging folder. A failure is logged, and the other folders are still removed."""
        staged, self._open = self._open, []
        release_all([(staging.folder, staging.drop) for staging in staged], "incremental rewrite")

    def _staging_for(self, storage: Storage, sources: Sequence[_NewFile], targets: Sequence[str]) -> _Staging:
        """Return the open staging folder of the targets' dataset. If there are several, the one with most sources."""
        candidates = [staging for staging in self._open if staging.covers(storage, targets)]
        if not candidates:
            return _Staging.begin(storage, _dataset_of(storage, targets))
        chosen = max(candidates, key=lambda staging: sum(parent(file.location) == staging.folder for file in sources))
        self._open.remove(chosen)
        return chosen


def _check_distinct(name: str, locations: Sequence[str]) -> None:
    if len(set(locations)) < len(locations):
        raise ValueError(f"{name} names a file twice. Name each file once.")


def _new_file(storage: Storage, location: str, path: str) -> _NewFile:
    view = single_file_view(storage, location)
    if view is None:
        raise DatasetNotFoundError(f"no source file at {path}. Write it before you replace another file with it.")
    return _NewFile(storage, location, load_snapshot(storage, view).rows)


def _dataset_of(storage: Storage, targets: Sequence[str]) -> str:
    """Return the common folder of the targets, without its hive folders. Raise if a journal is in another folder."""
    folders = {parent(target) for target in targets}
    root = commonpath(folders)
    while "=" in basename(root):
        root = parent(root)
    known = {_nearest_journal(storage, folder) for folder in folders}
    if known - {None, root} or len(known) > 1:
        shown = ", ".join(sorted(folder for folder in known if folder is not None))
        raise ValueError(
            f"the target files belong to {shown}. Call create_staging_directory with the path of their dataset first."
        )
    return root


def _nearest_journal(storage: Storage, folder: str) -> str | None:
    """Return the folder or its nearest parent that has a journal."""
    while folder and SidecarLocations(storage, folder).find() is None:
        folder = "" if parent(folder) == folder else parent(folder)
    return folder or None


def _spelled_like(base_path: str, storage: Storage, root: str, folder: str) -> str:
    """Return a folder of the storage as a URL if the caller passed a URL."""
    inner = root.lstrip("/")
    base = base_path.rstrip("/")
    if storage.is_local or not base.endswith(inner):
        return folder
    return base.removesuffix(inner) + folder.lstrip("/")
