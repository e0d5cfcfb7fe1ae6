"""Replace string and binary views in nested columns by plain types, because Arrow cannot take or write all of them.

polars passes texts as views. A view that is not nested is kept: all operations support it, except with old versions.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as pat

from fsspeckit.common.arrow_versions import INSTALLED, VIEWS
from fsspeckit.common.casting import exact_cast
from fsspeckit.common.types import is_any_list, is_view, list_like, without_view


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema without views in nested columns; the same object if there are none."""
    is_old = INSTALLED < VIEWS
    fields = [_plain_field(field) if is_old or pat.is_nested(field.type) else field for field in schema]
    return schema if fields == list(schema) else pa.schema(fields, schema.metadata)


def plain_table(table: pa.Table) -> pa.Table:
    """Return the table without views in nested columns."""
    schema = plain_schema(table.schema)
    if schema.equals(table.schema):
        return table
    columns = [
        column
        if column.type == type_
        else pa.chunked_array([exact_cast(chunk, type_) for chunk in column.chunks], type_)
        for column, type_ in zip(table.columns, schema.types, strict=True)
    ]
    return pa.table(columns, schema=schema)


def plain_reader(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the stream without views in nested columns."""
    schema = plain_schema(reader.schema)
    if schema.equals(reader.schema):
        return reader
    batches = (part for batch in reader for part in plain_table(pa.Table.from_batches([batch])).to_batches())
    return pa.RecordBatchReader.from_batches(schema, batches)


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain(field.type))


def _plain(type_: pa.DataType) -> pa.DataType:
    if is_view(type_):
        return without_view(type_)
    if pat.is_dictionary(type_):
        return pa.dictionary(type_.index_type, _plain(type_.value_type), type_.ordered)
    if is_any_list(type_):
        return list_like(type_, _plain_field(type_.value_field))
    if pat.is_struct(type_):
        return pa.struct([_plain_field(field) for field in type_])
    if pat.is_map(type_):
        return pa.map_(_plain_field(type_.key_field), _plain_field(type_.item_field), type_.keys_sorted)
    return type_
