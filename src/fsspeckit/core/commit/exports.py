"""Write the metadata of exports: versions of a Delta log in the dataset folder, and of Iceberg metadata beside it.

A version is created exclusively, after its mark and the state that the next export starts from. A crash leaves the
version before it, whole. On local disks a lock lets one process export at a time; on object stores the exclusive
create decides.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from fsspeckit.common.errors import CommitConflictError, StorageError, TableFormatError
from fsspeckit.core.commit.exclusive_create import ensure_exclusive_create
from fsspeckit.core.commit.export_marks import (
    TITLES,
    ExportMark,
    foreign_commit,
    is_foreign,
    is_metadata_of_others,
    kept_name,
    version_name,
    version_sizes,
)
from fsspeckit.core.commit.log import Log
from fsspeckit.core.commit.memory import Memory
from fsspeckit.core.commit.record import Record
from fsspeckit.core.storage import Storage, join, parent
from fsspeckit.core.storage.foreign_tables import DELTA_FOLDER

_NUMBERED = re.compile(r"(?:v|snap-|manifest-)(\d{1,18})[-.][0-9a-z.-]*(?:json|avro)", re.ASCII)
_OLD_VERSIONS = 5
"""Number of versions of Iceberg metadata that stay for readers that have opened them."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The newest version of exported metadata: its bytes, and the state that was stored with it."""

    mark: ExportMark
    data: bytes
    state: bytes


def metadata_folder(storage: Storage, root: str, kind: str) -> str:
    """Return the folder of the metadata of a format.

    A Delta log has to be in the dataset folder, and readers ignore its name. Iceberg metadata is beside the dataset.
    """
    if kind == "delta":
        return join(root, DELTA_FOLDER)
    above = storage.sidecar_parent(root)
    if above is None:
        raise StorageError(
            f"{root} has no parent folder in which Iceberg metadata can be written. "
            "Move the dataset into a folder, or export it as Delta."
        )
    return join(above, f"{root.rstrip('/').rpartition('/')[2]}.iceberg", "metadata")


class ExportLog:
    """The exports of one dataset."""

    def __init__(self, storage: Storage, root: str, log: Log) -> None:
        self._storage, self._root, self._log = storage, root, log
        self._states = join(log.sidecar, "exports")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Let one process export at a time, where the storage has locks."""
        with self._storage.lock(join(self._log.sidecar, "export-lock")):
            yield

    def folder(self, kind: str) -> str:
        """Return the folder of the metadata of a format."""
        return metadata_folder(self._storage, self._root, kind)

    def check(self, kind: str) -> dict[int, int]:
        """Return the versions in the folder of a format with their sizes.

        Raises:
            TableFormatError: Another program wrote the newest version.
        """
        folder = self.folder(kind)
        entries = self._storage.list_dir(folder)
        versions = version_sizes(kind, ((entry.path, entry.size) for entry in entries))
        # Marks are listed after the versions: the mark of a version is written first.
        if versions and is_foreign(kind, versions, self._log.state().exports):
            raise foreign_commit(kind, folder)
        if kind == "iceberg" and any(is_metadata_of_others(entry.path, None) for entry in entries):
            raise foreign_commit(kind, folder)
        return versions

    def newest_mark(self, kind: str) -> ExportMark | None:
        """Return the mark of the newest version that fsspeckit wrote, or None if there is no export."""
        return max((mark for mark in self._log.state().exports if mark.format == kind), default=None)

    def foreign_versions(self, kind: str) -> dict[int, bytes] | None:
        """Return what other programs wrote: the versions after that of fsspeckit, or all if they replaced it.

        Raises:
            TableFormatError: Some of these versions are gone.
        """
        folder, marks = self.folder(kind), [each for each in self._log.state().exports if each.format == kind]
        sizes = self._sizes(kind)
        if not sizes or not marks or max(sizes) < max(marks).version:
            return None  # a crash can leave a mark without its version
        own = max(
            (each.version for each in marks if sizes.get(each.version) == each.size and self._has(each)), default=-1
        )
        wanted = range(own + 1, max(sizes) + 1)
        if gone := [version for version in wanted if version not in sizes]:
            raise TableFormatError(
                f"Another program committed to the {TITLES[kind]} table {folder}, and version {gone[0]} of it is "
                "gone, so "
                "its change is not known. Nothing was changed. Read the table with a reader of that format, and write "
                "its rows to a new folder."
            )
        return {v: self._storage.read_bytes(join(folder, version_name(kind, v))) for v in wanted} or None

    def _sizes(self, kind: str) -> dict[int, int]:
        entries = self._storage.list_dir(self.folder(kind))
        return version_sizes(kind, ((entry.path, entry.size) for entry in entries))

    def _has(self, mark: ExportMark) -> bool:
        """Return whether the version of a mark is in the folder as it was written."""
        data = self._storage.read_bytes(join(self.folder(mark.format), version_name(mark.format, mark.version)))
        return hashlib.sha256(data).hexdigest() == mark.digest

    def check_newest(self, kind: str, version: int | None) -> None:
        """Raise if there is a newer version than the one that was looked at, or None if it is that of fsspeckit."""
        sizes, mark = self._sizes(kind), self.newest_mark(kind)
        if sizes and max(sizes) > max(-1 if version is None else version, -1 if mark is None else mark.version):
            raise CommitConflictError(
                f"Another program committed to the {TITLES[kind]} table {self.folder(kind)} meanwhile. Run it again."
            )

    def foreign_files_of_iceberg(self) -> list[str]:
        """Return the files below the folder of the Iceberg table that fsspeckit did not write, if others committed."""
        table, mark = parent(self.folder("iceberg")), self.newest_mark("iceberg")
        try:
            files = [entry.path for entry in self._storage.list_tree(table).files]
        except FileNotFoundError:
            return []
        versions = [path for path in files if is_metadata_of_others(path.rpartition("/")[2], mark)]
        return sorted([*versions, *(path for path in files if not path.startswith("metadata/"))])

    def discard_iceberg(self) -> None:
        """Delete what other programs wrote beside the metadata of the Iceberg table."""
        table = parent(self.folder("iceberg"))
        for entry in self._storage.list_dir(table):
            if entry.path != "metadata":
                self._storage.remove_tree(join(table, entry.path))

    def commits_after(self, mark: ExportMark) -> list[Record] | None:
        """Return the records of the commits after that which a version describes; None if some are removed."""
        state = self._log.state()
        wanted = [seq for seq in self._log.effective(state) if seq > mark.seq]
        records = [self._log.read_or_none(seq) for seq in wanted]
        known = [record for record in records if record is not None]
        is_complete = len(known) == len(wanted) and (not wanted or min(state.records) <= mark.seq + 1)
        return [record for record in known if record.kind == "commit"] if is_complete else None

    def committed(self, key: str) -> int | None:
        """Return the slot of the commit with an idempotency key, or None."""
        return Memory(self._storage, self._root, self._log).committed(key)

    def newest(self, kind: str) -> Exported | None:
        """Return the newest version, or None if there is no metadata.

        Raises:
            TableFormatError: Another program wrote the newest version.
        """
        versions, folder = self.check(kind), self.folder(kind)
        if not versions:
            return None
        version = max(versions)
        data = self._storage.read_bytes(join(folder, version_name(kind, version)))
        digest = hashlib.sha256(data).hexdigest()
        marks = [mark for mark in self._log.state().exports if (mark.format, mark.version) == (kind, version)]
        mark = max((mark for mark in marks if mark.digest == digest), default=None)
        if mark is None:
            raise foreign_commit(kind, folder)
        return Exported(mark, data, self.read_state(mark))

    def read_state(self, mark: ExportMark) -> bytes:
        """Return the state that was stored with a version."""
        try:
            return self._storage.read_bytes(self._state_path(mark))
        except FileNotFoundError as error:
            raise StorageError(
                f"{self._state_path(mark)} is missing, from which the next export starts. "
                f"Run `fsspeckit export {mark.format} PATH --remove`, and export again."
            ) from error

    def publish(self, kind: str, version: int, seq: int, data: bytes, state: bytes, files: Mapping[str, bytes]) -> bool:
        """Write a version of metadata with the files that it refers to. Return False if another process wrote it."""
        mark, folder = ExportMark(kind, version, seq, len(data), hashlib.sha256(data).hexdigest()), self.folder(kind)
        self._write_files({self._state_path(mark): state, **{join(folder, name): files[name] for name in files}})
        if not self._reserve(mark):
            return False
        self._make_folder(folder)  # after the mark: without one, even an empty Delta log is that of another program
        try:
            self._storage.create_exclusive(join(folder, version_name(kind, version)), data)
        except FileExistsError:
            if self._storage.read_bytes(join(folder, version_name(kind, version))) != data:
                self._remove_marks([mark])
                return False
        self._finish(mark)
        return True

    def _reserve(self, mark: ExportMark) -> bool:
        """Write the mark of a version. Return False if it would describe files that a commit has replaced.

        From the first mark on, commits give new names to rewritten files. One that began before it is waited for.
        """
        state = self._log.state()
        ensure_exclusive_create(self._storage, self._log, state)
        self._write_mark(mark.name)
        if not state.exports:
            with self._storage.lock(self._log.lock_path):
                if self._log.state().newest != mark.seq:
                    self._remove_marks([mark])
                    return False
        return True

    def describe_slot(self, exported: Exported, seq: int) -> None:
        """Record that a version describes the dataset after a slot, which may have changed no file."""
        mark = exported.mark
        if mark.seq < seq:
            mark = replace(mark, seq=seq)
            self._write_files({self._state_path(mark): exported.state})
            self._write_mark(mark.name)
        self._remove_older(mark)

    def set_kept(self, kind: str, *, is_kept: bool) -> None:
        """Set whether an export or a catalog is refreshed after every commit."""
        if is_kept:
            self._write_mark(kept_name(kind))
        else:
            self._storage.remove(join(self._log.folder, kept_name(kind)))

    def remove(self, kind: str) -> bool:
        """Delete the metadata of a format, then its marks, and return whether there was any. The data files stay."""
        marks, folder = [mark for mark in self._log.state().exports if mark.format == kind], self.folder(kind)
        self.set_kept(kind, is_kept=False)
        if marks:
            self._storage.remove_tree(folder)
            if kind == "iceberg":
                self._storage.remove_dir_if_empty(parent(folder))
            self._remove_marks(marks)
        return bool(marks)

    def read_note(self, name: str) -> bytes | None:
        """Return a note that is stored beside the states, or None."""
        try:
            return self._storage.read_bytes(join(self._states, name))
        except FileNotFoundError:
            return None

    def write_note(self, name: str, data: bytes | None) -> None:
        """Store a note beside the states, or delete it."""
        if data is None:
            self._storage.remove(join(self._states, name))
            return
        self._write_files({join(self._states, name): data})

    def _finish(self, mark: ExportMark) -> None:
        """Remove what only earlier versions need."""
        if mark.format == "iceberg":
            folder, last = self.folder(mark.format), mark.version - _OLD_VERSIONS
            self._storage.write_bytes(join(folder, "version-hint.text"), str(mark.version).encode())
            names = ((name, _NUMBERED.fullmatch(name)) for name in self._storage.list_names(folder))
            self._storage.remove_many([join(folder, name) for name, found in names if found and int(found[1]) <= last])
        self._remove_older(mark)

    def _remove_older(self, mark: ExportMark) -> None:
        """Remove the marks of earlier versions, and those of other attempts to write this one."""
        mine = [each for each in self._log.state().exports if each.format == mark.format and each != mark]
        self._remove_marks(each for each in mine if (each.version, each.seq) <= (mark.version, mark.seq))

    def _remove_marks(self, marks: Iterable[ExportMark]) -> None:
        gone = list(marks)
        self._storage.remove_many([join(self._log.folder, mark.name) for mark in gone])
        self._storage.remove_many([self._state_path(mark) for mark in gone])

    def _write_mark(self, name: str) -> None:
        self._storage.write_bytes(join(self._log.folder, name), b"")
        self._log.sync()

    def _write_files(self, files: Mapping[str, bytes]) -> None:
        """Write files durably, and create their folders."""
        folders = sorted({parent(path) for path in files})
        for folder in folders:
            self._make_folder(folder)
        for path, data in files.items():
            self._storage.write_bytes(path, data)
        self._storage.sync_files(files)
        self._storage.sync_dirs(folders)

    def _make_folder(self, folder: str) -> None:
        self._storage.sync_dirs(map(parent, self._storage.make_dirs(folder)))

    def _state_path(self, mark: ExportMark) -> str:
        return join(self._states, f"{mark.name}.state")
