"""Datasets on the PyArrow engine, which is the local engine. It needs no Java.

Must not: import the other engines.
Read first: this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsspeckit.common.choices import DEFAULT_STRATEGY, SchemaMode
from fsspeckit.common.schema import cast_schema, convert_large_types_to_normal, opt_dtype, unify_schemas
from fsspeckit.core.engine.local import LocalEngine
from fsspeckit.datasets.io import Columns, DatasetIO

__all__ = [
    "PyarrowDatasetIO",
    "cast_schema",
    "compact_parquet_dataset_pyarrow",
    "convert_large_types_to_normal",
    "deduplicate_parquet_dataset_pyarrow",
    "merge_parquet_dataset_pyarrow",
    "opt_dtype",
    "optimize_parquet_dataset_pyarrow",
    "unify_schemas",
]


class PyarrowDatasetIO(DatasetIO):
    """Write, read and merge plain Parquet dataset folders with PyArrow."""

    engine = LocalEngine()


def compact_parquet_dataset_pyarrow(
    path: Any,
    target_mb_per_file: float | None = None,
    target_rows_per_file: int | None = None,
    partition_filter: Columns | None = None,
    compression: str | None = None,
    dry_run: bool = False,
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Join small files of a dataset and return the statistics as a dictionary.

    Args:
        path: The dataset's folder.
        target_mb_per_file: Target size of a file in MB.
        target_rows_per_file: Target rows of a file.
        partition_filter: Only files whose path in the dataset starts with one of these texts; ``"day=1/"`` is a folder.
        compression: Codec of the new files.
        dry_run: Return the plan and write nothing.
        filesystem: An fsspec filesystem.
        storage_options: Options for the filesystem of a URL.
        **options: Further options of `PyarrowDatasetIO.compact_parquet_dataset`.
    """
    io = PyarrowDatasetIO(filesystem, storage_options)
    result = io.compact_parquet_dataset(
        path, target_mb_per_file, target_rows_per_file, partition_filter, compression, dry_run, **options
    )
    return result.to_dict()


def deduplicate_parquet_dataset_pyarrow(
    path: Any,
    key_columns: Columns | None = None,
    dedup_order_by: Columns | None = None,
    partition_filter: Columns | None = None,
    compression: str | None = None,
    dry_run: bool = False,
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Keep one row of each key in a dataset and return the statistics as a dictionary.

    Args:
        path: The dataset's folder.
        key_columns: The column or columns that identify a row; by default those that `adopt` has recorded.
        dedup_order_by: Keep the row with the highest value (``"-ts"``: lowest).
        partition_filter: Only files whose path in the dataset starts with one of these texts; ``"day=1/"`` is a folder.
        compression: Codec of rewritten files.
        dry_run: Return the plan with exact counts and write nothing.
        filesystem: An fsspec filesystem.
        storage_options: Options for the filesystem of a URL.
        **options: Further options of `PyarrowDatasetIO.deduplicate_parquet_dataset`.
    """
    io = PyarrowDatasetIO(filesystem, storage_options)
    result = io.deduplicate_parquet_dataset(
        path, key_columns, dedup_order_by, partition_filter, compression, dry_run, **options
    )
    return result.to_dict()


def optimize_parquet_dataset_pyarrow(
    path: Any,
    zorder_columns: Columns | None = None,
    target_mb_per_file: float | None = None,
    target_rows_per_file: int | None = None,
    partition_filter: Columns | None = None,
    compression: str | None = None,
    dry_run: bool = False,
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Sort the rows of a dataset and return the statistics as a dictionary.

    Args:
        path: The dataset's folder.
        zorder_columns: Columns to sort by, nulls last.
        target_mb_per_file: Target size of a file in MB.
        target_rows_per_file: Target rows of a file.
        partition_filter: Only files whose path in the dataset starts with one of these texts; ``"day=1/"`` is a folder.
        compression: Codec of the new files.
        dry_run: Return the plan and write nothing.
        filesystem: An fsspec filesystem.
        storage_options: Options for the filesystem of a URL.
        **options: Further options of `PyarrowDatasetIO.optimize_parquet_dataset`, such as ``curve``.
    """
    io = PyarrowDatasetIO(filesystem, storage_options)
    result = io.optimize_parquet_dataset(
        path,
        zorder_columns,
        target_mb_per_file,
        target_rows_per_file,
        partition_filter,
        compression,
        dry_run,
        **options,
    )
    return result.to_dict()


def merge_parquet_dataset_pyarrow(
    source: Any,
    target_path: Any,
    key_columns: Columns | None = None,
    strategy: str = DEFAULT_STRATEGY,
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    schema_mode: SchemaMode = "widen",
    **options: Any,
) -> dict[str, int]:
    """Merge a source into a dataset and return the counts.

    Args:
        source: Rows or a path, as for `PyarrowDatasetIO.merge`.
        target_path: The dataset's folder.
        key_columns: The column or columns that identify a row; by default those that `adopt` has recorded.
        strategy: ``"upsert"``, ``"insert"``, ``"update"``, ``"full_merge"`` or ``"deduplicate"``.
        filesystem: An fsspec filesystem.
        storage_options: Options for the filesystem of a URL.
        schema_mode: ``"widen"`` by default, so that different types of a column become their common type.
        **options: Further options of `PyarrowDatasetIO.merge`.

    Returns:
        ``inserted``, ``updated``, ``deleted`` and ``total``.
    """
    io = PyarrowDatasetIO(filesystem, storage_options)
    result = io.merge(
        source, target_path, key_columns=key_columns, strategy=strategy, schema_mode=schema_mode, **options
    )
    return result.stats()
