"""Running items on executors: one Spark row for each bundle of items, results back as bytes.

A Spark task is sent all bundles of its job, so a job has only so many bytes of them; mostly there is one job.

The same on classic Spark and on Spark Connect: a range, ``mapInArrow``, ``toArrow``. An error that we expect travels
back as a result and is raised here with its own type; anything else fails the Spark task, which Spark tries again.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import binary_array, to_arrow, to_numpy
from fsspeckit.common.errors import FsspeckitError
from fsspeckit.core.engine.protocol import OnDone
from fsspeckit.core.values.keys import is_increasing
from fsspeckit.datasets.spark.executor_check import portable
from fsspeckit.datasets.spark.job_progress import OnTasks, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_T = TypeVar("_T")
_R = TypeVar("_R")
_JOB_BYTES = 32 * 1024 * 1024
_MANY_NUMBERS = 100
EXPECTED = (FsspeckitError, ValueError, TypeError, KeyError, FileNotFoundError, PermissionError)


def run_items(
    spark: SparkSession, function: Callable[[_T], _R], items: Sequence[_T], bundles: int, on_done: OnDone
) -> list[_R]:
    """Apply a function to all items on the executors, in the given number of Spark tasks, and keep their order."""
    if not items:
        return []
    count = max(1, min(bundles, len(items)))
    packed = pack(items, count)
    told = TaskProgress(len(items), count, on_done)
    results: list[Any] = [None] * len(items)
    for job in _jobs(packed):
        body = portable(spark, _Body(function, {number: packed[number] for number in job}))
        frame = spark.range(job.start, job.stop, 1, len(job)).mapInArrow(body, "number long, result binary")
        answers = collect(spark, frame, lambda ended, _, before=job.start: told.tasks(before + ended))  # type: ignore[misc]
        numbers = to_numpy(answers["number"]).tolist()
        for number, answer in zip(numbers, answers["result"].to_pylist(), strict=True):
            results[number::count] = unpack(answer)
        told.tasks(job.stop)
    return results


def _jobs(packed: Sequence[bytes]) -> list[range]:
    """Neighbouring bundles, as many as one job may carry."""
    ends = np.cumsum([len(bundle) for bundle in packed])
    cuts = np.flatnonzero(np.diff(ends // _JOB_BYTES)) + 1
    return [range(a, b) for a, b in zip([0, *cuts.tolist()], [*cuts.tolist(), len(packed)], strict=True)]


def pack(items: Sequence[Any], count: int) -> list[bytes]:
    """Items dealt out to the given number of tasks."""
    return [_packed(list(items[i::count])) for i in range(count)]


def _packed(items: list[Any]) -> bytes:
    sink = io.BytesIO()
    _Packer(sink, pickle.HIGHEST_PROTOCOL).dump(items)
    return sink.getvalue()


class _Packer(pickle.Pickler):
    """Writes row numbers, most of what tasks carry, in few bytes: as bits where they are close, else short."""

    def reducer_override(self, item: Any) -> Any:
        if type(item) is not np.ndarray or item.dtype != np.int64 or item.ndim != 1:
            return NotImplemented
        if len(item) < _MANY_NUMBERS or item.min() < 0:
            return NotImplemented
        highest = int(item.max())
        if highest < 32 * len(item) and is_increasing(item):
            bits = np.zeros(highest + 1, dtype=bool)
            bits[item] = True
            return _from_bits, (np.packbits(bits),)
        return (_from_short, (item.astype(np.uint32),)) if highest < 1 << 32 else NotImplemented


def _from_bits(bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    return np.flatnonzero(np.unpackbits(bits))


def _from_short(numbers: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    return numbers.astype(np.int64)


def collect(spark: SparkSession, frame: DataFrame, on_tasks: OnTasks | None = None) -> pa.Table:
    """Run a job of ours: watched, cancelled when the caller gives up, with errors that say what to do."""
    with watched(spark, on_tasks):
        return frame.toArrow()


class TaskProgress:
    """Passes ended Spark tasks on as finished items, each once."""

    def __init__(self, items: int, tasks: int, on_done: OnDone) -> None:
        self._items, self._tasks, self._on_done, self._done = items, tasks, on_done, 0

    def tasks(self, ended: int) -> None:
        """So many Spark tasks have ended."""
        done = self._items * min(ended, self._tasks) // self._tasks
        if done > self._done:
            new, self._done = done - self._done, done
            self._on_done(new)


class _Body:
    """What each Spark task does."""

    def __init__(self, function: Callable[[Any], Any], packed: dict[int, bytes]) -> None:
        self._function, self._packed = function, packed

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in to_numpy(batch.column(0)).tolist():
                answer = binary_array([self._answer(number)], pa.binary())
                yield pa.RecordBatch.from_arrays([to_arrow(np.array([number])), answer], ["number", "result"])

    def _answer(self, number: int) -> bytes:
        try:
            return pickle.dumps([self._function(item) for item in pickle.loads(self._packed[number])])  # noqa: S301
        except EXPECTED as error:
            return pickle.dumps(error)


def unpack(answer: bytes) -> list[Any]:
    """The results of one task; an error among them is raised."""
    found = pickle.loads(answer)  # noqa: S301 - made by our own tasks in this job
    if isinstance(found, BaseException):
        raise found
    return list(found)
