"""Types, field ids and bounds of Apache Iceberg.

Files of a dataset have no field ids, so readers find columns through a name mapping. An id belongs to one name and type
for as long as the export exists.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from fsspeckit.common.errors import UnsupportedDataError
from fsspeckit.core.export.simple_types import TITLES, no_type, simple_type
from fsspeckit.core.export.table import Bounds, FileSchema, Table

TITLE = TITLES["iceberg"]
_FIELD_ID = b"PARQUET:field_id"
_LONGEST_TEXT = 64
_ELEMENT_NAMES = ["element", "item", "array"]
_MICROSECONDS = {"s": 10**6, "ms": 10**3, "us": 1}


def iceberg_type(name: str, kind: pa.DataType) -> Any:
    """Return the type of a column without field ids: a text, or a tuple for a nested type.

    Example:
        >>> iceberg_type("a", pa.int64()), iceberg_type("a", pa.list_(pa.string()))
        ('long', ('list', 'string'))
    """
    return simple_type("iceberg", name, kind) or _nested_type(name, kind)


def _nested_type(name: str, kind: pa.DataType) -> Any:
    if pat.is_list(kind) or pat.is_large_list(kind):
        return "list", iceberg_type(f"{name}.element", kind.value_type)
    if pat.is_map(kind):
        return "map", iceberg_type(f"{name}.key", kind.key_type), iceberg_type(f"{name}.value", kind.item_type)
    if pat.is_struct(kind) and kind.num_fields:
        return "struct", tuple((field.name, iceberg_type(f"{name}.{field.name}", field.type)) for field in kind)
    raise no_type("iceberg", name, kind)


def types_of(table: Table) -> dict[str, Any]:
    """Return the types of all columns. Raise if there is a column that Iceberg cannot have."""
    for each in table.schemas:
        _check_no_field_ids(each)
    table.check_times(TITLE)
    types = table.types(TITLE, iceberg_type)
    _check_categories(table)
    return types


def _check_categories(table: Table) -> None:
    """Raise for categories beside other values: pyiceberg reads them as they are, and cannot join them."""
    found: dict[str, FileSchema] = {}
    for each in table.schemas:
        for column in each.schema:
            other = found.setdefault(column.name, each)
            pair = {str(each.schema.field(column.name).type), str(other.schema.field(column.name).type)}
            if len(pair) > 1 and any("dictionary<" in kind for kind in pair):
                raise UnsupportedDataError(
                    f"{TITLE} export of {table.path}: the column {column.name!r} is {' and '.join(sorted(pair))} in "
                    f"{each.path} and {other.path}, which pyiceberg cannot read as one column. Nothing was changed. "
                    f"Run `fsspeckit compact {table.path}` with a target above their sizes, which writes one type."
                )


def _check_no_field_ids(file: FileSchema) -> None:
    named = [field.name for field in file.schema if _FIELD_ID in (field.metadata or {})]
    if named:
        raise UnsupportedDataError(
            f"{file.path} has field ids of another table for the columns {named}, which readers of Iceberg would use. "
            "Nothing was changed. Write the file again without field ids, or export the dataset as Delta."
        )


class FieldIds:
    """Gives out field ids: the same one for the same name and type, else a new one."""

    def __init__(self, known: dict[str, int]) -> None:
        self.known = dict(known)

    @property
    def last(self) -> int:
        """The highest id that was given out."""
        return max(self.known.values(), default=0)

    def get(self, path: str, kind: Any) -> int:
        """Return the id of a field."""
        return self.known.setdefault(f"{path}:{kind!r}", self.last + 1)

    def field(self, path: str, name: str, kind: Any) -> dict[str, Any]:
        """Return a field of a schema. All fields may be null: a file can lack a column."""
        return {"id": self.get(path, kind), "name": name, "required": False, "type": self._type(path, kind)}

    def _type(self, path: str, kind: Any) -> Any:
        if isinstance(kind, str):
            return kind
        if kind[0] == "struct":
            return {"type": "struct", "fields": [self.field(f"{path}.{name}", name, each) for name, each in kind[1]]}
        if kind[0] == "list":
            inner = self.get(f"{path}.element", kind[1])
            element = self._type(f"{path}.element", kind[1])
            return {"type": "list", "element-id": inner, "element-required": False, "element": element}
        return {
            "type": "map",
            "key-id": self.get(f"{path}.key", kind[1]),
            "key": self._type(f"{path}.key", kind[1]),
            "value-id": self.get(f"{path}.value", kind[2]),
            "value-required": False,
            "value": self._type(f"{path}.value", kind[2]),
        }


def name_mapping(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the name mapping of the fields of a schema."""
    return [_mapped(field["id"], [field["name"]], field["type"]) for field in fields]


def _mapped(number: int, names: list[str], kind: Any) -> dict[str, Any]:
    mapped: dict[str, Any] = {"field-id": number, "names": names}
    if isinstance(kind, str):
        return mapped
    if kind["type"] == "struct":
        return mapped | {"fields": name_mapping(kind["fields"])}
    if kind["type"] == "list":
        return mapped | {"fields": [_mapped(kind["element-id"], _ELEMENT_NAMES, kind["element"])]}
    parts = [_mapped(kind[f"{part}-id"], [part], kind[part]) for part in ("key", "value")]
    return mapped | {"fields": parts}


def partition_value(value: Any) -> Any:
    """Return a partition value as a manifest has it."""
    if isinstance(value, datetime):
        utc = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        since = utc - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86400 + since.seconds) * 10**6 + since.microseconds
    return value.toordinal() - date(1970, 1, 1).toordinal() if isinstance(value, date) else value


def bound_bytes(kind: Any, bounds: Bounds) -> tuple[bytes | None, bytes | None]:
    """Return the lower and the upper bound of a column as a manifest has them, or None."""
    lower, upper = (_bytes(kind, bounds.native, raw) for raw in (bounds.lower, bounds.upper))
    return lower, upper


def _bytes(kind: Any, native: pa.DataType | None, raw: Any) -> bytes | None:
    if raw is None or native is None:
        return None
    if kind in ("int", "date"):
        return int(raw).to_bytes(4, "little", signed=True)
    if kind == "long":
        return int(raw).to_bytes(8, "little", signed=True)
    if kind in ("timestamp", "timestamptz"):
        factor = _MICROSECONDS.get(native.unit)
        return None if factor is None else _long(raw * factor)
    if kind == "string":
        return bytes(raw) if len(raw) <= _LONGEST_TEXT else None
    if isinstance(kind, str) and kind.startswith("decimal"):
        return int(raw).to_bytes((int(raw).bit_length() + 8) // 8, "big", signed=True)
    return None


def _long(value: int) -> bytes | None:
    return value.to_bytes(8, "little", signed=True) if -(2**63) <= value < 2**63 else None
