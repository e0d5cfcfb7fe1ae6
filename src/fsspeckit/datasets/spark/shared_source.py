"""Source rows that the driver and all executors can read: inside the job if small, else in Arrow files.

The files are in a local folder if all executors run on this machine, else on the storage of the dataset. Local files
are memory-mapped, so processes of one machine share the memory. The driver reads only the key columns.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from fsspeckit.common.arrow_versions import concat_batches
from fsspeckit.common.causes import report_writing
from fsspeckit.core.dataset.source import Source, in_partition_types
from fsspeckit.core.kernels.exchange.table_files import TableFolder
from fsspeckit.core.storage import Storage, parent
from fsspeckit.core.values.take import with_one_dictionary

NO_COLUMNS = pa.schema([])
INLINE_BYTES = 4 * 1024 * 1024
_FILE_ROWS = 1_000_000
_BATCH_ROWS = 250_000
_BATCH_BYTES = 32 * 1024 * 1024
_SMALL_BATCH_BYTES = 1024 * 1024
_opened: dict[str, pa.Table] = {}


@dataclass(frozen=True, slots=True)
class SpillFile:
    """An Arrow file with a part of the source's rows."""

    path: str
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Handle:
    """Reference to shared rows: serialized rows, or the files that hold them, in order.

    ``partitions`` are partition columns whose values are converted to these types when they are read.
    """

    name: str
    schema: pa.Schema
    inline: bytes | None = None
    storage: Storage | None = None
    files: tuple[SpillFile, ...] = ()
    partitions: pa.Schema = NO_COLUMNS

    def open(self) -> Source:
        """Return the rows; the process keeps the last opened source in memory."""
        table = _opened.get(self.name)
        if table is None:
            _opened.clear()
            table = _opened[self.name] = self.columns(self.schema.names)
        return Source(table)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows."""
        if self.inline is not None:
            return pa.ipc.open_stream(pa.py_buffer(self.inline)).read_all().select(list(names))
        tables = [self.file(number, names) for number in range(len(self.files))]
        empty = pa.schema([self.schema.field(name) for name in names]).empty_table()
        return with_one_dictionary(pa.concat_tables(tables)) if tables else empty

    def file(self, number: int, names: Sequence[str]) -> pa.Table:
        """Return some columns of one file: memory-mapped if it is local, else only these columns are fetched."""
        table = self._reader(number, names).read_all().select(list(names))
        return in_partition_types(table, self.partitions)

    def _reader(self, number: int, names: Sequence[str]) -> pa.RecordBatchFileReader:
        assert self.storage is not None
        path = self.files[number].path
        if self.storage.is_local:
            return pa.ipc.open_file(pa.memory_map(path))  # with included_fields it copies the columns
        wanted = sorted(self.schema.get_field_index(name) for name in names)
        return pa.ipc.open_file(self.storage.open_input(path), options=pa.ipc.IpcReadOptions(included_fields=wanted))

    def batches(self, number: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of one file in batches."""
        reader = self._reader(number, names)
        for number_of_batch in range(reader.num_record_batches):
            table = pa.Table.from_batches([reader.get_batch(number_of_batch).select(list(names))])
            yield from in_partition_types(table, self.partitions).to_batches()

    def forget(self) -> None:
        """Release the rows in this process."""
        _opened.pop(self.name, None)


@dataclass(frozen=True, slots=True)
class SharedSource(Source):
    """Source rows with the handle that executors open; ``table`` holds the rows only if they are inline."""

    handle: Handle
    share_limit: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(file.rows for file in self.handle.files) if self.handle.inline is None else self.table.num_rows

    @property
    def route(self) -> str:
        """How the rows are sent to tasks: "job", "shared files" or "exchange"."""
        if self.handle.inline is not None:
            return "job"
        size = sum(file.size for file in self.handle.files)
        return "shared files" if size <= self.share_limit else "exchange"

    @property
    def is_shared(self) -> bool:
        """Whether the rows are in files."""
        return self.handle.inline is None

    @property
    def limit(self) -> int | None:
        """The share limit of the engine, for rows in files."""
        return self.share_limit if self.is_shared else None

    @property
    def exchange_folder(self) -> TableFolder | None:
        """The folder of the files, if the rows are exchanged."""
        if self.handle.storage is None or self.route != "exchange":
            return None
        return TableFolder(self.handle.storage, parent(self.handle.files[0].path))

    def chunks(self) -> list[Source]:
        """Return one part for each file."""
        if not self.is_shared:
            return [Source(self.table)]
        handles = [replace(self.handle, files=(file,)) for file in self.handle.files]
        return [SharedSource(self.table, handle, self.share_limit) for handle in handles]

    def part_sink(self) -> Callable[[pa.Table], Any]:
        """Return a function that writes rows to a file next to the files of this source."""
        if self.handle.storage is None or not self.handle.files:
            return Source.part_sink(self)
        return SpillSink(self.handle.storage, parent(self.handle.files[0].path))

    def with_parts(self, parts: Sequence[Any], schema: pa.Schema) -> Source:
        """Return a source that is shared like this one."""
        if self.handle.storage is None or not self.handle.files:
            return share_inline(Source.with_parts(self, parts, schema).table)
        return spilled(parts, schema, self.handle.storage, self.share_limit)

    def with_partition_types(self, types: pa.Schema) -> SharedSource:
        """Return the rows with partition columns in the types of a dataset. Those in files are converted when read."""
        table = in_partition_types(self.table, types)
        if self.handle.inline is not None:
            return replace(self, table=table, handle=share_inline(table).handle)
        handle = replace(self.handle, name=uuid.uuid4().hex, schema=table.schema, partitions=types)
        return replace(self, table=table, handle=handle)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows."""
        return self.table.select(list(names)) if self.handle.inline is not None else self.handle.columns(names)

    def pieces(self, names: Sequence[str]) -> Sequence[Any]:
        """Return some columns in pieces that executors can read; rows in files are not read here."""
        if self.handle.inline is not None:
            return Source(self.table).pieces(names)
        return [SpillPiece(self.handle, number, tuple(names)) for number in range(len(self.handle.files))]


@dataclass(frozen=True, slots=True)
class SpillPiece:
    """Some columns of the rows of one file."""

    handle: Handle
    number: int
    names: tuple[str, ...]

    @property
    def first_row(self) -> int:
        """The number of the first row in the source."""
        return sum(file.rows for file in self.handle.files[: self.number])

    def read(self) -> pa.Table:
        """Return the rows."""
        return self.handle.file(self.number, self.names)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches; each is read when it is needed."""
        return self.handle.batches(self.number, self.names)


@dataclass(frozen=True, slots=True)
class SpillSink:
    """Writes rows to a file of a folder."""

    storage: Storage
    folder: str

    def __call__(self, table: pa.Table) -> SpillFile | None:
        """Return the file; None if there are no rows."""
        return write_spill(table.to_batches(), table.schema, self.storage, self.folder)


def share_inline(table: pa.Table) -> SharedSource:
    """Share a small table: its rows are part of each job."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return SharedSource(table, Handle(uuid.uuid4().hex, table.schema, sink.getvalue().to_pybytes()), 0)


def share_table(table: pa.Table, storage: Storage, folder: str, share_limit: int) -> SharedSource:
    """Share a table of the driver by writing it to files."""
    files = [
        write_spill(table.slice(start, _FILE_ROWS).to_batches(), table.schema, storage, folder)
        for start in range(0, table.num_rows, _FILE_ROWS)
    ]
    return spilled(files, table.schema, storage, share_limit)


def spilled(files: Iterable[SpillFile | None], schema: pa.Schema, storage: Storage, share_limit: int) -> SharedSource:
    """Return the source whose rows are in files."""
    handle = Handle(uuid.uuid4().hex, schema, None, storage, tuple(file for file in files if file is not None))
    return SharedSource(schema.empty_table(), handle, share_limit)


def write_spill(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema | None, storage: Storage, folder: str
) -> SpillFile | None:
    """Write batches to a new file in a folder; return None if there are no batches."""
    path, rows, size = f"{folder}/{uuid.uuid4().hex}.arrow", 0, 0
    writer: Any = None
    sink: Any = None
    for batch in _with_growing_dictionaries(_joined(batches)):
        if writer is None:
            sink = storage.open_output(path)
            options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
            writer = pa.ipc.new_file(sink, batch.schema if schema is None else schema, options=options)
        with report_writing(path):
            writer.write_batch(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if writer is None:
        return None
    writer.close()
    sink.close()
    return SpillFile(path, rows, size)


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches: taking rows from a few large batches is much faster."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + _size(batch)
        if rows >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield concat_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield concat_batches(waiting)


def _with_growing_dictionaries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches whose dictionaries begin with those of the batches before. An Arrow file allows no others."""
    before: pa.Table | None = None
    for batch in batches:
        if not any(map(pa.types.is_dictionary, batch.schema.types)):
            yield batch
            continue
        table = pa.Table.from_batches([batch])
        if before is not None:
            table = with_one_dictionary(pa.concat_tables([before, table])).combine_chunks()
        before = table.slice(0, 0)
        yield from table.to_batches()


def _size(batch: pa.RecordBatch) -> int:
    """Return the bytes of a batch; for small buffers their total size, which takes a tenth of the time.

    Slices of large tables have large buffers, so their own bytes are counted.
    """
    whole = int(batch.get_total_buffer_size())
    return whole if whole < _SMALL_BATCH_BYTES else int(batch.nbytes)
