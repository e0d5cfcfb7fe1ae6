"""Run items on executors: one Spark row for each bundle of items, results as bytes.

Spark sends all bundles of a job to each of its tasks, so the bytes of one job are limited; usually there is one job.

Classic Spark and Spark Connect use the same code: a range, ``mapInArrow``, an Arrow table. Expected errors are returned
as results and raised on the driver with their own type; any other error fails the Spark task, which Spark retries.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from fsspeckit.datasets.spark.versions import to_arrow_table

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
    """Apply a function to all items on the executors, in the given number of Spark tasks, and keep the order."""
    if not items:
        return []
    count = max(1, min(bundles, len(items)))
    packed = pack(items, count)
    progress = TaskProgress(len(items), count, on_done)
    results: list[Any] = [None] * len(items)
    for job in _jobs(packed):
        body = portable(spark, _Body(function, {number: packed[number] for number in job}))
        frame = spark.range(job.start, job.stop, 1, len(job)).mapInArrow(body, "number long, result binary")
        answers = collect(spark, frame, lambda ended, _, before=job.start: progress.tasks(before + ended))  # type: ignore[misc]
        numbers = to_numpy(answers["number"]).tolist()
        place_results(dict(zip(numbers, answers["result"].to_pylist(), strict=True)), results, count)
        progress.tasks(job.stop)
    return results


def place_results(answers: Mapping[int, bytes], results: list[Any], count: int) -> None:
    """Put the results of bundles where their items are; ``count`` is the number of all bundles.

    Raise the error of the first item that has one.
    """
    found = {number: pickle.loads(answer) for number, answer in answers.items()}  # noqa: S301 - written by this job
    failed = [(number + each.done * count, each.error) for number, each in found.items() if isinstance(each, _Failed)]
    if failed:
        raise min(failed, key=lambda each: each[0])[1]
    for number, answer in found.items():
        results[number::count] = answer


def _jobs(packed: Sequence[bytes]) -> list[range]:
    """Group adjacent bundles into jobs of at most about `_JOB_BYTES`."""
    ends = np.cumsum([len(bundle) for bundle in packed])
    cuts = np.flatnonzero(np.diff(ends // _JOB_BYTES)) + 1
    return [range(a, b) for a, b in zip([0, *cuts.tolist()], [*cuts.tolist(), len(packed)], strict=True)]


def pack(items: Sequence[Any], count: int) -> list[bytes]:
    """Distribute items to the given number of tasks and pickle each share."""
    return [_packed(list(items[i::count])) for i in range(count)]


def _packed(items: list[Any]) -> bytes:
    sink = io.BytesIO()
    _Packer(sink, pickle.HIGHEST_PROTOCOL).dump(items)
    return sink.getvalue()


class _Packer(pickle.Pickler):
    """Pickles arrays of row numbers, the largest part of tasks, compactly: as a bitmap if dense, else as uint32."""

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
    """Run a job with progress reports, cancellation and typed errors."""
    with watched(spark, on_tasks):
        return to_arrow_table(frame)


class TaskProgress:
    """Converts counts of ended Spark tasks to counts of finished items; reports each item once."""

    def __init__(self, items: int, tasks: int, on_done: OnDone) -> None:
        self._items, self._tasks, self._on_done, self._done = items, tasks, on_done, 0

    def tasks(self, ended: int) -> None:
        """Report the number of Spark tasks that have ended."""
        done = self._items * min(ended, self._tasks) // self._tasks
        if done > self._done:
            new, self._done = done - self._done, done
            self._on_done(new)


@dataclass(frozen=True, slots=True)
class _Failed:
    """The error of an item of a bundle, and the number of items before it."""

    done: int
    error: Exception


class _Body:
    """The function of each Spark task: apply the function to its items."""

    def __init__(self, function: Callable[[Any], Any], packed: dict[int, bytes]) -> None:
        self._function, self._packed = function, packed

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in to_numpy(batch.column(0)).tolist():
                answer = binary_array([self._answer(number)], pa.binary())
                yield pa.RecordBatch.from_arrays([to_arrow(np.array([number])), answer], ["number", "result"])

    def _answer(self, number: int) -> bytes:
        found: list[Any] = []
        try:
            for item in pickle.loads(self._packed[number]):  # noqa: S301 - written by the driver of this job
                found.append(self._function(item))  # noqa: PERF401 - a failure tells how many are done
        except EXPECTED as error:
            return pickle.dumps(_Failed(len(found), error))
        return pickle.dumps(found)


def unpack(answer: bytes) -> list[Any]:
    """Return the results of one task; raise if the task returned an error."""
    found = pickle.loads(answer)  # noqa: S301 - written by the tasks of this job
    if isinstance(found, BaseException):
        raise found
    return list(found)
