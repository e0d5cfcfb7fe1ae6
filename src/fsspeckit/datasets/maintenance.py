"""The maintenance methods of every `DatasetIO`: compact, optimize, deduplicate; names, defaults and plain checks."""

from __future__ import annotations

from typing import Any

from fsspeckit.common.choices import Curve, NullKeys
from fsspeckit.core.commit.transaction import Terms
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.model import WriteOptions
from fsspeckit.core.operations import compact, deduplicate, optimize
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
from fsspeckit.datasets.arguments import Columns, column_names, names_of

_KEYS = "deduplicate_key_columns"


class Maintenance:
    """Keeps dataset folders in shape."""

    engine: Engine
    terms: Terms = Terms()

    def _place(self, path: Any) -> Place:
        raise NotImplementedError

    def _limits(self, max_files: int | None, max_bytes: int | None, groups: int | None, *, twice: bool) -> Limits:
        if self.terms and (groups is not None or twice):
            what = "deduplicate_key_columns" if twice else "max_groups_per_commit"
            raise ValueError(f"{what} makes several commits, and on_terms allows one; leave it out")
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
        max_files: int | None = None,
        max_bytes: int | None = None,
        max_groups_per_commit: int | None = None,
        progress: Progress = None,
    ) -> MaintenanceResult:
        """Join small files of each partition into files of about the wanted size; rows and schema stay.

        Args:
            path: The dataset's folder.
            target_mb_per_file: Wanted size of a file in MB (of 1024 x 1024 bytes).
            target_rows_per_file: Wanted rows of a file; with both, a file ends where either would be passed.
            partition_filter: Only folders with one of these prefixes, such as ``"date=2025-11-04"``.
            compression: Codec of the new files; by default that of the files they come from.
            dry_run: Return the plan and write nothing.
            row_group_size: Most rows of a row group.
            max_files: Most files to join in this run.
            max_bytes: Most bytes to read in this run.
            max_groups_per_commit: Publish after so many groups, so that a long run can be cut off; by default once.
            progress: A callback for `ProgressEvent`, or ``True`` for a progress bar.

        Returns:
            Files and bytes before and after, what was joined, what was left alone and why.

        Example:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/events"
            >>> for day in range(3):
            ...     _ = io.write_dataset(pa.table({"id": [day]}), folder)
            >>> result = io.compact_parquet_dataset(folder, target_mb_per_file=128)
            >>> result["before_file_count"], result["after_file_count"]
            (3, 1)
        """
        limits = self._limits(max_files, max_bytes, max_groups_per_commit, twice=False)
        request = CompactRequest(
            Target.of(target_mb_per_file, target_rows_per_file),
            _scope(partition_filter, compression, row_group_size, limits),
        )
        return compact.compact(self.engine, self._place(path), request, dry_run=dry_run, progress=progress)

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
        max_files: int | None = None,
        max_bytes: int | None = None,
        max_groups_per_commit: int | None = None,
        progress: Progress = None,
    ) -> MaintenanceResult:
        """Order the rows of each partition, so that readers can skip what they do not need.

        Args:
            path: The dataset's folder.
            zorder_columns: Columns to order by, nulls last; may be left out where rows are only deduplicated.
            target_mb_per_file: Wanted size of a file in MB; 128 for new files where neither target is given. Without
                ``zorder_columns``, small files are joined only where a target is given.
            target_rows_per_file: Most rows of a file, nearly.
            partition_filter: Only folders with one of these prefixes.
            compression: Codec of the new files; by default that of the files they come from.
            dry_run: Return the plan and write nothing.
            curve: ``"linear"`` orders by the first column, then the second and so on; ``"zorder"`` and ``"hilbert"``
                are space-filling curves that keep rows together which are near in all columns.
            deduplicate_key_columns: Leave only one row of each key, as `deduplicate_parquet_dataset` does.
            dedup_order_by: Which row of a key stays. A run in pieces (``max_files``, ``max_bytes``,
                ``max_groups_per_commit``) moves rows between pieces, so name an order in which no two rows of a key
                are equal, such as a time and then a unique number: which of equals stays depends on the pieces.
            null_keys: ``"match"`` treats NULL in a key as equal to NULL.
            bloom_filter_columns: Columns that get Bloom filters; files in order that lack one are rewritten.
            force: Rewrite files that are in this order already, too.
            row_group_size: Most rows of a row group.
            max_files: Most files to rewrite in this run; files that belong in one order are cut where none else fits.
            max_bytes: Most bytes to rewrite in this run.
            max_groups_per_commit: Publish after so many groups; by default once, at the end.
            progress: A callback for `ProgressEvent`, or ``True`` for a progress bar.

        Returns:
            Files and bytes before and after, the files that were left alone and why.

        Example:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/events"
            >>> for ids in ([3, 1], [4, 2]):
            ...     _ = io.write_dataset(pa.table({"id": ids}), folder)
            >>> _ = io.optimize_parquet_dataset(folder, zorder_columns=["id"])
            >>> io.read_parquet(folder)["id"].to_pylist()
            [1, 2, 3, 4]
        """
        twice = deduplicate_key_columns is not None
        limits = self._limits(max_files, max_bytes, max_groups_per_commit, twice=twice)
        scope = _scope(partition_filter, compression, row_group_size, limits)
        keys = None if deduplicate_key_columns is None else tuple(normalize_keys(deduplicate_key_columns, _KEYS))
        order_by = column_names(dedup_order_by) or ()
        if keys is None and (order_by or null_keys != "error"):
            name = "dedup_order_by" if order_by else "null_keys"
            raise ValueError(f"{name} goes with deduplicate_key_columns; pass both, or leave {name} out")
        request = OptimizeRequest(
            column_names(zorder_columns),
            curve,
            Target.of(target_mb_per_file, target_rows_per_file),
            scope,
            names_of(bloom_filter_columns) or (),
            force,
            None if keys is None else DeduplicateRequest(keys, order_by, null_keys, scope),
        )
        return optimize.optimize(self.engine, self._place(path), request, dry_run=dry_run, progress=progress)

    def deduplicate_parquet_dataset(
        self,
        path: Any,
        key_columns: Columns,
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
    ) -> MaintenanceResult:
        """Leave one row of each key in the whole dataset, rewriting only files that lose rows.

        Args:
            path: The dataset's folder.
            key_columns: The column or columns that identify a row; partition columns may be among them.
            dedup_order_by: Keep the row that is highest here (``"-ts"``: lowest); without it, and among equals, the
                last one in the order of file paths, as text, and of rows in a file. `compact` and `optimize` move rows
                to other files, so name a column where it matters which row stays.
            partition_filter: Only folders with one of these prefixes; rows elsewhere do not count.
            compression: Codec of rewritten files; by default their own.
            dry_run: Return the plan with exact counts and write nothing.
            null_keys: ``"match"`` treats NULL in a key as equal to NULL; by default it is an error.
            row_group_size: Most rows of a row group; by default, files keep theirs.
            max_files: Most files to rewrite in this run.
            max_bytes: Most bytes to rewrite in this run.
            max_groups_per_commit: Publish after so many files; by default once, at the end.
            progress: A callback for `ProgressEvent`, or ``True`` for a progress bar.

        Returns:
            Files, bytes and rows before and after; ``deduplicated_rows`` is how many went.

        Example:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/events"
            >>> _ = io.write_dataset(pa.table({"id": [1, 1, 2], "ts": [5, 9, 7]}), folder)
            >>> io.deduplicate_parquet_dataset(folder, key_columns=["id"], dedup_order_by=["ts"])["deduplicated_rows"]
            1
        """
        limits = self._limits(max_files, max_bytes, max_groups_per_commit, twice=False)
        request = DeduplicateRequest(
            tuple(normalize_keys(key_columns)),
            column_names(dedup_order_by) or (),
            null_keys,
            _scope(partition_filter, compression, row_group_size, limits),
        )
        return deduplicate.deduplicate(self.engine, self._place(path), request, dry_run=dry_run, progress=progress)


def _scope(
    partition_filter: Columns | None, compression: str | None, row_group_size: int | None, limits: Limits
) -> MaintenanceScope:
    folders = names_of(partition_filter)
    trimmed = None if folders is None else tuple(text.removesuffix("/") for text in folders)
    return MaintenanceScope(trimmed, WriteOptions(compression, row_group_size=row_group_size), limits)
