"""Conditions that each row must meet before it is written: count, drop or set aside the rows that do not.

The rows are computed once and stored by Spark's executors while the step runs, so that the counts, the kept rows and
the rows that are set aside agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from fsspeckit.common.errors import CheckFailedError, SchemaMismatchError
from fsspeckit.common.schema import reconcile
from fsspeckit.common.text import counted, scrub
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import full_schema, load_snapshot
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.datasets.spark.errors import translated_analysis
from fsspeckit.datasets.spark.job_progress import OnTasks, watched
from fsspeckit.datasets.spark.versions import arrow_schema
from fsspeckit.pipeline.parts import Expecting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FAILED = "__fsspeckit_failed"
REASON, STEP, RUN, ROW = "quarantine_reason", "quarantine_step", "quarantine_run", "quarantine_row"


@dataclass(frozen=True, slots=True)
class Sorted:
    """Rows by conditions: those to write, those that do not meet a condition, and the counts by condition."""

    kept: DataFrame
    failed: DataFrame
    failed_rows: int
    counts: dict[str, int]


@contextmanager
def sort_rows(expecting: Expecting, frame: DataFrame, what: str, on_tasks: OnTasks) -> Iterator[Sorted]:
    """Yield the rows of a step by its conditions; raise `CheckFailedError` if a row does not meet one and must."""
    from pyspark.sql import functions as sql

    conditions = expecting.expect or {}
    with translated_analysis(f"expect of {what}"):
        marked = marked_rows(frame, conditions).persist()
    try:
        counted = [sql.count_if(sql.array_contains(_FAILED, name)).alias(f"c{i}") for i, name in enumerate(conditions)]
        with watched(frame.sparkSession, on_tasks):
            row = marked.agg(sql.count_if(sql.size(_FAILED) > 0), *counted).first()
        assert row is not None
        counts = dict(zip(conditions, (int(count) for count in row[1:]), strict=True))
        failed = marked.filter(sql.size(_FAILED) > 0)
        kept = marked if expecting.on_fail == "warn" else marked.filter(sql.size(_FAILED) == 0)
        yield Sorted(kept.drop(_FAILED), failed, int(row[0]), counts)
    finally:
        marked.unpersist()


def marked_rows(frame: DataFrame, conditions: Mapping[str, str]) -> DataFrame:
    """Return rows with one more column: the names of the conditions that a row does not meet."""
    from pyspark.sql import functions as sql

    names = [
        sql.when(~sql.coalesce(sql.expr(text), sql.lit(False)), sql.lit(name)) for name, text in conditions.items()
    ]
    return frame.withColumn(_FAILED, sql.filter(sql.array(*names), lambda name: name.isNotNull()))


def refuse(found: Sorted, what: str) -> None:
    """Raise if a row does not meet a condition."""
    if found.failed_rows:
        broken = ", and ".join(f"{name} in {counted(count, 'row')}" for name, count in found.counts.items() if count)
        raise CheckFailedError(
            f"{what}: rows do not meet {broken}. Nothing was committed by this step; correct the rows, or set on_fail "
            "to 'drop' or 'quarantine'."
        )


def _check_free(names: Sequence[str]) -> None:
    taken = [name for name in names if name.lower() in (REASON, STEP, RUN, ROW)]
    if taken:
        raise CheckFailedError(f"the rows have the columns {taken}, which a quarantine adds; rename them")


def with_reason(found: Sorted, step: str, run: str) -> DataFrame:
    """Return the rows that do not meet a condition, with the conditions, the step, the run and an id of each row."""
    from pyspark.sql import functions as sql

    _check_free(found.failed.columns)
    reason = sql.array_join(_FAILED, ", ")
    added = {REASON: reason, STEP: sql.lit(step), RUN: sql.lit(run), ROW: sql.expr("uuid()")}
    return found.failed.withColumns(added).drop(_FAILED)


def quarantine_columns(rows: pa.Schema, known: pa.Schema | None, path: str) -> pa.Schema:
    """Return the columns of a quarantine with the columns ``known`` after such rows are set aside.

    Raises:
        SchemaMismatchError: A type does not fit that of the quarantine.
    """
    _check_free(rows.names)
    own = pa.schema([*rows, *(pa.field(name, pa.string()) for name in (REASON, STEP, RUN, ROW))])
    if known is None:
        return own
    if ROW not in known.names:
        raise SchemaMismatchError(f"it is no quarantine, since it lacks the column {ROW!r}. Name another dataset.")
    return reconcile(known, own, mode="evolve", operation="appending", path=scrub(path))


@contextmanager
def naming_quarantine(expecting: Expecting, path: str) -> Iterator[None]:
    """Name the quarantine and the conditions in errors about the columns of rows that are set aside."""
    try:
        yield
    except SchemaMismatchError as error:
        names = ", ".join(f"expect.{name}" for name in expecting.expect or ())
        raise SchemaMismatchError(
            f"rows that do not meet {names} do not fit the quarantine {expecting.quarantine!r} ({scrub(path)}): {error}"
        ) from error


def digest_of(found: Sorted) -> str:
    """Return a text that differs if other rows do not meet a condition."""
    from pyspark.sql import functions as sql

    value = sql.xxhash64(sql.to_json(sql.struct("*"))).cast("decimal(38, 0)")
    total = found.failed.select(value.alias("value")).agg(sql.sum("value")).collect()[0][0]
    return f"{found.failed_rows}-{int(total or 0) % 2**64:x}"


def set_aside(io: SparkDatasetIO, place: Place, rows: DataFrame) -> None:
    """Append rows to a quarantine. If their columns differ, the quarantine gets all columns of both."""
    path, snapshot = place.path, load_snapshot(place.storage, place.journal.view())
    own = arrow_schema(rows.drop(REASON, STEP, RUN, ROW).schema)
    quarantine_columns(own, None if snapshot.schema is None else full_schema(snapshot), path)
    try:
        io.write_dataset(rows, path)
    except SchemaMismatchError:
        # A new id matches no row, so all rows are inserted, and old files get the new columns in the same commit.
        io.merge(rows, path, strategy="insert", key_columns=ROW, schema_mode="evolve", evolve_files="touched")
