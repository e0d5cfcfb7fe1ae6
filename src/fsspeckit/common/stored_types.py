"""The marks of columns that files store in a form that Arrow does not carry: INTERVAL, TIME in UTC, VARIANT, old lists.

A field carries its marks from the footer to every task, so that new and rewritten files have the schema elements of the
files of the dataset. A result that a caller gets has no marks. INT96 has a mark of its own (`fsspeckit.common.int96`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from fsspeckit.common.int96 import MARK

ELEMENTS = b"fsspeckit.elements"
"""Metadata of a field: the schema elements of its column in the file, as bytes."""
LOGICAL = b"fsspeckit.logical"
"""Metadata of a field: the logical types in its elements that Arrow does not carry."""
BARE = b"fsspeckit.bare"
"""Metadata of a field: its file has no Arrow schema, from which some readers take the type."""
MIXED = b"fsspeckit.mixed"
"""Metadata of a field: the logical types that it has in different files."""
DECODED = b"fsspeckit.decoded"
"""Metadata of a field: the categories of its file are decoded as plain values first."""
_FORM = (ELEMENTS, LOGICAL, BARE, MIXED)
_MARKS = (*_FORM, DECODED, MARK)


def marks_of(field: pa.Field) -> dict[bytes, bytes]:
    """Return the marks of a field, except that of INT96."""
    return {key: value for key, value in (field.metadata or {}).items() if key in _FORM}


def decoded_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns of categories that are decoded as plain values first."""
    return tuple(field.name for field in schema if DECODED in (field.metadata or {}))


def without_marks(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose fields have no marks."""
    if not any(key in _MARKS for field in schema for key in field.metadata or ()):
        return schema
    return pa.schema([_without(field, _MARKS) for field in schema], schema.metadata)


def with_marks_of(schema: pa.Schema, like: pa.Schema) -> pa.Schema:
    """Return a schema whose fields have the marks, except that of INT96, that they have in another schema."""
    marks = {field.name: found for field in like if (found := marks_of(field))}
    named = set(like.names)
    if not marks and not any(map(marks_of, schema)):
        return schema
    fields = [_marked(field, marks.get(field.name, {})) if field.name in named else field for field in schema]
    return pa.schema(fields, schema.metadata)


def _marked(field: pa.Field, marks: Mapping[bytes, bytes]) -> pa.Field:
    plain = _without(field, _FORM)
    return plain.with_metadata({**(plain.metadata or {}), **marks} or None)


def with_types_kept(schema: pa.Schema, like: pa.Schema) -> pa.Schema:
    """Return a schema whose fields are stored as in another schema, where they have the same types."""
    same = [field for field in like if field.name in schema.names and schema.field(field.name).type.equals(field.type)]
    return with_marks_of(schema, pa.schema(same))


def with_mixed(schema: pa.Schema, files: Iterable[pa.Schema]) -> pa.Schema:
    """Return the common schema of files, with a mark on fields whose logical types differ between them."""
    found: dict[str, set[bytes]] = {}
    for file in files:
        for field in file:
            found.setdefault(field.name, set()).add((field.metadata or {}).get(LOGICAL, b""))
    mixed = {name: b" and ".join(sorted(kinds)) for name, kinds in found.items() if len(kinds) > 1}
    if not mixed:
        return schema
    fields = [
        field.with_metadata({**(field.metadata or {}), MIXED: mixed[field.name]}) if field.name in mixed else field
        for field in schema
    ]
    return pa.schema(fields, schema.metadata)


def _without(field: pa.Field, keys: tuple[bytes, ...]) -> pa.Field:
    metadata = field.metadata or {}
    if not any(key in metadata for key in keys):
        return field
    left = {key: value for key, value in metadata.items() if key not in keys}
    return field.with_metadata(left) if left else field.remove_metadata()
