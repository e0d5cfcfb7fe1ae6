"""What footers and folders say about each file, as plain data, and what they prove about a set of keys.

The face that the specification gives to `snapshot`, `pruning` and `common.partitions`; nothing is decided here that is
not decided there. A file is ruled out only on proof: what is missing, inexact or not comparable keeps it in.
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
    not known exactly is None. ``partition_values`` are the texts of the file's hive folders, None for Hive's null.

    Example:
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

    Example:
        >>> import pyarrow as pa, tempfile
        >>> from fsspeckit.core.incremental import merge
        >>> folder = tempfile.mkdtemp() + "/events"
        >>> _ = merge(pa.table({"id": [3, 1, 2]}), folder, "insert", ["id"])
        >>> [file.column_stats for file in ParquetMetadataAnalyzer().analyze_dataset_files(folder)]
        [{'id': {'min': 1, 'max': 3, 'null_count': 0}}]
    """

    def analyze_dataset_files(self, dataset_path: str, filesystem: Any = None) -> list[ParquetFileMetadata]:
        """Read all footers of a dataset.

        Args:
            dataset_path: The dataset's folder.
            filesystem: An fsspec filesystem.

        Returns:
            One entry for each file, sorted by path.

        Raises:
            DatasetNotFoundError: There is no such dataset (a `FileNotFoundError`).
            DamagedFileError: A file cannot be read; the message names it.
        """
        place = Place.of(dataset_path, filesystem, None)
        with log_unexpected("analyze", place.path):
            snapshot = _load_with_statistics(place.storage, existing_view(place))
        return [_describe(place, snapshot, file) for file in snapshot.files]


class PartitionPruner:
    """Rules files out by the values of their partition folders.

    Example:
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
        """Find the files whose partition may hold a key.

        Only partition columns that are part of the key can tell; a file that lacks one of them, or whose folder text
        cannot be read as the column's type, stays a candidate.

        Args:
            file_metadata: The files.
            key_columns: The columns that identify a row.
            source_keys: The keys: scalars for one key column, else tuples in the order of ``key_columns``.
            partition_schema: Types of the partition columns; without it folder texts are read as the keys' types.

        Returns:
            Paths of the candidates, in the given order.
        """
        try:
            keys = with_partition_types(key_table(key_columns, source_keys), partition_schema)
        except SchemaMismatchError:
            return [file.path for file in file_metadata]
        if keys.num_rows == 0:
            return []
        wanted = _WantedPartitions(keys, partition_schema)
        return [file.path for file in file_metadata if wanted.may_be_in(file.partition_values or {})]


class ConservativeMembershipChecker:
    """Rules files out by the statistics of their key columns.

    Example:
        >>> file = ParquetFileMetadata("a.parquet", 1, 9, {"id": {"min": 10, "max": 20, "null_count": 0}})
        >>> [ConservativeMembershipChecker().file_might_contain_keys(file, ["id"], keys) for keys in ([5, 15], [5, 25])]
        [True, False]
    """

    def file_might_contain_keys(
        self, file_metadata: ParquetFileMetadata, key_columns: Sequence[str], source_keys: Sequence[Any]
    ) -> bool:
        """Tell whether a file may hold one of the keys.

        The keys are a set, not a range: bounds that fall between two keys rule the file out. For a composite key one
        disjoint column is proof. To ask for many files, `plan_incremental_rewrite` looks at the keys only once.

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
        return all(_may_hold(stats.get(name, {}), keys[name].combine_chunks()) for name in keys.column_names)


def existing_view(place: Place) -> View:
    """The files of a dataset that must exist, though it may be empty."""
    view = place.journal.view()
    if not view.exists:
        raise DatasetNotFoundError(f"no parquet dataset at {place.path}; check the path, or write it first")
    return view


def key_table(key_columns: str | Sequence[str], source_keys: Sequence[Any]) -> pa.Table:
    """Keys as a table: scalars for one key column, else tuples.

    Raises:
        KeyColumnError: The tuples do not fit the key columns.
        SchemaMismatchError: The values of one column have no common type.
    """
    names, keys = normalize_keys(key_columns), list(source_keys)
    if len(names) == 1:
        return pa.table([_key_array(names[0], keys)], names=names)
    for key in keys:
        if not isinstance(key, (tuple, list)) or len(key) != len(names):
            raise KeyColumnError(f"{key!r} is not a key of {names}; pass tuples of {len(names)} values")
    return pa.table([_key_array(name, [key[i] for key in keys]) for i, name in enumerate(names)], names=names)


def _key_array(name: str, values: list[Any]) -> pa.Array:
    try:
        if _would_be_cut(values):
            raise pa.ArrowInvalid("dates, times, zones or nanoseconds are mixed")
        try:
            return pa.array(values)
        except OverflowError:
            return pa.array(values, pa.uint64())
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise SchemaMismatchError(
            f"the source keys of {name!r} have no common type ({error}); pass values of one type"
        ) from error


def _would_be_cut(values: list[Any]) -> bool:
    """Mixtures that pyarrow takes without an error and that change a key."""
    days = any(type(value) is datetime.date for value in values)
    zones = {value.tzinfo is None for value in values if isinstance(value, datetime.datetime)}
    fine = any(getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0) for value in values)
    return fine or len(zones) > 1 or (days and bool(zones))


def with_partition_types(keys: pa.Table, partition_schema: pa.Schema | None) -> pa.Table:
    """Bring keys that are partition columns to their declared types."""
    if partition_schema is None:
        return keys
    declared = set(partition_schema.names)
    fields = [partition_schema.field(field.name) if field.name in declared else field for field in keys.schema]
    return cast_schema(keys, pa.schema(fields), operation="reading the source keys")


class _WantedPartitions:
    """The partitions that the keys name, for each set of partition columns that files have."""

    def __init__(self, keys: pa.Table, partition_schema: pa.Schema | None) -> None:
        self._keys = keys
        declared = keys.column_names if partition_schema is None else partition_schema.names
        self._columns = [name for name in keys.column_names if name in declared]
        self._must_have = partition_schema is not None
        self._found: dict[tuple[str, ...], frozenset[str] | None] = {}

    def may_be_in(self, values: Mapping[str, Any]) -> bool:
        columns = tuple(name for name in self._columns if name in values)
        if not columns or (self._must_have and len(columns) < len(self._columns)):
            return True
        wanted = self._folders(columns)
        if wanted is None:
            return True
        try:
            texts = tuple(_text(values[name]) for name in columns)
            identity = PartitionIdentities(columns, self._keys.schema).of(texts)
            return identity in wanted or identity.startswith(UNREADABLE)
        except (PartitionError, pa.ArrowException):
            return True

    def _folders(self, columns: tuple[str, ...]) -> frozenset[str] | None:
        if columns not in self._found:
            try:
                folders = partition_folders(self._keys.select(list(columns)))
                self._found[columns] = frozenset(folders.unique().to_pylist())
            except (PartitionError, pa.ArrowException):
                self._found[columns] = None
        return self._found[columns]


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    text: str | None = render(pa.array([value]))[0].as_py()
    return text


def _may_hold(stats: Mapping[str, Any], keys: pa.Array) -> bool:
    """Whether one column's bounds leave a chance for one of the keys."""
    lower, upper = stats.get("min"), stats.get("max")
    if lower is None or upper is None or (keys.null_count and stats.get("null_count") != 0):
        return True
    try:
        bounds = _key_array("bounds", [lower, upper])
        type_ = common_type(bounds.type, keys.type, checked=True)
        if type_ is None or not pc.less_equal(bounds[0], bounds[1]).as_py():
            return True  # not comparable, NaN, or no range at all
        wanted = KeySet.of(pa.chunked_array([exact_cast(keys, type_)]))
        ends = ordered(exact_cast(bounds, type_), wanted.type)
    except (pa.ArrowException, SchemaMismatchError, OverflowError):
        return True
    if ends is None or wanted.values is None or wanted.has_nan:
        return True
    return bool(wanted.hits(ends[:1], ends[1:])[0])


def _load_with_statistics(storage: Storage, view: View) -> Snapshot:
    """Statistics of all columns; footers are read again only where later files bring columns that the first lacks."""
    names = _column_names(load_snapshot(storage, replace(view, files=view.files[:1])))
    snapshot = load_snapshot(storage, view, stats_for=names)
    everything = _column_names(snapshot)
    return snapshot if set(everything) <= set(names) else load_snapshot(storage, view, stats_for=everything)


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
    """Bounds of the whole file as Python values; none unless they are known for every row group."""
    raw = (*stats.lower, *stats.upper)
    if not raw or stats.native is None or any(value is None or value != value for value in raw):
        return None, None
    try:
        values = _presentable(native_array(raw, stats.native), type_).to_pylist()
    except (pa.ArrowException, ValueError, OverflowError):
        return None, None
    return min(values[: len(stats.lower)]), max(values[len(stats.lower) :])


def _presentable(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """A type whose values Python can hold exactly: text, microseconds, UTC; raises where a value does not fit."""
    if is_text(type_):
        return array.cast(pa.string())
    if pa.types.is_timestamp(array.type):
        return exact_cast(array, pa.timestamp("us", array.type.tz and "UTC"))
    if pa.types.is_time64(array.type):
        return exact_cast(array, pa.time64("us"))
    return exact_cast(array, pa.duration("us")) if pa.types.is_duration(array.type) else array
