"""Tables in files of a scratch folder that other workers read: each table has a place in a file."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fsspeckit.common.causes import report_writing
from fsspeckit.core.storage import Storage

_CHUNK_BYTES = 64 * 1024 * 1024
_CHUNK_ROWS = 2_000_000


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where the bytes of a table are."""

    path: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class TableFolder:
    """A folder on a storage that all workers can open."""

    storage: Storage
    path: str

    @contextmanager
    def writer(self) -> Iterator[TableWriter]:
        """Yield a writer to a new file. The file of a failed attempt stays until the folder is removed."""
        writer = TableWriter(self)
        try:
            yield writer
        finally:
            writer.close()

    def read(self, place: TablePlace) -> pa.Table:
        """Return a table; a local file is memory-mapped."""
        if self.storage.is_local:
            with pa.memory_map(place.path) as file:
                file.seek(place.start)
                return pa.ipc.open_stream(file.read_buffer(place.size)).read_all()
        with self.storage.open_input(place.path) as file:
            file.seek(place.start)
            return pa.ipc.open_stream(pa.py_buffer(file.read(place.size))).read_all()


class TableWriter:
    """Writes tables one after the other to one file, which it creates with the first table."""

    def __init__(self, folder: TableFolder) -> None:
        self._folder, self._path = folder, f"{folder.path}/{uuid.uuid4().hex}.arrow"
        self._sink: Any = None

    def add(self, table: pa.Table) -> TablePlace:
        """Write a table and return its place."""
        if self._sink is None:
            self._sink = self._folder.storage.open_output(self._path)
        start = self._sink.tell()
        with report_writing(self._path), pa.ipc.new_stream(self._sink, table.schema) as stream:
            stream.write_table(table)
        return TablePlace(self._path, start, self._sink.tell() - start)

    def close(self) -> None:
        """Finish the file."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None


def in_chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join batches up to a limit of bytes and rows."""
    waiting: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        waiting.append(batch)
        size, rows = size + batch.nbytes, rows + batch.num_rows
        if size >= _CHUNK_BYTES or rows >= _CHUNK_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, size, rows = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)
