"""The categories of dictionary columns that have certain ones: a field carries them from planning to every cast.

The categories of an ordered dictionary are certain, and so are those of an Enum of polars, which reads other values as
null.

A Parquet file stores the categories as the dictionary of each row group, and readers join the dictionaries in the order
of files. So new values get the dictionary of the dataset, whatever values a file uses.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from fsspeckit.common.casting import exact_cast
from fsspeckit.common.errors import SchemaMismatchError

_NAME = b"fsspeckit.categories"
_COLUMN = "categories"
_SHOWN = 10
_ENUM_NAMES = (b"_PL_ENUM_VALUES2", b"_PL_ENUM_VALUES")
_OLD_ENUM = b"POLARS.CATEGORICAL_TYPE"
_LENGTH = re.compile(rb"(\d{1,9});")


def is_ordered(type_: pa.DataType) -> bool:
    """Return whether a type is a dictionary whose values have an order."""
    return bool(pat.is_dictionary(type_) and type_.ordered)


def has_fixed_values(field: pa.Field) -> bool:
    """Return whether a column has only certain values: ordered categories, or those of an Enum of polars."""
    if not pat.is_dictionary(field.type):
        return False
    is_old_enum = (field.metadata or {}).get(_OLD_ENUM) == b"ENUM"
    return bool(field.type.ordered or is_old_enum or _enum_values(field) is not None)


def enum_values(field: pa.Field) -> pa.Array | None:
    """Return the values of an Enum of polars, in their order; ``None`` if the column is none.

    Examples:
        >>> type_ = pa.dictionary(pa.uint8(), pa.string())
        >>> enum_values(pa.field("e", type_, metadata={"_PL_ENUM_VALUES2": "1;a2;bc"})).to_pylist()
        ['a', 'bc']
    """
    text = _enum_values(field)
    if text is None:
        return None
    values, at = [], 0
    while (found := _LENGTH.match(text, at)) is not None:
        at = found.end() + int(found[1])
        values.append(text[found.end() : at])
    return pa.array(values, pa.binary()).cast(pa.string()) if at == len(text) and values else None


def _enum_values(field: pa.Field) -> bytes | None:
    metadata = field.metadata or {}
    return next((metadata[name] for name in _ENUM_NAMES if name in metadata), None)


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
            f"{where}: column {field.name!r} has the value {others[0].as_py()!r}, which is none of the "
            f"categories of the dataset: {names}{f' and {more} more' if more else ''}. Correct the value, or write the "
            "dataset again with this category."
        )
    return pa.DictionaryArray.from_arrays(codes.cast(field.type.index_type), categories, ordered=field.type.ordered)
