"""Places to run an operation in: a copy of a small dataset on disk or in memory, made fresh for every fault."""

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

from fsspeckit.core.commit.listing import View
from fsspeckit.core.file_names import is_data_file
from fsspeckit.core.storage import LocalStorage, Storage, join
from fsspeckit.core.storage.fsspec import FsspecStorage

Rows = Counter[tuple[Any, ...]]
SHARED_MEMORY = "/dev/shm"


class Violation(AssertionError):
    """The dataset is neither the old nor the new one, or something was left behind."""


class World(ABC):
    """One dataset, with a template of it to start from again."""

    storage: Storage
    root: str

    @abstractmethod
    def keep(self) -> None:
        """Take what stands now as the template."""

    @abstractmethod
    def reset(self) -> None:
        """Put the template back."""

    @abstractmethod
    def files(self) -> dict[str, bytes]:
        """Every file, sidecars included, read without any of our code; paths relative to the folder of the dataset."""

    def new_storage(self) -> Storage:
        """What a process that starts now would use."""
        return self.storage

    def close(self) -> None:  # noqa: B027 - nothing to do for most
        """Clean up."""

    def dataset_files(self) -> dict[str, bytes]:
        """Files of the dataset itself."""
        prefix = f"{self.root.partition('lake/')[2]}/"
        inside = {path.removeprefix(prefix): data for path, data in self.files().items() if path.startswith(prefix)}
        return {path: data for path, data in inside.items() if not path.startswith(".fsspeckit/")}

    def raw_rows(self) -> Rows:
        """What a reader that knows nothing of us reads: all data files."""
        rows: Rows = Counter()
        for path, data in self.dataset_files().items():
            if is_data_file(path):
                rows += rows_of(data)
        return rows

    def view_rows(self, view: View) -> Rows:
        """What our own reader reads."""
        rows: Rows = Counter()
        for file in view.files:
            rows += rows_of(self.storage.read_bytes(file.location))
        return rows


class LocalWorld(World):
    """A folder on a memory disk, which is quick and behaves like any other POSIX disk."""

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
    """An fsspec memory filesystem of its own: the model of an object store."""

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


@cache
def rows_of(data: bytes) -> Rows:
    """The rows of one Parquet file; one that cannot be read is a violation wherever it stands."""
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read()
    except (OSError, pa.ArrowException) as error:
        raise Violation(f"a broken Parquet file of {len(data)} bytes stands in the dataset: {error}") from error
    return Counter(tuple(row.values()) for row in table.to_pylist())
