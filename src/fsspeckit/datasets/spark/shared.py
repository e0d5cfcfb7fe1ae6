"""Source rows that the driver and all executors can reach: inside the job when small, else in Arrow files.

The files stand in a scratch folder on the dataset's own storage; local ones are mapped, so processes of one machine
share the memory. A DataFrame is written there by its own tasks, once, and never collected.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import binary_array, to_arrow, to_numpy
from fsspeckit.core.rows import with_one_dictionary
from fsspeckit.core.source import Source
from fsspeckit.core.storage import Storage
from fsspeckit.datasets.spark.handshake import portable
from fsspeckit.datasets.spark.jobs import collect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INLINE_BYTES = 4 * 1024 * 1024
_KEPT = 4
_open_tables: OrderedDict[str, pa.Table] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Handle:
    """How to get at shared rows: the bytes themselves, or the files that hold them, in order."""

    name: str
    inline: bytes | None
    storage: Storage | None
    paths: tuple[str, ...]
    schema: pa.Schema

    def open(self) -> Source:
        """The rows in this process; opened once, however many tasks ask."""
        if self.name not in _open_tables:
            _open_tables[self.name] = with_one_dictionary(self._load())
            while len(_open_tables) > _KEPT:
                _open_tables.popitem(last=False)
        _open_tables.move_to_end(self.name)
        return Source(_open_tables[self.name])

    def _load(self) -> pa.Table:
        if self.inline is not None:
            return pa.ipc.open_stream(pa.py_buffer(self.inline)).read_all()
        assert self.storage is not None
        tables = [pa.ipc.open_stream(_bytes_of(self.storage, path)).read_all() for path in self.paths]
        return pa.concat_tables(tables) if tables else self.schema.empty_table()

    def forget(self) -> None:
        """Let go of the rows in this process."""
        _open_tables.pop(self.name, None)


def _bytes_of(storage: Storage, path: str) -> Any:
    return pa.memory_map(path) if storage.is_local else pa.py_buffer(storage.read_bytes(path))


@dataclass(frozen=True, slots=True)
class SharedSource(Source):
    """Source rows with the handle that executors open."""

    handle: Handle


def share_table(table: pa.Table, storage: Storage, folder: str | None) -> SharedSource:
    """Share Arrow rows; without a folder they travel inside the jobs."""
    name = uuid.uuid4().hex
    if folder is None:
        sink = pa.BufferOutputStream()
        _write(table, sink)
        return SharedSource(table, Handle(name, sink.getvalue().to_pybytes(), None, (), table.schema))
    path = f"{folder}/{name}.arrows"
    with storage.open_output(path) as out:
        _write(table, out)
    return SharedSource(table, Handle(name, None, storage, (path,), table.schema))


def _write(table: pa.Table, sink: Any) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def share_frame(spark: SparkSession, frame: DataFrame, storage: Storage, folder: str) -> SharedSource:
    """Let the tasks of a DataFrame write their rows as Arrow files; the driver learns only names and counts."""
    spill = portable(spark, _Spill(storage, folder))
    written = collect(spark, frame.mapInArrow(spill, "part long, rows long, path binary"))
    order = sorted(zip(to_numpy(written["part"]).tolist(), written["path"].to_pylist(), strict=True))
    schema = frame.limit(0).toArrow().schema
    handle = Handle(uuid.uuid4().hex, None, storage, tuple(path.decode() for _, path in order), schema)
    return SharedSource(handle.open().table, handle)


class _Spill:
    """Writes the rows of one partition of a DataFrame to a file and reports it."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage, self._folder = storage, folder

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        path, rows = f"{self._folder}/{uuid.uuid4().hex}.arrows", 0
        writer: Any = None
        sink: Any = None
        for batch in batches:
            if writer is None:
                sink = self._storage.open_output(path)
                writer = pa.ipc.new_stream(sink, batch.schema)
            writer.write_batch(batch)
            rows += batch.num_rows
        if writer is None:
            return
        writer.close()
        sink.close()
        numbers = [to_arrow(np.array([value])) for value in (part, rows)]
        yield pa.RecordBatch.from_arrays(
            [*numbers, binary_array([path.encode()], pa.binary())], ["part", "rows", "path"]
        )
