"""The state of a dataset at one moment: its files and their common schema. Nothing here writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from posixpath import basename, dirname

import pyarrow as pa

from fsspeckit.common.errors import NestedDatasetError, PartitionError, SchemaMismatchError
from fsspeckit.common.partitions import parse_hive_partition_path
from fsspeckit.common.schema import unify_schemas
from fsspeckit.core.commit.listing import View
from fsspeckit.core.model import DataFile, PartitionValues, ViewFile
from fsspeckit.core.parquet.data_files import read_data_files
from fsspeckit.core.storage import Storage

_KEPT_FOOTERS = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All data files of a dataset and their common schema, which is ``None`` if there is no file."""

    root: str
    view: View
    files: tuple[DataFile, ...]
    schema: pa.Schema | None
    partition_columns: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Rows in the dataset."""
        return sum(file.rows for file in self.files)


def load_snapshot(
    storage: Storage,
    view: View,
    *,
    stats_for: Sequence[str] = (),
    empty_may_differ: bool = False,
    keep_footers: bool = False,
    on_done: Callable[[int], None] | None = None,
) -> Snapshot:
    """Read the footers of all files of a view.

    Args:
        storage: The storage of the files.
        view: The files.
        stats_for: Columns whose statistics and Bloom filters are needed, besides the partition columns.
        empty_may_differ: Whether files without rows may have a schema that does not fit the others.
        keep_footers: Whether raw footers are kept, up to 8 MB, for files that are read as a whole. On remote storage,
            small files are then read whole.
        on_done: Called with the number of footers that were read.
    """
    columns, files = load_files(storage, view, stats_for, keep_footers=keep_footers, on_done=on_done)
    schema = joint_schema(files, view.root) if empty_may_differ else _unified(files, view.root)
    return Snapshot(view.root, view, files, schema, columns)


def load_files(
    storage: Storage,
    view: View,
    stats_for: Sequence[str] = (),
    *,
    keep_footers: bool = False,
    on_done: Callable[[int], None] | None = None,
) -> tuple[tuple[str, ...], tuple[DataFile, ...]]:
    """Return the partition columns and all files of a view, like `load_snapshot`, whether their schemas fit or not."""
    columns, values = partition_layout([file.path for file in view.files])
    kept = _KEPT_FOOTERS if keep_footers else 0
    read = read_data_files(storage, view.files, (*stats_for, *columns), kept_bytes=kept, on_done=on_done)
    if not columns:
        return columns, tuple(read)
    return columns, tuple(replace(file, partition=value) for file, value in zip(read, values, strict=True))


def check_one_dataset(snapshot: Snapshot) -> None:
    """Raise if files in different folders have so few columns in common that they are different datasets."""
    by_schema = list({id(file.schema): file for file in snapshot.files}.values())
    for number, file in enumerate(by_schema):
        for other in by_schema[:number]:
            if file.folder != other.folder and _are_unrelated(set(file.schema.names), set(other.schema.names)):
                raise NestedDatasetError(
                    f"{snapshot.root} contains different datasets: {other.path} has the columns {other.schema.names}, "
                    f"and {file.path} has {file.schema.names}. Move the files of one dataset out of {snapshot.root}."
                )


def _are_unrelated(one: set[str], other: set[str]) -> bool:
    """Return whether both have columns that the other lacks, and share less than half of the larger set."""
    return not (one <= other or other <= one) and 2 * len(one & other) < max(len(one), len(other))


def joint_schema(files: Sequence[DataFile], root: str) -> pa.Schema | None:
    """Return the common schema of all files that have rows. Files without rows extend it if they fit."""
    filled = [file for file in files if file.rows]
    schema = _unified(filled or files[:1], root)
    for empty in {id(file.schema): file.schema for file in files if not file.rows}.values():
        try:
            schema = unify_schemas([schema, empty])
        except SchemaMismatchError:
            continue
    return schema


def _unified(files: Sequence[DataFile], root: str) -> pa.Schema | None:
    """Return the common schema of all files. If there is none, the error names two files that do not fit."""
    by_schema = list({id(file.schema): file for file in reversed(files)}.values())[::-1]
    try:
        return unify_schemas(file.schema for file in by_schema) if by_schema else None
    except SchemaMismatchError as error:
        for number, file in enumerate(by_schema):
            for other in by_schema[:number]:
                unify_schemas([other.schema, file.schema], operation=f"joining {other.path} and {file.path}", path=root)
        raise error


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
    parsed = {folder: parse_hive_partition_path(f"{folder}/x") for folder in dict.fromkeys(folders)}
    layouts = {tuple(values) for values in parsed.values() if values}
    if len(layouts) > 1:
        shown = " and ".join(sorted("/".join(layout) for layout in layouts)[:2])
        raise PartitionError(
            f"the folders of the dataset have different partition columns ({shown}). "
            "Move the files of one of them to another dataset."
        )
    columns = next(iter(layouts), ())
    by_folder = {folder: tuple(values.values()) if values else None for folder, values in parsed.items()}
    return columns, [by_folder[folder] for folder in folders]
