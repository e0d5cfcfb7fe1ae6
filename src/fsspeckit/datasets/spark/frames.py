"""A snapshot as a Spark DataFrame: executors read its files with Arrow, on any storage.

Spark has fewer types than Parquet. Each column gets the Spark type that `spark_type` defines; a value that does not fit
is an error and is never changed silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa
from pyarrow import types as pat

from fsspeckit.common.bridge import to_numpy
from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.common.schema import cast_schema
from fsspeckit.core.dataset.snapshot import Snapshot, full_schema
from fsspeckit.core.engine.changes import CHANGE_TYPE, VERSION
from fsspeckit.core.engine.protocol import ReadRequest
from fsspeckit.core.engine.read import read_snapshot
from fsspeckit.core.storage import Storage
from fsspeckit.datasets.spark.executor_check import check_executors, portable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fsspeckit.core.operations.changes import Feed

FileRows = Callable[[int], Iterator[tuple[str, pa.Table]]]


@runtime_checkable
class PartialRows(Protocol):
    """Rows of files that can be reduced to those of some files, so that a task gets nothing else."""

    def only(self, numbers: Sequence[int]) -> FileRows:
        """Return the rows of the files with these numbers, which are numbered anew."""


"""Yields the rows of the file with a number, with its path for error messages."""
_FILE_BYTES = 64 * 1024 * 1024
_SAME = (
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.null(),
)
_CLOCKS = (pa.time64("us"), pa.time64("ns"))
"""Spark stores times of day in microseconds and expects them in nanoseconds."""
_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.float16(): pa.float32()}


def snapshot_frame(spark: SparkSession, storage: Storage, snapshot: Snapshot, request: ReadRequest) -> DataFrame:
    """Return a lazy DataFrame of a snapshot's rows."""
    schema = full_schema(snapshot)
    names = request.columns if request.columns is not None else tuple(schema.names)
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise pa.ArrowKeyError(f"read: no column(s) {missing} in {snapshot.root}; it has {schema.names}")
    if snapshot.files:
        check_executors(spark, storage, lambda: nullcontext(snapshot.files[0].location))
    body, types = snapshot_reader(storage, snapshot, replace(request, columns=names))
    return _frame(spark, body, types)


def snapshot_reader(storage: Storage, snapshot: Snapshot, request: ReadRequest) -> tuple[ReadFiles, Any]:
    """Return the task that reads a snapshot's rows, and their Spark types. The request names all columns to read."""
    schema = full_schema(snapshot)
    wanted = replace(snapshot, files=request.files_of(snapshot))
    rows = _SnapshotRows(storage, wanted, replace(request, use_threads=False), schema)
    sizes = [file.size for file in wanted.files]
    return files_reader(rows, sizes, pa.schema([schema.field(name) for name in request.columns or ()]))


def changes_frame(spark: SparkSession, storage: Storage, feed: Feed, key_columns: Sequence[str]) -> DataFrame:
    """Return a lazy DataFrame of a change feed. Only rows that changed are shuffled, to find updates."""
    if feed.pairs:
        one = (*feed.pairs[0].added, *feed.pairs[0].removed)[0]
        check_executors(spark, storage, lambda: nullcontext(one.location))
    frame = frame_of_files(spark, feed.read, [pair.size for pair in feed.pairs], feed.schema)
    return _with_updates(frame, key_columns) if key_columns else frame


def _with_updates(frame: DataFrame, key_columns: Sequence[str]) -> DataFrame:
    """Mark the rows of a key as an update if one commit deleted and inserted rows of it."""
    from pyspark.sql import Window, functions

    keys = [functions.col("`" + name.replace("`", "``") + "`") for name in (VERSION, *key_columns)]
    change, window = functions.col(CHANGE_TYPE), Window.partitionBy(*keys)
    is_insert = change == "insert"
    is_update = functions.max(is_insert).over(window) & functions.max(change == "delete").over(window)
    updated = functions.when(is_insert, "update_after").otherwise("update_before")
    return frame.withColumn(CHANGE_TYPE, functions.when(is_update, updated).otherwise(change))


def frame_of_files(spark: SparkSession, rows: FileRows, sizes: Sequence[int], schema: pa.Schema) -> DataFrame:
    """Return a lazy DataFrame of rows that executors read from files."""
    return _frame(spark, *files_reader(rows, sizes, schema))


def _frame(spark: SparkSession, body: ReadFiles, types: Any) -> DataFrame:
    count = len(body.bundles)
    return spark.range(0, count, 1, max(count, 1)).mapInArrow(portable(spark, body), types)


def files_reader(rows: FileRows, sizes: Sequence[int], schema: pa.Schema) -> tuple[ReadFiles, Any]:
    """Return the task that reads rows from files, small ones together, and their Spark types."""
    exact, wanted = (pa.schema([_spark_field(field, clock) for field in schema]) for clock in _CLOCKS)
    return ReadFiles(rows, exact, wanted, _bundles(sizes)), spark_schema(wanted)


def spark_schema(schema: pa.Schema) -> Any:
    """Return the Spark types of an Arrow schema, such as that of a dataset."""
    from pyspark.sql.pandas.types import from_arrow_schema

    # The default before PySpark 4.2 gives timestamps without a time zone the zone of the session.
    return from_arrow_schema(
        pa.schema([_spark_field(field, _CLOCKS[1]) for field in schema]), prefer_timestamp_ntz=True
    )


def _bundles(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Group adjacent small files, so that each Spark task reads enough bytes."""
    bundles: list[list[int]] = []
    total = _FILE_BYTES
    for number, size in enumerate(sizes):
        if total + size > _FILE_BYTES:
            bundles.append([])
            total = 0
        bundles[-1].append(number)
        total += size
    return [tuple(bundle) for bundle in bundles]


@dataclass(frozen=True, slots=True)
class _SnapshotRows:
    """Yields the rows of one file of a snapshot."""

    storage: Storage
    snapshot: Snapshot
    request: ReadRequest
    schema: pa.Schema

    def only(self, numbers: Sequence[int]) -> _SnapshotRows:
        files = tuple(self.snapshot.files[number] for number in numbers)
        selections = self.request.selections
        kept = None if selections is None else {file.path: selections[file.path] for file in files}
        return replace(
            self, snapshot=replace(self.snapshot, files=files), request=replace(self.request, selections=kept)
        )

    def __call__(self, number: int) -> Iterator[tuple[str, pa.Table]]:
        file = self.snapshot.files[number]
        one = replace(self.snapshot, files=(file,))
        yield file.path, read_snapshot(self.storage, one, self.request, str, schema=self.schema)


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """The task of an executor: read the files of its bundles as batches of Spark types."""

    rows: FileRows
    exact: pa.Schema
    schema: pa.Schema
    bundles: list[tuple[int, ...]]

    def alone(self, number: int) -> ReadFiles:
        """Return the task for one bundle, without what only others need."""
        files = self.bundles[number]
        if not isinstance(self.rows, PartialRows):
            return replace(self, bundles=[files])
        return replace(self, rows=self.rows.only(files), bundles=[tuple(range(len(files)))])

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the bundles whose numbers are in the first column of the batches."""
        numbers = [i for batch in batches for i in to_numpy(batch.column(0)).tolist()]
        for path, table in (found for number in numbers for i in self.bundles[number] for found in self.rows(i)):
            exact = cast_schema(table, self.exact, operation="read", path=path)
            yield from cast_schema(exact, self.schema, operation="read", path=path).to_batches()


def _spark_field(field: pa.Field, clock: pa.DataType) -> pa.Field:
    try:
        return pa.field(field.name, spark_type(field.type, clock), field.nullable)
    except SchemaMismatchError as error:
        raise SchemaMismatchError(
            f"read: column {field.name!r} has a type that Spark lacks ({error}); "
            "leave it out with columns=, or use read_parquet"
        ) from error


def spark_type(type_: pa.DataType, clock: pa.DataType = _CLOCKS[1]) -> pa.DataType:
    """Return the Arrow type in which Spark accepts values of a type; ``clock`` is the type for times of day."""
    if type_ in _SAME:
        return type_
    if type_ in _WIDER:
        return _WIDER[type_]
    if type_ == pa.uint64():
        return pa.decimal128(20, 0)
    if pat.is_dictionary(type_):
        return spark_type(type_.value_type, clock)
    if pat.is_time(type_):
        return clock
    if pat.is_date(type_):
        return pa.date32()
    if pat.is_timestamp(type_):
        return pa.timestamp("us", type_.tz and "UTC")
    if pat.is_duration(type_):
        return pa.duration("us")
    if pat.is_large_string(type_) or pat.is_string_view(type_):
        return pa.string()
    if pat.is_large_binary(type_) or pat.is_binary_view(type_) or pat.is_fixed_size_binary(type_):
        return pa.binary()
    if pat.is_decimal(type_) and type_.precision <= 38:
        return pa.decimal128(type_.precision, type_.scale)
    return _spark_nested(type_, clock)


def _spark_nested(type_: pa.DataType, clock: pa.DataType) -> pa.DataType:
    if pat.is_struct(type_):
        return pa.struct([_inner(field, clock) for field in type_])
    if pat.is_map(type_):
        return pa.map_(spark_type(type_.key_type, clock), _inner(type_.item_field, clock))
    if pat.is_nested(type_) and hasattr(type_, "value_field"):
        return pa.list_(_inner(type_.value_field, clock))
    raise SchemaMismatchError(f"{type_}")


def _inner(field: pa.Field, clock: pa.DataType) -> pa.Field:
    return pa.field(field.name, spark_type(field.type, clock), field.nullable)
