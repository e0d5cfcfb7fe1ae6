"""The files of a dataset as an export describes them: schema, partition values, rows and statistics."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fsspeckit.common.errors import OldCalendarError, PartitionError, UnsupportedDataError
from fsspeckit.common.int96 import int96_columns
from fsspeckit.core.model import ColumnStats, DataFile
from fsspeckit.core.parquet.timestamps import old_columns


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of the values of one column in a file. ``lower`` and ``upper`` are raw values of type ``native``.

    ``None`` means unknown. The bounds of floating point numbers are unknown: statistics leave out NaN.
    """

    nulls: int | None
    lower: Any
    upper: Any
    native: pa.DataType | None


@dataclass(frozen=True, slots=True)
class TableFile:
    """One data file. ``modified`` is in milliseconds since 1970, ``partition`` has one value per partition column."""

    path: str
    size: int
    modified: int
    rows: int
    partition: tuple[Any, ...]
    stats: Mapping[str, ColumnStats]
    groups: tuple[int, ...]
    schema: pa.Schema

    def bounds(self, name: str) -> Bounds:
        """Return what the footer says about a column."""
        stats = self.stats.get(name)
        if name not in self.schema.names:
            return Bounds(self.rows, None, None, None)
        if stats is None:
            return Bounds(None, None, None, None)
        nulls = None if any(count is None for count in stats.nulls) else sum(count or 0 for count in stats.nulls)
        filled = [at for at, rows in enumerate(self.groups) if stats.nulls[at] != rows]
        lower = _extreme([stats.lower[at] for at in filled], stats.native, min)
        upper = _extreme([stats.upper[at] for at in filled], stats.native, max)
        return Bounds(nulls, lower, upper, stats.native)


def _extreme(values: Sequence[Any], native: pa.DataType | None, choose: Callable[[list[Any]], Any]) -> Any:
    """Return the least or greatest value, or None if one is unknown."""
    if native is None or pa.types.is_floating(native) or not values or any(value is None for value in values):
        return None
    if pa.types.is_decimal(native):
        return choose([int.from_bytes(v, "big", signed=True) if isinstance(v, bytes) else v for v in values])
    return choose(list(values))


@dataclass(frozen=True, slots=True)
class FileSchema:
    """A schema, and one of the files that have it."""

    path: str
    schema: pa.Schema

    @classmethod
    def distinct(cls, files: Iterable[DataFile]) -> list[FileSchema]:
        """Return the different schemas of files."""
        found = {id(file.schema): file for file in files}
        return [cls(file.path, file.schema) for file in found.values()]


@dataclass(frozen=True, slots=True)
class Table:
    """A dataset to export. ``schema`` has all columns, and ``schemas`` are those of the files."""

    path: str
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    files: Sequence[TableFile]
    schemas: Sequence[FileSchema]

    def types(self, title: str, type_of: TypeOf) -> dict[str, Any]:
        """Return the types of all columns in a format.

        Raises:
            UnsupportedDataError: A column has no type in the format, or different types in two files. Readers of table
                formats do not convert between types of files.
        """
        types = {field.name: type_of(field.name, field.type) for field in self.schema}
        for each in self.schemas:
            for column in each.schema:
                if type_of(column.name, column.type) != types[column.name]:
                    raise UnsupportedDataError(
                        f"{title} export of {self.path}: the column {column.name!r} is {column.type} in {each.path}, "
                        "and has another type in other files. Nothing was changed. Write the files with one type first."
                    )
        return types

    def check_partitions(self, title: str) -> None:
        """Raise for empty texts as partition values, which the format cannot tell from null.

        Raises:
            PartitionError: A folder has an empty text.
        """
        for file in self.files:
            if "" in file.partition:
                raise PartitionError(
                    f"{title} export of {self.path}: the folder {file.path.rpartition('/')[0]} has an empty text, "
                    f"which {title} cannot tell from null. Nothing was changed. Write its rows with null or another "
                    "text."
                )

    def check_times(self, title: str) -> None:
        """Raise for timestamps of an old calendar, which readers of table formats read as others.

        Raises:
            OldCalendarError: A file of an old Spark may have dates before 1582 or times before 1900.
        """
        for file in self.files:
            for name in old_columns(file.schema):
                bounds = file.bounds(name)
                if bounds.lower is None and bounds.nulls != file.rows:
                    advice = "Write the file again with Spark and spark.sql.parquet.datetimeRebaseModeInWrite=CORRECTED"
                    if name in int96_columns(file.schema):
                        command = f"fsspeckit alter {self.path} --timestamps micros"
                        advice = f"Run `{command}`, which looks at all times and rewrites them if none is as old"
                    raise OldCalendarError(
                        f"{title} export of {self.path}: the column {name!r} of {file.path} may have dates before 1582 "
                        f"or times before 1900 in the calendar of an old Spark. Nothing was changed. {advice}."
                    )

    @property
    def digest(self) -> str:
        """A digest of the schema and of the paths, sizes and times of all files."""
        lines = [f"{file.path}\0{file.size}\0{file.modified}\0{file.rows}" for file in self.files]
        text = "\n".join([str(self.schema.remove_metadata()), repr(self.partition_columns), *lines])
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


TypeOf = Callable[[str, pa.DataType], Any]
"""Returns the type of a column in a format."""


def unsupported(title: str, column: str, kind: Any, advice: str) -> UnsupportedDataError:
    """Return the error for a column that a format cannot have."""
    return UnsupportedDataError(
        f"{title} has no type for the column {column!r} ({kind}). Nothing was changed. {advice}"
    )
