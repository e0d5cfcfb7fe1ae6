"""The functions of the package: each operation with the engine as an argument.

Spark is the default engine; ``engine="pyarrow"`` and ``engine="duckdb"`` need no Java. All engines give equal results.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

import pyarrow as pa

from fsspeckit.common.choices import DEFAULT_ENGINE
from fsspeckit.core.commit.replay import Recovery
from fsspeckit.core.results import MaintenanceResult, MergePlan, MergeResult, WriteResult
from fsspeckit.datasets.arguments import Columns
from fsspeckit.datasets.io import DatasetIO

_CLASSES = {"spark": "SparkDatasetIO", "duckdb": "DuckDBDatasetIO", "pyarrow": "PyarrowDatasetIO"}


def dataset_io(
    engine: str = DEFAULT_ENGINE, filesystem: Any = None, storage_options: Mapping[str, Any] | None = None
) -> DatasetIO:
    """Return the `DatasetIO` of an engine, whose methods the functions of this module call."""
    if engine not in _CLASSES:
        raise ValueError(f"engine={engine!r} is unknown. Choose one of {', '.join(map(repr, _CLASSES))}.")
    io_class = getattr(import_module(f"fsspeckit.datasets.{engine}"), _CLASSES[engine])
    return cast("DatasetIO", io_class(filesystem=filesystem, storage_options=storage_options))


def merge(
    data: Any,
    path: Any,
    *,
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> MergeResult | MergePlan:
    """Merge rows into a dataset; options as for `fsspeckit.datasets.io.DatasetIO.merge`.

    Example:
        >>> import fsspeckit, pyarrow as pa
        >>> rows = pa.table({"id": [1, 2], "v": ["a", "b"]})
        >>> fsspeckit.merge(rows, "memory://doc/merge", key_columns="id", engine="pyarrow").inserted
        2
    """
    options.setdefault("strategy", "upsert")
    return dataset_io(engine, filesystem, storage_options).merge(data, path, **options)


def apply_changes(
    source: Any,
    path: Any,
    *,
    key_columns: Columns,
    sequence_by: str,
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> MergeResult | MergePlan:
    """Apply a change feed; options as for `fsspeckit.datasets.io.DatasetIO.apply_changes`.

    Example:
        >>> import fsspeckit, pyarrow as pa
        >>> feed = pa.table({"id": [1, 1], "name": ["a", "A"], "lsn": [1, 2]})
        >>> options = {"key_columns": "id", "sequence_by": "lsn", "engine": "pyarrow"}
        >>> fsspeckit.apply_changes(feed, "memory://doc/changes", **options).inserted
        1
    """
    io = dataset_io(engine, filesystem, storage_options)
    return io.apply_changes(source, path, key_columns=key_columns, sequence_by=sequence_by, **options)


def delete(
    path: Any,
    *,
    where: Any,
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> MergeResult | MergePlan:
    """Delete the rows for which a condition is true; options as for `fsspeckit.datasets.io.DatasetIO.delete`.

    Example:
        >>> import fsspeckit, pyarrow as pa
        >>> folder = "memory://doc/delete"
        >>> _ = fsspeckit.write_dataset(pa.table({"id": [1, 2, 3]}), folder, engine="pyarrow")
        >>> fsspeckit.delete(folder, where="id >= 2", engine="pyarrow").deleted
        2
    """
    return dataset_io(engine, filesystem, storage_options).delete(path, where=where, **options)


def update(
    path: Any,
    *,
    set: Mapping[str, str],  # noqa: A002 - the word of SQL
    where: Any,
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> MergeResult | MergePlan:
    """Set columns to computed values; options as for `fsspeckit.datasets.io.DatasetIO.update`.

    Example:
        >>> import fsspeckit, pyarrow as pa
        >>> folder = "memory://doc/update"
        >>> _ = fsspeckit.write_dataset(pa.table({"id": [1, 2], "n": [10, 20]}), folder, engine="pyarrow")
        >>> _ = fsspeckit.update(folder, set={"n": "n + id"}, where="id = 2", engine="pyarrow")
        >>> fsspeckit.read_parquet(folder, engine="pyarrow")["n"].to_pylist()
        [10, 22]
    """
    return dataset_io(engine, filesystem, storage_options).update(path, set=set, where=where, **options)


def write_dataset(
    data: Any,
    path: Any,
    *,
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> WriteResult:
    """Write rows as new files; options as for `fsspeckit.datasets.io.DatasetIO.write_dataset`."""
    return dataset_io(engine, filesystem, storage_options).write_dataset(data, path, **options)


def read_parquet(
    path: Any,
    *,
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> pa.Table:
    """Read a dataset; options as for `fsspeckit.datasets.io.DatasetIO.read_parquet`."""
    return dataset_io(engine, filesystem, storage_options).read_parquet(path, **options)


def compact(
    path: Any,
    *,
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> MaintenanceResult:
    """Join small files; options as for `fsspeckit.datasets.io.DatasetIO.compact_parquet_dataset`."""
    return dataset_io(engine, filesystem, storage_options).compact_parquet_dataset(path, **options)


def deduplicate(
    path: Any,
    *,
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> MaintenanceResult:
    """Keep one row of each key; options as for `fsspeckit.datasets.io.DatasetIO.deduplicate_parquet_dataset`."""
    return dataset_io(engine, filesystem, storage_options).deduplicate_parquet_dataset(path, **options)


def optimize(
    path: Any,
    *,
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> MaintenanceResult:
    """Sort rows; options as for `fsspeckit.datasets.io.DatasetIO.optimize_parquet_dataset`."""
    return dataset_io(engine, filesystem, storage_options).optimize_parquet_dataset(path, **options)


def recover(path: Any, *, filesystem: Any = None, storage_options: Mapping[str, Any] | None = None) -> Recovery:
    """Finish the commits and remove the staged files of crashed writers."""
    return dataset_io("pyarrow", filesystem, storage_options).recover(path)
