"""Test environments: a small dataset on disk or in memory that is reset for every fault."""

from __future__ import annotations

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from inside import FsspecStorage, LocalStorage, Storage, files_of, is_data_file, join, tombstones_of

Rows = Counter[tuple[Any, ...]]
SHARED_MEMORY = "/dev/shm"


class Violation(AssertionError):
    """The dataset is neither the old nor the new one, or temporary files are left."""


class World(ABC):
    """One dataset, with a template to restore it from."""

    storage: Storage
    root: str

    @abstractmethod
    def keep(self) -> None:
        """Save the current state as the template."""

    @abstractmethod
    def reset(self) -> None:
        """Restore the template."""

    @abstractmethod
    def files(self) -> dict[str, bytes]:
        """Return all files, including sidecars, read without fsspeckit, by path relative to the parent folder."""

    def new_storage(self) -> Storage:
        """Return the storage of a new process."""
        return self.storage

    def close(self) -> None:  # noqa: B027 - nothing to do for most
        """Clean up."""

    def dataset_files(self) -> dict[str, bytes]:
        """Return the files of the dataset without sidecars."""
        prefix = f"{self.root.partition('lake/')[2]}/"
        inside = {path.removeprefix(prefix): data for path, data in self.files().items() if path.startswith(prefix)}
        return {path: data for path, data in inside.items() if not path.startswith(".fsspeckit/")}

    def raw_rows(self) -> Rows:
        """Return the rows of all data files, as a reader without fsspeckit sees them, and the deleted keys."""
        rows: Rows = Counter()
        for path, data in self.dataset_files().items():
            if is_data_file(path):
                rows += rows_of(data)
        return rows + self._tombstones()

    def seen_rows(self) -> Rows:
        """Return the rows that our own reader sees."""
        storage = self.new_storage()
        return self.rows_at(files_of(storage, self.root)) + self._tombstones()

    def rows_at(self, locations: list[str]) -> Rows:
        """Return the rows of files."""
        rows: Rows = Counter()
        for location in locations:
            rows += rows_of(self.storage.read_bytes(location))
        return rows

    def _tombstones(self) -> Rows:
        """Return the keys that change feeds have deleted; they must change together with the rows."""
        if not any("/tombstones" in path or b'"tombstones":[' in data for path, data in self.files().items()):
            return Counter()
        deleted = self.rows_at(tombstones_of(self.new_storage(), self.root))
        return Counter({("deleted", *row): count for row, count in deleted.items()})


class LocalWorld(World):
    """A folder in a memory filesystem, which is fast and behaves like any POSIX filesystem."""

    def __init__(self) -> None:
        base = SHARED_MEMORY if os.path.isdir(SHARED_MEMORY) else None
        self.base = tempfile.mkdtemp(prefix="fsspeckit-", dir=base)
        self.folder = join(self.base, "lake")
        self.root = join(self.folder, "ds")
        self.storage = LocalStorage()
        os.mkdir(self.folder)

    def keep(self) -> None:
        shutil.rmtree(join(self.base, "template"), ignore_errors=True)
        shutil.copytree(self.folder, join(self.base, "template"))

    def reset(self) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(join(self.base, "template"), self.folder)

    def files(self) -> dict[str, bytes]:
        found = {}
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    found[os.path.relpath(path, self.folder)] = file.read()
        return found

    def close(self) -> None:
        shutil.rmtree(self.base, ignore_errors=True)


class MemoryWorld(World):
    """An fsspec memory filesystem, as the model of an object store."""

    def __init__(self) -> None:
        self.fs = MemoryFileSystem(global_store=False, skip_instance_cache=True)
        self.root = "/lake/ds"
        self.storage = FsspecStorage(self.fs)
        self._template: dict[str, tuple[bytes, Any]] = {}

    def keep(self) -> None:
        self._template = {path: (file.getvalue(), file.created) for path, file in self.fs.store.items()}

    def reset(self) -> None:
        self.fs.store.clear()
        for path, (data, created) in self._template.items():
            file = MemoryFile(self.fs, path, data)
            file.created = created
            self.fs.store[path] = file

    def files(self) -> dict[str, bytes]:
        return {path.removeprefix("/lake/"): file.getvalue() for path, file in self.fs.store.items()}


WORLDS: dict[str, type[World]] = {"local": LocalWorld, "memory": MemoryWorld}


@cache
def rows_of(data: bytes) -> Rows:
    """Return the rows of a Parquet file. A file that cannot be read is a violation."""
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read()
    except (OSError, pa.ArrowException) as error:
        raise Violation(f"a broken Parquet file of {len(data)} bytes stands in the dataset: {error}") from error
    return Counter(tuple(row.values()) for row in table.to_pylist())
