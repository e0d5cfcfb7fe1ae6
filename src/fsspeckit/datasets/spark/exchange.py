"""Shuffle Arrow tables between executors as serialized binary values, which preserves every Arrow type.

Map tasks split tables by part and pass each piece to Spark as one Arrow IPC stream in a binary column.
Spark's shuffle sends the pieces of a part to one task, which deserializes them. The JVM handles a few large binary
values and no rows. If all tasks run on one machine, the pieces can be in local files, and the binary values hold path,
offset and size.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
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
_EMPTY_PART, _FAILED = -1, -2
_CELLS = "slot int, part int, item long, piece long, blob binary"
_HASH_SEED = 42


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
    """Run ``split`` over items and ``gather`` over parts, as `fsspeckit.core.engine.protocol.Engine.exchange` defines.

    With ``folder``, a local folder that all tasks can open, the pieces are written there. The caller deletes it.
    """
    if parts == 0:
        return []
    count = max(1, min(tasks, len(items)))
    cells = spark.range(0, count, 1, count).mapInArrow(
        portable(spark, _SplitBody(split, pack(list(enumerate(items)), count), parts, folder)), _CELLS
    )
    routed = cells.repartition(parts, "slot")
    body = _GatherBody(gather, _read_ipc if folder is None else _read_file_piece)
    gathered = routed.mapInArrow(portable(spark, body), "number long, result binary")
    progress = TaskProgress(len(items) + parts, count + parts, on_done)
    answers = collect(spark, gathered, lambda ended, _: progress.tasks(ended))
    progress.tasks(count + parts)
    results: list[Any] = [None] * parts
    for number, answer in zip(to_numpy(answers["number"]).tolist(), answers["result"].to_pylist(), strict=True):
        results[number] = unpack(answer)[0]
    return results


@dataclass(frozen=True, slots=True)
class _SplitBody:
    """Splits items into cells. The first task sends an empty cell to every part, so parts without rows are gathered."""

    split: Split
    packed: list[bytes]
    parts: int
    folder: str | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in to_numpy(batch.column(0)).tolist():
                slots = part_slots(self.parts)
                if number == 0:
                    for part in range(self.parts):
                        yield _cell(slots, part, _EMPTY_PART, 0, b"")
                yield from self._cells(number, slots)

    def _cells(self, number: int, slots: list[int]) -> Iterator[pa.RecordBatch]:
        try:
            with ExitStack() as stack:
                serialize = _ipc_streams if self.folder is None else stack.enter_context(_PieceFile(self.folder)).add
                for item_number, item in pickle.loads(self.packed[number]):  # noqa: S301 - written by the driver of this job
                    piece = 0
                    for part, table in self.split(item):
                        for blob in serialize(table):
                            yield _cell(slots, part, item_number, piece, blob)
                            piece += 1
        except EXPECTED as error:
            yield _cell(slots, 0, _FAILED, number, pickle.dumps(error))


@dataclass(frozen=True, slots=True)
class _GatherBody:
    """Deserializes the cells of each part, in the order of items and pieces."""

    gather: Gather
    read: Callable[[pa.Buffer], pa.Table]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cells: dict[int, list[tuple[int, int, pa.Buffer]]] = {}
        for batch in batches:
            parts, items, pieces = (to_numpy(batch.column(i)).tolist() for i in range(1, 4))
            blobs = [cell.as_buffer() for cell in batch.column(4)]
            for part, *cell in zip(parts, items, pieces, blobs, strict=True):
                cells.setdefault(part, []).append((cell[0], cell[1], cell[2]))
        for part, found in sorted(cells.items()):
            yield _result_row(part, self._result(part, sorted(found, key=lambda cell: cell[:2])))

    def _result(self, part: int, cells: list[tuple[int, int, pa.Buffer]]) -> bytes:
        failed = [blob for item, _, blob in cells if item == _FAILED]
        if failed:
            return bytes(failed[0])
        try:
            return pickle.dumps([self.gather(part, (self.read(blob) for item, _, blob in cells if item >= 0))])
        except EXPECTED as error:
            return pickle.dumps(error)


def _ipc_streams(table: pa.Table) -> Iterator[bytes]:
    """Serialize a table as Arrow IPC streams of limited size."""
    if table.num_rows == 0:
        return
    step = max(1, table.num_rows * _BLOB_BYTES // max(_BLOB_BYTES, table.nbytes))
    for start in range(0, table.num_rows, step):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table.slice(start, step))
        yield sink.getvalue().to_pybytes()


def _read_ipc(blob: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(blob).read_all()


class _PieceFile:
    """The pieces of one task attempt in one file; the file of a failed attempt is not read."""

    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/{uuid.uuid4().hex}.arrow"

    def __enter__(self) -> Self:
        with _report_missing_file(self._path):
            self._sink = pa.OSFile(self._path, "wb")
        return self

    def __exit__(self, *_: object) -> None:
        self._sink.close()

    def add(self, table: pa.Table) -> Iterator[bytes]:
        """Write a table; yield its path, offset and size."""
        if table.num_rows:
            start = self._sink.tell()
            with pa.ipc.new_stream(self._sink, table.schema) as writer:
                writer.write_table(table)
            yield pickle.dumps((self._path, start, self._sink.tell() - start))


def _read_file_piece(blob: pa.Buffer) -> pa.Table:
    path, start, size = pickle.loads(blob)  # noqa: S301 - written by the tasks of this job
    with _report_missing_file(path), pa.memory_map(path) as file:
        file.seek(start)
        return pa.ipc.open_stream(file.read_buffer(size)).read_all()


@contextmanager
def _report_missing_file(path: str) -> Iterator[None]:
    """Raise `StorageError` if the folder of the pieces was deleted; otherwise it looks like a change of the dataset."""
    try:
        yield
    except FileNotFoundError as error:
        raise StorageError(
            f"exchanging rows: {path} is gone, something has emptied Spark's temporary folder meanwhile; run it again"
        ) from error


def part_slots(parts: int) -> list[int]:
    """Return for each part an integer that Spark's hash partitioning sends to the partition of that number.

    Spark hashes a 32-bit integer with Murmur3 and takes the remainder. `repartitionById`, which needs no hash, exists
    since PySpark 4.1.
    """
    count = 16 * parts
    while True:
        target = _murmur3(np.arange(count, dtype=np.uint32)).astype(np.int64) % parts
        found, first = np.unique(target, return_index=True)
        if len(found) == parts:
            return [int(slot) for slot in first]
        count *= 2


def _murmur3(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
    """Return Spark's hash of 32-bit integers."""
    mixed = _rotated(values * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    result = _rotated(mixed ^ np.uint32(_HASH_SEED), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    result ^= np.uint32(4)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        result = (result ^ (result >> np.uint32(shift))) * np.uint32(factor)
    return (result ^ (result >> np.uint32(16))).view(np.int32)


def _rotated(values: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))


def _cell(slots: list[int], part: int, item: int, piece: int, blob: bytes) -> pa.RecordBatch:
    short = [to_arrow(np.array([n], dtype=np.int32)) for n in (slots[part], part)]
    numbers = [*short, *(to_arrow(np.array([n])) for n in (item, piece))]
    names = ["slot", "part", "item", "piece", "blob"]
    return pa.RecordBatch.from_arrays([*numbers, binary_array([blob], pa.binary())], names)


def _result_row(part: int, result: bytes) -> pa.RecordBatch:
    columns = [to_arrow(np.array([part])), binary_array([result], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, ["number", "result"])
