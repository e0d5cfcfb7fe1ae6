"""The files of a listing. Many files are columns, and a `ViewFile` is built only where one is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import text_array
from fsspeckit.core.model import ViewFile
from fsspeckit.core.storage import Entry

MANY_FILES = 5_000
"""The number of files from which on a listing is kept as columns."""
_CHUNK = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class FileList(Sequence[ViewFile]):
    """Files below the folder ``prefix``, sorted by path."""

    prefix: str
    paths: pa.Array
    sizes: npt.NDArray[np.int64]
    stamps: pa.Array
    versions: pa.Array
    modified: npt.NDArray[np.float64]

    @classmethod
    def of(cls, prefix: str, entries: Sequence[Entry]) -> FileList:
        """Return the files of sorted entries."""
        return cls(
            prefix,
            text_array([entry.path for entry in entries]),
            np.array([entry.size for entry in entries], dtype=np.int64),
            text_array([entry.stamp for entry in entries]),
            text_array([entry.version for entry in entries]),
            np.array([entry.modified for entry in entries], dtype=np.float64),
        )

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, at: int) -> ViewFile: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[ViewFile, ...]: ...
    def __getitem__(self, at: int | slice) -> ViewFile | tuple[ViewFile, ...]:
        if isinstance(at, slice):
            return tuple(self[number] for number in range(*at.indices(len(self))))
        number = range(len(self))[at]
        path = self.paths[number].as_py()
        stamp, version = self.stamps[number].as_py(), self.versions[number].as_py()
        return ViewFile(path, self.prefix + path, int(self.sizes[number]), stamp, version, float(self.modified[number]))

    def __iter__(self) -> Iterator[ViewFile]:
        for start in range(0, len(self), _CHUNK):
            part = slice(start, start + _CHUNK)
            columns = (self.paths[part], self.stamps[part], self.versions[part])
            texts = (column.to_pylist() for column in columns)
            numbers = (self.sizes[part].tolist(), self.modified[part].tolist())
            for path, stamp, version, size, modified in zip(*texts, *numbers, strict=True):
                yield ViewFile(path, self.prefix + path, size, stamp, version, modified)


def paths_of(files: Sequence[ViewFile]) -> pa.Array:
    """Return the paths of files."""
    return files.paths if isinstance(files, FileList) else text_array([file.path for file in files])


def versions_of(files: Sequence[ViewFile]) -> pa.Array:
    """Return the versions of files."""
    return files.versions if isinstance(files, FileList) else text_array([file.version for file in files])


def sizes_of(files: Sequence[ViewFile]) -> npt.NDArray[np.int64]:
    """Return the sizes of files."""
    return files.sizes if isinstance(files, FileList) else np.array([file.size for file in files], dtype=np.int64)
