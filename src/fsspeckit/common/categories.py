"""The categories of ordered dictionary columns: a field carries them from planning to every cast.

A Parquet file stores the categories as the dictionary of each row group, and readers join the dictionaries in the order
of files. So new values get the dictionary of the dataset, whatever values a file uses.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from fsspeckit.common.casting import exact_cast
from fsspeckit.common.errors import SchemaMismatchError

_NAME = b"fsspeckit.categories"
_COLUMN = "categories"
_SHOWN = 10


def is_ordered(type_: pa.DataType) -> bool:
    """Return whether a type is a dictionary whose values have an order."""
    return bool(pat.is_dictionary(type_) and type_.ordered)


def with_categories(field: pa.Field, categories: pa.Array) -> pa.Field:
    """Return a field that carries its categories. They are never stored in a file."""
    batch = pa.record_batch([categories], [_COLUMN])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return field.with_metadata({**(field.metadata or {}), _NAME: sink.getvalue().to_pybytes()})


def has_categories(field: pa.Field) -> bool:
    """Return whether a field carries its categories."""
    return _NAME in (field.metadata or {})


def categories_of(field: pa.Field) -> pa.Array:
    """Return the categories that a field carries."""
    found = pa.ipc.open_stream(field.metadata[_NAME]).read_all()[_COLUMN].combine_chunks()
    return found.cast(field.type.value_type)


def same_categories(field: pa.Field, other: pa.Field) -> pa.Field:
    """Return a field with the categories that another field carries, if any."""
    if not has_categories(other):
        return field
    return field.with_metadata({**(field.metadata or {}), _NAME: other.metadata[_NAME]})


def without_categories(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose fields do not carry categories, as it is stored."""
    fields = [_without(field) if has_categories(field) else field for field in schema]
    return pa.schema(fields, schema.metadata)


def _without(field: pa.Field) -> pa.Field:
    return field.with_metadata({name: value for name, value in field.metadata.items() if name != _NAME} or None)


def in_categories(column: pa.ChunkedArray, field: pa.Field, where: str) -> pa.ChunkedArray:
    """Return values as codes of the categories that a field carries. Raise for a value that is none of them."""
    categories = categories_of(field)
    chunks = [_coded(chunk, categories, field, where) for chunk in column.chunks]
    return pa.chunked_array(chunks, field.type)


def _coded(chunk: pa.Array, categories: pa.Array, field: pa.Field, where: str) -> pa.Array:
    if chunk.type.equals(field.type) and chunk.dictionary.equals(categories):
        return chunk
    values = exact_cast(chunk, categories.type)
    codes = pc.index_in(values, value_set=categories)
    others = values.filter(pc.and_(codes.is_null(), values.is_valid()))
    if len(others):
        names, more = categories.slice(0, _SHOWN).to_pylist(), max(0, len(categories) - _SHOWN)
        raise SchemaMismatchError(
            f"{where}: column {field.name!r} has the value {others[0].as_py()!r}, which is none of the ordered "
            f"categories of the dataset: {names}{f' and {more} more' if more else ''}. Correct the value, or write the "
            "dataset again with this category."
        )
    return pa.DictionaryArray.from_arrays(codes.cast(field.type.index_type), categories, ordered=True)
