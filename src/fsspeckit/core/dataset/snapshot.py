"""The state of a dataset at one moment: its files and their common schema. Nothing here writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from posixpath import basename, dirname

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import to_numpy
from fsspeckit.common.errors import NestedDatasetError, PartitionError, SchemaMismatchError
from fsspeckit.common.partitions import (
    parse_hive_partition_path,
    partition_type,
    plain_partition_type,
    reads_all,
)
from fsspeckit.common.schema import renamed, unify_schemas
from fsspeckit.common.stored_types import with_mixed
from fsspeckit.common.text import counted
from fsspeckit.core.commit.emptied import Emptied
from fsspeckit.core.commit.file_list import FileList
from fsspeckit.core.commit.listing import View
from fsspeckit.core.dataset.column_case import check_column_case, joined_names
from fsspeckit.core.dataset.indexed_files import DataFiles, Partitions, files_of_view, partition_values, schemas_of
from fsspeckit.core.model import DataFile, PartitionValues, ViewFile
from fsspeckit.core.parquet.data_files import read_data_files
from fsspeckit.core.parquet.footer_chunk import ReadFooters
from fsspeckit.core.parquet.footer_format import from_bytes, joined
from fsspeckit.core.parquet.footer_table import FooterTable, Numbers
from fsspeckit.core.storage import Storage

_logger = logging.getLogger(__name__)
_KEPT_FOOTERS = 8 * 1024 * 1024
_CHUNK = 500
MapFooters = Callable[[ReadFooters, Sequence[tuple[ViewFile, ...]], Callable[[int], None]], list[bytes]]
"""Applies a function to chunks of files in parallel, like `Engine.map`."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All data files of a dataset and their common schema.

    If there is no file, the schema is that of the dataset before its last file was removed, or ``None`` if there is no
    dataset.
    """

    root: str
    view: View
    files: Sequence[DataFile]
    schema: pa.Schema | None
    partition_columns: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Rows in the dataset."""
        return int(row_counts(self.files).sum())


def load_snapshot(
    storage: Storage,
    view: View,
    *,
    stats_for: Sequence[str] = (),
    empty_may_differ: bool = False,
    keep_footers: bool = False,
    use_index: bool = True,
    on_done: Callable[[int], None] | None = None,
    map_footers: MapFooters | None = None,
    read: Collection[str] | None = None,
    ignore_case: bool = False,
) -> Snapshot:
    """Read the footers of all files of a view.

    Args:
        storage: The storage of the files.
        view: The files.
        stats_for: Columns whose statistics and Bloom filters are needed, besides the partition columns.
        empty_may_differ: Whether files without rows may have a schema that does not fit the others.
        keep_footers: Whether raw footers are kept, up to 8 MB, for files that are read as a whole. On remote storage,
            small files are then read whole.
        use_index: Whether the footer index is used. It is of no use if all files are opened anyway.
        on_done: Called with the number of footers that were read.
        map_footers: Reads very many footers in parallel on other machines.
        read: The columns whose names may not differ only in case from others. Default: all.
        ignore_case: Whether columns of different files whose names differ only in case are one column of the schema.

    Raises:
        SchemaMismatchError: Columns of two files have no common type, or names that differ only in case.
    """
    columns, files = load_files(
        storage,
        view,
        stats_for,
        keep_footers=keep_footers,
        use_index=use_index,
        on_done=on_done,
        map_footers=map_footers,
    )
    renames = column_renames(files) if ignore_case else {}
    if empty_may_differ:
        schema = joint_schema(files, view.root, renames, read)
    else:
        schema = _unified(files, view.root, renames=renames, read=read)
    _logger.info("%s: %s, version %d", view.root, counted(len(view.files), "data file"), view.head)
    return _snapshot(view, files, schema, columns)


def _snapshot(view: View, files: Sequence[DataFile], schema: pa.Schema | None, columns: tuple[str, ...]) -> Snapshot:
    """Return a snapshot; that of an empty dataset has the columns in the journal."""
    if view.emptied is not None:
        schema, columns = view.emptied.schema, tuple(view.emptied.partition_schema.names)
    return Snapshot(view.root, view, files, schema, columns)


def full_schema(snapshot: Snapshot) -> pa.Schema:
    """Return the schema of the files and, last, the partition columns that are only in folder names."""
    assert snapshot.schema is not None
    fields = [field for field in partition_schema(snapshot) if field.name not in snapshot.schema.names]
    return pa.schema([*snapshot.schema, *fields], snapshot.schema.metadata)


def partition_schema(snapshot: Snapshot) -> pa.Schema:
    """Return the partition columns with their types: those of the files, those in the journal, or inferred ones."""
    known = pa.schema([]) if snapshot.schema is None else snapshot.schema
    if snapshot.view.emptied is not None and not snapshot.files:
        known = pa.schema([*known, *(f for f in snapshot.view.emptied.partition_schema if f.name not in known.names)])
    texts = [values for values in partition_values(snapshot.files) if values is not None]
    folders = folder_schema(snapshot.view, snapshot.partition_columns, texts, known.names)
    names = snapshot.partition_columns
    return pa.schema([known.field(name) if name in known.names else folders.field(name) for name in names])


def folder_schema(
    view: View, columns: Sequence[str], values: Iterable[PartitionValues], in_files: Collection[str] = ()
) -> pa.Schema:
    """Return the types of the partition columns that are only in the names of folders, which have these values."""
    recorded = [None] * len(columns) if view.partition_types is None else view.partition_types.of_columns(columns)
    distinct = list(dict.fromkeys(values))
    fields = []
    for at, (name, type_) in enumerate(zip(columns, recorded, strict=True)):
        if name in in_files:
            continue
        texts = list(dict.fromkeys(each[at] for each in distinct))
        if type_ is not None and not reads_all(texts, type_):
            _logger.warning("%s: folders of %s are not of its type %s, which was recorded", view.root, name, type_)
            type_ = None  # noqa: PLW2901
        fields.append(pa.field(name, partition_type(texts) if type_ is None else type_))
    return pa.schema(fields)


def emptied_as(body: pa.Schema, partitions: Sequence[str], source: pa.Schema) -> Emptied:
    """Return the columns of a new dataset without rows."""
    return Emptied.of(body, pa.schema([(name, plain_partition_type(source.field(name).type)) for name in partitions]))


def load_files(
    storage: Storage,
    view: View,
    stats_for: Sequence[str] = (),
    *,
    keep_footers: bool = False,
    use_index: bool = True,
    on_done: Callable[[int], None] | None = None,
    map_footers: MapFooters | None = None,
) -> tuple[tuple[str, ...], DataFiles]:
    """Return the partition columns and all files of a view, like `load_snapshot`, whether their schemas fit or not."""
    columns, partitions = _partitions_of(view.files)
    wanted = tuple(dict.fromkeys((*stats_for, *columns)))
    kept = _KEPT_FOOTERS if keep_footers else 0

    def read(files: Sequence[ViewFile], names: Sequence[str]) -> list[DataFile]:
        return read_data_files(storage, files, names, kept_bytes=kept, on_done=on_done)

    def read_many(files: Sequence[ViewFile], names: Sequence[str]) -> list[FooterTable]:
        assert map_footers is not None
        chunks = [tuple(files[at : at + _CHUNK]) for at in range(0, len(files), _CHUNK)]
        found = map_footers(ReadFooters(storage, tuple(names)), chunks, lambda _: None)
        return joined(table for data in found for table in from_bytes(data))

    distributes = map_footers is not None and storage.is_shared
    # The index has instants, so it is not used where INT96 timestamps are read without a time zone.
    indexed = view if use_index and not storage.int96_local else replace(view, index=None)
    return columns, files_of_view(indexed, partitions, wanted, read, read_many if distributes else None)


def newer_snapshot(
    storage: Storage, snapshot: Snapshot, view: View, new: Collection[str], stats_for: Sequence[str]
) -> tuple[Snapshot, Snapshot]:
    """Return the snapshot of a newer view, and one of its ``new`` files. Only the footers of these are read.

    The second one has the schema of the first: that of the dataset.
    """
    columns, values = partition_layout([file.path for file in view.files])
    if view.partition_types is None and columns == snapshot.partition_columns:
        view = replace(view, partition_types=snapshot.view.partition_types)
    known = {file.path: file for file in snapshot.files if file.path not in new}
    added = [file for file in view.files if file.path in new]
    read = {file.path: file for file in read_data_files(storage, added, (*stats_for, *columns))}
    found = [read.get(file.path) or known[file.path] for file in view.files]
    files = tuple(replace(file, partition=value) for file, value in zip(found, values, strict=True))
    newer = _snapshot(view, files, _unified(files, view.root), columns)
    return newer, replace(newer, files=tuple(file for file in files if file.path in new))


def same_types(one: Snapshot, other: Snapshot) -> bool:
    """Return whether the files of two snapshots have the same columns, or both have no files."""
    if one.schema is None or other.schema is None:
        return one.schema is other.schema
    return bool(one.schema.equals(other.schema))


def check_one_dataset(snapshot: Snapshot) -> None:
    """Raise if files in different folders have so few columns in common that they are different datasets."""
    by_schema = schema_examples(snapshot.files)
    for number, file in enumerate(by_schema):
        for other in by_schema[:number]:
            if file.folder != other.folder and _are_unrelated(set(file.schema.names), set(other.schema.names)):
                raise NestedDatasetError(
                    f"{snapshot.root} contains different datasets: {other.path} has the columns {other.schema.names}, "
                    f"and {file.path} has {file.schema.names}. Move the files of one dataset out of {snapshot.root}."
                )


def schema_examples(files: Sequence[DataFile]) -> list[DataFile]:
    """Return a file for each schema."""
    return [files[last] for _, last in sorted(_schema_spans(files))]


def _schema_spans(files: Sequence[DataFile], numbers: Numbers | None = None) -> list[tuple[int, int]]:
    """Return for each schema the first and the last file that has it, of all files or of some."""
    spans: dict[bytes, tuple[int, int]] = {}
    for schema, own in _by_schema(files):
        mine = own if numbers is None else np.intersect1d(own, numbers)
        if len(mine):
            key = schema.serialize().to_pybytes()
            first, last = spans.get(key, (mine[0], mine[-1]))
            spans[key] = int(min(first, mine[0])), int(max(last, mine[-1]))
    return list(spans.values())


def _by_schema(files: Sequence[DataFile]) -> Iterable[tuple[pa.Schema, Numbers]]:
    return files.by_schema() if isinstance(files, DataFiles) else schemas_of(dict(enumerate(files)))


def column_renames(files: Sequence[DataFile]) -> dict[str, str]:
    """Return the new names of columns of different files that differ only in case."""
    return joined_names([(schema, len(own)) for schema, own in _by_schema(files)])


def _are_unrelated(one: set[str], other: set[str]) -> bool:
    """Return whether both have columns that the other lacks, and share less than half of the larger set."""
    return not (one <= other or other <= one) and 2 * len(one & other) < max(len(one), len(other))


def joint_schema(
    files: Sequence[DataFile], root: str, renames: Mapping[str, str] | None = None, read: Collection[str] | None = None
) -> pa.Schema | None:
    """Return the common schema of all files that have rows. Files without rows extend it if they fit."""
    renames = renames or {}
    rows = row_counts(files)
    filled, empty = np.flatnonzero(rows > 0), np.flatnonzero(rows == 0)
    schema = _unified(files, root, filled if len(filled) else np.arange(min(1, len(files))), renames, read)
    for first, _ in sorted(_schema_spans(files, empty)):
        other = renamed(files[first].schema, renames)
        try:
            extended = unify_schemas([schema, other])
            check_column_case(extended, [("", schema), (files[first].path, other)], root, read)
        except SchemaMismatchError:
            continue
        schema = extended
    return schema


def row_counts(files: Sequence[DataFile]) -> Numbers:
    """Return the number of rows of each file."""
    return files.row_counts if isinstance(files, DataFiles) else np.array([file.rows for file in files], dtype=np.int64)


def _unified(
    files: Sequence[DataFile],
    root: str,
    numbers: Numbers | None = None,
    renames: Mapping[str, str] | None = None,
    read: Collection[str] | None = None,
) -> pa.Schema | None:
    """Return the common schema of files. If there is none, the error names two files that do not fit."""
    spans = sorted(_schema_spans(files, numbers), key=lambda span: span[1])
    found = [(files[first].path, renamed(files[first].schema, renames or {})) for first, _ in spans]
    try:
        unified = unify_schemas(schema for _, schema in found) if found else None
        unified = None if unified is None else with_mixed(unified, (schema for _, schema in found))
    except SchemaMismatchError as error:
        for number, (path, schema) in enumerate(found):
            for other, known in found[:number]:
                unify_schemas([known, schema], operation=f"joining {other} and {path}", path=root)
        raise error
    if unified is not None and len(found) > 1:
        check_column_case(unified, found, root, read)
    return unified


def single_file_view(storage: Storage, path: str) -> View | None:
    """Return a view of one file, or ``None`` if the path is not a file."""
    stat = storage.stat_file(path)
    if stat is None or stat.size < 0:
        return None
    file = ViewFile(basename(path), path, stat.size, stat.stamp)
    return View(dirname(path), exists=True, head=0, files=(file,), side_files=(), pending=False)


def partition_layout(paths: Sequence[str]) -> tuple[tuple[str, ...], list[PartitionValues | None]]:
    """Return the partition columns of a dataset and the values of each file; ``None`` for a file outside partitions."""
    folders = [dirname(path) for path in paths]
    columns, by_folder = _folder_layout(list(dict.fromkeys(folders)))
    return columns, [by_folder[folder] for folder in folders]


def _folder_layout(folders: Sequence[str]) -> tuple[tuple[str, ...], dict[str, PartitionValues | None]]:
    parsed = {folder: parse_hive_partition_path(f"{folder}/x") for folder in folders}
    layouts = {tuple(values) for values in parsed.values() if values}
    if len(layouts) > 1:
        shown = " and ".join(sorted("/".join(layout) for layout in layouts)[:2])
        raise PartitionError(
            f"the folders of the dataset have different partition columns ({shown}). "
            "Move the files of one of them to another dataset."
        )
    columns = next(iter(layouts), ())
    return columns, {folder: tuple(values.values()) if values else None for folder, values in parsed.items()}


def _partitions_of(files: Sequence[ViewFile]) -> tuple[tuple[str, ...], Partitions]:
    """Return the partition columns of listed files and their values."""
    if isinstance(files, FileList):
        encoded = pc.replace_substring_regex(files.paths, "/?[^/]*$", "").dictionary_encode()
        folders, codes = encoded.dictionary.to_pylist(), to_numpy(encoded.indices).astype(np.int64)
    else:
        numbers: dict[str, int] = {}
        codes = np.array([numbers.setdefault(dirname(f.path), len(numbers)) for f in files], dtype=np.int64)
        folders = list(numbers)
    columns, by_folder = _folder_layout(folders)
    return columns, Partitions([by_folder[folder] for folder in folders], codes)
