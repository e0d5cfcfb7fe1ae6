"""Source rows that the driver and all executors can reach: inside the job when small, else in Arrow files.

The files stand in a folder of this machine where all executors run on it, else beside the dataset on its own storage;
local ones are mapped, so processes of one machine share the memory. A DataFrame is written there by its own tasks,
once, and never collected: the driver reads the key columns and nothing else.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import binary_array, to_arrow, to_numpy
from fsspeckit.common.errors import UnsupportedDataError
from fsspeckit.core.layout import check_distinct
from fsspeckit.core.rows import with_one_dictionary
from fsspeckit.core.source import Source
from fsspeckit.core.storage import Storage
from fsspeckit.datasets.spark.errors import translated
from fsspeckit.datasets.spark.handshake import portable
from fsspeckit.datasets.spark.jobs import collect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INLINE_BYTES = 4 * 1024 * 1024
_FILE_ROWS = 1_000_000
_KEPT = 4
_open_tables: OrderedDict[str, pa.Table] = OrderedDict()


@dataclass(frozen=True, slots=True)
class SpillFile:
    """An Arrow file with some of the source's rows."""

    path: str
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Handle:
    """How to get at shared rows: the bytes themselves, or the files that hold them, in order."""

    name: str
    schema: pa.Schema
    inline: bytes | None = None
    storage: Storage | None = None
    files: tuple[SpillFile, ...] = ()

    def open(self) -> Source:
        """The rows in this process; opened once, however many tasks ask."""
        if self.name not in _open_tables:
            _open_tables[self.name] = self.columns(self.schema.names)
            while len(_open_tables) > _KEPT:
                _open_tables.popitem(last=False)
        _open_tables.move_to_end(self.name)
        return Source(_open_tables[self.name])

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Some columns of all rows; of a remote file only these are fetched."""
        if self.inline is not None:
            return pa.ipc.open_stream(pa.py_buffer(self.inline)).read_all().select(list(names))
        tables = [self.file(number, names) for number in range(len(self.files))]
        empty = pa.schema([self.schema.field(name) for name in names]).empty_table()
        return with_one_dictionary(pa.concat_tables(tables)) if tables else empty

    def file(self, number: int, names: Sequence[str]) -> pa.Table:
        """Some columns of the rows of one file."""
        assert self.storage is not None
        path = self.files[number].path
        wanted = [self.schema.get_field_index(name) for name in names]
        options = pa.ipc.IpcReadOptions(included_fields=sorted(wanted))
        opened = pa.memory_map(path) if self.storage.is_local else self.storage.open_input(path)
        return pa.ipc.open_file(opened, options=options).read_all().select(list(names))

    def forget(self) -> None:
        """Let go of the rows in this process."""
        _open_tables.pop(self.name, None)


@dataclass(frozen=True, slots=True)
class SharedSource(Source):
    """Source rows with the handle that executors open; ``table`` holds them here only where they are few."""

    handle: Handle
    share_limit: int

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(file.rows for file in self.handle.files) if self.handle.inline is None else self.table.num_rows

    @property
    def route(self) -> str:
        """How the rows reach the tasks that need them."""
        if self.handle.inline is not None:
            return "job"
        size = sum(file.size for file in self.handle.files)
        return "shared files" if size <= self.share_limit else "exchange"

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Whole columns."""
        return self.table.select(list(names)) if self.handle.inline is not None else self.handle.columns(names)


def share_inline(table: pa.Table) -> SharedSource:
    """Few rows: they travel inside the jobs."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return SharedSource(table, Handle(uuid.uuid4().hex, table.schema, sink.getvalue().to_pybytes()), 0)


def share_table(table: pa.Table, storage: Storage, folder: str, share_limit: int) -> SharedSource:
    """Arrow rows of the driver, written to files."""
    files = [
        write_spill(table.slice(start, _FILE_ROWS).to_batches(), table.schema, storage, folder)
        for start in range(0, table.num_rows, _FILE_ROWS)
    ]
    return spilled(files, table.schema, storage, share_limit)


def spilled(files: Iterable[SpillFile | None], schema: pa.Schema, storage: Storage, share_limit: int) -> SharedSource:
    """Rows that stand in files."""
    handle = Handle(uuid.uuid4().hex, schema, None, storage, tuple(file for file in files if file is not None))
    return SharedSource(schema.empty_table(), handle, share_limit)


def write_spill(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema | None, storage: Storage, folder: str
) -> SpillFile | None:
    """Write batches to a new file of the scratch folder; without any batch there is none."""
    path, rows, size = f"{folder}/{uuid.uuid4().hex}.arrow", 0, 0
    writer: Any = None
    sink: Any = None
    for batch in batches:
        if writer is None:
            sink = storage.open_output(path)
            writer = pa.ipc.new_file(sink, batch.schema if schema is None else schema)
        writer.write_batch(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if writer is None:
        return None
    writer.close()
    sink.close()
    return SpillFile(path, rows, size)


def share_frame(spark: SparkSession, frame: DataFrame, storage: Storage, folder: str, share_limit: int) -> SharedSource:
    """Let the tasks of a DataFrame write their rows as Arrow files; the driver learns only names and counts.

    Spark resolves columns by name, which fails for dots, backticks and names that differ in case only, so the columns
    go under plain names and get their own back in the files.
    """
    if frame.isStreaming:
        raise UnsupportedDataError("a streaming DataFrame has no end; pass a batch one, or merge inside foreachBatch")
    names = list(frame.columns)
    with translated():
        plain = frame.toDF(*(f"c{i}" for i in range(len(names))))
        schema = plain.limit(0).toArrow().schema
        schema = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
        check_distinct(schema, "source")
        spill = portable(spark, _Spill(storage, folder, names))
        written = plain.mapInArrow(spill, "part long, rows long, size long, path binary")
    answers = collect(frame.sparkSession, written)
    parts, rows, sizes = (to_numpy(answers[name]).tolist() for name in ("part", "rows", "size"))
    paths = [path.decode() for path in answers["path"].to_pylist()]
    found = sorted(zip(parts, paths, rows, sizes, strict=True))
    files = [SpillFile(path, count, size) for _, path, count, size in found]
    return spilled(files, schema, storage, share_limit)


class _Spill:
    """Writes the rows of one partition of a DataFrame to a file and reports it; runs on executors."""

    def __init__(self, storage: Storage, folder: str, names: list[str]) -> None:
        self._storage, self._folder, self._names = storage, folder, names

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        named = (batch.rename_columns(self._names) for batch in batches)
        file = write_spill(named, None, self._storage, self._folder)
        if file is not None:
            numbers = [to_arrow(np.array([value])) for value in (part, file.rows, file.size)]
            path = binary_array([file.path.encode()], pa.binary())
            yield pa.RecordBatch.from_arrays([*numbers, path], ["part", "rows", "size", "path"])
