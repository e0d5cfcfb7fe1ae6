"""A Spark DataFrame as the source: its tasks write its rows to Arrow files once; it is never collected.

Spark has fewer types than Parquet, and its rows have no fixed order. If Spark cannot send a column in the type of the
dataset, the column gets that type if all values fit. Options that depend on the order of rows raise if the query has no
order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import to_numpy
from fsspeckit.common.errors import SchemaMismatchError, UnsupportedDataError
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.kernels.exchange.summarize_source import CheckCasts, raise_first_failure
from fsspeckit.core.parquet.writer_options import check_distinct
from fsspeckit.core.storage import Storage
from fsspeckit.datasets.spark.errors import translated
from fsspeckit.datasets.spark.executor_check import portable
from fsspeckit.datasets.spark.frames import spark_type
from fsspeckit.datasets.spark.job_progress import Counted, OnTasks
from fsspeckit.datasets.spark.jobs import collect, run_items
from fsspeckit.datasets.spark.shared_source import SharedSource, SpillFile, spilled
from fsspeckit.datasets.spark.tasks import SpillRows
from fsspeckit.datasets.spark.versions import arrow_schema, is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NO_PARQUET = {
    "variant": "to_json(column)",
    "yearmonthinterval": "months as a number",
    "calendarinterval": "an INTERVAL DAY TO SECOND",
    "geometry": "st_asbinary(column)",
    "geography": "st_asbinary(column)",
}
_TREE = re.compile(r"^[\s:+\-*()\d]+")
_OWN_PYTHON = re.compile(r"MapInArrow ReadFiles\(")  # its input is file numbers, see `frames.frame_of_files`
_PYTHON = re.compile("Python|InArrow|InPandas|RDD")  # the plan does not show what an RDD computes
_LARGE_TYPES = {"binary", "array", "map", "struct"}
_BATCH_SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "400",  # strings of 1 MB still fit; fewer rows are slower
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}


@dataclass(frozen=True, slots=True)
class FrameSource(SharedSource):
    """Rows of a DataFrame, in files."""

    frame: DataFrame

    @property
    def ordered(self) -> bool:
        """Whether the rows of the query have an order: as read, or sorted at the end."""
        return has_order(_plan_text(self.frame))

    def schema_for(self, target: pa.Schema | None) -> pa.Schema:
        """Return the schema with the target's types for columns whose type Spark lacks, if all values fit."""
        known = pa.schema([]) if target is None else target
        fields = [
            self._field_for(own, known.field(own.name)) if own.name in known.names else own for own in self.schema
        ]
        return pa.schema(fields, self.schema.metadata)

    def check_casts(
        self,
        schema: pa.Schema,
        *,
        operation: str,
        path: str,
        without: npt.NDArray[np.bool_] | None = None,
        compared: pa.Schema | None = None,
    ) -> None:
        """Raise if a value does not fit its type in ``schema``; executors read the rows of a large source."""
        if self.exchange_folder is None or without is not None or compared is not None:
            Source.check_casts(self, schema, operation=operation, path=path, without=without, compared=compared)
            return
        known = pa.schema([field for field in schema if field.name in self.schema.names])
        pieces = self.pieces(known.names)
        check = CheckCasts(known, operation, path)
        raise_first_failure(run_items(self.frame.sparkSession, check, pieces, len(pieces), lambda _: None))

    def _field_for(self, own: pa.Field, wanted: pa.Field) -> pa.Field:
        try:
            if wanted.type == own.type or spark_type(wanted.type) != spark_type(own.type):
                return own
            claimed = own.with_type(wanted.type)
            self.check_casts(pa.schema([claimed]), operation="merge", path="")
        except SchemaMismatchError:
            return own
        return claimed


def share_frame(
    spark: SparkSession, frame: DataFrame, storage: Storage, folder: str, share_limit: int, on_tasks: OnTasks
) -> SharedSource:
    """Write the rows of a DataFrame to Arrow files in its tasks; the driver gets only paths and counts."""
    if frame.isStreaming:
        raise UnsupportedDataError("a streaming DataFrame has no end; pass a batch one, or merge inside foreachBatch")
    with translated():
        check_types(frame.schema)
        schema = arrow_schema(frame.schema)
        check_distinct(schema, "source")
    source = spilled(_spill_rows(spark, frame, storage, folder, on_tasks), schema, storage, share_limit)
    return FrameSource(source.table, source.handle, share_limit, frame)


def _spill_rows(
    spark: SparkSession, frame: DataFrame, storage: Storage, folder: str, on_tasks: OnTasks
) -> list[SpillFile]:
    """Write the rows of a DataFrame to Arrow files.

    Spark resolves columns by name, which fails for dots, backticks and names that differ only in case. The columns are
    therefore renamed for Spark and have their own names in the files.
    """
    names = list(frame.columns)
    with translated():
        plain = frame.toDF(*(f"c{i}" for i in range(len(names))))
        spill = portable(spark, SpillRows(storage, folder, names))
        written = plain.mapInArrow(spill, "part long, rows long, size long, path binary")
    counted = Counted(on_tasks)
    with small_batches(frame):
        answers = collect(frame.sparkSession, written, counted)
    counted.all()
    parts, rows, sizes = (to_numpy(answers[name]).tolist() for name in ("part", "rows", "size"))
    paths = [path.decode() for path in answers["path"].to_pylist()]
    found = sorted(zip(parts, paths, rows, sizes, strict=True))
    return [SpillFile(path, count, size) for _, path, count, size in found]


@contextmanager
def small_batches(frame: DataFrame) -> Iterator[None]:
    """Limit Arrow batches by row count, so that Spark does not compute the batch size after every row.

    That computation takes as long as the rest of the transfer to Python. The setting applies to the jobs of this
    thread, not to the session. If the caller has set either limit, both are kept.
    """
    if not _can_limit_batches(frame):
        yield
        return
    from py4j.protocol import Py4JError  # Spark Connect clients may not have it

    context: Any = frame.sparkSession.sparkContext
    before = {name: context.getLocalProperty(name) for name in _BATCH_SETTINGS}
    try:
        for name, value in _BATCH_SETTINGS.items():
            context.setLocalProperty(name, value)
        yield
    finally:
        with suppress(Py4JError, OSError, AttributeError):  # a stopped session has nothing to restore
            for name, own in before.items():
                context.setLocalProperty(name, own)


def _can_limit_batches(frame: DataFrame) -> bool:
    """Return whether batches of few rows are small and no Python code of the query receives them."""
    spark = frame.sparkSession
    if is_remote(spark) or os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        return False
    if any(spark.conf.get(name, None) for name in _BATCH_SETTINGS):
        return False
    names = {name for field in frame.schema for name in _type_names(field.dataType.jsonValue())}
    return not names & _LARGE_TYPES and not _PYTHON.search(_OWN_PYTHON.sub("", _plan_text(frame)))


def check_types(schema: Any) -> None:
    """Raise for columns of types that plain Parquet lacks: they would be read as another type."""
    for field in schema:
        for name in _type_names(field.dataType.jsonValue()):
            if name in _NO_PARQUET:
                raise UnsupportedDataError(
                    f"column {field.name!r} has the Spark type {field.dataType.simpleString()}, which plain Parquet "
                    f"lacks; store it as {_NO_PARQUET[name]}, or leave it out"
                )


def _type_names(described: Any) -> Iterator[str]:
    """Yield the names of a type and of its nested types, from Spark's JSON description."""
    if isinstance(described, str):
        yield (
            "yearmonthinterval"
            if described.startswith("interval ") and _is_months(described)
            else _base_name(described)
        )
    elif isinstance(described, dict):
        inner = ("type", "elementType", "keyType", "valueType", "fields", "sqlType")
        for part in (described[key] for key in inner if key in described):
            yield from _type_names(part)
    elif isinstance(described, list):
        for part in described:
            yield from _type_names(part)


def _is_months(described: str) -> bool:
    return "year" in described or "month" in described


def _base_name(described: str) -> str:
    """Return a type name without parameters; Spark names a calendar interval ``interval``."""
    name = described.partition("(")[0]
    return "calendarinterval" if name == "interval" else name


def _plan_text(frame: DataFrame) -> str:
    untyped: Any = frame
    with translated():
        if is_remote(frame.sparkSession):
            return str(untyped._explain_string())
        return str(untyped._jdf.queryExecution().executedPlan().toString())


def has_order(plan: str) -> bool:
    """Return whether a physical plan has ordered rows: from the top, a global sort precedes any shuffle."""
    for node in (_TREE.sub("", line) for line in plan.splitlines()):
        if node.startswith("TakeOrderedAndProject") or re.match(r"Sort \[.*\], true\b", node):
            return True
        if "Exchange" in node.partition(" ")[0] and not node.startswith("BroadcastExchange"):
            return False
    return True
