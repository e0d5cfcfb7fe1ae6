"""The mark of timestamps that files store as INT96: a field carries it from the footer to every task.

New and rewritten files store the column like the files of the dataset, so that the readers of these can read them. A
result that a caller gets has no marks.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyarrow import types as pat

from fsspeckit.common.types import list_like

MARK = b"fsspeckit.int96"
"""Metadata of a field. Its value is the field that the Arrow schema of the footer has, if there is one."""
UNIT = "us"
"""Unit of INT96 timestamps without nanoseconds. As nanoseconds, years after 2262 would overflow."""


def int96_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that are stored as INT96."""
    return tuple(field.name for field in schema if MARK in (field.metadata or {}))


def without_int96(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose columns are not stored as INT96."""
    if not int96_columns(schema):
        return schema
    return pa.schema([without_mark(field) for field in schema], schema.metadata)


def without_mark(field: pa.Field) -> pa.Field:
    """Return a field that is not stored as INT96."""
    return field.with_metadata({key: value for key, value in (field.metadata or {}).items() if key != MARK} or None)


def same_int96(schema: pa.Schema, like: pa.Schema) -> pa.Schema:
    """Return a schema whose timestamps are stored as INT96 where another one has them like that."""
    marks = {field.name: field.metadata[MARK] for field in like if MARK in (field.metadata or {})}
    fields = [
        field.with_metadata({**(field.metadata or {}), MARK: marks[field.name]})
        if field.name in marks and timestamps_in(field.type)
        else without_mark(field)
        for field in schema
    ]
    return pa.schema(fields, schema.metadata) if marks else schema


def unit_of(schema: pa.Schema) -> str:
    """Return the unit in which the INT96 columns of a file are read."""
    found = (type_ for name in int96_columns(schema) for type_ in timestamps_in(schema.field(name).type))
    return "ns" if any(type_.unit == "ns" for type_ in found) else UNIT


def replace_leaves(type_: pa.DataType, convert: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type whose leaves, in their order in Parquet, are converted."""
    if pat.is_struct(type_):
        return pa.struct([field.with_type(replace_leaves(field.type, convert)) for field in type_])
    if pat.is_map(type_):
        both = [field.with_type(replace_leaves(field.type, convert)) for field in (type_.key_field, type_.item_field)]
        return pa.map_(*both, keys_sorted=type_.keys_sorted)
    if pat.is_nested(type_) and hasattr(type_, "value_field"):
        return list_like(type_, type_.value_field.with_type(replace_leaves(type_.value_field.type, convert)))
    return convert(type_)


def timestamps_in(type_: pa.DataType) -> list[pa.DataType]:
    """Return the timestamps in a type."""
    found: list[pa.DataType] = []

    def add(leaf: pa.DataType) -> pa.DataType:
        found.extend([leaf] if pat.is_timestamp(leaf) else [])
        return leaf

    replace_leaves(type_, add)
    return found
