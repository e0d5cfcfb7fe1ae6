"""The maintenance methods of every `DatasetIO`: compact, optimize and deduplicate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import pyarrow as pa

from fsspeckit.common.choices import DEFAULT_RETRIES, Curve, NullKeys, Timestamps, check_choice
from fsspeckit.core.commit.transaction import Terms
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.expressions.column_types import parse_column_types
from fsspeckit.core.model import WriteOptions
from fsspeckit.core.operations import adopt, alter, compact, deduplicate, optimize
from fsspeckit.core.operations.adopt import AdoptRequest, AdoptResult
from fsspeckit.core.operations.attempts import check_retries
from fsspeckit.core.planning.maintenance_request import (
    CompactRequest,
    DeduplicateRequest,
    Limits,
    MaintenanceScope,
    OptimizeRequest,
)
from fsspeckit.core.planning.merge_request import normalize_keys
from fsspeckit.core.planning.output_sizes import Target
from fsspeckit.core.progress import Progress
from fsspeckit.core.results import MaintenanceResult
from fsspeckit.datasets.arguments import Columns, Duration, column_names, keys_for, names_of, parse_duration

_KEYS = "deduplicate_key_columns"


class Maintenance:
    """The maintenance methods of a `DatasetIO`."""

    engine: Engine
    terms: Terms = Terms()

    def _place(self, path: Any) -> Place:
        raise NotImplementedError

    def _limits(
        self, max_files: int | None, max_bytes: int | None, groups: int | None, *, deduplicates: bool = False
    ) -> Limits:
        if self.terms and (groups is not None or deduplicates):
            what = "deduplicate_key_columns" if deduplicates else "max_groups_per_commit"
            raise ValueError(f"{what} may need several commits, and on_terms allows one. Omit {what}.")
        return Limits(max_files, max_bytes, groups)

    def compact_parquet_dataset(
        self,
        path: Any,
        target_mb_per_file: float | None = None,
        target_rows_per_file: int | None = None,
        partition_filter: Columns | None = None,
        compression: str | None = None,
        dry_run: bool = False,
        *,
        row_group_size: int | None = None,
        timestamps: Timestamps | None = None,
        columns_ignore_case: bool = False,
        max_files: int | None = None,
        max_bytes: int | None = None,
        max_groups_per_commit: int | None = None,
        progress: Progress = None,
        retries: int = DEFAULT_RETRIES,
    ) -> MaintenanceResult:
        """Join small files of each partition into files of about the target size. Rows and schema do not change.

        Args:
            path: The dataset's folder.
            target_mb_per_file: Target size of a file in MB (of 1024 x 1024 bytes).
            target_rows_per_file: Target rows of a file; with both targets, neither is exceeded.
            partition_filter: Only files whose path in the dataset starts with one of these texts, such as
                ``"date=2025-11"``. ``"day=1/"`` means the folder; ``"day=1"`` is an error if there is a ``day=10`` too.
            compression: Codec of the new files; by default that of the input files.
            dry_run: Return the plan and write nothing.
            row_group_size: The most rows of a row group.
            timestamps: ``"micros"`` rewrites INT96 columns as 64-bit microseconds; see `alter`.
            columns_ignore_case: Join columns of different files whose names differ only in case, under the name that
                most files have; files with another name are rewritten. Without it, such a dataset is an error.
            max_files: The most files to join in this run.
            max_bytes: The most bytes to read in this run.
            max_groups_per_commit: Commit after so many groups, so that an interrupted run keeps its progress; by
                default there is one commit.
            progress: A callback for `ProgressEvent`, or ``True`` for a progress bar.
            retries: How often the run is planned again if another writer changes files that it rewrites, or on which it
                depends. After that, `CommitConflictError` is raised.

        Returns:
            Files and bytes before and after, the joined files, and the reason for each skipped file.

        Examples:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/events"
            >>> for day in range(3):
            ...     _ = io.write_dataset(pa.table({"id": [day]}), folder)
            >>> result = io.compact_parquet_dataset(folder, target_mb_per_file=128)
            >>> result["before_file_count"], result["after_file_count"]
            (3, 1)
        """
        limits = self._limits(max_files, max_bytes, max_groups_per_commit)
        request = CompactRequest(
            Target.of(target_mb_per_file, target_rows_per_file),
            _scope(partition_filter, compression, row_group_size, limits, timestamps),
            columns_ignore_case,
        )
        retries, place = check_retries(retries), self._place(path)
        return compact.compact(self.engine, place, request, dry_run=dry_run, progress=progress, retries=retries)

    def optimize_parquet_dataset(
        self,
        path: Any,
        zorder_columns: Columns | None = None,
        target_mb_per_file: float | None = None,
        target_rows_per_file: int | None = None,
        partition_filter: Columns | None = None,
        compression: str | None = None,
        dry_run: bool = False,
        *,
        curve: Curve = "linear",
        deduplicate_key_columns: Columns | None = None,
        dedup_order_by: Columns | None = None,
        null_keys: NullKeys = "error",
        bloom_filter_columns: Columns | None = None,
        force: bool = False,
        row_group_size: int | None = None,
        timestamps: Timestamps | None = None,
        max_files: int | None = None,
        max_bytes: int | None = None,
        max_groups_per_commit: int | None = None,
        progress: Progress = None,
        retries: int = DEFAULT_RETRIES,
    ) -> MaintenanceResult:
        """Sort the rows of each partition, so that readers can skip files and row groups.

        Args:
            path: The dataset's folder.
            zorder_columns: Columns to sort by, nulls last; optional if rows are only deduplicated.
            target_mb_per_file: Target size of a file in MB; 128 for new files if no target is given. Without
                ``zorder_columns``, small files are joined only if a target is given.
            target_rows_per_file: Target rows of a file. Files may have slightly more rows.
            partition_filter: Only files whose path in the dataset starts with one of these texts; see
                `compact_parquet_dataset`.
            compression: Codec of the new files; by default that of the input files.
            dry_run: Return the plan and write nothing.
            curve: ``"linear"`` sorts by the first column, then the second and so on; ``"zorder"`` and ``"hilbert"``
                are space-filling curves: rows that are near in all columns are near in the files.
            deduplicate_key_columns: Keep only one row of each key, like `deduplicate_parquet_dataset`.
            dedup_order_by: Which row of a key is kept. A run with ``max_files``, ``max_bytes`` or
                ``max_groups_per_commit`` moves rows in several steps. Pass an order without ties, such as a time and a
                unique number: which of two equal rows is kept depends on the steps.
            null_keys: ``"match"`` treats NULL in a key as equal to NULL.
            bloom_filter_columns: Columns that get Bloom filters; sorted files without one are rewritten.
            force: Also rewrite files that are already sorted.
            row_group_size: The most rows of a row group.
            timestamps: ``"micros"`` rewrites INT96 columns as 64-bit microseconds; see `alter`.
            max_files: The most files to rewrite in this run. Files that must be sorted together are split only if no
                complete group fits.
            max_bytes: The most bytes to rewrite in this run.
            max_groups_per_commit: Commit after so many groups; by default there is one commit.
            progress: A callback for `ProgressEvent`, or ``True`` for a progress bar.
            retries: How often the run is planned again if another writer changes files that it rewrites, or on which it
                depends. After that, `CommitConflictError` is raised.

        Returns:
            Files and bytes before and after, and the reason for each skipped file.

        Examples:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/events"
            >>> for ids in ([3, 1], [4, 2]):
            ...     _ = io.write_dataset(pa.table({"id": ids}), folder)
            >>> _ = io.optimize_parquet_dataset(folder, zorder_columns=["id"])
            >>> io.read_parquet(folder)["id"].to_pylist()
            [1, 2, 3, 4]
        """
        deduplicates = deduplicate_key_columns is not None
        limits = self._limits(max_files, max_bytes, max_groups_per_commit, deduplicates=deduplicates)
        scope = _scope(partition_filter, compression, row_group_size, limits, timestamps)
        keys = None if deduplicate_key_columns is None else tuple(normalize_keys(deduplicate_key_columns, _KEYS))
        order_by = column_names(dedup_order_by) or ()
        if keys is None and (order_by or null_keys != "error"):
            name = "dedup_order_by" if order_by else "null_keys"
            raise ValueError(f"{name} has no effect without deduplicate_key_columns. Pass both, or omit {name}.")
        request = OptimizeRequest(
            column_names(zorder_columns),
            curve,
            Target.of(target_mb_per_file, target_rows_per_file),
            scope,
            names_of(bloom_filter_columns) or (),
            force,
            None if keys is None else DeduplicateRequest(keys, order_by, null_keys, scope),
        )
        retries, place = check_retries(retries), self._place(path)
        return optimize.optimize(self.engine, place, request, dry_run=dry_run, progress=progress, retries=retries)

    def alter(
        self,
        path: Any,
        *,
        timestamps: Timestamps,
        dry_run: bool = False,
        progress: Progress = None,
        retries: int = DEFAULT_RETRIES,
    ) -> MaintenanceResult:
        """Rewrite all files that store timestamps as INT96, the default of Spark, in one commit. No value changes.

        Args:
            path: The dataset's folder.
            timestamps: ``"micros"``: 64-bit microseconds, which have statistics and which all readers know.
            dry_run: Return the plan and write nothing.
            progress: A callback for `ProgressEvent`, or ``True`` for a progress bar.
            retries: How often the run is planned again if another writer commits. After that, `CommitConflictError` is
                raised.

        Returns:
            Files and bytes before and after, and the reason for each skipped file.

        Examples:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/events"
            >>> _ = io.write_dataset(pa.table({"id": [1]}), folder)
            >>> io.alter(folder, timestamps="micros")["compacted_file_count"]
            0
        """
        check_choice("timestamps", timestamps, get_args(Timestamps))
        scope = _scope(None, None, None, Limits(), timestamps)
        retries, place = check_retries(retries), self._place(path)
        return alter.alter(self.engine, place, scope, dry_run=dry_run, progress=progress, retries=retries)

    def adopt(
        self,
        path: Any,
        *,
        key_columns: Columns | None = None,
        partition_types: str | Mapping[str, pa.DataType] | None = None,
        retain: Duration | None = "7d",
        dry_run: bool = True,
        progress: Progress = None,
    ) -> AdoptResult:
        """Look at a folder of Parquet files that others wrote, and with ``dry_run=False`` take it under the journal.

        That records its key, so that later calls need no ``key_columns``, and the types of its partition columns, and
        keeps the files that later commits replace. No data file is changed.

        Args:
            path: The dataset's folder.
            key_columns: The key to record, which is checked. By default it is the best column that is unique in all
                rows and has a name such as ``id`` or ``order_id``; other unique columns are only proposed.
            partition_types: Types of partition columns, such as ``"zip string"``; by default those that the folders
                look like.
            retain: For how long replaced files are kept, unless that is set already; ``None`` for not at all.
            dry_run: Change nothing.
            progress: A callback for `ProgressEvent`, or ``True`` for a progress bar.

        Returns:
            What is in the folder, what is recorded, and the commands that are recommended.

        Raises:
            KeyColumnError: Rows have equal keys, or a key is NULL.
            PartitionError: A folder is not a value of its type.

        Examples:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/events"
            >>> _ = io.write_dataset(pa.table({"id": [1, 2], "v": ["a", "a"]}), folder)
            >>> io.adopt(folder, dry_run=False).key_columns
            ['id']
            >>> io.merge(pa.table({"id": [2, 3], "v": ["B", "C"]}), folder).inserted
            1
        """
        if isinstance(partition_types, str):
            partition_types = parse_column_types(partition_types)
        keys = None if key_columns is None else tuple(normalize_keys(key_columns))
        request = AdoptRequest(keys, partition_types or {}, parse_duration("retain", retain))
        return adopt.adopt(self.engine, self._place(path), request, dry_run=dry_run, progress=progress)

    def deduplicate_parquet_dataset(
        self,
        path: Any,
        key_columns: Columns | None = None,
        dedup_order_by: Columns | None = None,
        partition_filter: Columns | None = None,
        compression: str | None = None,
        dry_run: bool = False,
        *,
        null_keys: NullKeys = "error",
        row_group_size: int | None = None,
        max_files: int | None = None,
        max_bytes: int | None = None,
        max_groups_per_commit: int | None = None,
        progress: Progress = None,
        retries: int = DEFAULT_RETRIES,
    ) -> MaintenanceResult:
        """Keep one row of each key in the whole dataset, rewriting only files with duplicates.

        Args:
            path: The dataset's folder.
            key_columns: The column or columns that identify a row; by default those that `adopt` has recorded.
                Partition columns are allowed.
            dedup_order_by: Keep the row with the highest value (``"-ts"``: lowest). Without it, and among equal rows,
                the last one is kept, in the order of file paths and of rows in a file. `compact` and `optimize` move
                rows to other files, so pass a column if it matters which row is kept.
            partition_filter: Only files whose path in the dataset starts with one of these texts; see
                `compact_parquet_dataset`. Rows in other files are ignored.
            compression: Codec of rewritten files; by default their own.
            dry_run: Return the plan with exact counts and write nothing.
            null_keys: ``"match"`` treats NULL in a key as equal to NULL; by default it is an error.
            row_group_size: The most rows of a row group; by default, files keep theirs.
            max_files: The most files to rewrite in this run.
            max_bytes: The most bytes to rewrite in this run.
            max_groups_per_commit: Commit after so many files; by default there is one commit.
            progress: A callback for `ProgressEvent`, or ``True`` for a progress bar.
            retries: How often the run is planned again if another writer changes files that it rewrites, or on which it
                depends. After that, `CommitConflictError` is raised.

        Returns:
            Files, bytes and rows before and after; ``deduplicated_rows`` is the number of removed rows.

        Examples:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/events"
            >>> _ = io.write_dataset(pa.table({"id": [1, 1, 2], "ts": [5, 9, 7]}), folder)
            >>> io.deduplicate_parquet_dataset(folder, key_columns=["id"], dedup_order_by=["ts"])["deduplicated_rows"]
            1
        """
        limits, place = self._limits(max_files, max_bytes, max_groups_per_commit), self._place(path)
        request = DeduplicateRequest(
            keys_for(place, key_columns),
            column_names(dedup_order_by) or (),
            null_keys,
            _scope(partition_filter, compression, row_group_size, limits),
        )
        retries = check_retries(retries)
        return deduplicate.deduplicate(self.engine, place, request, dry_run=dry_run, progress=progress, retries=retries)


def _scope(
    partition_filter: Columns | None,
    compression: str | None,
    row_group_size: int | None,
    limits: Limits,
    timestamps: Timestamps | None = None,
) -> MaintenanceScope:
    options = WriteOptions(compression, row_group_size=row_group_size, timestamps=timestamps)
    return MaintenanceScope(names_of(partition_filter), options, limits)
