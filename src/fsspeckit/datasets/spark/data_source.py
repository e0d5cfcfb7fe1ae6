"""The format "fsspeckit" of Spark 4.0 and later: ``df.write.format("fsspeckit")``, ``spark.read.format("fsspeckit")``.

Spark plans and commits such a source in Python processes without a session. Reads are planned there and run in tasks.
Written rows travel to the committing process as Arrow data, which merges them with the in-process engine, so their size
is limited; the error for larger ones names the call that has no limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamWriter, DataSourceWriter

from fsspeckit.common.choices import DEFAULT_STRATEGY, StrategyName, check_choice
from fsspeckit.common.errors import AlreadyCommittedError, ColumnNameError, SchemaMismatchError, UnsupportedDataError
from fsspeckit.core.commit.listing import View
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import full_schema, load_snapshot
from fsspeckit.core.engine.local import LocalEngine
from fsspeckit.core.engine.protocol import ReadRequest
from fsspeckit.core.expressions.grammar import near_names
from fsspeckit.core.operations.read import requested_view
from fsspeckit.core.planning.read import plan_read
from fsspeckit.core.values.views import plain_table
from fsspeckit.datasets.io import DatasetIO
from fsspeckit.datasets.spark.change_stream import ChangeReader, ChangeStreamReader, changes_schema, rows_of
from fsspeckit.datasets.spark.frames import snapshot_reader, spark_schema
from fsspeckit.datasets.spark.source_options import (
    STORAGE,
    check_known,
    is_set,
    listed,
    number_of,
    path_of,
    place_of,
)
from fsspeckit.datasets.spark.stream import batch_terms, query_id
from fsspeckit.datasets.spark.versions import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

LIMIT_MB = 64
"""Arrow data that one write or micro-batch may have, unless the option ``max_mb`` says otherwise."""
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_LISTS = ("key_columns", "partition_by", "dedup_order_by", "update_columns")
_NAMES = {"keys": "key_columns", "order_by": "dedup_order_by"}
_FLAGS = ("skip_unchanged",)
_MERGE = frozenset(
    (
        *(
            "strategy",
            *_LISTS,
            *_FLAGS,
            "on_duplicate_source",
            "null_keys",
            "schema_mode",
            "evolve_files",
            "partition_move",
        ),
        *("delete_when", "update_when", "insert_when", "newer_by", "scope", "compression"),
    )
)
_WRITE = frozenset(("partition_by", "compression", "replace_where"))
_OWN = frozenset(("path", "checkpointlocation", "queryname", "idempotency_key", "max_mb"))
_READ = frozenset(("path", "columns", "version", "as_of", "changes"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMPARED = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}


def register_data_source(spark: SparkSession) -> None:
    """Make the format "fsspeckit" known to a session.

    Args:
        spark: A session of Spark 4.0 or later, classic or Spark Connect. If its setting
            ``spark.sql.python.filterPushdown.enabled`` is on, filters leave out files and row groups.
    """
    # Spark refuses a reader that takes filters while the setting is off, which it is by default.
    pushes = str(spark.conf.get(_PUSHDOWN, "false")).lower() == "true"
    spark.dataSource.register(FilteringDataSource if pushes else FsspeckitDataSource)


class _InProcess(DatasetIO):
    """The operations without a session."""

    engine = LocalEngine()


class FsspeckitDataSource(DataSource):
    """Reads and writes dataset folders.

    Options of reads: ``path``, ``columns``, ``version``, ``as_of``; with ``changes``, of batches and streams, also
    ``since``, ``until`` and ``keys``. Options of writes: ``path``, ``keys``, ``strategy`` and the other options of
    `merge` as text, lists separated by commas; ``idempotency_key``; ``max_mb``. And ``storage.NAME`` for the filesystem
    of a URL.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "fsspeckit"

    def schema(self) -> StructType:
        """Return the columns of the dataset or of its changes, those of the option ``columns`` if it is given."""
        if is_set(self.options, "changes"):
            return spark_schema(changes_schema(self.options))  # type: ignore[no-any-return]
        check_known(self.options, _READ)
        place = place_of(self.options)
        found = full_schema(load_snapshot(place.storage, _view(place, self.options)))
        names = listed(self.options.get("columns")) or found.names
        return spark_schema(_selected(found, names))  # type: ignore[no-any-return]

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns."""
        if is_set(self.options, "changes"):
            return ChangeReader(self.options, changes_schema(self.options, schema.names))
        return DatasetReader(self.options, schema)

    def streamReader(self, schema: StructType) -> ChangeStreamReader:  # noqa: N802
        """Return a reader of the changes of the dataset."""
        if not is_set(self.options, "changes"):
            raise UnsupportedDataError(
                'a stream of a dataset has its changes. Add option("changes", "true"), or use spark.read for its rows.'
            )
        return ChangeStreamReader(self.options, changes_schema(self.options, schema.names))

    def writer(self, schema: StructType, overwrite: bool) -> DatasetWriter:
        """Return a writer; with keys it merges, else it appends or overwrites."""
        return DatasetWriter(_Write.of(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DatasetStreamWriter:  # noqa: N802
        """Return a writer of micro-batches, each of which is committed once."""
        checkpoint = self.options.get("checkpointLocation")
        if not checkpoint:
            raise UnsupportedDataError("the stream has no checkpointLocation. Pass it as an option of the query.")
        return DatasetStreamWriter(_Write.of(self.options, schema, overwrite=overwrite), checkpoint)


class DatasetReader(DataSourceReader):
    """Plans a read in one process, and reads the files of each bundle in a task."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options, self._schema, self._columns = dict(options), schema, tuple(schema.names)
        self._conditions: list[str] = []

    def partitions(self) -> Sequence[datasource.InputPartition]:
        """Return one partition for each bundle of files."""
        place = place_of(self._options)
        text = " AND ".join(f"({each})" for each in self._conditions) or None
        snapshot, request = plan_read(place.storage, _view(place, self._options), ReadRequest(self._columns, text))
        _check_types(full_schema(snapshot), self._schema)
        body, _ = snapshot_reader(place.storage, snapshot, request)
        return [datasource.InputPartition(body.alone(number)) for number in range(len(body.bundles))]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a bundle, with columns that may be null where the caller's schema says so."""
        may_be_null = {field.name for field in self._schema if field.nullable}
        for batch in rows_of(partition):
            fields = [field.with_nullable(field.nullable or field.name in may_be_null) for field in batch.schema]
            yield pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))


class FilteringReader(DatasetReader):
    """A reader that leaves out files and row groups by filters."""

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:  # noqa: N802
        """Use filters to leave out files and row groups. Spark applies all of them again."""
        place = place_of(self._options)
        schema = full_schema(load_snapshot(place.storage, _view(place, self._options)))
        self._conditions = [text for each in filters if (text := _condition(each, schema)) is not None]
        return filters


class FilteringDataSource(FsspeckitDataSource):
    """The source for sessions in which Spark passes filters to Python."""

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns that takes filters."""
        if is_set(self.options, "changes"):
            return super().reader(schema)
        return FilteringReader(self.options, schema)


def _selected(found: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return columns of a dataset."""
    missing = [name for name in names if name not in found.names]
    if missing:
        raise ColumnNameError(f"the dataset has no column {missing[0]!r}; {near_names(missing, found.names)}")
    return pa.schema([found.field(name) for name in names])


def _check_types(found: pa.Schema, schema: StructType) -> None:
    """Raise if the caller's schema is not a choice among the columns of the dataset."""
    own = spark_schema(_selected(found, schema.names))
    for field, wanted in zip(own, schema, strict=True):
        if field.dataType.simpleString() != wanted.dataType.simpleString():
            raise SchemaMismatchError(
                f"the column {field.name!r} is {field.dataType.simpleString()} in the dataset, and not "
                f"{wanted.dataType.simpleString()}. Omit the schema: the column has the type of the dataset."
            )


def _condition(each: Any, schema: pa.Schema) -> str | None:
    """Return a filter as text; None if its meaning could differ from Spark's, as for floats with NaN."""
    kind, path = type(each).__name__, tuple(getattr(each, "attribute", ()))
    if len(path) != 1 or not _NAME.fullmatch(path[0]) or path[0] not in schema.names:
        return None
    name, type_ = f'"{path[0]}"', schema.field(path[0]).type
    if kind in _COMPARED and (value := _literal(each.value, type_)) is not None:
        return f"{name} {_COMPARED[kind]} {value}"
    values = [_literal(value, type_) for value in each.value] if kind == "In" else []
    return f"{name} IN ({', '.join(filter(None, values))})" if values and all(values) else None


def _literal(value: Any, type_: pa.DataType) -> str | None:
    if pa.types.is_boolean(type_) and isinstance(value, bool):
        return str(value).lower()
    if pa.types.is_integer(type_) and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if (pa.types.is_string(type_) or pa.types.is_large_string(type_)) and isinstance(value, str) and "\0" not in value:
        return "'" + value.replace("'", "''") + "'"
    if pa.types.is_date32(type_) and isinstance(value, date) and not isinstance(value, datetime):
        return f"DATE '{value.isoformat()}'"
    return None


@dataclass(frozen=True, slots=True)
class _Write:
    """A write as its options describe it."""

    path: str
    storage: dict[str, str]
    operation: str
    given: dict[str, Any]
    key: str | None
    schema: pa.Schema
    max_mb: int

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> _Write:
        storage, given = {}, dict[str, Any]()
        for name, value in options.items():
            if name.startswith(STORAGE):
                storage[name.removeprefix(STORAGE)] = value
            elif name not in _OWN:
                given[_NAMES.get(name, name)] = value
        merges = "key_columns" in given
        if merges and overwrite:
            raise ValueError(
                'mode("overwrite") of a batch and outputMode("complete") of a stream replace all rows, and keys merge '
                'them. Use "append", or omit keys.'
            )
        known = _MERGE if merges else _WRITE
        unknown = sorted(given.keys() - known)
        if unknown:
            raise ValueError(f"the option {unknown[0]!r} is unknown here. Use keys, {', '.join(sorted(known))}.")
        found = {name: _value(name, value) for name, value in given.items()}
        if merges:
            check_choice("strategy", found.get("strategy", DEFAULT_STRATEGY), get_args(StrategyName))
            _check_keys(found["key_columns"], schema.names)
        else:
            found["mode"] = "overwrite" if overwrite else "append"
        operation = "merge" if merges else "write_dataset"
        key = options.get("idempotency_key")
        limit = number_of(options, "max_mb") or LIMIT_MB
        return cls(path_of(options), storage, operation, found, key, arrow_schema(schema), limit)

    @property
    def call(self) -> str:
        """The call that has no limit."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.given.items())
        return f"SparkDatasetIO(spark).{self.operation}(df, {self.path!r}{', ' if given else ''}{given})"

    def pack(self, rows: Iterator[Any]) -> _Rows:
        """Return the rows of a task as Arrow data."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as writer:
            for batch in rows:
                one = batch if isinstance(batch, pa.RecordBatch) else _of_row(batch, self.schema)
                writer.write_batch(one.cast(self.schema) if one.schema != self.schema else one)
                self._check(sink.tell())
        return _Rows(sink.getvalue().to_pybytes())

    def run(self, messages: Sequence[Any], key: str | None, number: int = 0) -> None:
        """Merge or write the rows of all tasks with one commit; ``number`` is that of a batch of a stream."""
        packed = [message.data for message in messages if message is not None]
        self._check(sum(map(len, packed)))
        tables = [pa.ipc.open_stream(data).read_all() for data in packed]
        rows = plain_table(pa.concat_tables([self.schema.empty_table(), *tables]))
        io = _InProcess(None, self.storage or None)
        io = io if key is None else batch_terms(io, key, number)
        getattr(io, self.operation)(rows, self.path, **self.given)

    def _check(self, size: int) -> None:
        if size > self.max_mb << 20:
            raise UnsupportedDataError(
                f"the rows have more than {self.max_mb} MB, and Spark gives the format no session to commit them with. "
                f"Nothing was changed. Call {self.call} instead, or merge_stream for a stream."
            )


@dataclass(frozen=True, slots=True)
class _Rows(datasource.WriterCommitMessage):
    """The rows of one task as an Arrow stream."""

    data: bytes


_Writer: Any = getattr(datasource, "DataSourceArrowWriter", DataSourceWriter)
_StreamWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)
"""Before Spark 4.1 a writer gets rows; later it can get Arrow batches."""


class DatasetWriter(_Writer):  # type: ignore[misc]
    """Writes the rows of a query with one commit."""

    def __init__(self, write: _Write) -> None:
        self._write = write

    def write(self, iterator: Iterator[Any]) -> _Rows:
        """Pack the rows of a task."""
        return self._write.pack(iterator)

    def commit(self, messages: list[Any]) -> None:
        """Merge or write all rows. With an idempotency key, at most once."""
        try:
            self._write.run(messages, self._write.key)
        except AlreadyCommittedError:
            return

    def abort(self, messages: list[Any]) -> None:
        """Nothing was written."""


class DatasetStreamWriter(_StreamWriter):  # type: ignore[misc]
    """Writes micro-batches; the commit of each has the query's id and the number of the batch as its key."""

    def __init__(self, write: _Write, checkpoint: str) -> None:
        self._write, self._checkpoint = write, checkpoint

    def write(self, iterator: Iterator[Any]) -> _Rows:
        """Pack the rows of a task."""
        return self._write.pack(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Merge or write a batch, unless it is committed."""
        query = query_id(self._checkpoint, None, self._write.storage or None)
        try:
            self._write.run(messages, f"stream/{query}/{batchId}", batchId)
        except AlreadyCommittedError:
            return

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Nothing was written."""


def _of_row(row: Any, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row.asDict(recursive=True)], schema)


def _check_keys(keys: Sequence[str], known: Sequence[str]) -> None:
    """Raise before the query runs if it has no column of a key."""
    missing = [name for name in keys if name not in known]
    if missing:
        raise ColumnNameError(f"keys: unknown column {missing[0]!r}; {near_names(missing, known)}")


def _value(name: str, value: str) -> Any:
    if name in _LISTS:
        return listed(value)
    if name in _FLAGS:
        return is_set({name: value}, name)
    return value


def _view(place: Place, options: Mapping[str, str]) -> View:
    return requested_view(place, number_of(options, "version"), options.get("as_of"))
