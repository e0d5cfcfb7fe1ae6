"""The functions that the specification names for incremental rewriting. They call the other packages.

Must not: contain logic of its own. Listing is in commit, statistics and matching in planning, merges in operations.
Read first: this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from fsspeckit.common.errors import DatasetNotFoundError, PartitionError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.common.partitions import parse_hive_partition_path
from fsspeckit.common.schema import reconcile
from fsspeckit.core.commit.listing import View
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot, load_snapshot, single_file_view
from fsspeckit.core.dataset.source import Input, Source
from fsspeckit.core.dataset.source_keys import KeyChoice, check_no_null_keys, plain_keys, select_rows
from fsspeckit.core.engine.local import LocalEngine
from fsspeckit.core.file_names import new_file_name
from fsspeckit.core.incremental.files import IncrementalFileManager
from fsspeckit.core.incremental.metadata import (
    ConservativeMembershipChecker,
    ParquetFileMetadata,
    ParquetMetadataAnalyzer,
    PartitionPruner,
    existing_view,
    key_table,
    with_partition_types,
)
from fsspeckit.core.model import KeyColumn, RowNumbers, ViewFile, WriteOptions
from fsspeckit.core.operations.merge import merge as run_merge
from fsspeckit.core.planning.merge import match_source
from fsspeckit.core.planning.merge_request import MergeRequest, MergeSchemas, check_keys_exist, normalize_keys
from fsspeckit.core.progress import Reporter
from fsspeckit.core.result_view import ResultMapping
from fsspeckit.core.results import MergeFileMetadata, MergeResult
from fsspeckit.core.storage import Storage, for_each, resolve
from fsspeckit.core.values.keys import KeyIndex, key_type
from fsspeckit.core.values.take import take_rows

__all__ = [
    "ConservativeMembershipChecker",
    "IncrementalFileManager",
    "IncrementalRewritePlan",
    "MergeFileMetadata",
    "MergeResult",
    "ParquetFileMetadata",
    "ParquetMetadataAnalyzer",
    "PartitionPruner",
    "confirm_affected_files",
    "list_dataset_files",
    "merge",
    "parse_hive_partition_path",
    "plan_incremental_rewrite",
    "validate_no_null_keys",
    "validate_partition_column_immutability",
]

_STRATEGIES = ("insert", "update", "upsert")
_SHOWN = 5


def merge(
    data: pa.Table,
    path: str,
    strategy: Literal["insert", "update", "upsert"],
    key_columns: Sequence[str],
    partition_columns: Sequence[str] | None = None,
    filesystem: Any = None,
    compression: str | None = "snappy",
    max_rows_per_file: int = 5_000_000,
    row_group_size: int | None = 500_000,
) -> MergeResult:
    """Merge rows into a dataset, rewriting only files in which a row changes.

    Matching rows are replaced as a whole, and partition columns cannot change for existing keys.

    Args:
        data: The source rows.
        path: The dataset's folder; it need not exist.
        strategy: ``"insert"`` adds new keys, ``"update"`` replaces existing ones, ``"upsert"`` does both.
        key_columns: The columns that identify a row.
        partition_columns: Partition columns of a new dataset; those of an existing dataset are read from its folders.
        filesystem: An fsspec filesystem.
        compression: Codec of all written files; with ``None``, rewritten files keep theirs and new files get that of
            the dataset.
        max_rows_per_file: The most rows of a new file.
        row_group_size: The most rows of a row group; with ``None``, rewritten files keep theirs.

    Returns:
        Counts, and the files that were rewritten, inserted and preserved.

    Raises:
        ValueError: The strategy, a key, a column or a partition is invalid; nothing was written.

    Examples:
        >>> import pyarrow as pa, tempfile
        >>> folder = tempfile.mkdtemp() + "/events"
        >>> _ = merge(pa.table({"id": [1, 2], "v": ["a", "b"]}), folder, "insert", ["id"])
        >>> result = merge(pa.table({"id": [2, 3], "v": ["B", "C"]}), folder, "upsert", ["id"])
        >>> result.inserted, result.updated, len(result.rewritten_files), len(result.inserted_files)
        (1, 1, 1, 1)
    """
    if strategy not in _STRATEGIES:
        raise ValueError(f"strategy={strategy!r} is not incremental. Choose one of {', '.join(_STRATEGIES)}.")
    request = MergeRequest(
        strategy=strategy,
        key_columns=tuple(normalize_keys(key_columns)),
        partition_by=None if partition_columns is None else _names(partition_columns),
        options=WriteOptions(compression, max_rows_per_file, row_group_size),
    )
    engine = LocalEngine()
    result = run_merge(engine, Input(data, filesystem), Place.of(path, filesystem, None), request)
    assert isinstance(result, MergeResult)  # only a dry run returns a plan
    return result


def list_dataset_files(dataset_path: str, filesystem: Any = None) -> list[str]:
    """List the data files of a dataset, as one consistent state of it.

    Args:
        dataset_path: The dataset's folder.
        filesystem: An fsspec filesystem.

    Returns:
        Full paths, which start with ``dataset_path``, sorted.

    Raises:
        DatasetNotFoundError: There is no such folder (a `FileNotFoundError`).

    Examples:
        >>> import pyarrow as pa, tempfile
        >>> folder = tempfile.mkdtemp() + "/events"
        >>> result = merge(pa.table({"id": [1, 2]}), folder, "insert", ["id"])
        >>> list_dataset_files(folder) == result.inserted_files
        True
    """
    place = Place.of(dataset_path, filesystem, None)
    with log_unexpected("list", place.path):
        return [place.full(file.path) for file in existing_view(place).files]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IncrementalRewritePlan(ResultMapping):
    """The files of a dataset that contain one of a set of keys.

    ``new_files`` are unused names for rows whose keys are in no file, one in each partition of such rows. The list is
    empty if a partition column is not part of the key, because keys then do not determine the partition.
    """

    affected_files: list[str]
    unaffected_files: list[str]
    new_files: list[str]
    affected_rows: int


def plan_incremental_rewrite(
    dataset_path: str,
    source_keys: Sequence[Any],
    key_columns: Sequence[str],
    filesystem: Any = None,
    partition_schema: pa.Schema | None = None,
) -> IncrementalRewritePlan:
    """Find the files that contain one of the keys: by partitions, statistics and Bloom filters, then by key columns.

    Args:
        dataset_path: The dataset's folder.
        source_keys: The keys: scalars for one key column, else tuples in the order of ``key_columns``.
        key_columns: The columns that identify a row.
        filesystem: An fsspec filesystem.
        partition_schema: Types of partition columns; without it folder values are parsed as the keys' types.

    Returns:
        The files that need a rewrite, those that do not, and the number of rows of the former.

    Raises:
        DatasetNotFoundError: The dataset does not exist.
        KeyColumnError: A key column is missing, or a key does not fit the key columns.
        PartitionError: ``partition_schema`` names a column by which the dataset is not partitioned.
        SchemaMismatchError: Keys and files have no common type.

    Examples:
        >>> import pyarrow as pa, tempfile
        >>> folder = tempfile.mkdtemp() + "/events"
        >>> _ = merge(pa.table({"id": [1, 2, 3, 4]}), folder, "insert", ["id"], max_rows_per_file=2)
        >>> plan = plan_incremental_rewrite(folder, [2, 9], ["id"])
        >>> len(plan.affected_files), len(plan.unaffected_files), len(plan.new_files), plan.affected_rows
        (1, 1, 1, 2)
    """
    place = Place.of(dataset_path, filesystem, None)
    keys = with_partition_types(key_table(key_columns, source_keys), partition_schema)
    with log_unexpected("plan", place.path):
        snapshot = load_snapshot(place.storage, existing_view(place), stats_for=keys.column_names)
        _check_partition_schema(snapshot, partition_schema)
        is_affected, folders = _find_files(place.storage, snapshot, keys)
    pairs = list(zip(snapshot.files, is_affected, strict=True))
    affected = [file for file, has_key in pairs if has_key]
    return IncrementalRewritePlan(
        affected_files=[place.full(file.path) for file in affected],
        unaffected_files=[place.full(file.path) for file, has_key in pairs if not has_key],
        new_files=[place.full(new_file_name(folder)) for folder in folders],
        affected_rows=sum(file.rows for file in affected),
    )


def confirm_affected_files(
    candidate_files: list[str], key_columns: Sequence[str], source_keys: Sequence[Any], filesystem: Any = None
) -> list[str]:
    """Find the files that contain one of the keys, by reading key columns.

    Args:
        candidate_files: Paths of Parquet files of one dataset.
        key_columns: The columns that identify a row.
        source_keys: The keys: scalars for one key column, else tuples in the order of ``key_columns``.
        filesystem: An fsspec filesystem.

    Returns:
        The affected files, as given and in the given order.

    Raises:
        DatasetNotFoundError: A file is missing (a `FileNotFoundError`).
        DamagedFileError: A file cannot be read.
        SchemaMismatchError: Keys and files have no common type.

    Examples:
        >>> import pyarrow as pa, tempfile
        >>> folder = tempfile.mkdtemp() + "/events"
        >>> _ = merge(pa.table({"id": [1, 2, 3, 4]}), folder, "insert", ["id"], max_rows_per_file=2)
        >>> files = list_dataset_files(folder)
        >>> len(confirm_affected_files(files, ["id"], [2, 9]))
        1
    """
    keys = key_table(key_columns, source_keys)
    if not candidate_files:
        return []
    with log_unexpected("confirm affected files", str(candidate_files[0])):
        storage, _ = resolve(candidate_files[0], filesystem)
        belongs_to = storage if filesystem is None else filesystem
        files = for_each(storage, lambda path: _candidate(storage, path, resolve(path, belongs_to)[1]), candidate_files)
        view = View("", exists=True, head=0, files=tuple(files), side_files=(), pending=False)
        is_affected, _ = _find_files(storage, load_snapshot(storage, view, stats_for=keys.column_names), keys)
    return [path for path, has_key in zip(candidate_files, is_affected, strict=True) if has_key]


def validate_no_null_keys(source_table: pa.Table, key_columns: Sequence[str]) -> None:
    """Raise if a key of the source is null.

    Args:
        source_table: The source rows.
        key_columns: The columns that identify a row.

    Raises:
        KeyColumnError: A key column is missing or has nulls (a `ValueError`).

    Examples:
        >>> import pyarrow as pa
        >>> validate_no_null_keys(pa.table({"id": [1, 2]}), ["id"])
    """
    keys = normalize_keys(key_columns)
    check_keys_exist(keys, source_table.column_names, "source")
    check_no_null_keys(source_table, keys, "source")


def validate_partition_column_immutability(
    source_table: pa.Table, target_table: pa.Table, key_columns: Sequence[str], partition_columns: Sequence[str]
) -> None:
    """Raise if the source would move an existing key to another partition.

    Args:
        source_table: The source rows.
        target_table: The rows of the dataset, with their partition columns.
        key_columns: The columns that identify a row.
        partition_columns: The columns by which the dataset is partitioned.

    Raises:
        PartitionError: A key of the target has other partition values in the source (a `ValueError`).
        KeyColumnError: A key column is missing.
        SchemaMismatchError: Columns of source and target have no common type.

    Examples:
        >>> import pyarrow as pa
        >>> old, new = pa.table({"id": [1], "day": ["mon"]}), pa.table({"id": [1, 2], "day": ["mon", "tue"]})
        >>> validate_partition_column_immutability(new, old, ["id"], ["day"])
    """
    keys = normalize_keys(key_columns)
    names = [*keys, *(name for name in _names(partition_columns) if name not in keys)]
    for table, side in ((source_table, "source"), (target_table, "target")):
        check_keys_exist(keys, table.column_names, side)
        missing = [name for name in names if name not in table.column_names]
        if missing:
            raise PartitionError(f"partition column(s) {missing} not found in the {side}. Add them to it.")
    source, target = Source(source_table.select(names)), Source(target_table.select(names))
    schema = reconcile(target.schema, source.schema, mode="widen", operation="checking partition columns")
    source.check_casts(schema, operation="checking partition columns", path="source")
    moved = np.setdiff1d(_rows_in(source, target, keys, schema), _rows_in(source, target, names, schema))
    if len(moved):
        shown = take_rows(source.table, moved[:_SHOWN]).to_pylist()
        raise PartitionError(
            f"partition columns cannot change for existing keys: the keys of {shown} are in another partition. Delete "
            "the old rows first, or correct the partition column."
        )


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _candidate(storage: Storage, path: str, location: str) -> ViewFile:
    """Return a file with its full path, so that all hive folders in the path are partition columns."""
    view = single_file_view(storage, location)
    if view is None:
        raise DatasetNotFoundError(f"no file at {path}. List the dataset again.")
    return replace(view.files[0], path=location)


def _check_partition_schema(snapshot: Snapshot, partition_schema: pa.Schema | None) -> None:
    declared = [] if partition_schema is None else partition_schema.names
    unknown = [name for name in declared if name not in snapshot.partition_columns]
    if unknown and snapshot.files:
        raise PartitionError(
            f"partition_schema names {unknown}, but the dataset is partitioned by {list(snapshot.partition_columns)}. "
            "Name only partition columns."
        )


def _find_files(storage: Storage, snapshot: Snapshot, keys: pa.Table) -> tuple[list[bool], list[str]]:
    """Return which files contain a key, and the folders for rows of the other keys, if the keys determine them."""
    if keys.num_rows == 0:
        return [False] * len(snapshot.files), []
    if snapshot.schema is None:
        return [], [""]
    source = Source(keys)
    schemas = _key_schemas(snapshot, keys.schema)
    source.check_casts(schemas.body, operation="matching keys", path=snapshot.root)
    rows = select_rows(source, schemas.keys, KeyChoice("last"))
    request = MergeRequest("update", tuple(keys.column_names), null_keys="match")
    matched = match_source(LocalEngine(), storage, snapshot, source, rows, schemas, request, Reporter("plan", None))
    has_key = [len(match.positions) > 0 for _, match, _ in matched.files]
    if len(schemas.partitions) < len(snapshot.partition_columns):
        return has_key, []
    return has_key, [group.folder for group, new in zip(matched.groups, matched.unmatched, strict=True) if len(new)]


def _key_schemas(snapshot: Snapshot, keys: pa.Schema) -> MergeSchemas:
    """Return the schemas of a merge whose source has only key columns."""
    assert snapshot.schema is not None
    check_keys_exist(keys.names, [*snapshot.schema.names, *snapshot.partition_columns], "target")
    in_files = [name for name in keys.names if name in snapshot.schema.names]
    for file in snapshot.files:
        check_keys_exist(in_files if file.rows else (), file.schema.names, f"target (file {file.path})")
    target, source = (pa.schema([schema.field(name) for name in in_files]) for schema in (snapshot.schema, keys))
    body = reconcile(target, source, mode="widen", operation="matching keys", path=snapshot.root)
    types = {field.name: field.type for field in (*keys, *body)}
    columns = tuple(KeyColumn(name, key_type(types[name], name)) for name in keys.names)
    return MergeSchemas(body, columns, tuple(name for name in snapshot.partition_columns if name in keys.names), ())


def _rows_in(source: Source, target: Source, names: Sequence[str], schema: pa.Schema) -> RowNumbers:
    """Return the source rows whose values of some columns occur in a row of the target."""
    columns = [KeyColumn(name, key_type(schema.field(name).type, name)) for name in names]
    rows = select_rows(target, columns, KeyChoice("last"))
    positions, _ = KeyIndex(plain_keys(target, columns, rows)).lookup(plain_keys(source, columns, range(source.rows)))
    return positions
