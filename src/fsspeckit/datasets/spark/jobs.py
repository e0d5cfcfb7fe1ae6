"""Running items on executors: one Spark job, one Spark row for each bundle of items, results back as bytes.

The same on classic Spark and on Spark Connect: a range, ``mapInArrow``, ``toArrow``. An error that we expect travels
back as a result and is raised here with its own type; anything else fails the Spark task, which Spark tries again.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import binary_array, to_arrow, to_numpy
from fsspeckit.common.errors import FsspeckitError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
_R = TypeVar("_R")
_EXPECTED = (FsspeckitError, ValueError, TypeError, KeyError, FileNotFoundError, PermissionError)


def run_items(spark: SparkSession, function: Callable[[_T], _R], items: Sequence[_T], bundles: int) -> list[_R]:
    """Apply a function to all items on the executors, in the given number of Spark tasks, and keep their order."""
    if not items:
        return []
    count = max(1, min(bundles, len(items)))
    packed = [pickle.dumps(list(items[i::count])) for i in range(count)]
    body = _Body(function, packed)
    frame = spark.range(0, count, 1, count).mapInArrow(body, "number long, result binary")
    answers = _collect(spark, frame)
    results: list[Any] = [None] * len(items)
    for number, answer in answers.items():
        results[number::count] = _unpack(answer)
    return results


class _Body:
    """What each Spark task does; picklable by reference, so executors need this package."""

    def __init__(self, function: Callable[[Any], Any], packed: list[bytes]) -> None:
        self._function, self._packed = function, packed

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in to_numpy(batch.column(0)).tolist():
                answer = binary_array([self._answer(number)], pa.binary())
                yield pa.RecordBatch.from_arrays([to_arrow(np.array([number])), answer], ["number", "result"])

    def _answer(self, number: int) -> bytes:
        try:
            return pickle.dumps([self._function(item) for item in pickle.loads(self._packed[number])])  # noqa: S301
        except _EXPECTED as error:
            return pickle.dumps(error)


def _collect(spark: SparkSession, frame: Any) -> dict[int, bytes]:
    """Run the job; when the caller gives up, so does Spark."""
    tag = f"fsspeckit-{uuid.uuid4().hex}"
    spark.addTag(tag)
    try:
        table = frame.toArrow()
    except KeyboardInterrupt:
        spark.interruptTag(tag)
        raise
    finally:
        spark.removeTag(tag)
    numbers = to_numpy(table["number"]).tolist()
    return dict(zip(numbers, table["result"].to_pylist(), strict=True))


def _unpack(answer: bytes) -> list[Any]:
    found = pickle.loads(answer)  # noqa: S301 - made by our own tasks in this job
    if isinstance(found, BaseException):
        raise found
    return list(found)
