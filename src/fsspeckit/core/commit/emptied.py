"""The columns of a dataset whose last data file a commit removed. The record of the commit keeps them.

Without them, a dataset without rows could not be distinguished from one whose folder was removed, and would have no
columns. Anyone with access to the journal may have written them, so they are validated when the record is read.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from fsspeckit.common.categories import categories_of, has_categories, has_fixed_values, without_categories
from fsspeckit.common.errors import FsspeckitError
from fsspeckit.common.partitions import parse_hive_partition_path, partition_folder
from fsspeckit.core.parquet.writer_options import check_writable

_MAX_TEXT = 64 * 2**20
_MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Emptied:
    """The columns of the files that a dataset had, and its partition columns, as Arrow schemas in base64."""

    columns: str
    partitions: str

    @classmethod
    def of(cls, schema: pa.Schema, partitions: pa.Schema) -> Self:
        """Return the columns of files, and the partition columns with their types in the order of the folders."""
        return cls(_text(schema), _text(partitions))

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Read and validate the fields of a record.

        Raises:
            ValueError: They are not the columns of a dataset.
        """
        columns, partitions = fields["columns"], fields["partitions"]
        if not isinstance(columns, str) or not isinstance(partitions, str):
            raise ValueError("the columns of the empty dataset are not text")
        found = cls(columns, partitions)
        try:
            _check(found.stored, found.partition_schema)
        except (pa.ArrowException, FsspeckitError, OSError, ValueError, RecursionError) as error:
            raise ValueError(f"the columns of the empty dataset are not valid: {str(error)[:200]}") from error
        return found

    @property
    def schema(self) -> pa.Schema:
        """The columns of files."""
        return without_categories(self.stored)

    @property
    def stored(self) -> pa.Schema:
        """The columns of files; those of ordered categories carry them."""
        return _schema(self.columns)

    @property
    def partition_schema(self) -> pa.Schema:
        """The partition columns with their types, in the order of the folders."""
        return _schema(self.partitions)


def _text(schema: pa.Schema) -> str:
    return b64encode(schema.serialize()).decode()


def _schema(text: str) -> pa.Schema:
    if len(text) > _MAX_TEXT:
        raise ValueError(f"they have more than {_MAX_TEXT:,} bytes")
    return pa.ipc.read_schema(pa.py_buffer(b64decode(text, validate=True)))


def _check(schema: pa.Schema, partitions: pa.Schema) -> None:
    """Raise if no dataset can have these columns."""
    if not schema.names:
        raise ValueError("there is none")
    for field in (*schema, *partitions):
        _check_depth(field.type, _MAX_DEPTH)
    for field in filter(has_categories, schema):
        if not has_fixed_values(field):
            raise ValueError(f"the type of {field.name!r} has no ordered categories")
        categories_of(field).validate(full=True)
    check_writable(schema, "reading the journal")
    folders = [field for field in partitions if field.name not in schema.names]
    check_writable(pa.schema([*schema, *folders]), "reading the journal")
    names = partitions.names
    folder = partition_folder(names, ["x"] * len(names))
    if list(parse_hive_partition_path(f"{folder}/x")) != names or any(name.startswith((".", "_")) for name in names):
        raise ValueError(f"{names} are not partition columns")


def _check_depth(type_: pa.DataType, left: int) -> None:
    if not left:
        raise ValueError("a type is nested too deeply")
    for number in range(type_.num_fields):
        _check_depth(type_.field(number).type, left - 1)
