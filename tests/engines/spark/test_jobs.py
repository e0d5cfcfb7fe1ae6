"""Jobs as their caller sees them: progress while they run, cancelling, errors in a few words, a session left alone."""

from __future__ import annotations

import pickle
import threading
import time

import numpy as np
import pyarrow as pa
import pytest

from fsspeckit.common.errors import KeyColumnError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark.errors import (
    ExecutorSetupError,
    SparkJobCancelledError,
    SparkJobError,
    explain,
    translated,
)
from fsspeckit.datasets.spark.executor_check import check_executors
from fsspeckit.datasets.spark.jobs import pack, run_items
from inside import LocalStorage

pytestmark = pytest.mark.more

UPSERT = {"strategy": "upsert", "key_columns": ["id"]}


def settings(spark):
    own = dict(spark.sparkContext.getConf().getAll()) | dict(spark.conf.getAll)
    local = [spark.sparkContext.getLocalProperty(name) for name in ("spark.jobGroup.id", "spark.job.tags")]
    return own, local, spark.getTags()


def slow(spark, seconds: float = 30.0):
    """A frame whose rows take their time."""

    def wait(batches):
        import time

        for batch in batches:
            time.sleep(seconds)
            yield batch

    return spark.range(4).selectExpr("id", "id as v").mapInArrow(wait, "id long, v long")


def test_progress_moves_while_the_job_runs(spark):
    told: list[tuple[float, int]] = []
    started = time.monotonic()
    tasks = 4 * spark.sparkContext.defaultParallelism
    items = [0.3] * tasks * 2
    run_items(spark, time.sleep, items, tasks, lambda n: told.append((time.monotonic() - started, n)))
    ended = time.monotonic() - started
    assert sum(count for _, count in told) == len(items)
    assert len(told) >= 3
    assert ended - told[0][0] > 0.5


def test_a_bar_is_drawn(io, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr("rich._console", None)  # one that an earlier test made would not look at the terminal again
    io.write_dataset(pa.table({"id": [1]}), tmp_path / "t", progress=True)
    assert "write: write" in capsys.readouterr().out


def test_a_callback_that_fails_stops_the_job(spark):
    class Enough(Exception):
        pass

    def complain(count: int) -> None:
        raise Enough

    tasks = 20 * spark.sparkContext.defaultParallelism
    with pytest.raises(Enough):
        run_items(spark, time.sleep, [0.5] * tasks, tasks, complain)
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []


def test_a_cancelled_job_group_leaves_the_old_dataset(io, spark, tmp_path):
    path, context = tmp_path / "t", spark.sparkContext
    io.write_dataset(pa.table({"id": [1], "v": [1]}), path)
    before = {file: file.read_bytes() for file in path.iterdir()}
    context.setJobGroup("mine", "the caller's own")
    try:
        killer = threading.Timer(1.5, context.cancelJobGroup, ["mine"])
        killer.start()
        with pytest.raises(SparkJobCancelledError, match="run the operation again"):
            io.merge(slow(spark), path, **UPSERT)
        killer.join()
        assert context.getLocalProperty("spark.jobGroup.id") == "mine"
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)
    assert {file: file.read_bytes() for file in path.iterdir()} == before
    assert not PyarrowDatasetIO().recover(path)
    assert [entry.name for entry in (tmp_path / ".t.fsspeckit").iterdir() if "staging" in entry.name] == []


def test_a_session_of_the_caller_stays_as_it_is(io, spark, tmp_path):
    before = settings(spark)
    frame = spark.range(10).selectExpr("id", "id as v")
    io.write_dataset(frame, tmp_path / "t")
    io.merge(frame, tmp_path / "t", **UPSERT)
    io.read(tmp_path / "t").count()
    with pytest.raises(SparkJobError):
        io.merge(spark.range(1).selectExpr("id", "cast(raise_error('no') as bigint) as v"), tmp_path / "t", **UPSERT)
    assert settings(spark) == before


def test_a_source_that_fails_is_named_in_a_few_words(io, spark, tmp_path):
    def fail(batches):
        raise RuntimeError("the sensor is broken")

    frame = spark.range(3).mapInArrow(fail, "id long")
    with pytest.raises(SparkJobError, match="the sensor is broken") as caught:
        io.write_dataset(frame, tmp_path / "t")
    message = str(caught.value)
    assert len(message) < 300
    assert "\n" not in message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


NO_PYARROW = "x\nModuleNotFoundError: No module named 'pyarrow'\n SQLSTATE: 38000\n\tat org"
NO_SPACE = "Traceback\n  File x\nOSError: [Errno 28] No space left on device\n\nJVM stacktrace:\nx"
LOST = "Job aborted: Lost task 0.3 (TID 3) s3://key:secret@bucket/x?sig=1\n\nDriver stacktrace:\n"
GROUP = "[SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group mine"


def test_what_spark_says_becomes_a_short_error():
    for said, kind, words in (
        (NO_PYARROW, ExecutorSetupError, "PYSPARK_PYTHON"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", ExecutorSetupError, "same version"),
        (GROUP, SparkJobCancelledError, "cancelled"),
        ("[OPERATION_CANCELED] operation has been canceled. SQLSTATE: HY008", SparkJobCancelledError, "cancelled"),
        (NO_SPACE, SparkJobError, "No space left"),
        (LOST, SparkJobError, "Lost task"),
        ("", SparkJobError, "no reason"),
    ):
        error = explain(said)
        assert type(error) is kind
        assert words in str(error)
        assert "secret" not in str(error)
        assert "stacktrace" not in str(error)


def test_ctrl_c_stays_ctrl_c_when_spark_puts_an_error_on_top():
    from pyspark.errors import PySparkRuntimeError

    def give_up():
        try:
            raise KeyboardInterrupt
        finally:
            raise PySparkRuntimeError("Job 1 cancelled as part of cancellation of all jobs")

    with pytest.raises(KeyboardInterrupt), translated():
        give_up()


class NeedsMore(LocalStorage):
    """A storage that cannot be opened where its package is missing."""

    is_local = False

    def __reduce__(self):
        return __import__, ("a_package_of_the_driver",)


class Broken(NeedsMore):
    def __reduce__(self):
        return pickle.loads, (b"nonsense",)


@pytest.mark.parametrize(("storage", "words"), [(NeedsMore(), "a_package_of_the_driver"), (Broken(), "cannot open")])
def test_a_storage_that_executors_cannot_open(spark, storage, words):
    with pytest.raises(ExecutorSetupError, match=words):
        check_executors(spark, storage, pytest.fail)


def test_executors_are_asked_once_for_a_storage(io, spark, tmp_path):
    io.write_dataset(pa.table({"id": [1]}), tmp_path / "t")
    jobs = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    check_executors(spark, LocalStorage(), pytest.fail)
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) == jobs


def test_much_work_goes_in_several_jobs(spark, monkeypatch):
    monkeypatch.setattr("fsspeckit.datasets.spark.jobs._JOB_BYTES", 1000)
    told: list[int] = []
    items = ["x" * 300 + str(number) for number in range(21)]
    assert run_items(spark, len, items, 7, told.append) == [len(item) for item in items]
    assert sum(told) == len(items)


def test_row_numbers_travel_as_they_are():
    three, short = np.arange(3000), np.arange(1000, dtype=np.int32)
    for numbers in (
        *(three[::3], three[::-1].copy(), three * 10**7, three * -1, np.zeros(1000, dtype=np.int64), np.arange(5)),
        *(np.empty(0, dtype=np.int64), short, three.reshape(1500, 2), np.array(7), np.linspace(0, 1, 1000)),
    ):
        (packed,) = pack([{"rows": numbers}], 1)
        (found,) = pickle.loads(packed)
        assert found["rows"].dtype == numbers.dtype
        np.testing.assert_array_equal(found["rows"], numbers)


def test_row_numbers_travel_in_few_bytes():
    matched = np.flatnonzero(np.random.default_rng(1).random(100_000) < 0.4)
    (packed,) = pack([(matched, np.random.default_rng(2).permutation(len(matched)))], 1)
    assert len(packed) < 100_000 / 8 + 4 * len(matched) + 2_000


def _refuse_some(item: int) -> int:
    if item in (6, 4, 8):
        raise KeyColumnError(f"item {item} is refused")
    return item


def test_the_error_of_the_first_item_is_raised(spark):
    """Each Spark task has every third item, and the first task has another error."""
    with pytest.raises(KeyColumnError, match="item 4 is refused"):
        run_items(spark, _refuse_some, range(10), 3, lambda _: None)
