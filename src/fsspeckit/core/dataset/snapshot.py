"""The state of a dataset at one moment: its files with one schema over them. Nothing here writes."""

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
    """All data files of a dataset with one schema over them."""

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
    """Read all footers of the view's files; with ``empty_may_differ``, files without rows need not fit the others.

    With ``keep_footers``, as many as fit into little memory are kept, for files that will be read as a whole.
    ``on_done`` is told of every footer that is read.
    """
    columns, values = partition_layout([file.path for file in view.files])
    kept = _KEPT_FOOTERS if keep_footers else 0
    read = read_data_files(storage, view.files, stats_for, kept_bytes=kept, on_done=on_done)
    files = (
        tuple(replace(file, partition=value) for file, value in zip(read, values, strict=True))
        if columns
        else tuple(read)
    )
    schema = joint_schema(files, view.root) if empty_may_differ else _unified(files, view.root)
    return Snapshot(view.root, view, files, schema, columns)


def check_one_dataset(snapshot: Snapshot) -> None:
    """Raise where folders hold files that have so few columns in common that they must be different datasets."""
    kinds = list({id(file.schema): file for file in snapshot.files}.values())
    for number, file in enumerate(kinds):
        for other in kinds[:number]:
            if file.folder != other.folder and _are_strangers(set(file.schema.names), set(other.schema.names)):
                raise NestedDatasetError(
                    f"{snapshot.root} contains different datasets: {other.path} has the columns {other.schema.names}, "
                    f"and {file.path} has {file.schema.names}. Move the files of one dataset out of {snapshot.root}."
                )


def _are_strangers(one: set[str], other: set[str]) -> bool:
    """Columns come and go in a dataset, but most of them stay; partition columns may be in the files of some."""
    return not (one <= other or other <= one) and 2 * len(one & other) < max(len(one), len(other))


def joint_schema(files: Sequence[DataFile], root: str) -> pa.Schema | None:
    """One schema over all files that hold rows; files without rows add what fits."""
    filled = [file for file in files if file.rows]
    schema = _unified(filled or files[:1], root)
    for empty in {id(file.schema): file.schema for file in files if not file.rows}.values():
        try:
            schema = unify_schemas([schema, empty])
        except SchemaMismatchError:
            continue
    return schema


def _unified(files: Sequence[DataFile], root: str) -> pa.Schema | None:
    """One schema over all files; where two have none in common, the error names both."""
    firsts = list({id(file.schema): file for file in reversed(files)}.values())[::-1]
    try:
        return unify_schemas(file.schema for file in firsts) if firsts else None
    except SchemaMismatchError as error:
        for number, file in enumerate(firsts):
            for other in firsts[:number]:
                unify_schemas([other.schema, file.schema], operation=f"joining {other.path} and {file.path}", path=root)
        raise error


def single_file_view(storage: Storage, path: str) -> View | None:
    """A path to one file, seen as a dataset of that file; ``None`` where the path is no file."""
    found = storage.stat(path)
    if found is None or found.size < 0:
        return None
    file = ViewFile(basename(path), path, found.size, found.stamp)
    return View(dirname(path), exists=True, head=0, files=(file,), side_files=(), pending=False)


def partition_layout(paths: Sequence[str]) -> tuple[tuple[str, ...], list[PartitionValues | None]]:
    """Partition columns of a dataset from its folders, and each file's values (none for a file outside them)."""
    folders = [dirname(path) for path in paths]
    parsed = {folder: parse_hive_partition_path(f"{folder}/x") for folder in dict.fromkeys(folders)}
    layouts = {tuple(values) for values in parsed.values() if values}
    if len(layouts) > 1:
        shown = " and ".join(sorted("/".join(layout) for layout in layouts)[:2])
        raise PartitionError(
            f"the dataset's folders disagree on the partition columns ({shown}); move the odd files away"
        )
    columns = next(iter(layouts), ())
    found = {folder: tuple(values.values()) if values else None for folder, values in parsed.items()}
    return columns, [found[folder] for folder in folders]
