"""Replace the Arrow schema that a footer contains, so that pyarrow decodes nested texts as plain types."""

from __future__ import annotations

import base64

import pyarrow as pa

from fsspeckit.core.parquet.bytes.format_fields import FileField, KeyValueField
from fsspeckit.core.parquet.bytes.thrift import BINARY, read_struct, write_struct
from fsspeckit.core.parquet.footer import open_footer
from fsspeckit.core.values.views import plain_schema

_ARROW_SCHEMA = b"ARROW:schema"


def footer_without_views(data: bytes) -> bytes:
    """Return a footer whose stored Arrow schema has no views in nested columns; the same object if it has none."""
    schema = open_footer(data).schema_arrow
    if plain_schema(schema).equals(schema):
        return data
    tree, _ = read_struct(data)
    for pair in tree[FileField.key_values][1][1]:
        kind, value = pair.get(KeyValueField.value, (BINARY, b""))
        if pair[KeyValueField.key][1] == _ARROW_SCHEMA:
            stored = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value)))
            pair[KeyValueField.value] = kind, base64.b64encode(plain_schema(stored).serialize())
    return write_struct(tree)
