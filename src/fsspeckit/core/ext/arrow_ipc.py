"""Read Arrow IPC data of unknown origin, in the stream or in the file format.

pyarrow trusts the offsets in such data: a wrong one makes the process read other memory, or crash. So every batch is
validated before it is used.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from tempfile import NamedTemporaryFile

import pyarrow as pa

from fsspeckit.common.causes import outer_cause
from fsspeckit.common.errors import SourceFileError
from fsspeckit.core.values.spill import spill_parent, spool

_FILE_MAGIC = b"ARROW1"


def read_ipc(source: BufferedReader, name: str) -> pa.Table:
    """Read all rows to a table that is mapped from a temporary file.

    Args:
        source: The data.
        name: The name of the data in errors.

    Raises:
        SourceFileError: The data is not Arrow IPC, or is damaged.
    """
    if source.peek(len(_FILE_MAGIC)).startswith(_FILE_MAGIC):
        return _read_file(source, name)
    with _report_damage(name):
        stream = pa.ipc.open_stream(pa.PythonFile(source, mode="r"))
    return spool(_validated(stream.schema, iter(stream), name))


def _read_file(source: BufferedReader, name: str) -> pa.Table:
    """Read the file format through a copy, because it is read from its end. A mapped file could crash the process."""
    with NamedTemporaryFile(prefix="fsspeckit-", dir=spill_parent()) as copy:
        shutil.copyfileobj(source, copy)
        copy.flush()
        with pa.OSFile(copy.name) as file:
            with _report_damage(name):
                found = pa.ipc.open_file(file)
                count = found.num_record_batches
            return spool(_validated(found.schema, map(found.get_batch, range(count)), name))


def _validated(schema: pa.Schema, batches: Iterator[pa.RecordBatch], name: str) -> pa.RecordBatchReader:
    with _report_damage(name):
        str(schema)  # names must be UTF-8

    def each() -> Iterator[pa.RecordBatch]:
        while True:
            with _report_damage(name):
                batch = next(batches, None)
                if batch is None:
                    return
                batch.validate(full=True)
            yield batch

    return pa.RecordBatchReader.from_batches(schema, each())


@contextmanager
def _report_damage(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError, MemoryError) as error:
        if cause := outer_cause(f"cannot read {name}", error):
            raise cause from error
        raise SourceFileError(
            f"{name} is not an Arrow IPC stream, or is damaged ({error}). Write it again, or name a file."
        ) from error
