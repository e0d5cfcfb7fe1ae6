"""Read a snapshot with pyarrow: files in parallel, partition columns from folder names, filters pushed down."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial, reduce
from itertools import accumulate
from operator import and_, or_
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as pat

from fsspeckit.common.causes import outer_cause
from fsspeckit.common.errors import FilterError, SchemaMismatchError
from fsspeckit.common.int96 import unit_of
from fsspeckit.common.partitions import typed_values
from fsspeckit.common.schema import cast_schema
from fsspeckit.common.stored_types import decoded_columns, without_marks
from fsspeckit.core.dataset.snapshot import Snapshot, full_schema
from fsspeckit.core.engine.protocol import ReadRequest, RowSelection
from fsspeckit.core.expressions.conditions import errors_name
from fsspeckit.core.expressions.evaluate import matching_rows
from fsspeckit.core.expressions.tree import Expression, columns_of
from fsspeckit.core.kernels.read_columns import read_columns
from fsspeckit.core.kernels.read_values import read_values
from fsspeckit.core.model import NO_ROWS, DataFile
from fsspeckit.core.parquet.batches import value_bytes
from fsspeckit.core.parquet.damage import open_file, report_damage, unreadable_columns
from fsspeckit.core.parquet.reader import check_rows
from fsspeckit.core.parquet.timestamps import check_times
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.take import filter_rows

_Scan: TypeAlias = Callable[..., pa.Table]
FILE_PATH = "file_path"
_MOST_SCANNED = 512 * 1024 * 1024
_TEXT_BYTES = 16
_ADVICE = 'Pass text such as "id > 3", or tuples such as [("id", ">", 3)].'


def read_snapshot(
    storage: Storage,
    snapshot: Snapshot,
    request: ReadRequest,
    path_of: Callable[[str], str],
    *,
    schema: pa.Schema | None = None,
) -> pa.Table:
    """Return the requested rows in the order of the files. Pass ``schema`` to read only part of a dataset's files."""
    schema = full_schema(snapshot) if schema is None else schema
    names = _column_names(schema, request, snapshot.root)
    condition = _condition(request.filters, schema)
    out = without_marks(pa.schema([schema.field(name) for name in names], schema.metadata))
    files = request.files_of(snapshot)
    reader = _FileReader(storage, snapshot, schema, names, request.use_threads and len(files) == 1)

    def read_one(file: DataFile) -> pa.Table:
        if request.selections is None:
            found = reader.read(file, condition)
        else:
            found = reader.read_selected(file, request.selections[file.path])
        return finished(cast_schema(found, out, operation="read", path=file.path), file.path)

    def finished(table: pa.Table, path: str) -> pa.Table:
        if not request.include_file_path:
            return table
        return table.append_column(FILE_PATH, pa.repeat(pa.scalar(path_of(path), pa.string()), table.num_rows))

    if request.use_threads and len(files) > 1:
        with ThreadPoolExecutor(max(os.cpu_count() or 1, storage.workers)) as pool:
            tables = list(pool.map(read_one, files))
    else:
        tables = [read_one(file) for file in files]
    return pa.concat_tables(tables) if tables else finished(pa.Table.from_batches([], out), "")


def _column_names(schema: pa.Schema, request: ReadRequest, root: str) -> list[str]:
    names = list(request.columns) if request.columns is not None else list(schema.names)
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise pa.ArrowKeyError(f"read: no column(s) {missing} in {root}. Choose among {schema.names}.")
    return names


def _condition(filters: Any, schema: pa.Schema) -> pc.Expression | None:
    """Return the filters as an expression. Raise if it cannot be applied to the columns."""
    if filters is None:
        return None
    # Arrow cannot compare values of extension types (UUID, JSON), and would raise only when it reads a file.
    plain = pa.schema([field for field in schema if not isinstance(field.type, pa.BaseExtensionType)])
    try:
        condition = filters if isinstance(filters, pc.Expression) else _of_tuples(filters, plain)
        pa.Table.from_batches([], plain).filter(condition)
    except (pa.ArrowException, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        others = [name for name in schema.names if name not in plain.names and name in str(filters)]
        only = f" Filter {others} with text." if others else ""
        raise FilterError(
            f"the filter {filters} cannot be applied to the columns {plain.names} ({reason}).{only} {_ADVICE}"
        ) from error
    return condition


def _of_tuples(filters: Any, schema: pa.Schema) -> pc.Expression:
    """Return tuples, joined by AND, or lists of them, joined by OR, as an expression."""
    groups = filters if all(isinstance(part, list) for part in filters) else [filters]
    return reduce(or_, (reduce(and_, (_of_tuple(part, schema) for part in group)) for group in groups))


def _of_tuple(part: Any, schema: pa.Schema) -> pc.Expression:
    """Return one tuple as an expression. Arrow's test for members narrows constants, and finds one of both zeros."""
    name, operator, given = part
    if isinstance(given, str) and name in schema.names and pat.is_temporal(schema.field(name).type):
        part = (name, operator, pa.scalar(given).cast(schema.field(name).type))
    found: pc.Expression = pq.filters_to_expression([part])
    if operator not in ("in", "not in") or name not in schema.names:
        return found
    type_ = schema.field(name).type
    if not pat.is_float32(type_) and not pat.is_float64(type_):
        return found
    column, values = pc.field(name), list(given)
    options = [value for value in values if value is not None]
    equal = [column.is_nan() if value != value else column == value for value in options]
    is_member = pc.coalesce(reduce(or_, equal, pc.scalar(False)), pc.scalar(len(options) < len(values)))
    return is_member if operator == "in" else ~is_member


class _FileReader:
    """Reads one file of a snapshot with the snapshot's schema."""

    def __init__(
        self, storage: Storage, snapshot: Snapshot, schema: pa.Schema, names: list[str], use_threads: bool
    ) -> None:
        import pyarrow.dataset as ds

        scan = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        self._formats = {
            unit: ds.ParquetFileFormat(coerce_int96_timestamp_unit=unit, default_fragment_scan_options=scan)
            for unit in ("us", "ns")
        }
        self._storage, self._snapshot, self._schema, self._names = storage, snapshot, schema, names
        self._use_threads = use_threads

    def read(self, file: DataFile, condition: pc.Expression | None) -> pa.Table:
        """Return the rows of a file for which a condition of pyarrow is true."""
        groups = range(len(file.row_groups))
        looked_at = [name for name in file.schema.names if name in self._names or name in str(condition)]
        check_times(self._storage, file, groups, looked_at)
        with self._opened(file) as scan:
            if condition is not None:
                return self._filtered(scan, file, condition)
            if decoded_columns(file.schema):
                return pa.concat_tables(table for _, table in self._in_batches(file, groups, self._names))
            table = scan(self._names)
        check_rows(table.num_rows, file, groups)
        return table

    def _filtered(self, scan: _Scan, file: DataFile, condition: pc.Expression) -> pa.Table:
        names = [name for name in self._schema.names if name in self._names or name in str(condition)]
        groups = range(len(file.row_groups))
        try:
            if self._is_large(file, groups):
                batches = (table for _, table in self._in_batches(file, groups, names))
                found = [table.filter(condition).select(self._names) for table in batches]
                return pa.concat_tables([table for table in found if table.num_rows] or found[:1])
            return scan(self._names, filter=condition)
        except (pa.ArrowException, MemoryError) as error:
            scan(names)  # raises if the file is damaged
            if cause := outer_cause(f"filters: cannot compute {condition} for the rows of {file.path}", error):
                raise cause from error
            raise FilterError(
                f"filters: {condition} cannot be computed for the rows of {file.path} ({error}); correct the condition"
            ) from error

    def read_selected(self, file: DataFile, selection: RowSelection) -> pa.Table:
        """Return the selected rows of a file. Row groups without one are read only for the columns of the condition."""
        groups, condition = selection.row_groups, selection.condition
        if condition is None and decoded_columns(file.schema):
            return pa.concat_tables(table for _, table in self._in_batches(file, groups, self._names))
        if condition is not None and self._is_large(file, groups):
            return self._select_in_batches(file, groups, condition)
        with self._opened(file) as scan:
            if condition is None:
                return self._read_groups(scan, file, self._names, groups)
            tested = self._read_groups(scan, file, self._columns_of(condition), groups)
            parts = _split(tested, [file.row_groups[i] for i in groups])
            with errors_name("filters"):
                keeps = [matching_rows(condition, part) for part in parts]
            hits = [(group, keep) for group, keep in zip(groups, keeps, strict=True) if keep.any()]
            rest = [name for name in self._names if name not in tested.column_names]
            others = self._read_groups(scan, file, rest, [group for group, _ in hits])
        found = filter_rows(tested, np.concatenate(keeps))
        if rest and hits:
            others = filter_rows(others, np.concatenate([keep for _, keep in hits]))
        return pa.table({name: (others if name in rest else found)[name] for name in self._names})

    def _select_in_batches(self, file: DataFile, groups: Sequence[int], condition: Expression) -> pa.Table:
        """Return the selected rows of a file with very large row groups."""
        found = [NO_ROWS]
        for start, table in self._in_batches(file, groups, self._columns_of(condition)):
            with errors_name("filters"):
                found.append(np.flatnonzero(matching_rows(condition, table)) + start)
        wanted = pa.schema([self._schema.field(name) for name in self._names])
        tables = read_values(self._storage, file, np.concatenate(found), wanted)
        return pa.concat_tables([self._with_folders(table, file) for table in tables] or [wanted.empty_table()])

    def _is_large(self, file: DataFile, groups: Sequence[int]) -> bool:
        """Return whether a row group may have more decoded bytes than a scanner should hold, or it cannot read it."""
        if decoded_columns(file.schema):
            return True
        width = sum(value_bytes(field.type, _TEXT_BYTES) for field in self._schema)
        return max((file.row_groups[group] for group in groups), default=0) * width > _MOST_SCANNED

    def _in_batches(
        self, file: DataFile, groups: Sequence[int], names: Sequence[str]
    ) -> Iterator[tuple[int, pa.Table]]:
        """Yield some columns in batches, with the position of the first row."""
        wanted = pa.schema([self._schema.field(name) for name in names])
        for start, table in read_columns(self._storage, file, groups, wanted):
            yield start, self._with_folders(table, file)

    def _with_folders(self, table: pa.Table, file: DataFile) -> pa.Table:
        for name, value in self._folder_values(file):
            if name in table.column_names:
                column = pa.repeat(value, table.num_rows)
                table = table.set_column(table.column_names.index(name), self._schema.field(name), column)
        return table

    def _columns_of(self, condition: Expression) -> list[str]:
        wanted = columns_of(condition)
        return [name for name in self._schema.names if name in wanted]

    def _read_groups(self, scan: _Scan, file: DataFile, names: list[str], groups: Sequence[int]) -> pa.Table:
        """Return some columns of some row groups."""
        if not names or not groups:
            return pa.Table.from_batches([], pa.schema([self._schema.field(name) for name in names]))
        check_times(self._storage, file, groups, names)
        table = scan(names, groups)
        check_rows(table.num_rows, file, groups)
        return table

    @contextmanager
    def _opened(self, file: DataFile) -> Iterator[_Scan]:
        """Open a file once to scan columns of it, of all row groups or of some."""
        unreadable = partial(unreadable_columns, self._storage, file)
        with report_damage("reading", file.path, unreadable), open_file(self._storage, file) as opened:
            fragment = self._formats[unit_of(file.schema)].make_fragment(
                opened, partition_expression=self._partition(file)
            )

            def scan(names: list[str], groups: Sequence[int] | None = None, **options: Any) -> pa.Table:
                part = fragment if groups is None else fragment.subset(row_group_ids=list(groups))
                try:
                    return part.to_table(schema=self._schema, columns=names, use_threads=self._use_threads, **options)
                except pa.ArrowInvalid:
                    self._check_casts(fragment, file)
                    raise

            yield scan

    def _check_casts(self, fragment: Any, file: DataFile) -> None:
        """Raise if a value of an undamaged file does not fit the type of the common schema."""
        shared = [self._schema.field(field.name) for field in file.schema if field.name in self._schema.names]
        recast = [field for field in shared if not file.schema.field(field.name).type.equals(field.type)]
        table = fragment.to_table(columns=[field.name for field in recast])
        try:
            cast_schema(table, pa.schema(recast), operation="read", path=file.path)
        except SchemaMismatchError as error:
            raise SchemaMismatchError(f"{error} Or leave the column out with columns=...") from error

    def _partition(self, file: DataFile) -> pc.Expression:
        """Return the partition expression of a file."""
        expression = pc.scalar(True)
        for name, value in self._folder_values(file):
            expression = expression & (pc.field(name) == value if value.is_valid else pc.field(name).is_null())
        return expression

    def _folder_values(self, file: DataFile) -> Iterator[tuple[str, pa.Scalar]]:
        """Yield the values of the folder name of a file, except of columns in the file."""
        for at, name in enumerate(self._snapshot.partition_columns):
            if name not in file.schema.names and name in self._schema.names:
                text = file.partition[at] if file.partition is not None else None
                yield name, typed_values([text], self._schema.field(name).type, name)[0]


def _split(table: pa.Table, sizes: Sequence[int]) -> list[pa.Table]:
    """Split a table into parts of some numbers of rows."""
    return [table.slice(end - size, size) for end, size in zip(accumulate(sizes), sizes, strict=True)]
