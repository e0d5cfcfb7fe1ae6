"""Check that the executors can run tasks on a storage, and count the task slots.

One short job runs once for each session and storage. It checks that the versions of Python and pyarrow on the
executors fit those of the driver, that the executors can open the storage, and, for a local path on a cluster, that
they see the driver's files. If fsspeckit is missing there or has other sources, it is sent with every job.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from fsspeckit.common.errors import StorageError
from fsspeckit.common.text import scrub
from fsspeckit.core.storage import Storage
from fsspeckit.datasets.spark import package_shipping
from fsspeckit.datasets.spark.errors import ExecutorSetupError, invisible, missing_module
from fsspeckit.datasets.spark.job_progress import watched
from fsspeckit.datasets.spark.package_shipping import ExecutorProbe, Package, ShippedWork
from fsspeckit.datasets.spark.versions import is_remote, to_arrow_table
from fsspeckit.datasets.spark.worker_task import WorkerTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Probe = Callable[[], AbstractContextManager[str]]
_ROWS = 1 << 14


@dataclass(slots=True)
class _ExecutorState:
    """Results of the checks of a session: checked storages, the package to send, task slots."""

    storages: set[bytes] = field(default_factory=set)
    package: Package | None = None
    slots: int = 1


_sessions: WeakKeyDictionary[SparkSession, _ExecutorState] = WeakKeyDictionary()


def portable(spark: SparkSession, body: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for ``mapInArrow`` that the session's executors can run."""
    package = _sessions[spark].package if spark in _sessions else None
    work = WorkerTask(body)
    return work if package is None else ShippedWork(package, pickle.dumps(work))


def slots(spark: SparkSession) -> int:
    """Spark tasks that may run at once; for a remote session, as counted by `check_executors`."""
    if is_remote(spark):
        return _sessions[spark].slots if spark in _sessions else 1
    return int(spark.sparkContext.defaultParallelism)


def check_executors(spark: SparkSession, storage: Storage, probe: Probe) -> None:
    """Check that the executors can work on a storage.

    ``probe`` yields a file or folder of the storage with a unique name. It is called only if the storage is local and
    executors run on other machines.

    Raises:
        ExecutorSetupError: The executors cannot work on it; the message states the action to take.
    """
    check_shared(storage)
    known = _sessions.setdefault(spark, _ExecutorState())
    packed = pickle.dumps(storage)
    name = hashlib.sha256(packed).digest()
    if name in known.storages:
        return
    if storage.is_local and not is_one_machine(spark):
        with probe() as path:
            _probe_executors(spark, known, packed, path)
    else:
        _probe_executors(spark, known, packed, None)
    known.storages.add(name)


def check_shared(storage: Storage) -> None:
    """Raise if only this process can reach a storage."""
    if not storage.is_shared:
        raise StorageError(
            "this storage lives inside one process, where Spark's executors cannot reach it; "
            "use a path that they can open too, or the PyArrow engine"
        )


def is_one_machine(spark: SparkSession) -> bool:
    """Return whether the executors are threads of the driver's Java process."""
    return not is_remote(spark) and str(spark.sparkContext.master).partition("[")[0] == "local"


def _probe_executors(spark: SparkSession, known: _ExecutorState, storage: bytes, probe: str | None) -> None:
    ours = Package.of(sys.modules[package_shipping.NAME])
    answers = _answers(spark, ExecutorProbe(ours.digest, known.package, storage, probe))
    if known.package is None and any(answer.get("digest", ours.digest) != ours.digest for answer in answers):
        known.package = ours
        answers = _answers(spark, ExecutorProbe(ours.digest, ours, storage, probe))
    for answer in answers:
        _check(answer, probe)
    known.slots = len(answers)


def _answers(spark: SparkSession, probe: ExecutorProbe) -> list[dict[str, Any]]:
    """Run the probe in as many tasks as Spark starts by default, which is the number of task slots."""
    from pyspark.cloudpickle import register_pickle_by_value

    register_pickle_by_value(package_shipping)  # type: ignore[no-untyped-call,unused-ignore]
    with watched(spark):
        table = to_arrow_table(spark.range(_ROWS).mapInArrow(probe, "answer binary"))
    return [pickle.loads(answer) for answer in table["answer"].to_pylist()]  # noqa: S301 - written by the tasks of this job


def _check(answer: dict[str, Any], probe: str | None) -> None:
    where = f"the executor on {answer['host']}"
    if answer["python"] != sys.version_info[:2]:
        theirs, ours = (".".join(map(str, version)) for version in (answer["python"], sys.version_info[:2]))
        raise ExecutorSetupError(
            f"{where} runs Python {theirs} and the driver {ours}; set PYSPARK_PYTHON to the same version on all "
            "machines before the session starts"
        )
    if answer["pyarrow"].partition(".")[0] != pa.__version__.partition(".")[0]:
        raise ExecutorSetupError(
            f"{where} has pyarrow {answer['pyarrow']} and the driver {pa.__version__}; install the same version on "
            f"all machines: pip install pyarrow=={pa.__version__}"
        )
    if answer.get("lacks"):
        raise missing_module(answer["lacks"].partition(".")[0])
    if "failed" in answer:
        raise ExecutorSetupError(
            f"{where} cannot open the storage ({scrub(answer['failed'])}); install there what the driver has"
        )
    if probe is not None and not answer["sees"]:
        raise invisible(probe, answer["host"])
