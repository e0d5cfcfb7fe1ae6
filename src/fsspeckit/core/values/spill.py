"""Hold the pieces of tables during an exchange: in memory up to a budget, then in temporary Arrow files.

Each item that is split writes its own file on the local disk, so that writers do not block each other. All pieces are
deleted at the end of the exchange.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from fsspeckit.common.causes import report_writing
from fsspeckit.common.errors import StorageError

_parent: ContextVar[str | None] = ContextVar("spill_parent", default=None)
_memory_limit: ContextVar[int | None] = ContextVar("spill_memory_limit", default=None)


@contextmanager
def spilling(folder: str | None, limit: int | None) -> Iterator[None]:
    """Set the folder for temporary files, and the maximum bytes of pieces in memory, inside the context."""
    tokens = _parent.set(folder), _memory_limit.set(limit)
    try:
        yield
    finally:
        _parent.reset(tokens[0])
        _memory_limit.reset(tokens[1])


def spill_parent() -> str | None:
    """Return the folder for temporary files, and create it if it is missing. None is the folder of the system."""
    folder = _parent.get()
    if folder is not None:
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:  # FileNotFoundError is converted too: callers take it for a missing data file
            raise StorageError(
                f"The folder for temporary files {folder} cannot be created ({error}). "
                "Pass another one as temp_directory."
            ) from error
    return folder


def spool(reader: pa.RecordBatchReader) -> pa.Table:
    """Write a stream to a temporary Arrow file, and return it memory-mapped. The file is already unlinked."""
    handle, name = tempfile.mkstemp(prefix="fsspeckit-", suffix=".arrows", dir=spill_parent())
    os.close(handle)
    try:
        with pa.OSFile(name, "wb") as sink, pa.ipc.new_stream(sink, reader.schema) as writer:
            for batch in reader:
                with report_writing(name):
                    writer.write_batch(batch)
        return pa.ipc.open_stream(pa.memory_map(name)).read_all()
    finally:
        os.unlink(name)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece in memory, or its location on disk."""

    item: int
    number: int
    table: pa.Table | None
    path: str
    offset: int
    size: int

    def load(self) -> pa.Table:
        if self.table is not None:
            return self.table
        with pa.OSFile(self.path, "rb") as source:
            source.seek(self.offset)
            return pa.ipc.open_stream(source.read_buffer(self.size)).read_all()


class Spill:
    """Pieces of tables by part. At most ``budget`` bytes stay in memory."""

    def __init__(self, parts: int, budget: int) -> None:
        self._pieces: list[list[_Piece]] = [[] for _ in range(parts)]
        self._lock = threading.Lock()
        limit = _memory_limit.get()
        self._free_bytes = budget if limit is None else min(budget, limit)
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pieces = []
        if self._folder is not None:
            self._folder.cleanup()

    def writer(self, item: int) -> Writer:
        """Return the writer of one item's pieces."""
        return Writer(self, item)

    def take(self, part: int) -> Iterator[pa.Table]:
        """Yield the pieces of a part in the order of items, and remove them. Each is loaded when it is needed."""
        with self._lock:
            pieces, self._pieces[part] = self._pieces[part], []
        for piece in sorted(pieces, key=lambda piece: (piece.item, piece.number)):
            yield piece.load()

    def reserve_memory(self, size: int) -> bool:
        """Reserve bytes of the budget. Return False if it is used up."""
        with self._lock:
            fits = self._free_bytes >= size
            self._free_bytes -= size if fits else 0
            return fits

    def put(self, part: int, piece: _Piece) -> None:
        """Add a piece to a part."""
        with self._lock:
            self._pieces[part].append(piece)

    def folder(self) -> str:
        """Return the temporary folder, and create it on the first call."""
        with self._lock:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="fsspeckit-", dir=spill_parent())
            return self._folder.name


class Writer:
    """Stores the pieces of one item."""

    def __init__(self, spill: Spill, item: int) -> None:
        self._spill, self._item, self._number = spill, item, 0
        self._sink: Any = None
        self._path = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._sink is not None:
            self._sink.close()

    def add(self, part: int, table: pa.Table) -> None:
        """Store a piece of a part."""
        if self._spill.reserve_memory(table.nbytes):
            piece = _Piece(self._item, self._number, table, "", 0, 0)
        else:
            piece = self._write(table)
        self._number += 1
        self._spill.put(part, piece)

    def _write(self, table: pa.Table) -> _Piece:
        if self._sink is None:
            self._path = os.path.join(self._spill.folder(), f"{self._item}.arrows")
            self._sink = pa.OSFile(self._path, "wb")
        offset = self._sink.tell()
        with report_writing(self._path), pa.ipc.new_stream(self._sink, table.schema) as stream:
            stream.write_table(table)
        return _Piece(self._item, self._number, None, self._path, offset, self._sink.tell() - offset)
