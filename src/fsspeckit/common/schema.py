"""Schemas: joining those of source, target and files, and bringing tables to one, never at the cost of a value.

The only copy of schema compatibility; every engine and reader asks here. Type decisions are in
`fsspeckit.common.types`, casts of single arrays in `fsspeckit.common.casting`, text columns in
`fsspeckit.common.inference`; this module adds columns, nullability and errors that name what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from pyarrow import types as pat

from fsspeckit.common.casting import exact_cast
from fsspeckit.common.choices import SchemaMode
from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.common.inference import opt_dtype
from fsspeckit.common.types import common_type, list_like, same_storage

__all__ = [
    "cast_schema",
    "common_type",
    "convert_large_types_to_normal",
    "opt_dtype",
    "reconcile",
    "same_storage",
    "unify_schemas",
]


def cast_schema(
    table: pa.Table,
    schema: pa.Schema,
    *,
    fill_missing: bool = False,
    operation: str = "cast_schema",
    path: str = "",
) -> pa.Table:
    """Bring a table to a schema without changing a value.

    Columns are found by name and put into the schema's order.

    Args:
        table: The rows.
        schema: The wanted schema; its metadata and nullability are those of the result.
        fill_missing: Fill columns that the table lacks with null, where the schema allows null.
        operation: Named in errors.
        path: The dataset, named in errors.

    Returns:
        The same rows under `schema`.

    Raises:
        SchemaMismatchError: A value does not fit its column exactly, a column is missing or left over, or a column
            that must not be null holds nulls.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"b": [1, 2], "a": ["x", "y"]})
        >>> cast_schema(table, pa.schema([("a", pa.large_string()), ("b", pa.int8())])).schema.types
        [DataType(large_string), DataType(int8)]
    """
    where = _where(operation, path)
    _refuse_duplicates(table.schema, where)
    _refuse_duplicates(schema, where)
    _refuse_other_columns(table.schema, schema, where, fill_missing)
    columns = []
    for field in schema:
        column = _cast_column(table, field, fill_missing, where)
        if column.null_count and not field.nullable:
            raise SchemaMismatchError(
                f"{where}: column {field.name!r} must not be null but holds {column.null_count} nulls. "
                "Fill or drop these rows first."
            )
        columns.append(column)
    if not columns:
        return table  # from_arrays cannot know the number of rows
    return pa.Table.from_arrays(columns, schema=schema)


def reconcile(
    target: pa.Schema,
    source: pa.Schema,
    *,
    mode: SchemaMode = "strict",
    operation: str = "merge",
    path: str = "",
) -> pa.Schema:
    """Return the schema of a target after a source joined it.

    The target's column order, metadata and nullability stay; each type becomes the widest lossless one. Numbers
    without a common type (`uint64` into `int64`) keep the target's type, and `cast_schema` then checks the values.

    Args:
        target: Schema of the dataset.
        source: Schema of the rows that come.
        mode: "strict" wants the same columns on both sides; "evolve" appends new ones and lets nullable ones lack.
        operation: Named in errors.
        path: The dataset, named in errors.

    Raises:
        SchemaMismatchError: Columns differ, or types have no lossless common type.

    Example:
        >>> import pyarrow as pa
        >>> old = pa.schema([("id", pa.int32()), ("name", pa.string())])
        >>> reconcile(old, pa.schema([("name", pa.string_view()), ("id", pa.int64())])).types
        [DataType(int64), DataType(string)]
    """
    where = _where(operation, path)
    _refuse_duplicates(target, where)
    _refuse_duplicates(source, where)
    _check_columns(target, source, mode, where)
    evolve = mode == "evolve"
    fields, conflicts = [], []
    for field in target:
        if source.get_field_index(field.name) < 0:
            fields.append(field)
            continue
        joined = common_type(field.type, source.field(field.name).type, evolve=evolve, checked=True)
        if joined is None:
            conflicts.append(f"{field.name!r} is {field.type} in the target and {source.field(field.name).type} here")
        else:
            fields.append(field.with_type(joined))
    if conflicts:
        raise SchemaMismatchError(
            f"{where}: no lossless common type: {'; '.join(conflicts)}. "
            "Cast these source columns to the target's types first."
        )
    fields.extend(field.with_nullable(True) for field in source if target.get_field_index(field.name) < 0)
    return pa.schema(fields, metadata=target.metadata)


def unify_schemas(
    schemas: Iterable[pa.Schema],
    *,
    checked: bool = False,
    operation: str = "unify_schemas",
    path: str = "",
) -> pa.Schema:
    """Return the one schema that holds the rows of all given schemas without loss.

    Columns come in the order in which they first appear; a column that some schema lacks, or allows to be null, is
    nullable. Metadata of schemas and of columns is joined too: every key is kept, and where two schemas say different
    things under one key, the first one is right.

    Args:
        schemas: Schemas of the files of one dataset, or of tables that are to be joined.
        checked: Join int64 and float64 too; `cast_schema` then finds values that do not fit.
        operation: Named in errors.
        path: The dataset, named in errors.

    Raises:
        SchemaMismatchError: A column has types without a lossless common type.

    Example:
        >>> import pyarrow as pa
        >>> unify_schemas([pa.schema([("a", pa.int8())]), pa.schema([("a", pa.int16()), ("b", pa.string())])]).types
        [DataType(int16), DataType(string)]
    """
    where = _where(operation, path)
    unified: pa.Schema | None = None
    for schema in schemas:
        if unified is None:
            _refuse_duplicates(schema, where)
            unified = schema
        elif not unified.equals(schema, check_metadata=True):
            _refuse_duplicates(schema, where)
            unified = _unify_two(unified, schema, checked, where)
    return pa.schema([]) if unified is None else unified


def convert_large_types_to_normal(schema: pa.Schema) -> pa.Schema:
    """Replace large strings, binaries and lists by their normal kinds, at any depth.

    Example:
        >>> import pyarrow as pa
        >>> convert_large_types_to_normal(pa.schema([("a", pa.large_list(pa.large_string()))])).types
        [ListType(list<item: string>)]
    """
    return pa.schema([_normal_field(field) for field in schema], metadata=schema.metadata)


def _where(operation: str, path: str) -> str:
    return f"{operation} of {path}" if path else operation


def _refuse_duplicates(schema: pa.Schema, where: str) -> None:
    names = schema.names
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise SchemaMismatchError(f"{where}: columns that stand twice: {twice}. Rename them first.")


def _refuse_other_columns(have: pa.Schema, want: pa.Schema, where: str, fill_missing: bool) -> None:
    extra = [name for name in have.names if want.get_field_index(name) < 0]
    missing = [
        field.name for field in want if have.get_field_index(field.name) < 0 and not (fill_missing and field.nullable)
    ]
    if extra or missing:
        raise SchemaMismatchError(
            f"{where}: the columns differ: missing {missing}, left over {extra}. "
            "Select the columns of the schema first."
        )


def _cast_column(table: pa.Table, field: pa.Field, fill_missing: bool, where: str) -> pa.ChunkedArray:
    if table.schema.get_field_index(field.name) < 0:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(field.name)
    if column.type.equals(field.type):
        return column
    try:
        chunks = [exact_cast(chunk, field.type, fill_missing=fill_missing) for chunk in column.chunks]
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            f"{where}: column {field.name!r} cannot be cast from {column.type} to {field.type} without loss: {error}. "
            "Cast it yourself first if the loss is intended."
        ) from error
    return pa.chunked_array(chunks, type=field.type)


def _check_columns(target: pa.Schema, source: pa.Schema, mode: SchemaMode, where: str) -> None:
    missing = [field for field in target if source.get_field_index(field.name) < 0]
    extra = [name for name in source.names if target.get_field_index(name) < 0]
    both = f"Target columns: {target.names}; source columns: {source.names}."
    if mode == "strict" and (missing or extra):
        raise SchemaMismatchError(
            f"{where}: the source lacks {[field.name for field in missing]} and brings {extra}. {both} Give the source "
            'the same columns, or merge with schema_mode="evolve" to add new columns and fill missing ones with null.'
        )
    required = [field.name for field in missing if not field.nullable]
    if required:
        raise SchemaMismatchError(
            f"{where}: the source lacks {required}, which must not be null in the target. {both} "
            "Add these columns to the source."
        )


def _unify_two(first: pa.Schema, second: pa.Schema, checked: bool, where: str) -> pa.Schema:
    fields = []
    for field in first:
        if second.get_field_index(field.name) < 0:
            fields.append(field.with_nullable(True))
            continue
        other = second.field(field.name)
        joined = common_type(field.type, other.type, evolve=True, loosen=True, checked=checked)
        if joined is None:
            raise SchemaMismatchError(
                f"{where}: column {field.name!r} is {field.type} in one place and {other.type} in another, "
                "which have no lossless common type. Rewrite the files of one kind first."
            )
        notes = _joined_metadata(field.metadata, other.metadata)
        fields.append(pa.field(field.name, joined, field.nullable or other.nullable, notes))
    fields.extend(field.with_nullable(True) for field in second if first.get_field_index(field.name) < 0)
    return pa.schema(fields, metadata=_joined_metadata(first.metadata, second.metadata))


def _joined_metadata(
    first: Mapping[bytes, bytes] | None, second: Mapping[bytes, bytes] | None
) -> dict[bytes, bytes] | None:
    """All keys of both, in which the first one is right."""
    return {
        **(first or {}),
        **{key: value for key, value in (second or {}).items() if key not in (first or {})},
    } or None


def _normal_field(field: pa.Field) -> pa.Field:
    return field.with_type(_normal(field.type))


def _normal(type_: pa.DataType) -> pa.DataType:
    if pat.is_large_string(type_):
        return pa.string()
    if pat.is_large_binary(type_):
        return pa.binary()
    if pat.is_dictionary(type_):
        return pa.dictionary(type_.index_type, _normal(type_.value_type), type_.ordered)
    if pat.is_large_list(type_):
        return pa.list_(_normal_field(type_.value_field))
    if pat.is_large_list_view(type_):
        return pa.list_view(_normal_field(type_.value_field))
    if pat.is_list(type_) or pat.is_list_view(type_) or pat.is_fixed_size_list(type_):
        return list_like(type_, _normal_field(type_.value_field))
    if pat.is_struct(type_):
        return pa.struct([_normal_field(field) for field in type_])
    if pat.is_map(type_):
        return pa.map_(_normal_field(type_.key_field), _normal_field(type_.item_field), type_.keys_sorted)
    return type_
