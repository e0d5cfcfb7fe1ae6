"""A dataset as a catalog of the Hive family describes it: columns, partition columns, and the folders of partitions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.types as pat

from fsspeckit.common.errors import StorageError
from fsspeckit.core.export.table import Table, unsupported

TITLE = "A Hive catalog"
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_NAME = re.compile(r"[A-Za-z0-9_]{1,255}", re.ASCII)
_SIMPLE = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
}


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table in a catalog."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Parse ``database.table``.

        Example:
            >>> TableName.parse("sales.orders").table
            'orders'
        """
        parts = text.split(".") if isinstance(text, str) else []
        if len(parts) != 2 or not all(map(_NAME.fullmatch, parts)):
            raise ValueError(f"table={text!r} is not a name such as 'sales.orders'. Pass the database and the table.")
        return cls(parts[0].lower(), parts[1].lower())


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """Columns and partition columns with their types, and the folder of each partition by its values."""

    location: str
    columns: tuple[tuple[str, str], ...]
    partition_columns: tuple[tuple[str, str], ...]
    partitions: Mapping[tuple[str, ...], str]

    @classmethod
    def of(cls, table: Table, location: str) -> CatalogTable:
        """Return the description of a table.

        Raises:
            UnsupportedDataError: Hive has no type for a column.
        """
        types = table.types(TITLE, hive_type)
        keys = tuple((name, types.pop(name)) for name in table.partition_columns)
        folders = {}
        if keys:
            for file in table.files:
                values = tuple(NULL_PARTITION if value is None else _text(value) for value in file.partition)
                folders[values] = f"{location}/{file.path.rpartition('/')[0]}"
        return cls(location, tuple(types.items()), keys, folders)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def hive_type(name: str, kind: pa.DataType, is_int96: bool = False) -> str:
    """Return the Hive type of a column.

    Example:
        >>> hive_type("a", pa.struct([("x", pa.list_(pa.int8()))]))
        'struct<x:array<tinyint>>'
    """
    if is_int96 or (pat.is_timestamp(kind) and kind.unit != "ns"):
        return "timestamp"
    if pat.is_dictionary(kind):
        kind = kind.value_type
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind):
        return "string"
    if pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_binary_view(kind):
        return "binary"
    if pat.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return f"decimal({kind.precision},{kind.scale})"
    if pat.is_list(kind) or pat.is_large_list(kind):
        return f"array<{hive_type(f'{name}[]', kind.value_type)}>"
    if pat.is_map(kind):
        return f"map<{hive_type(f'{name}.key', kind.key_type)},{hive_type(f'{name}.value', kind.item_type)}>"
    if pat.is_struct(kind):
        return "struct<" + ",".join(f"{f.name}:{hive_type(f'{name}.{f.name}', f.type)}" for f in kind) + ">"
    raise unsupported(TITLE, name, kind, "Write the column with another type, or leave it out.")


class Catalog(Protocol):
    """A catalog in which tables are registered."""

    def write(self, name: TableName, table: CatalogTable) -> tuple[int, int]:
        """Create or update a table and its partitions. Return how many partitions were added and removed."""

    def remove(self, name: TableName) -> None:
        """Delete a table that `write` created. A missing one is not an error."""


OpenCatalog = Callable[[Mapping[str, str]], Catalog]
"""Opens a catalog with the options of a registration."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The table of a catalog in which a dataset is registered, and how the catalog is reached. It has no secrets."""

    table: TableName
    options: Mapping[str, str]

    def to_bytes(self) -> bytes:
        """Return the registration as it is stored."""
        return json.dumps({"table": str(self.table), "options": dict(self.options)}).encode()

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Registration:
        """Parse a stored registration."""
        try:
            body = json.loads(data)
            options = {str(name): str(value) for name, value in body["options"].items()}
            return cls(TableName.parse(body["table"]), options)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StorageError(
                f"The registration of {path} in a catalog is damaged ({error}). Run `fsspeckit register` again."
            ) from error
