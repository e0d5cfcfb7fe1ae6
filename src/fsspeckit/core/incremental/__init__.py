"""The names that the specification fixes for incremental rewriting, as thin calls of the other packages.

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
from fsspeckit.core.dataset.source_keys import check_no_null_keys, plain_keys, select_rows
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
from fsspeckit.core.results import MergeFileMetadata, MergeResult, ResultMapping
from fsspeckit.core.storage import Storage, for_each, resolve
from fsspeckit.core.values.keys import KeyIndex, key_type

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
    compression: str | None = None,
    max_rows_per_file: int = 5_000_000,
    row_group_size: int | None = None,
) -> MergeResult:
    """Merge rows into a dataset, rewriting only files in which a row changes.

    Matching rows are replaced as a whole, and partition columns cannot change for existing keys.

    Args:
        data: The source rows.
        path: The dataset's folder; it need not exist.
        strategy: ``"insert"`` adds new keys, ``"update"`` replaces existing ones, ``"upsert"`` does both.
        key_columns: The columns that identify a row.
        partition_columns: Partition columns of a new dataset; an existing one's are read from its folders.
        filesystem: An fsspec filesystem.
        compression: Codec of all written files; by default rewritten files keep theirs.
        max_rows_per_file: Most rows of a new file.
        row_group_size: Most rows of a row group; by default rewritten files keep theirs.

    Returns:
        Counts, and the files that were rewritten, inserted and preserved.

    Raises:
        ValueError: The strategy, a key, a column or a partition is unsound; nothing was written.

    Example:
        >>> import pyarrow as pa, tempfile
        >>> folder = tempfile.mkdtemp() + "/events"
        >>> _ = merge(pa.table({"id": [1, 2], "v": ["a", "b"]}), folder, "insert", ["id"])
        >>> result = merge(pa.table({"id": [2, 3], "v": ["B", "C"]}), folder, "upsert", ["id"])
        >>> result.inserted, result.updated, len(result.rewritten_files), len(result.inserted_files)
        (1, 1, 1, 1)
    """
    if strategy not in _STRATEGIES:
        raise ValueError(f"strategy={strategy!r} cannot be incremental; choose one of {', '.join(_STRATEGIES)}")
    request = MergeRequest(
        strategy=strategy,
        key_columns=tuple(normalize_keys(key_columns)),
        partition_by=None if partition_columns is None else _names(partition_columns),
        options=WriteOptions(compression, max_rows_per_file, row_group_size),
    )
    engine = LocalEngine()
    result = run_merge(engine, Input(data, filesystem), Place.of(path, filesystem, None), request)
    assert isinstance(result, MergeResult)  # only a dry run gives a plan
    return result


def list_dataset_files(dataset_path: str, filesystem: Any = None) -> list[str]:
    """List the data files of a dataset, as one consistent state of it.

    Args:
        dataset_path: The dataset's folder.
        filesystem: An fsspec filesystem.

    Returns:
        Full paths in the spelling of ``dataset_path``, sorted.

    Raises:
        DatasetNotFoundError: There is no such folder (a `FileNotFoundError`).

    Example:
        >>> import pyarrow as pa, tempfile
        >>> folder = tempfile.mkdtemp() + "/events"
        >>> result = merge(pa.table({"id": [1, 2]}), folder, "insert", ["id"])
        >>> list_dataset_files(folder) == result.inserted_files
        True
    """
    place = Place.of(dataset_path, filesystem, None)
    with log_unexpected("list", place.path):
        return [place.full(file.path) for file in existing_view(place).files]


@dataclass(frozen=True, slots=True, eq=False)
class IncrementalRewritePlan(ResultMapping):
    """What a set of keys means for a dataset.

    ``new_files`` are free names for rows whose keys are in no file, one in each partition that gets such rows; there
    are none where the partition is not part of the key, since keys alone then do not tell where a row goes.
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
    """Find the files that hold one of the keys: by partitions, statistics and Bloom filters, then by key columns.

    Args:
        dataset_path: The dataset's folder.
        source_keys: The keys: scalars for one key column, else tuples in the order of ``key_columns``.
        key_columns: The columns that identify a row.
        filesystem: An fsspec filesystem.
        partition_schema: Types of partition columns; without it folder texts are read as the keys' types.

    Returns:
        Which files need a rewrite, which stay, and how many rows the former have.

    Raises:
        DatasetNotFoundError: There is no such dataset.
        KeyColumnError: A key column is missing, or a key does not fit the key columns.
        PartitionError: ``partition_schema`` names a column by which the dataset is not partitioned.
        SchemaMismatchError: Keys and files have no common type.

    Example:
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
        hit, folders = _look_up(place.storage, snapshot, keys)
    affected = [file for file, is_hit in zip(snapshot.files, hit, strict=True) if is_hit]
    return IncrementalRewritePlan(
        affected_files=[place.full(file.path) for file in affected],
        unaffected_files=[
            place.full(file.path) for file, is_hit in zip(snapshot.files, hit, strict=True) if not is_hit
        ],
        new_files=[place.full(new_file_name(folder)) for folder in folders],
        affected_rows=sum(file.rows for file in affected),
    )


def confirm_affected_files(
    candidate_files: list[str], key_columns: Sequence[str], source_keys: Sequence[Any], filesystem: Any = None
) -> list[str]:
    """Find the files that really hold one of the keys, by reading key columns only.

    Args:
        candidate_files: Paths of Parquet files of one dataset.
        key_columns: The columns that identify a row.
        source_keys: The keys: scalars for one key column, else tuples in the order of ``key_columns``.
        filesystem: An fsspec filesystem.

    Returns:
        The affected files, in the given order and spelling.

    Raises:
        DatasetNotFoundError: A file is missing (a `FileNotFoundError`).
        DamagedFileError: A file cannot be read; it is never just taken for affected.
        SchemaMismatchError: Keys and files have no common type.

    Example:
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
        hit, _ = _look_up(storage, load_snapshot(storage, view, stats_for=keys.column_names), keys)
    return [path for path, is_hit in zip(candidate_files, hit, strict=True) if is_hit]


def validate_no_null_keys(source_table: pa.Table, key_columns: Sequence[str]) -> None:
    """Refuse a source with null keys.

    Args:
        source_table: The source rows.
        key_columns: The columns that identify a row.

    Raises:
        KeyColumnError: A key column is missing or holds nulls (a `ValueError`).

    Example:
        >>> import pyarrow as pa
        >>> validate_no_null_keys(pa.table({"id": [1, 2]}), ["id"])
    """
    keys = normalize_keys(key_columns)
    check_keys_exist(keys, source_table.column_names, "source")
    check_no_null_keys(source_table, keys, "source")


def validate_partition_column_immutability(
    source_table: pa.Table, target_table: pa.Table, key_columns: Sequence[str], partition_columns: Sequence[str]
) -> None:
    """Refuse a source that would move an existing key to another partition.

    Args:
        source_table: The source rows.
        target_table: The rows of the dataset, with their partition columns.
        key_columns: The columns that identify a row.
        partition_columns: The columns by which the dataset is partitioned.

    Raises:
        PartitionError: A key of the target has other partition values in the source (a `ValueError`).
        KeyColumnError: A key column is missing.
        SchemaMismatchError: Columns of the two sides have no common type.

    Example:
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
            raise PartitionError(f"partition column(s) {missing} not found in the {side}; add them to every row")
    source, target = Source(source_table.select(names)), Source(target_table.select(names))
    schema = reconcile(target.schema, source.schema, operation="checking partition columns")
    source.check_casts(schema, operation="checking partition columns", path="source")
    moved = np.setdiff1d(_rows_in(source, target, keys, schema), _rows_in(source, target, names, schema))
    if len(moved):
        raise PartitionError(
            f"partition columns cannot change for existing keys: {source.table.take(moved[:_SHOWN]).to_pylist()} "
            "stand(s) in another partition. Delete the old rows first, or correct the partition column"
        )


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _candidate(storage: Storage, path: str, location: str) -> ViewFile:
    """A file under its full path, so that hive folders count wherever its dataset begins."""
    view = single_file_view(storage, location)
    if view is None:
        raise DatasetNotFoundError(f"no file at {path}; list the dataset again")
    return replace(view.files[0], path=location)


def _check_partition_schema(snapshot: Snapshot, partition_schema: pa.Schema | None) -> None:
    declared = [] if partition_schema is None else partition_schema.names
    unknown = [name for name in declared if name not in snapshot.partition_columns]
    if unknown and snapshot.files:
        raise PartitionError(
            f"partition_schema names {unknown}, but the dataset is partitioned by {list(snapshot.partition_columns)}"
        )


def _look_up(storage: Storage, snapshot: Snapshot, keys: pa.Table) -> tuple[list[bool], list[str]]:
    """Which files hold a key, and the folders in which rows of the other keys would go, as far as the keys tell."""
    if keys.num_rows == 0:
        return [False] * len(snapshot.files), []
    if snapshot.schema is None:
        return [], [""]
    source = Source(keys)
    shape = _key_shape(snapshot, keys.schema)
    source.check_casts(shape.body, operation="matching keys", path=snapshot.root)
    rows = select_rows(source, shape.keys, on_duplicate="last", deduplicate=False, order_by=())
    request = MergeRequest("update", tuple(keys.column_names), null_keys="match")
    draft = match_source(LocalEngine(), storage, snapshot, source, rows, shape, request, Reporter("plan", None))
    placed = len(shape.partitions) == len(snapshot.partition_columns)
    new = [group.folder for group, left in zip(draft.groups, draft.unmatched, strict=True) if placed and len(left)]
    return [len(match.positions) > 0 for _, match, _ in draft.files], new


def _key_shape(snapshot: Snapshot, keys: pa.Schema) -> MergeSchemas:
    """The shape of a merge that has nothing but keys."""
    assert snapshot.schema is not None
    check_keys_exist(keys.names, [*snapshot.schema.names, *snapshot.partition_columns], "target")
    inner = [name for name in keys.names if name in snapshot.schema.names]
    for file in snapshot.files:
        check_keys_exist(inner if file.rows else (), file.schema.names, f"target (file {file.path})")
    ours, theirs = (pa.schema([side.field(name) for name in inner]) for side in (snapshot.schema, keys))
    body = reconcile(ours, theirs, operation="matching keys", path=snapshot.root)
    types = {field.name: field.type for field in (*keys, *body)}
    columns = tuple(KeyColumn(name, key_type(types[name], name)) for name in keys.names)
    return MergeSchemas(body, columns, tuple(name for name in snapshot.partition_columns if name in keys.names), ())


def _rows_in(source: Source, target: Source, names: Sequence[str], schema: pa.Schema) -> RowNumbers:
    """Source rows whose values of some columns stand in a row of the target."""
    columns = [KeyColumn(name, key_type(schema.field(name).type, name)) for name in names]
    rows = select_rows(target, columns, on_duplicate="last", deduplicate=False, order_by=())
    positions, _ = KeyIndex(plain_keys(target, columns, rows)).lookup(plain_keys(source, columns, range(source.rows)))
    return positions
