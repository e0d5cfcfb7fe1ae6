"""The blob exchange: Arrow rows go from executor to executor as sealed packets, so every Arrow type survives.

Map tasks cut tables into pieces by part and hand them to Spark as binary cells; ``repartitionById`` brings the cells
of a part to one task, which opens them again. The JVM sees a few large cells and never a row of ours. Where all tasks
run on one machine the packets may stand in files of it, and the cells only say where.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import binary_array, to_arrow, to_numpy
from fsspeckit.common.errors import StorageError
from fsspeckit.core.engine.protocol import OnDone
from fsspeckit.datasets.spark.executor_check import portable
from fsspeckit.datasets.spark.jobs import EXPECTED, TaskProgress, collect, pack, unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
Split = Callable[[Any], Iterable[tuple[int, pa.Table]]]
Gather = Callable[[int, Iterator[pa.Table]], Any]
_BLOB_BYTES = 32 * 1024 * 1024
_OPENING, _FAILED = -1, -2
_CELLS = "part int, item long, piece long, blob binary"


def exchange(
    spark: SparkSession,
    split: Split,
    items: Sequence[_T],
    gather: Gather,
    parts: int,
    tasks: int,
    on_done: OnDone,
    folder: str | None = None,
) -> list[Any]:
    """Run ``split`` over items and ``gather`` over parts, as `fsspeckit.core.engine.Engine.exchange` says.

    With ``folder``, a place that all tasks share on a local disk, packets stand there until the caller deletes it.
    """
    if parts == 0:
        return []
    count = max(1, min(tasks, len(items)))
    cells = spark.range(0, count, 1, count).mapInArrow(
        portable(spark, _SplitBody(split, pack(list(enumerate(items)), count), parts, folder)), _CELLS
    )
    routed = cells.repartitionById(parts, cells["part"])
    body = _GatherBody(gather, _open if folder is None else _open_packet)
    gathered = routed.mapInArrow(portable(spark, body), "number long, result binary")
    told = TaskProgress(len(items) + parts, count + parts, on_done)
    answers = collect(spark, gathered, lambda ended, _: told.tasks(ended))
    told.tasks(count + parts)
    results: list[Any] = [None] * parts
    for number, answer in zip(to_numpy(answers["number"]).tolist(), answers["result"].to_pylist(), strict=True):
        results[number] = unpack(answer)[0]
    return results


@dataclass(frozen=True, slots=True)
class _SplitBody:
    """Cuts items into cells. The first task opens every part, so that also one without rows is gathered."""

    split: Split
    packed: list[bytes]
    parts: int
    folder: str | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in to_numpy(batch.column(0)).tolist():
                if number == 0:
                    for part in range(self.parts):
                        yield _cell(part, _OPENING, 0, b"")
                yield from self._cells(number)

    def _cells(self, number: int) -> Iterator[pa.RecordBatch]:
        try:
            with ExitStack() as stack:
                seal = _blobs if self.folder is None else stack.enter_context(_PacketFile(self.folder)).add
                for item_number, item in pickle.loads(self.packed[number]):  # noqa: S301 - made by our own driver
                    piece = 0
                    for part, table in self.split(item):
                        for blob in seal(table):
                            yield _cell(part, item_number, piece, blob)
                            piece += 1
        except EXPECTED as error:
            yield _cell(0, _FAILED, number, pickle.dumps(error))


@dataclass(frozen=True, slots=True)
class _GatherBody:
    """Opens the cells of each part, in the order of items and pieces."""

    gather: Gather
    open: Callable[[pa.Buffer], pa.Table]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cells: dict[int, list[tuple[int, int, pa.Buffer]]] = {}
        for batch in batches:
            parts, items, pieces = (to_numpy(batch.column(i)).tolist() for i in range(3))
            blobs = [cell.as_buffer() for cell in batch.column(3)]
            for part, *cell in zip(parts, items, pieces, blobs, strict=True):
                cells.setdefault(part, []).append((cell[0], cell[1], cell[2]))
        for part, found in sorted(cells.items()):
            yield _answer(part, self._result(part, sorted(found, key=lambda cell: cell[:2])))

    def _result(self, part: int, cells: list[tuple[int, int, pa.Buffer]]) -> bytes:
        failed = [blob for item, _, blob in cells if item == _FAILED]
        if failed:
            return bytes(failed[0])
        try:
            return pickle.dumps([self.gather(part, (self.open(blob) for item, _, blob in cells if item >= 0))])
        except EXPECTED as error:
            return pickle.dumps(error)


def _blobs(table: pa.Table) -> Iterator[bytes]:
    """A table as packets that Spark can carry well."""
    if table.num_rows == 0:
        return
    step = max(1, table.num_rows * _BLOB_BYTES // max(_BLOB_BYTES, table.nbytes))
    for start in range(0, table.num_rows, step):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table.slice(start, step))
        yield sink.getvalue().to_pybytes()


def _open(blob: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(blob).read_all()


class _PacketFile:
    """Packets of one task, one after the other in a file of their own; an attempt that fails leaves its file unused."""

    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/{uuid.uuid4().hex}.arrow"

    def __enter__(self) -> Self:
        with _naming_loss(self._path):
            self._sink = pa.OSFile(self._path, "wb")
        return self

    def __exit__(self, *_: object) -> None:
        self._sink.close()

    def add(self, table: pa.Table) -> Iterator[bytes]:
        """Write a table and tell where it is."""
        if table.num_rows:
            start = self._sink.tell()
            with pa.ipc.new_stream(self._sink, table.schema) as writer:
                writer.write_table(table)
            yield pickle.dumps((self._path, start, self._sink.tell() - start))


def _open_packet(blob: pa.Buffer) -> pa.Table:
    path, start, size = pickle.loads(blob)  # noqa: S301 - made by our own tasks
    with _naming_loss(path), pa.memory_map(path) as file:
        file.seek(start)
        return pa.ipc.open_stream(file.read_buffer(size)).read_all()


@contextmanager
def _naming_loss(path: str) -> Iterator[None]:
    """A folder of packets that is gone is no change of the dataset."""
    try:
        yield
    except FileNotFoundError as error:
        raise StorageError(
            f"exchanging rows: {path} is gone, something has emptied Spark's temporary folder meanwhile; run it again"
        ) from error


def _cell(part: int, item: int, piece: int, blob: bytes) -> pa.RecordBatch:
    numbers = [to_arrow(np.array([part], dtype=np.int32)), *(to_arrow(np.array([n])) for n in (item, piece))]
    names = ["part", "item", "piece", "blob"]
    return pa.RecordBatch.from_arrays([*numbers, binary_array([blob], pa.binary())], names)


def _answer(part: int, result: bytes) -> pa.RecordBatch:
    columns = [to_arrow(np.array([part])), binary_array([result], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, ["number", "result"])
