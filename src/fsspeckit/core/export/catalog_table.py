"""A dataset as a catalog of the Hive family describes it: columns, partition columns, and the folders of partitions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.types as pat

from fsspeckit.common.documents import parse_json
from fsspeckit.common.errors import CatalogError, PartitionError, StorageError, UnsupportedDataError
from fsspeckit.core.export.simple_types import TITLES, no_type, simple_type
from fsspeckit.core.export.table import Table, unsupported

TITLE = TITLES["hive"]
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
OWNER = "fsspeckit.location"
"""The parameter of a table that says which folder `register` wrote it for."""
_PARQUET = "org.apache.hadoop.hive.ql.io.parquet"
INPUT_FORMAT = f"{_PARQUET}.MapredParquetInputFormat"
OUTPUT_FORMAT = f"{_PARQUET}.MapredParquetOutputFormat"
SERDE = f"{_PARQUET}.serde.ParquetHiveSerDe"
_NAME = re.compile(r"[A-Za-z0-9_]{1,255}", re.ASCII)
_NOT_IN_NAMES = frozenset(",:;")
_FIELD_NAME = re.compile(r"\w+")
Values = tuple[str, ...]
"""The values of a partition as texts."""


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
    partitions: Mapping[Values, str]

    @classmethod
    def of(cls, table: Table, location: str) -> CatalogTable:
        """Return the description of a table.

        Raises:
            UnsupportedDataError: Hive has no type for a column, or cannot have its name.
            PartitionError: One partition has several folders, or an empty text.
        """
        _check_names(table.schema.names)
        table.check_partitions(TITLE)
        types = table.types(TITLE, hive_type)
        keys = tuple((name, types.pop(name)) for name in table.partition_columns)
        return cls(location, tuple(types.items()), keys, _folders(table, location) if keys else {})

    def changes(self, known: Mapping[Values, tuple[str, Sequence[tuple[str, str]]]]) -> PartitionChanges:
        """Compare the partitions with those of a catalog, which are given with their folders and columns."""
        columns = list(self.columns)
        new = [values for values in self.partitions if values not in known]
        gone = [values for values in known if values not in self.partitions]
        kept = ((values, *known[values]) for values in self.partitions if values in known)
        changed = [values for values, at, has in kept if at != self.partitions[values] or list(has) != columns]
        return PartitionChanges(new, gone, changed)


@dataclass(frozen=True, slots=True)
class PartitionChanges:
    """The values of partitions that a catalog does not have yet, that are gone, and that it describes otherwise."""

    new: Sequence[Values]
    gone: Sequence[Values]
    changed: Sequence[Values]


def _folders(table: Table, location: str) -> dict[Values, str]:
    """Return the folder of each partition. A catalog has one for each, and readers of it do not search below."""
    found: dict[Values, str] = {}
    for file in table.files:
        values = tuple(NULL_PARTITION if value is None else _text(value) for value in file.partition)
        folder = f"{location}/{file.path.rpartition('/')[0]}"
        if found.setdefault(values, folder) != folder:
            raise PartitionError(
                f"{table.path} has two folders for the partition {'/'.join(values)}: "
                f"{found[values]} and {folder}. A catalog has one folder for each partition. Nothing was changed. Move "
                "the files into one folder, or write the rows of the partition again."
            )
    return found


def _text(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_names(names: Sequence[str]) -> None:
    bad = [name for name in names if _NOT_IN_NAMES & set(name)]
    if bad:
        raise UnsupportedDataError(
            f"{TITLE} does not allow one of ,:; in the name of a column: {bad}. Nothing was changed. Rename it."
        )
    lower = [name.lower() for name in names]
    twice = sorted({name for name in names if lower.count(name.lower()) > 1})
    if twice:
        raise UnsupportedDataError(
            f"{TITLE} does not distinguish upper and lower case in the names of columns: {twice}. Nothing was changed. "
            "Rename all but one of them."
        )


def hive_type(name: str, kind: pa.DataType) -> str:
    """Return the Hive type of a column.

    Example:
        >>> hive_type("a", pa.struct([("x", pa.list_(pa.int8()))]))
        'struct<x:array<tinyint>>'
    """
    found = simple_type("hive", name, kind)
    if found is not None:
        return found
    if pat.is_list(kind) or pat.is_large_list(kind):
        return f"array<{hive_type(f'{name}[]', kind.value_type)}>"
    if pat.is_map(kind):
        return f"map<{hive_type(f'{name}.key', kind.key_type)},{hive_type(f'{name}.value', kind.item_type)}>"
    if pat.is_struct(kind) and kind.num_fields:
        return (
            "struct<" + ",".join(f"{_field_name(name, f)}:{hive_type(f'{name}.{f.name}', f.type)}" for f in kind) + ">"
        )
    raise no_type("hive", name, kind)


def _field_name(column: str, field: pa.Field) -> str:
    if not _FIELD_NAME.fullmatch(field.name):
        raise unsupported(TITLE, f"{column}.{field.name}", field.type, "Use letters, digits and _ in names of fields.")
    return str(field.name)


def other_table(name: TableName, table: CatalogTable) -> CatalogError:
    """Return the error for a table of the same name that describes something else."""
    return CatalogError(
        f"The catalog has a table {name} that does not describe {table.location}. "
        "Nothing was changed. Choose another name, or delete that table."
    )


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
            body = parse_json(data)
            options = {str(name): str(value) for name, value in body["options"].items()}
            return cls(TableName.parse(body["table"]), options)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StorageError(
                f"The registration of {path} in a catalog is damaged ({error}). Run `fsspeckit register` again."
            ) from error
