"""The schema that Spark writes into footers. Spark takes its columns and types from there, not from the file.

So a file with other columns or types than the file whose footer metadata it got must not have it: Spark would not see
new columns, and could not read wider types. Without it Spark reads the columns of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import types as pat

from fsspeckit.common.documents import parse_json

_KEY = b"org.apache.spark.sql.parquet.row.metadata"
_NUMBERS = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}


def with_true_schema(metadata: Mapping[bytes, bytes], schema: pa.Schema) -> dict[bytes, bytes]:
    """Return footer metadata without a schema of Spark that is not the schema of the file."""
    found = dict(metadata)
    if _KEY in found and not _is_true(found[_KEY], schema):
        del found[_KEY]
    return found


def _is_true(text: bytes, schema: pa.Schema) -> bool:
    try:
        return _fits(parse_json(text), pa.struct(list(schema)))
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return False


def _fits(kind: Any, type_: pa.DataType) -> bool:
    """Return whether a type of Spark has the names and numbers of an Arrow type. Others do not change in a rewrite."""
    if isinstance(kind, str):
        number = _NUMBERS.get(kind)
        if kind.startswith("decimal("):
            return pat.is_decimal(type_) and kind == f"decimal({type_.precision},{type_.scale})"
        return number is None or number == type_
    if kind["type"] == "struct":
        names = {field.name: field.type for field in type_} if pat.is_struct(type_) else {}
        fields = {field["name"]: field["type"] for field in kind["fields"]}
        return fields.keys() == names.keys() and all(_fits(fields[name], names[name]) for name in fields)
    if kind["type"] == "array":
        return not _has_values(type_) or _fits(kind["elementType"], type_.value_type)
    if kind["type"] == "map" and pat.is_map(type_):
        return _fits(kind["keyType"], type_.key_type) and _fits(kind["valueType"], type_.item_type)
    return True


def _has_values(type_: pa.DataType) -> bool:
    return bool(pat.is_list(type_) or pat.is_large_list(type_) or pat.is_fixed_size_list(type_))
