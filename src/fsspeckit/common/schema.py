"""Combine the schemas of source, target and files, and cast tables to a schema without loss.

Every engine and reader uses this module. Common types are decided in `fsspeckit.common.types`, arrays are cast in
`fsspeckit.common.casting`, types of text columns are inferred in `fsspeckit.common.inference`; this module adds
columns, nullability and error messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pat

from fsspeckit.common.casting import exact_cast
from fsspeckit.common.categories import has_categories, has_fixed_values, in_categories
from fsspeckit.common.choices import SchemaMode
from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.common.inference import opt_dtype
from fsspeckit.common.types import common_type, list_like, same_storage, stored_type

_CHECKED_ROWS = 262_144
_SHOWN = 80

__all__ = [
    "cast_schema",
    "check_fit",
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
    """Cast a table to a schema without changing a value.

    Columns are matched by name and returned in the order of the schema.

    Args:
        table: The rows.
        schema: The schema of the result, including metadata and nullability.
        fill_missing: Fill missing columns with null, if the schema allows null.
        operation: The operation, for errors.
        path: The dataset, for errors.

    Returns:
        The same rows with `schema`.

    Raises:
        SchemaMismatchError: A value does not fit its column exactly, a column is missing or not in the schema, or a
            column that is not nullable contains nulls.

    Examples:
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
                f"{where}: column {field.name!r} must not be null but contains nulls. Fill or drop these rows first."
            )
        columns.append(column)
    if not columns:
        return table  # from_arrays would lose the number of rows
    return pa.Table.from_arrays(columns, schema=schema)


def check_fit(
    column: pa.ChunkedArray,
    field: pa.Field,
    *,
    operation: str,
    path: str,
    rows: Sequence[int] | npt.NDArray[np.int64] | None = None,
) -> None:
    """Raise if a value of a source column cannot be stored in a column without loss.

    Args:
        column: The values.
        field: The stored column.
        operation: The operation, for errors.
        path: The dataset, for errors.
        rows: The numbers of the source rows, counted from 0, if they are not the positions in ``column``.

    Raises:
        SchemaMismatchError: It names the column, the first such value and its row.

    Examples:
        >>> import pyarrow as pa
        >>> column = pa.chunked_array([[1, 300]])
        >>> try:
        ...     check_fit(column, pa.field("n", pa.int8()), operation="merge", path="lake/events")
        ... except SchemaMismatchError as error:
        ...     print(str(error).partition(". ")[0])
        merge of lake/events: the value 300 of column 'n' (int64) in source row 1, counted from 0, cannot be stored as int8 without loss: Integer value 300 not in range: -128 to 127
    """  # noqa: E501 - the message is one line
    for start in range(0, len(column), _CHECKED_ROWS):
        part = column.slice(start, _CHECKED_ROWS)
        if (reason := _misfit(part, field)) is None:
            continue
        at = _first_misfit(part, field)
        where, single = _where(operation, path), _misfit(part.slice(at, 1), field)
        if single is None:  # only many values together do not fit, such as those of a dictionary with few codes
            raise SchemaMismatchError(
                f"{where}: column {field.name!r} cannot be cast from {column.type} to {field.type} without loss: "
                f"{reason}. Cast it before if the loss is intended."
            )
        number = start + at if rows is None else int(rows[start + at])
        if has_categories(field) and not single.startswith("the column"):
            raise SchemaMismatchError(f"{where}: source row {number:,}, counted from 0{single}")
        option = "" if operation in ("merge", "apply_changes") else "by a merge "
        raise _misfit_error(where, part[at], field, number, f"{single.rstrip('.')}. Nothing was changed", option)


def _first_misfit(column: pa.ChunkedArray, field: pa.Field) -> int:
    """Return the position of the first value that does not fit."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _misfit(column.slice(low, middle - low), field) is None else (low, middle)
    return low


def _misfit_error(
    where: str, value: pa.Scalar, field: pa.Field, row: int, reason: str, option: str
) -> SchemaMismatchError:
    if not value.is_valid and not field.nullable:
        return SchemaMismatchError(
            f"{where}: column {field.name!r} must not be null but contains nulls, first in source row {row:,}, counted "
            "from 0. Nothing was changed. Fill or drop these rows first."
        )
    may_widen = common_type(field.type, value.type) not in (None, field.type)
    remedy = f'or widen the column {option}with schema_mode="widen"' if may_widen else "or leave it out"
    return SchemaMismatchError(
        f"{where}: the value {_shown(value)} of column {field.name!r} ({value.type}) in source row {row:,}, counted "
        f"from 0, cannot be stored as {field.type} without loss: {reason}. Correct the row, {remedy}."
    )


def _misfit(column: pa.ChunkedArray, field: pa.Field) -> str | None:
    """Return why a value does not fit, or None if all do."""
    if column.null_count and not field.nullable:
        return "the column must not be null"
    if column.type.equals(field.type) and not has_categories(field):
        return None
    try:
        if has_categories(field):
            in_categories(column, field, "")
        for chunk in () if has_categories(field) else column.chunks:
            exact_cast(chunk, field.type, fill_missing=True)
    except pa.ArrowException as error:
        return str(error)
    return None


def _shown(value: pa.Scalar) -> str:
    try:
        text = repr(value.as_py()) if not pat.is_temporal(value.type) else str(value.as_py())
    except (ValueError, OverflowError):  # Python has no such time
        text = str(value.cast(pa.string()).as_py())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def reconcile(
    target: pa.Schema,
    source: pa.Schema,
    *,
    mode: SchemaMode = "strict",
    operation: str = "merge",
    path: str = "",
    remedy: str = "Use the same columns in the source.",
    partial: bool = False,
) -> pa.Schema:
    """Return the schema of a target after rows of a source are stored in it.

    Column order, metadata and nullability of the target stay. With "strict" its types stay too; otherwise each becomes
    the lossless common type, except for numbers that have none (`uint64` into `int64`). `cast_schema` then checks that
    the values fit the types that stay.

    Args:
        target: Schema of the dataset.
        source: Schema of the source rows.
        mode: "strict" and "widen" require the same columns on both sides; "evolve" appends new columns and allows the
            source to lack nullable ones.
        operation: The operation, for errors.
        path: The dataset, for errors.
        remedy: What to do if the columns differ, for errors.
        partial: Whether the source may lack nullable columns in every mode.

    Raises:
        SchemaMismatchError: Columns differ, values of one type cannot be stored as the other, or a new column or field
            differs from another one only in case.

    Examples:
        >>> import pyarrow as pa
        >>> old = pa.schema([("id", pa.int32()), ("name", pa.string())])
        >>> new = pa.schema([("name", pa.string_view()), ("id", pa.int64())])
        >>> reconcile(old, new).types, reconcile(old, new, mode="widen").types
        ([DataType(int32), DataType(string)], [DataType(int64), DataType(string)])
    """
    where = _where(operation, path)
    _refuse_duplicates(target, where)
    _refuse_duplicates(source, where)
    _check_columns(target, source, where, remedy, may_add=mode == "evolve", may_lack=partial or mode == "evolve")
    fields, conflicts = [], []
    for field in target:
        if source.get_field_index(field.name) < 0:
            fields.append(field)
            continue
        source_type = source.field(field.name).type
        joined = _type_after(field.type, source_type, mode)
        if joined is None:
            conflicts.append(f"{field.name!r} is {field.type} in the target and {source_type} in the source")
        else:
            fields.append(field if has_fixed_values(field) else field.with_type(joined))
    if conflicts:
        raise SchemaMismatchError(
            f"{where}: no lossless common type: {'; '.join(conflicts)}. {_conversions(target, source)}"
        )
    fields.extend(field.with_nullable(True) for field in source if target.get_field_index(field.name) < 0)
    refuse_case_twins(target, fields, where)
    return pa.schema(fields, metadata=target.metadata)


def _type_after(target: pa.DataType, source: pa.DataType, mode: SchemaMode) -> pa.DataType | None:
    if mode == "strict":
        return stored_type(target, source)
    return common_type(target, source, evolve=mode == "evolve", checked=True)


def refuse_case_twins(before: Iterable[pa.Field], after: Iterable[pa.Field], where: str) -> None:
    """Raise if a column or field that is only in ``after`` differs from another one only in case."""
    for name, twin in _case_twins(before, after, ""):
        raise SchemaMismatchError(
            f"{where}: the new column {name!r} differs from the column {twin!r} only in case, and Spark cannot "
            f"read a dataset with both. Rename it to {twin!r} in the source, and cast it to the type of that "
            "column, or choose another name."
        )


def unify_schemas(
    schemas: Iterable[pa.Schema],
    *,
    checked: bool = False,
    operation: str = "unify_schemas",
    path: str = "",
) -> pa.Schema:
    """Return a schema that holds the rows of all given schemas without loss.

    Columns are in the order of their first appearance. A column is nullable if a schema lacks it or has it nullable.
    Metadata of schemas and columns is combined: every key is kept, with its value in the first schema that has it.

    Args:
        schemas: Schemas of the files of one dataset, or of tables to be concatenated.
        checked: Also combine int64 and float64; `cast_schema` then refuses values that do not fit.
        operation: The operation, for errors.
        path: The dataset, for errors.

    Raises:
        SchemaMismatchError: A column has types without a lossless common type.

    Examples:
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
    """Replace large strings, binaries and lists with the normal types, at any depth.

    Examples:
        >>> import pyarrow as pa
        >>> convert_large_types_to_normal(pa.schema([("a", pa.large_list(pa.large_string()))])).types
        [ListType(list<item: string>)]
    """
    return pa.schema([_normal_field(field) for field in schema], metadata=schema.metadata)


def _conversions(target: pa.Schema, source: pa.Schema) -> str:
    """Return how source columns get the types of the target so that no value changes, in any zone of a session.

    A plain cast between instants and other types takes the zone of the session, and shifts the values.
    """
    pairs = [(f.name, f.type, source.field(f.name).type) for f in target if f.name in source.names]
    pairs = [pair for pair in pairs if common_type(pair[1], pair[2], evolve=True, checked=True) is None]
    for name, wanted, given in pairs:
        if _is_instant(wanted) and (pat.is_timestamp(given) or pat.is_string(given) or pat.is_large_string(given)):
            return (
                f"{name!r} has no time zone in the source. If its times are in UTC, convert it in Spark with "
                f"`CAST(concat({name}, ' UTC') AS TIMESTAMP)`, and in PyArrow with "
                f"`pc.assume_timezone(pc.cast({name}, pa.timestamp('us')), 'UTC')`."
            )
        if _is_instant(given) and pat.is_timestamp(wanted):
            return (
                f"{name!r} has no time zone in the target. If its times are in UTC, convert the source in Spark with "
                f"`timestampadd(MICROSECOND, unix_micros({name}), TIMESTAMP_NTZ '1970-01-01')`, and in PyArrow with "
                f"`{name}.cast(pa.timestamp('us'))`."
            )
        if _is_instant(wanted) or _is_instant(given):
            return f"Convert {name!r} with an explicit time zone: a cast takes the zone of the session."
    return "Convert these source columns to the types of the target so that no value changes."


def _rewriting(one: pa.DataType, other: pa.DataType) -> str:
    if pat.is_timestamp(one) and pat.is_timestamp(other):
        return (
            "Rewrite the files without a time zone with the one that their times have, or read INT96 timestamps of "
            "Impala or Hive without one, with the storage option int96=local."
        )
    return "Rewrite the files with one of the types."


def _is_instant(type_: pa.DataType) -> bool:
    return bool(pat.is_timestamp(type_) and type_.tz is not None)


def _where(operation: str, path: str) -> str:
    return f"{operation} of {path}" if path else operation


def _refuse_duplicates(schema: pa.Schema, where: str) -> None:
    names = schema.names
    if len(set(names)) != len(names):
        duplicates = sorted({name for name in names if names.count(name) > 1})
        raise SchemaMismatchError(f"{where}: duplicate column names: {duplicates}. Rename one of each pair.")


def _refuse_other_columns(source: pa.Schema, target: pa.Schema, where: str, fill_missing: bool) -> None:
    extra = [name for name in source.names if target.get_field_index(name) < 0]
    absent = [field for field in target if source.get_field_index(field.name) < 0]
    missing = [field.name for field in absent if not (fill_missing and field.nullable)]
    if extra or missing:
        raise SchemaMismatchError(
            f"{where}: the columns differ: missing {missing}, additional {extra}. Select the columns of the schema."
        )


def _cast_column(table: pa.Table, field: pa.Field, fill_missing: bool, where: str) -> pa.ChunkedArray:
    if table.schema.get_field_index(field.name) < 0:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(field.name)
    if column.type.equals(field.type) and not has_categories(field):
        return column
    try:
        if has_categories(field):
            return in_categories(column, field, where)
        chunks = [exact_cast(chunk, field.type, fill_missing=fill_missing) for chunk in column.chunks]
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            f"{where}: column {field.name!r} cannot be cast from {column.type} to {field.type} without loss: {error}. "
            "Cast it before if the loss is intended."
        ) from error
    return pa.chunked_array(chunks, type=field.type)


def _check_columns(
    target: pa.Schema, source: pa.Schema, where: str, remedy: str, *, may_add: bool, may_lack: bool
) -> None:
    missing = [field for field in target if source.get_field_index(field.name) < 0]
    extra = [name for name in source.names if target.get_field_index(name) < 0]
    both = f"Target columns: {target.names}; source columns: {source.names}."
    if (missing and not may_lack) or (extra and not may_add):
        raise SchemaMismatchError(
            f"{where}: the columns of the source differ: missing {[field.name for field in missing]}, additional "
            f"{extra}. {both} {remedy}"
        )
    required = [field.name for field in missing if not field.nullable]
    if required:
        raise SchemaMismatchError(
            f"{where}: the source lacks the columns {required}, which must not be null in the target. {both} "
            "Add these columns to the source."
        )


def _case_twins(before: Iterable[pa.Field], after: Iterable[pa.Field], prefix: str) -> Iterator[tuple[str, str]]:
    old, seen = {field.name: field.type for field in before}, dict[str, str]()
    for field in sorted(after, key=lambda field: field.name not in old):
        twin = seen.setdefault(field.name.lower(), field.name)
        if field.name in old:
            yield from _twins_inside(old[field.name], field.type, f"{prefix}{field.name}")
        elif twin != field.name:
            yield f"{prefix}{field.name}", f"{prefix}{twin}"


def _twins_inside(before: pa.DataType, after: pa.DataType, name: str) -> Iterator[tuple[str, str]]:
    """Names in nested types of one column. Items of lists, keys and values of maps have no names that count."""
    if pat.is_struct(before) and pat.is_struct(after):
        yield from _case_twins(before, after, f"{name}.")
    elif before.num_fields == after.num_fields:
        for number in range(after.num_fields):
            yield from _twins_inside(before.field(number).type, after.field(number).type, name)


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
                f"{where}: column {field.name!r} is {field.type} in one file and {other.type} in another, "
                f"and these types have no lossless common type. {_rewriting(field.type, other.type)}"
            )
        metadata = _joined_metadata(field.metadata, other.metadata)
        fields.append(pa.field(field.name, joined, field.nullable or other.nullable, metadata))
    fields.extend(field.with_nullable(True) for field in second if first.get_field_index(field.name) < 0)
    return pa.schema(fields, metadata=_joined_metadata(first.metadata, second.metadata))


def _joined_metadata(
    first: Mapping[bytes, bytes] | None, second: Mapping[bytes, bytes] | None
) -> dict[bytes, bytes] | None:
    """Return all keys of both; the first one takes precedence. The keys of the first one come first."""
    first, second = first or {}, second or {}
    return {**first, **{key: value for key, value in second.items() if key not in first}} or None


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


def renamed(schema: pa.Schema, names: Mapping[str, str]) -> pa.Schema:
    """Return a schema in which some columns have other names.

    Examples:
        >>> import pyarrow as pa
        >>> renamed(pa.schema([("ID", pa.int8())]), {"ID": "id"}).names
        ['id']
    """
    if not names:
        return schema
    fields = [field.with_name(names.get(field.name, field.name)) for field in schema]
    return pa.schema(fields, metadata=schema.metadata)


def field_remedy(missing: Sequence[str], known: Sequence[str]) -> str | None:
    """Return what to do if a missing column is named like a field of a nested column; None if none is.

    Examples:
        >>> field_remedy(["source.lsn"], ["id", "source"])
        "'source.lsn' is a field of the column 'source'. Select it as a column of its own first, such as lsn."
    """
    for name in missing:
        column, dot, field = name.partition(".")
        if dot and column in known:
            last = field.rpartition(".")[2]
            return (
                f"{name!r} is a field of the column {column!r}. Select it as a column of its own first, such as {last}."
            )
    return None
