"""Csv and json files as a source of rows: named first, and read when the types of their dataset are known.

The readers are imported when files are read, because other merges do not need them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as pat

from fsspeckit.common.errors import ColumnNameError, PartitionError
from fsspeckit.common.notation import Notation
from fsspeckit.common.partitions import as_read_from_folders, has_own_texts
from fsspeckit.common.types import is_number, is_text
from fsspeckit.core.dataset.snapshot import Snapshot, folder_schema, partition_layout, partition_schema
from fsspeckit.core.dataset.source import DeferredRead, Input
from fsspeckit.core.formats import can_delimit, format_of

TextFormat = Literal["csv", "json"]


@dataclass(frozen=True, slots=True)
class TextFiles:
    """Csv or json files: a file, a folder or a pattern, and how they are written.

    Pass it as the source of `merge` or `write_dataset` where a path alone does not say enough.

    Args:
        path: A file, a folder, or a pattern such as `data/*.csv`.
        format: `"csv"` or `"json"`.
        delimiter: The character between two values of a csv file; by default a comma, or a tab in a `.tsv` file.
        encoding: The encoding of the files.
        types: The types of some columns: a mapping, or text such as `"zip string, at timestamp"`. Other columns have
            the types of the dataset, and columns that it lacks have the type that all their values are written in.
        decimal_comma: Numbers of a csv file are written like `1.234,56`, in columns of `types` and of the dataset.
        date_format: Dates and times of a csv file are written in this format of `strptime`, such as `%d.%m.%Y`.

    Examples:
        >>> TextFiles("orders.csv", "csv", types="zip string").types
        {'zip': DataType(string)}
        >>> TextFiles("orders.txt", "csv", delimiter=";", encoding="latin-1").format
        'csv'
    """

    path: str
    format: TextFormat
    delimiter: str | None = None
    encoding: str = "utf-8"
    types: Mapping[str, pa.DataType] | str = field(default_factory=dict)
    decimal_comma: bool = False
    date_format: str | None = None

    def __post_init__(self) -> None:
        """Refuse a format that is not known, a delimiter that cannot be one, and types that are unknown."""
        if isinstance(self.types, str):
            from fsspeckit.core.expressions.column_types import parse_column_types

            object.__setattr__(self, "types", parse_column_types(self.types))
        if self.format not in ("csv", "json"):
            raise ValueError(f"format={self.format!r} is unknown; use 'csv' or 'json'")
        if self.delimiter is not None and self.format != "csv":
            raise ValueError(f"delimiter={self.delimiter!r} does not go with {self.format}; leave it out")
        if self.delimiter is not None and not can_delimit(self.delimiter):
            raise ValueError(f"delimiter={self.delimiter!r} cannot separate values; use one such as ';' or a tab")
        if (self.decimal_comma or self.date_format is not None) and self.format != "csv":
            name = "decimal_comma" if self.decimal_comma else "date_format"
            raise ValueError(f"{name} does not go with {self.format}; leave it out")
        Notation(self.decimal_comma, self.date_format)

    def read(
        self,
        types: pa.Schema | None,
        in_folders: Mapping[str, pa.DataType],
        filesystem: Any,
        storage_options: Mapping[str, Any] | None,
    ) -> pa.Table:
        """The rows, mapped from a temporary file.

        Args:
            types: Types of columns; those of other columns are inferred.
            in_folders: Partition columns that the dataset has only in the names of its folders, with their types.
                Where they are text, the cells of a csv file are not changed.
            filesystem: An fsspec filesystem that the path belongs to.
            storage_options: Options of the filesystem that a URL names.
        """
        from fsspeckit.core.ext import read_csv, read_json
        from fsspeckit.core.ext.csv import check_delimiter

        given = dict[str, pa.DataType](self.types)  # type: ignore[arg-type]  # text is parsed at construction
        known = column_types(self.format, types, in_folders) | given
        options = {"memory_map": True, "filesystem": filesystem, "storage_options": storage_options}
        if self.format == "json":
            table = read_json(self.path, types=known, encoding=self.encoding, **options)
        else:
            table = read_csv(
                self.path,
                types=known,
                delimiter=self.delimiter,
                encoding=self.encoding,
                decimal_comma=self.decimal_comma,
                date_format=self.date_format,
                **options,
            )
            check_delimiter(self.path, table.column_names, self.delimiter)
        missing = [name for name in given if name not in table.column_names]
        if missing and table.column_names:
            raise ColumnNameError(
                f"{self.path} has no column {missing}, whose type is given. Choose among {table.column_names}."
            )
        if self.date_format is not None and table.column_names and not any(map(pat.is_temporal, table.schema.types)):
            raise ColumnNameError(
                f"date_format={self.date_format!r} has no effect: no column of {self.path} is a date or timestamp. "
                "Pass types='day date', with the names of your columns."
            )
        return table


def text_files(data: Any) -> TextFiles | None:
    """The files that a path names, where it ends like those of csv or json."""
    if not isinstance(data, (str, os.PathLike)):
        return None
    path = os.fspath(data)
    format_ = format_of(path)
    return None if format_ is None or format_ == "parquet" else TextFiles(path, format_)


def column_types(
    format_: TextFormat, types: pa.Schema | None, in_folders: Mapping[str, pa.DataType]
) -> dict[str, pa.DataType]:
    """The types of columns for a reader, by those of a dataset and of its folders; see `TextFiles.read`."""
    own = {field.name: field.type for field in types or ()}
    is_csv = format_ == "csv"
    return own | {name: type_ for name, type_ in in_folders.items() if is_csv or not is_text(type_)}


def columns_in_folders(snapshot: Snapshot) -> dict[str, pa.DataType]:
    """The partition columns that a dataset has only in the names of its folders, with their types.

    Columns of numbers whose folders are padded, such as ``month=01``, are text: cells are padded there too.
    """
    types = _types_in_folders(snapshot)
    return types | dict.fromkeys(_padded(snapshot, types), pa.string())


def _types_in_folders(snapshot: Snapshot) -> dict[str, pa.DataType]:
    known = () if snapshot.schema is None else snapshot.schema.names
    if snapshot.view.emptied is not None:
        return {field.name: field.type for field in partition_schema(snapshot) if field.name not in known}
    columns, values = partition_layout([file.path for file in snapshot.view.files])
    folders = folder_schema(snapshot.view, columns, (value for value in values if value is not None), known)
    return {field.name: field.type for field in folders}


def _padded(snapshot: Snapshot, types: Mapping[str, pa.DataType]) -> list[str]:
    """Return the columns of numbers with folders whose text is not that of the number."""
    columns, values = partition_layout([file.path for file in snapshot.view.files])
    texts = {name: list({value[at] for value in values if value is not None}) for at, name in enumerate(columns)}
    return [
        name
        for name, type_ in types.items()
        if is_number(type_) and name in texts and not has_own_texts(texts[name], type_)
    ]


def read_later(given: Input, snapshot: Snapshot) -> Input:
    """Csv and json files as rows that are read when the source is opened."""
    read = partial(read_text, given.data, snapshot, given.filesystem, given.storage_options)
    return replace(given, data=DeferredRead(read))


def read_text(
    files: TextFiles, snapshot: Snapshot, filesystem: Any, storage_options: Mapping[str, Any] | None
) -> pa.Table:
    """The rows of csv or json files, parsed with the types of the dataset that they are for."""
    types = _types_in_folders(snapshot)
    padded = _padded(snapshot, types)
    table = files.read(snapshot.schema, types | dict.fromkeys(padded, pa.string()), filesystem, storage_options)
    for name in padded:
        if name in table.column_names and is_text(table.schema.field(name).type):
            with suppress(PartitionError):  # the values are refused where the source meets the dataset
                values = as_read_from_folders(table.column(name), types[name], name)
                table = table.set_column(table.schema.get_field_index(name), name, values)
    return table
