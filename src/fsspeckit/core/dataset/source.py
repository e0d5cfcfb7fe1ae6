"""The source rows of an operation as one Arrow table, in memory or memory-mapped from a spool file.

Planning reads a source more than once, so streams and files are written to an Arrow IPC file that is memory-mapped.
Rows keep their types; they are cast when they are taken.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.categories import has_categories
from fsspeckit.common.errors import DatasetNotFoundError
from fsspeckit.common.int96 import without_int96
from fsspeckit.common.partitions import as_partition_values, parse_hive_partition_path, partition_type, typed_values
from fsspeckit.common.schema import cast_schema, check_fit, unify_schemas
from fsspeckit.common.stored_types import with_mixed
from fsspeckit.core.commit.journal import Journal
from fsspeckit.core.commit.listing import View
from fsspeckit.core.dataset.column_case import check_column_case
from fsspeckit.core.dataset.row_streams import row_stream
from fsspeckit.core.dataset.snapshot import folder_schema, partition_layout, single_file_view
from fsspeckit.core.kernels.exchange.table_files import TableFolder
from fsspeckit.core.model import DataFile, RowNumbers
from fsspeckit.core.parquet.damage import report_damage
from fsspeckit.core.parquet.data_files import read_data_files
from fsspeckit.core.parquet.reader import check_rows, open_parquet
from fsspeckit.core.storage import Storage, resolve
from fsspeckit.core.values.spill import spool
from fsspeckit.core.values.take import filter_rows, take_ascending, take_rows, with_one_dictionary, with_wide_codes
from fsspeckit.core.values.views import plain_reader, plain_table

_SPOOL_ROWS = 65_536
_PIECE_ROWS = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class TablePiece:
    """Some columns of a part of the source rows, in memory or memory-mapped, and the number of the first row."""

    table: pa.Table
    first_row: int = 0

    def read(self) -> pa.Table:
        """Return the rows."""
        return self.table


@dataclass(frozen=True, slots=True)
class Source:
    """Source rows, numbered from zero.

    Planning uses only the methods and properties, so an engine may store the rows elsewhere.
    """

    table: pa.Table

    @property
    def route(self) -> str:
        """How tasks get the rows; shown in plans."""
        return "memory"

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.table.num_rows)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the data that the caller passed."""
        return self.table.schema

    @property
    def ordered(self) -> bool:
        """Whether the order of the rows is defined."""
        return True

    @property
    def is_shared(self) -> bool:
        """Whether the rows are in files that workers read, so that rows need not be in this process."""
        return False

    @property
    def limit(self) -> int | None:
        """The most bytes of rows that are shared instead of exchanged, if rows can be exchanged; shown in plans."""
        return None

    @property
    def exchange_folder(self) -> TableFolder | None:
        """The folder for rows on their way between workers, if the rows are too many to share."""
        return None

    def chunks(self) -> list[Source]:
        """Return the rows in parts that can be read in other processes, in order."""
        return [self]

    def part_sink(self) -> Callable[[pa.Table], Any]:
        """Return a picklable function that stores rows where the rows of this source are, for `with_parts`."""
        return _keep

    def with_parts(self, parts: Sequence[Any], schema: pa.Schema) -> Source:
        """Return a source of stored rows: ``parts`` are results of a `part_sink`."""
        return Source(with_one_dictionary(pa.concat_tables([schema.empty_table(), *parts])))

    def schema_for(self, target: pa.Schema | None) -> pa.Schema:  # noqa: ARG002 - sources of other engines use it
        """Return the schema to reconcile with a target's schema. Engines without some of its types adjust theirs."""
        return self.schema

    def with_partition_types(self, types: pa.Schema) -> Source:
        """Return the rows with partition columns in the types of a dataset, to which all values fit."""
        return Source(in_partition_types(self.table, types))

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return complete columns."""
        return self.table.select(list(names))

    def pieces(self, names: Sequence[str]) -> Sequence[Any]:
        """Return some columns in pieces that the workers of the engine can read."""
        table = self.columns(names)
        return [TablePiece(table.slice(start, _PIECE_ROWS), start) for start in range(0, self.rows, _PIECE_ROWS)]

    def take(self, rows: range | RowNumbers, schema: pa.Schema) -> pa.Table:
        """Return the given rows with ``schema``: columns by name, cast exactly, missing columns null."""
        names = [name for name in schema.names if name in self.schema.names]
        table = self.columns(names or self.schema.names[:1])  # a table without columns has no rows
        if isinstance(rows, range):
            part = table.slice(rows.start, len(rows))
        elif len(rows) and bool(np.all(rows[1:] > rows[:-1])):
            part = take_ascending(table, rows)
        else:
            part = take_rows(table, rows)
        return cast_schema(part.select(names), schema, fill_missing=True, operation="source")

    def widen_codes(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema with wider dictionary codes for columns with more distinct values than codes."""
        wide = with_wide_codes(schema)
        fields = [
            new if new.type != old.type and self._distinct(old) >= 2 ** (old.type.index_type.bit_width - 1) else old
            for old, new in zip(schema, wide, strict=True)
        ]
        return pa.schema(fields, schema.metadata)

    def _distinct(self, field: pa.Field) -> int:
        if field.name not in self.schema.names:
            return 0
        column = self.columns([field.name])[field.name]
        values = column.chunk(0).dictionary if pa.types.is_dictionary(column.type) and len(column) else column.unique()
        return len(values)

    def check_casts(
        self,
        schema: pa.Schema,
        *,
        operation: str,
        path: str,
        without: npt.NDArray[np.bool_] | None = None,
        compared: pa.Schema | None = None,
    ) -> None:
        """Raise if a value does not fit its type in ``schema``. Called before the first write.

        ``without`` marks rows that are not written, so that only their values in the columns ``compared`` must fit.
        """
        written = None if without is None else ~without
        rows = None if written is None else np.flatnonzero(written)
        for field in compared or ():
            if self._differs(field):
                check_fit(self.columns([field.name])[field.name], field, operation=operation, path=path)
        for field in schema:
            if field.name not in self.schema.names or not self._differs(field):
                continue
            column = self.columns([field.name])
            some = column if written is None else filter_rows(column, written)
            check_fit(some[field.name], field, operation=operation, path=path, rows=rows)

    def _differs(self, field: pa.Field) -> bool:
        own = self.schema.field(field.name)
        if own.type != field.type or has_categories(field):
            return True
        return not field.nullable and self.columns([field.name])[field.name].null_count > 0


def in_partition_types(table: pa.Table, types: pa.Schema) -> pa.Table:
    """Return a table with those of its columns that are in a schema of partition columns converted to their types."""
    for field in types:
        at = table.schema.get_field_index(field.name)
        if at >= 0 and table.schema.field(at).type != field.type:
            values = as_partition_values(table.column(at), field.type, field.name)
            table = table.set_column(at, table.schema.field(at).with_type(field.type), values)
    return table


def _keep(table: pa.Table) -> pa.Table:
    return table


@dataclass(frozen=True, slots=True)
class DeferredRead:
    """Rows that are read when the engine opens the source, in the engine's folder for temporary files."""

    read: Callable[[], pa.Table]


class SourceFile(Protocol):
    """A file that rows are read from."""

    @property
    def location(self) -> str:
        """The path in its storage."""

    @property
    def size(self) -> int:
        """Bytes."""


@runtime_checkable
class RowFiles(Protocol):
    """Files with one schema, each of which can be read in another process."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of all files."""

    @property
    def files(self) -> Sequence[SourceFile]:
        """The files."""

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of one file."""


@dataclass(frozen=True, slots=True)
class Input:
    """The data that a caller passed, and the filesystem of its paths.

    An engine that computes the rows first calls ``on_tasks`` with the number of finished tasks and of all tasks.
    """

    data: Any
    filesystem: Any = None
    storage_options: Mapping[str, Any] | None = None
    on_tasks: Callable[[int, int], None] = lambda _done, _total: None


def open_source(given: Input) -> Source:
    """Open the caller's data as a source."""
    data = given.data.read() if isinstance(given.data, DeferredRead) else given.data
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return Source(with_one_dictionary(plain_table(data)))
    if isinstance(data, (str, os.PathLike)):
        data = source_files(data, given.filesystem, given.storage_options)
    if isinstance(data, RowFiles):
        return Source(with_one_dictionary(_spooled(data)))
    return Source(with_one_dictionary(spool(plain_reader(row_stream(data)))))


def _spooled(files: RowFiles) -> pa.Table:
    batches = (batch for number in range(len(files.files)) for batch in files.batches(number))
    return spool(pa.RecordBatchReader.from_batches(files.schema, batches))


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """Parquet files that a caller passed as data, with one schema. Hive folders are columns."""

    storage: Storage
    files: tuple[DataFile, ...]
    schema: pa.Schema
    partitions: tuple[dict[str, str | None], ...]

    def batches(self, number: int, row_groups: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file, or of some of its row groups."""
        file, rows = self.files[number], 0
        groups = range(len(file.row_groups)) if row_groups is None else row_groups
        with (
            report_damage("reading the source", file.location),
            open_parquet(self.storage, file, verify=True) as reader,
        ):
            for batch in reader.iter_batches(_SPOOL_ROWS, list(groups)):
                table, rows = pa.Table.from_batches([batch]), rows + batch.num_rows
                for name, text in self.partitions[number].items():
                    if name not in table.column_names:
                        table = table.append_column(
                            name, constant_column(text, self.schema.field(name), table.num_rows)
                        )
                same = cast_schema(table, self.schema, fill_missing=True, operation="reading the source")
                yield from same.to_batches()
        check_rows(rows, file, groups)


def source_files(path: Any, filesystem: Any, options: Mapping[str, Any] | None) -> SourceFiles:
    """Return the files at a path, or raise if there is none. Hive folders at the end of the path are columns too."""
    storage, root = resolve(path, filesystem, options)
    view = single_file_view(storage, root) or replace(Journal(storage, root).view(), root=root)
    if view.is_missing:
        raise DatasetNotFoundError(f"no parquet file to read at {path}. Check the path of the source.")
    return files_of_view(storage, view)


def files_of_view(storage: Storage, view: View) -> SourceFiles:
    """Return the files of a view with one schema."""
    outer = parse_hive_partition_path(f"{_hive_tail(view.root)}/x")
    if view.emptied is not None:
        columns = [*view.emptied.schema, *(pa.field(name, partition_type([text])) for name, text in outer.items())]
        folders = [field for field in view.emptied.partition_schema if field.name not in view.emptied.schema.names]
        return SourceFiles(
            storage, (), without_int96(pa.schema([*columns, *folders], view.emptied.schema.metadata)), ()
        )
    inner, values = partition_layout([file.path for file in view.files])
    texts = [(*outer.values(), *(value or (None,) * len(inner))) for value in values]
    folders = folder_schema(view, inner, (value for value in values if value is not None))
    columns = [*(pa.field(name, partition_type([text])) for name, text in outer.items()), *folders]
    names = [*outer, *inner]
    files = read_data_files(storage, view.files, ())
    by_schema = {id(file.schema): file for file in reversed(files)}
    named = [(file.path, file.schema) for file in reversed(by_schema.values())]
    unified = unify_schemas((schema for _, schema in named), operation="reading the source", path=view.root)
    check_column_case(unified, named, view.root)
    body = with_mixed(without_int96(unified), (schema for _, schema in named))
    extra = [field for field in columns if field.name not in body.names]
    partitions = tuple(dict(zip(names, text, strict=True)) for text in texts)
    return SourceFiles(storage, tuple(files), pa.schema([*body, *extra], body.metadata), partitions)


def _hive_tail(root: str) -> str:
    """Return the trailing ``a=1/b=2`` components of a path."""
    parts = root.split("/")
    keep = len(parts)
    while keep and "=" in parts[keep - 1]:
        keep -= 1
    return "/".join(parts[keep:])


def constant_column(text: str | None, field: pa.Field, rows: int) -> pa.Array:
    """Return a column with one partition value in all rows."""
    return pa.repeat(typed_values([text], field.type, field.name)[0], rows)
