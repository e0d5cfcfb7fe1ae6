"""Metadata of files as plain data, and pruning of files by partition values and statistics.

These are the classes of the specification; they use `dataset.snapshot`, `planning.statistics` and `common.partitions`.
A file is excluded only on proof: missing, inexact or incomparable statistics keep it.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.casting import exact_cast
from fsspeckit.common.errors import DatasetNotFoundError, KeyColumnError, PartitionError, SchemaMismatchError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.common.partitions import partition_folders, render
from fsspeckit.common.schema import cast_schema
from fsspeckit.common.types import common_type, is_text, unwrapped
from fsspeckit.core.commit.listing import View
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot, load_snapshot
from fsspeckit.core.dataset.source_keys import UNREADABLE, PartitionIdentities
from fsspeckit.core.model import ColumnStats, DataFile
from fsspeckit.core.planning.merge_request import normalize_keys
from fsspeckit.core.planning.statistics import KeySet, native_array, ordered
from fsspeckit.core.storage import Storage


@dataclass(frozen=True, slots=True)
class ParquetFileMetadata:
    """Metadata of one Parquet file.

    ``column_stats`` maps a flat column to its ``min``, ``max`` and ``null_count`` over all row groups; a value that is
    not known exactly is None. ``partition_values`` are the values of the hive folders as text, None for Hive's null.

    Examples:
        >>> ParquetFileMetadata("lake/day=1/a.parquet", 1, 3, {"id": {"min": 1, "max": 3, "null_count": 0}}).total_rows
        3
    """

    path: str
    row_group_count: int
    total_rows: int
    column_stats: dict[str, dict[str, Any]]
    partition_values: dict[str, Any] | None = None


class ParquetMetadataAnalyzer:
    """Reads the metadata of every file of a dataset.

    Examples:
        >>> import pyarrow as pa, tempfile
        >>> from fsspeckit.core.incremental import merge
        >>> folder = tempfile.mkdtemp() + "/events"
        >>> _ = merge(pa.table({"id": [3, 1, 2]}), folder, "insert", ["id"])
        >>> [file.column_stats for file in ParquetMetadataAnalyzer().analyze_dataset_files(folder)]
        [{'id': {'min': 1, 'max': 3, 'null_count': 0}}]
    """

    def analyze_dataset_files(self, dataset_path: str, filesystem: Any = None) -> list[ParquetFileMetadata]:
        """Read the footers of all files of a dataset.

        Args:
            dataset_path: The dataset's folder.
            filesystem: An fsspec filesystem.

        Returns:
            One entry for each file, sorted by path.

        Raises:
            DatasetNotFoundError: The dataset does not exist (a `FileNotFoundError`).
            DamagedFileError: A file cannot be read.
        """
        place = Place.of(dataset_path, filesystem, None)
        with log_unexpected("analyze", place.path):
            snapshot = _load_with_statistics(place.storage, existing_view(place))
        return [_describe(place, snapshot, file) for file in snapshot.files]


class PartitionPruner:
    """Excludes files by their partition values.

    Examples:
        >>> files = [ParquetFileMetadata(f"lake/day={d}/a.parquet", 1, 3, {}, {"day": d}) for d in ("1", "2")]
        >>> PartitionPruner().identify_candidate_files(files, ["id", "day"], [(7, 2), (8, 2)])
        ['lake/day=2/a.parquet']
    """

    def identify_candidate_files(
        self,
        file_metadata: list[ParquetFileMetadata],
        key_columns: Sequence[str],
        source_keys: Sequence[Any],
        partition_schema: pa.Schema | None = None,
    ) -> list[str]:
        """Find the files whose partition may contain a key.

        Only partition columns that are part of the key are used. A file that lacks one of them, or whose folder value
        cannot be parsed as the column's type, is a candidate.

        Args:
            file_metadata: The files.
            key_columns: The columns that identify a row.
            source_keys: The keys: scalars for one key column, else tuples in the order of ``key_columns``.
            partition_schema: Types of the partition columns; without it folder values are parsed as the keys' types.

        Returns:
            Paths of the candidates, in the given order.
        """
        try:
            keys = with_partition_types(key_table(key_columns, source_keys), partition_schema)
        except SchemaMismatchError:
            return [file.path for file in file_metadata]
        if keys.num_rows == 0:
            return []
        partitions = _KeyPartitions(keys, partition_schema)
        return [file.path for file in file_metadata if partitions.may_include(file.partition_values or {})]


class ConservativeMembershipChecker:
    """Excludes files by the statistics of their key columns.

    Examples:
        >>> file = ParquetFileMetadata("a.parquet", 1, 9, {"id": {"min": 10, "max": 20, "null_count": 0}})
        >>> [ConservativeMembershipChecker().file_might_contain_keys(file, ["id"], keys) for keys in ([5, 15], [5, 25])]
        [True, False]
    """

    def file_might_contain_keys(
        self, file_metadata: ParquetFileMetadata, key_columns: Sequence[str], source_keys: Sequence[Any]
    ) -> bool:
        """Return whether a file may contain one of the keys.

        Keys are a set, not a range: a file whose bounds lie between two keys is excluded. For a composite key, one
        disjoint column is proof. For many files use `plan_incremental_rewrite`, which converts the keys only once.

        Args:
            file_metadata: The file.
            key_columns: The columns that identify a row.
            source_keys: The keys: scalars for one key column, else tuples in the order of ``key_columns``.

        Returns:
            False only on proof.
        """
        try:
            keys = key_table(key_columns, source_keys)
        except SchemaMismatchError:
            return True
        if file_metadata.total_rows == 0 or keys.num_rows == 0:
            return False
        stats = file_metadata.column_stats
        return all(_may_contain(stats.get(name, {}), keys[name].combine_chunks()) for name in keys.column_names)


def existing_view(place: Place) -> View:
    """Return the files of a dataset, which may be empty. Raise if it does not exist."""
    view = place.journal.view()
    if not view.exists:
        raise DatasetNotFoundError(f"no parquet dataset at {place.path}; check the path, or write it first")
    return view


def key_table(key_columns: str | Sequence[str], source_keys: Sequence[Any]) -> pa.Table:
    """Return keys as a table: scalars for one key column, else tuples.

    Raises:
        KeyColumnError: The tuples do not fit the key columns.
        SchemaMismatchError: The values of one column have no common type.
    """
    names, keys = normalize_keys(key_columns), list(source_keys)
    if len(names) == 1:
        return pa.table([_key_array(names[0], keys)], names=names)
    for key in keys:
        if not isinstance(key, (tuple, list)) or len(key) != len(names):
            raise KeyColumnError(f"{key!r} is not a key of {names}. Pass tuples of {len(names)} values.")
    return pa.table([_key_array(name, [key[i] for key in keys]) for i, name in enumerate(names)], names=names)


def _key_array(name: str, values: list[Any]) -> pa.Array:
    try:
        if _would_lose_values(values):
            raise pa.ArrowInvalid("dates, times, zones or nanoseconds are mixed")
        try:
            return pa.array(values)
        except OverflowError:
            return pa.array(values, pa.uint64())
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise SchemaMismatchError(
            f"the source keys of {name!r} have no common type ({error}). Pass values of one type."
        ) from error


def _would_lose_values(values: list[Any]) -> bool:
    """Return whether pyarrow would change a value without an error: mixed dates, times and zones, or nanoseconds."""
    days = any(type(value) is datetime.date for value in values)
    zones = {value.tzinfo is None for value in values if isinstance(value, datetime.datetime)}
    fine = any(getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0) for value in values)
    return fine or len(zones) > 1 or (days and bool(zones))


def with_partition_types(keys: pa.Table, partition_schema: pa.Schema | None) -> pa.Table:
    """Cast keys that are partition columns to the types of ``partition_schema``."""
    if partition_schema is None:
        return keys
    declared = set(partition_schema.names)
    fields = [partition_schema.field(field.name) if field.name in declared else field for field in keys.schema]
    return cast_schema(keys, pa.schema(fields), operation="reading the source keys")


class _KeyPartitions:
    """The partitions of the keys, for each set of partition columns that files have."""

    def __init__(self, keys: pa.Table, partition_schema: pa.Schema | None) -> None:
        self._keys = keys
        declared = keys.column_names if partition_schema is None else partition_schema.names
        self._columns = [name for name in keys.column_names if name in declared]
        self._needs_all = partition_schema is not None
        self._known: dict[tuple[str, ...], frozenset[str] | None] = {}

    def may_include(self, values: Mapping[str, Any]) -> bool:
        columns = tuple(name for name in self._columns if name in values)
        if not columns or (self._needs_all and len(columns) < len(self._columns)):
            return True
        folders = self._folders(columns)
        if folders is None:
            return True
        try:
            texts = tuple(_text(values[name]) for name in columns)
            identity = PartitionIdentities(columns, self._keys.schema).of(texts)
            return identity in folders or identity.startswith(UNREADABLE)
        except (PartitionError, pa.ArrowException):
            return True

    def _folders(self, columns: tuple[str, ...]) -> frozenset[str] | None:
        if columns not in self._known:
            try:
                folders = partition_folders(self._keys.select(list(columns)))
                self._known[columns] = frozenset(folders.unique().to_pylist())
            except (PartitionError, pa.ArrowException):
                self._known[columns] = None
        return self._known[columns]


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    text: str | None = render(pa.array([value]))[0].as_py()
    return text


def _may_contain(stats: Mapping[str, Any], keys: pa.Array) -> bool:
    """Return whether the bounds of one column allow one of the keys."""
    lower, upper = stats.get("min"), stats.get("max")
    if lower is None or upper is None or (keys.null_count and stats.get("null_count") != 0):
        return True
    try:
        bounds = _key_array("bounds", [lower, upper])
        type_ = common_type(bounds.type, keys.type, checked=True)
        if type_ is None or not pc.less_equal(bounds[0], bounds[1]).as_py():
            return True  # not comparable, NaN, or not a range
        key_set = KeySet.of(pa.chunked_array([exact_cast(keys, type_)]))
        sortable = ordered(exact_cast(bounds, type_), key_set.type)
    except (pa.ArrowException, SchemaMismatchError, OverflowError):
        return True
    if sortable is None or key_set.values is None or key_set.has_nan:
        return True
    return bool(key_set.hits(sortable[:1], sortable[1:])[0])


def _load_with_statistics(storage: Storage, view: View) -> Snapshot:
    """Load statistics of all columns. Footers are read again only if the first file lacks a column of another."""
    names = _column_names(load_snapshot(storage, replace(view, files=view.files[:1])))
    snapshot = load_snapshot(storage, view, stats_for=names)
    all_names = _column_names(snapshot)
    return snapshot if set(all_names) <= set(names) else load_snapshot(storage, view, stats_for=all_names)


def _column_names(snapshot: Snapshot) -> list[str]:
    return [] if snapshot.schema is None else list(snapshot.schema.names)


def _describe(place: Place, snapshot: Snapshot, file: DataFile) -> ParquetFileMetadata:
    partition = None if file.partition is None else dict(zip(snapshot.partition_columns, file.partition, strict=True))
    return ParquetFileMetadata(
        path=place.full(file.path),
        row_group_count=len(file.row_groups),
        total_rows=file.rows,
        column_stats={name: _summary(stats, file.schema.field(name).type) for name, stats in file.stats.items()},
        partition_values=partition,
    )


def _summary(stats: ColumnStats, type_: pa.DataType) -> dict[str, Any]:
    lower, upper = _bounds(stats, unwrapped(type_))
    nulls = [count for count in stats.nulls if count is not None]
    return {"min": lower, "max": upper, "null_count": sum(nulls) if len(nulls) == len(stats.nulls) else None}


def _bounds(stats: ColumnStats, type_: pa.DataType) -> tuple[Any, Any]:
    """Return the bounds of the whole file as Python values; ``None`` unless they are known for every row group."""
    raw = (*stats.lower, *stats.upper)
    if not raw or stats.native is None or any(value is None or value != value for value in raw):
        return None, None
    try:
        values = _for_python(native_array(raw, stats.native), type_).to_pylist()
    except (pa.ArrowException, ValueError, OverflowError):
        return None, None
    return min(values[: len(stats.lower)]), max(values[len(stats.lower) :])


def _for_python(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast to a type that Python represents exactly: str, microseconds, UTC. Raise if a value does not fit."""
    if is_text(type_):
        return array.cast(pa.string())
    if pa.types.is_timestamp(array.type):
        return exact_cast(array, pa.timestamp("us", array.type.tz and "UTC"))
    if pa.types.is_time64(array.type):
        return exact_cast(array, pa.time64("us"))
    return exact_cast(array, pa.duration("us")) if pa.types.is_duration(array.type) else array
