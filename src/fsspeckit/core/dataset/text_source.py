"""Csv and json files as a source of rows: named first, and read when the types of their dataset are known.

The readers are imported when files are read, because other merges do not need them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from fsspeckit.common.partitions import partition_type
from fsspeckit.common.types import is_text
from fsspeckit.core.dataset.snapshot import Snapshot, partition_layout
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

    Example:
        >>> TextFiles("orders.txt", "csv", delimiter=";", encoding="latin-1").format
        'csv'
    """

    path: str
    format: TextFormat
    delimiter: str | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        """Refuse a format that is not known, and a delimiter that cannot be one."""
        if self.format not in ("csv", "json"):
            raise ValueError(f"format={self.format!r} is unknown; use 'csv' or 'json'")
        if self.delimiter is not None and self.format != "csv":
            raise ValueError(f"delimiter={self.delimiter!r} does not go with {self.format}; leave it out")
        if self.delimiter is not None and not can_delimit(self.delimiter):
            raise ValueError(f"delimiter={self.delimiter!r} cannot separate values; use one such as ';' or a tab")

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

        known = column_types(self.format, types, in_folders)
        options = {"memory_map": True, "filesystem": filesystem, "storage_options": storage_options}
        if self.format == "json":
            return read_json(self.path, types=known, encoding=self.encoding, **options)
        return read_csv(self.path, types=known, delimiter=self.delimiter, encoding=self.encoding, **options)


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
    """The partition columns that a dataset has only in the names of its folders, with their types."""
    known = () if snapshot.schema is None else snapshot.schema.names
    columns, values = partition_layout([file.path for file in snapshot.view.files])
    texts = zip(*(value for value in values if value is not None), strict=True)
    return {name: partition_type(each) for name, each in zip(columns, texts, strict=True) if name not in known}


def read_later(given: Input, snapshot: Snapshot) -> Input:
    """Csv and json files as rows that are read when the source is opened."""
    read = partial(read_text, given.data, snapshot, given.filesystem, given.storage_options)
    return replace(given, data=DeferredRead(read))


def read_text(
    files: TextFiles, snapshot: Snapshot, filesystem: Any, storage_options: Mapping[str, Any] | None
) -> pa.Table:
    """The rows of csv or json files, parsed with the types of the dataset that they are for."""
    return files.read(snapshot.schema, columns_in_folders(snapshot), filesystem, storage_options)
