"""Replace the Arrow schema of a footer, so that pyarrow decodes nested texts and categories as plain types."""

from __future__ import annotations

import base64
from collections.abc import Collection

import pyarrow as pa

from fsspeckit.common.types import unwrapped
from fsspeckit.core.parquet.bytes.format_fields import FileField, KeyValueField
from fsspeckit.core.parquet.bytes.thrift import BINARY, read_struct, write_struct
from fsspeckit.core.parquet.footer import open_footer
from fsspeckit.core.values.views import plain_schema

_ARROW_SCHEMA = b"ARROW:schema"


def decodable_footer(data: bytes, decoded: Collection[str] = ()) -> bytes:
    """Return a footer whose stored Arrow schema has no views in nested columns, and no categories in some columns.

    It is the same object if there is nothing to replace.
    """
    schema = open_footer(data).schema_arrow
    if _plain(schema, decoded).equals(schema):
        return data
    tree, _ = read_struct(data)
    for pair in tree[FileField.key_values][1][1]:
        kind, value = pair.get(KeyValueField.value, (BINARY, b""))
        if pair[KeyValueField.key][1] == _ARROW_SCHEMA:
            stored = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value)))
            pair[KeyValueField.value] = kind, base64.b64encode(_plain(stored, decoded).serialize())
    return write_struct(tree)


def _plain(schema: pa.Schema, decoded: Collection[str]) -> pa.Schema:
    fields = [field.with_type(unwrapped(field.type)) if field.name in decoded else field for field in schema]
    return plain_schema(pa.schema(fields, schema.metadata))
