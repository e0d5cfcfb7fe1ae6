"""Parquet files of several paths and patterns as one source, in parts that different processes read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from fsspeckit.common.errors import SourceFileError
from fsspeckit.common.partitions import partition_type
from fsspeckit.common.schema import cast_schema, unify_schemas
from fsspeckit.core.commit.listing import View
from fsspeckit.core.dataset.source import SourceFiles, files_of_view, source_files
from fsspeckit.core.ext.inputs import InputFile, find_files, is_pattern
from fsspeckit.core.formats import ENDINGS
from fsspeckit.core.model import DataFile, ViewFile
from fsspeckit.core.storage import Storage

_PART_BYTES = 64 * 1024 * 1024
_OPERATION = "reading the source"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class FilePart:
    """Some row groups of a file: of the files with this number, the file with that one."""

    storage: Storage
    location: str
    size: int
    files: int
    number: int
    row_groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ParquetParts:
    """Parts of Parquet files under one schema."""

    files: tuple[FilePart, ...]
    schema: pa.Schema
    sources: tuple[SourceFiles, ...]

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        part = self.files[number]
        for batch in self.sources[part.files].batches(part.number, part.row_groups):
            table = pa.Table.from_batches([batch])
            same = cast_schema(table, self.schema, fill_missing=True, operation=_OPERATION, path=part.location)
            yield from same.to_batches()


def parquet_parts(
    paths: Sequence[str], storage_options: Mapping[str, Any] | None, wanted: pa.Schema | None = None
) -> ParquetParts:
    """The parts of all files at some paths and patterns.

    Args:
        paths: Files, folders and patterns.
        storage_options: Options of the filesystem of URLs.
        wanted: Types of columns, which come first.
    """
    return _parts(tuple(_source_files(path, storage_options) for path in paths), wanted, paths)


def parts_of_files(groups: Iterable[Sequence[InputFile]], wanted: pa.Schema | None = None) -> ParquetParts:
    """The parts of files that were found before; those of a group were found by one path."""
    found = [list(group) for group in groups if group]
    names = [file.location for group in found for file in group]
    return _parts(tuple(_of_files(group) for group in found), wanted, names[:_SHOWN])


def _parts(sources: tuple[SourceFiles, ...], wanted: pa.Schema | None, shown: Sequence[str]) -> ParquetParts:
    sources = _with_joint_folders(sources)
    schema = unify_schemas((source.schema for source in sources), operation=_OPERATION)
    parts = tuple(
        FilePart(source.storage, file.location, size, place, number, groups)
        for place, source in enumerate(sources)
        for number, file in enumerate(source.files)
        for groups, size in _split(file)
    )
    return ParquetParts(parts, schema if wanted is None else _with_columns(schema, wanted, shown), sources)


def _with_joint_folders(sources: tuple[SourceFiles, ...]) -> tuple[SourceFiles, ...]:
    """Give partition columns whose types differ one type, which the folders of all sources have."""
    for name in sorted({name for source in sources for folders in source.partitions for name in folders}):
        types = {source.schema.field(name).type for source in sources if name in source.schema.names}
        in_files = any(name in file.schema.names for source in sources for file in source.files)
        if len(types) > 1 and not in_files:
            joint = partition_type([f[name] for source in sources for f in source.partitions if name in f])
            sources = tuple(_with_type(source, name, joint) for source in sources)
    return sources


def _with_type(source: SourceFiles, name: str, type_: pa.DataType) -> SourceFiles:
    at = source.schema.get_field_index(name)
    if at < 0:
        return source
    return replace(source, schema=source.schema.set(at, source.schema.field(at).with_type(type_)))


def _source_files(path: str, storage_options: Mapping[str, Any] | None) -> SourceFiles:
    if not is_pattern(path):
        return source_files(path, None, storage_options)
    return _of_files(find_files(path, ENDINGS["parquet"], _OPERATION, None, storage_options))


def _of_files(found: Sequence[InputFile]) -> SourceFiles:
    files = tuple(ViewFile(file.relative, file.location, file.size, file.stamp) for file in found)
    return files_of_view(found[0].storage, View("", exists=True, head=0, files=files, side_files=(), pending=False))


def _split(file: DataFile) -> Iterator[tuple[tuple[int, ...], int]]:
    """Neighbouring row groups together, and about how many bytes they have."""
    groups: list[int] = []
    size = 0
    for number, rows in enumerate(file.row_groups):
        groups.append(number)
        size += file.size * rows // max(1, file.rows)
        if size >= _PART_BYTES:
            yield tuple(groups), size
            groups, size = [], 0
    if groups or not file.row_groups:
        yield tuple(groups), size


def _with_columns(schema: pa.Schema, wanted: pa.Schema, paths: Sequence[str]) -> pa.Schema:
    missing = [name for name in wanted.names if name not in schema.names]
    if missing:
        raise SourceFileError(
            f"{_OPERATION} {', '.join(paths)}: no file has the columns {missing}. The files have {schema.names}. "
            "Correct the names of the columns."
        )
    others = [field for field in schema if field.name not in wanted.names]
    return pa.schema([*wanted, *others], schema.metadata)
