"""Pieces of tables on their way from where they were split to where they are gathered.

A few stay in memory; beyond a budget they go to temporary Arrow files on the local disk, one file for each item that
is split, so that writers never wait for each other. All of it is gone when the exchange ends.
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

from fsspeckit.common.errors import StorageError

_parent: ContextVar[str | None] = ContextVar("spill_parent", default=None)
_most: ContextVar[int | None] = ContextVar("spill_most", default=None)


@contextmanager
def spilling(folder: str | None, most: int | None) -> Iterator[None]:
    """Within this, temporary files go to the given folder, and at most so many bytes of pieces wait in memory."""
    tokens = _parent.set(folder), _most.set(most)
    try:
        yield
    finally:
        _parent.reset(tokens[0])
        _most.reset(tokens[1])


def spill_parent() -> str | None:
    """The folder for temporary files, made when first asked for; None for the system's."""
    folder = _parent.get()
    if folder is not None:
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:  # among them FileNotFoundError, which elsewhere means that a data file is gone
            raise StorageError(
                f"no folder for temporary files can be made at {folder} ({error}); name another as temp_directory"
            ) from error
    return folder


def spool(reader: pa.RecordBatchReader) -> pa.Table:
    """Write a stream to a temporary Arrow file and map it; the file goes with the table."""
    handle, name = tempfile.mkstemp(prefix="fsspeckit-", suffix=".arrows", dir=spill_parent())
    os.close(handle)
    try:
        with pa.OSFile(name, "wb") as sink, pa.ipc.new_stream(sink, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
        return pa.ipc.open_stream(pa.memory_map(name)).read_all()
    finally:
        os.unlink(name)


@dataclass(frozen=True, slots=True)
class _Piece:
    """One piece: in memory, or where it lies on disk."""

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
    """Pieces by part; ``budget`` bytes of them stay in memory."""

    def __init__(self, parts: int, budget: int) -> None:
        self._pieces: list[list[_Piece]] = [[] for _ in range(parts)]
        self._lock = threading.Lock()
        most = _most.get()
        self._left = budget if most is None else min(budget, most)
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
        """Where one item puts its pieces."""
        return Writer(self, item)

    def take(self, part: int) -> Iterator[pa.Table]:
        """The pieces of a part in the order of items, each loaded when it is asked for; they are given once."""
        with self._lock:
            pieces, self._pieces[part] = self._pieces[part], []
        for piece in sorted(pieces, key=lambda piece: (piece.item, piece.number)):
            yield piece.load()

    def keeps(self, size: int) -> bool:
        """Whether so many bytes may stay in memory; they are then counted."""
        with self._lock:
            fits = self._left >= size
            self._left -= size if fits else 0
            return fits

    def put(self, part: int, piece: _Piece) -> None:
        """Note a piece."""
        with self._lock:
            self._pieces[part].append(piece)

    def folder(self) -> str:
        """The temporary folder, made when first needed."""
        with self._lock:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="fsspeckit-", dir=spill_parent())
            return self._folder.name


class Writer:
    """Takes the pieces of one item."""

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
        """Take one piece."""
        if self._spill.keeps(table.nbytes):
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
        with pa.ipc.new_stream(self._sink, table.schema) as stream:
            stream.write_table(table)
        return _Piece(self._item, self._number, None, self._path, offset, self._sink.tell() - offset)
