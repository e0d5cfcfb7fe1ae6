"""Datasets on the PyArrow engine: embedded, no JVM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsspeckit.common.schema import cast_schema, convert_large_types_to_normal, opt_dtype, unify_schemas
from fsspeckit.datasets.io import Columns, DatasetIO
from fsspeckit.datasets.pyarrow.engine import ENGINE

__all__ = [
    "PyarrowDatasetIO",
    "cast_schema",
    "convert_large_types_to_normal",
    "merge_parquet_dataset_pyarrow",
    "opt_dtype",
    "unify_schemas",
]


class PyarrowDatasetIO(DatasetIO):
    """Write, read and merge plain Parquet dataset folders with PyArrow."""

    engine = ENGINE


def merge_parquet_dataset_pyarrow(
    source: Any,
    target_path: Any,
    key_columns: Columns,
    strategy: str = "upsert",
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, int]:
    """Merge a source into a dataset and return the canonical counts.

    Args:
        source: Rows or a path, as for `PyarrowDatasetIO.merge`.
        target_path: The dataset's folder.
        key_columns: The column or columns that identify a row.
        strategy: ``"upsert"``, ``"insert"``, ``"update"``, ``"full_merge"`` or ``"deduplicate"``.
        filesystem: An fsspec filesystem.
        storage_options: Options for the filesystem of a URL.
        **options: Further options of `PyarrowDatasetIO.merge`.

    Returns:
        ``inserted``, ``updated``, ``deleted`` and ``total``.
    """
    io = PyarrowDatasetIO(filesystem, storage_options)
    return io.merge(source, target_path, key_columns=key_columns, strategy=strategy, **options).stats()
