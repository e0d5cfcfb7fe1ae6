"""The functions of the package: each operation with the engine as an argument.

Spark is the default engine; ``engine="pyarrow"`` and ``engine="duckdb"`` need no Java. All engines give equal results.
``engine="auto"`` chooses: Spark for a Spark DataFrame, DuckDB for a DuckDB relation, else PyArrow for up to 4 GB of
rows and dataset files together, and Spark beyond.

Options have the names of the commands and of `fsspeckit.Dataset` (``key``, ``order_by``, ``by``, ``bloom``,
``target_mb``, ``target_rows``, ``partitions``); the longer names of `DatasetIO`, such as ``key_columns``, are allowed
too. 1 MB is 1024 x 1024 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

import pyarrow as pa

from fsspeckit.common.choices import DEFAULT_ENGINE, DEFAULT_PUBLISH, DEFAULT_TARGET_MB, PublishMode
from fsspeckit.core.commit.forget import ForgetResult
from fsspeckit.core.commit.replay import Recovery
from fsspeckit.core.commit.versions import History
from fsspeckit.core.operations.adopt import AdoptResult
from fsspeckit.core.operations.versions import RestoreResult, VacuumResult, VersionDiff
from fsspeckit.core.results import MaintenanceResult, MergePlan, MergeResult, WriteResult
from fsspeckit.datasets.arguments import Duration, with_long_names
from fsspeckit.datasets.engine_choice import choose_engine
from fsspeckit.datasets.io import DatasetIO

_CLASSES = {"spark": "SparkDatasetIO", "duckdb": "DuckDBDatasetIO", "pyarrow": "PyarrowDatasetIO"}


def dataset_io(
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    publish: PublishMode = DEFAULT_PUBLISH,
) -> DatasetIO:
    """Return the `DatasetIO` of an engine, whose methods the functions of this module call."""
    if engine not in _CLASSES:
        raise ValueError(f"engine={engine!r} is unknown. Choose one of {', '.join(map(repr, _CLASSES))} or 'auto'.")
    io_class = getattr(import_module(f"fsspeckit.datasets.{engine}"), _CLASSES[engine])
    return cast("DatasetIO", io_class(filesystem=filesystem, storage_options=storage_options, publish=publish))


def io_for(
    data: Any, path: Any, engine: str, filesystem: Any = None, storage_options: Mapping[str, Any] | None = None
) -> DatasetIO:
    """Return the `DatasetIO` for an operation; ``engine="auto"`` chooses by the rows and the dataset."""
    name = choose_engine(data, path, filesystem, storage_options) if engine == "auto" else engine
    return dataset_io(name, filesystem, storage_options)


def compact_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `compact` by their long names, with the default target."""
    found = with_long_names(options)
    if found.get("target_mb_per_file") is None and found.get("target_rows_per_file") is None:
        found["target_mb_per_file"] = DEFAULT_TARGET_MB
    return found


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

    Examples:
        >>> import fsspeckit, pyarrow as pa
        >>> rows = pa.table({"id": [1, 2], "v": ["a", "b"]})
        >>> fsspeckit.merge(rows, "memory://doc/merge", key="id", engine="pyarrow").inserted
        2
    """
    return io_for(data, path, engine, filesystem, storage_options).merge(data, path, **with_long_names(options))


def apply_changes(
    source: Any,
    path: Any,
    *,
    sequence_by: str,
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> MergeResult | MergePlan:
    """Apply a change feed; options as for `fsspeckit.datasets.io.DatasetIO.apply_changes`.

    Examples:
        >>> import fsspeckit, pyarrow as pa
        >>> feed = pa.table({"id": [1, 1], "name": ["a", "A"], "lsn": [1, 2]})
        >>> options = {"key": "id", "sequence_by": "lsn", "engine": "pyarrow"}
        >>> fsspeckit.apply_changes(feed, "memory://doc/changes", **options).inserted
        1
    """
    io = io_for(source, path, engine, filesystem, storage_options)
    return io.apply_changes(source, path, sequence_by=sequence_by, **with_long_names(options))


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

    Examples:
        >>> import fsspeckit, pyarrow as pa
        >>> folder = "memory://doc/delete"
        >>> _ = fsspeckit.write_dataset(pa.table({"id": [1, 2, 3]}), folder, engine="pyarrow")
        >>> fsspeckit.delete(folder, where="id >= 2", engine="pyarrow").deleted
        2
    """
    return io_for(None, path, engine, filesystem, storage_options).delete(path, where=where, **options)


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

    Examples:
        >>> import fsspeckit, pyarrow as pa
        >>> folder = "memory://doc/update"
        >>> _ = fsspeckit.write_dataset(pa.table({"id": [1, 2], "n": [10, 20]}), folder, engine="pyarrow")
        >>> _ = fsspeckit.update(folder, set={"n": "n + id"}, where="id = 2", engine="pyarrow")
        >>> fsspeckit.read_parquet(folder, engine="pyarrow")["n"].to_pylist()
        [10, 22]
    """
    return io_for(None, path, engine, filesystem, storage_options).update(path, set=set, where=where, **options)


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
    return io_for(data, path, engine, filesystem, storage_options).write_dataset(data, path, **options)


def read_parquet(
    path: Any,
    *,
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> pa.Table:
    """Read a dataset into an Arrow table; options as for `fsspeckit.datasets.io.DatasetIO.read_parquet`.

    No engine starts Spark for that.
    """
    return dataset_io("pyarrow" if engine == "auto" else engine, filesystem, storage_options).read_parquet(
        path, **options
    )


def compact(
    path: Any,
    *,
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> MaintenanceResult:
    """Join small files; options as for `fsspeckit.datasets.io.DatasetIO.compact_parquet_dataset`.

    Without ``target_mb`` and ``target_rows``, the target is 128 MB.
    """
    io = io_for(None, path, engine, filesystem, storage_options)
    return io.compact_parquet_dataset(path, **compact_options(options))


def deduplicate(
    path: Any,
    *,
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> MaintenanceResult:
    """Keep one row of each key; options as for `fsspeckit.datasets.io.DatasetIO.deduplicate_parquet_dataset`."""
    io = io_for(None, path, engine, filesystem, storage_options)
    return io.deduplicate_parquet_dataset(path, **with_long_names(options))


def optimize(
    path: Any,
    *,
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> MaintenanceResult:
    """Sort rows, ``by`` columns; options as for `fsspeckit.datasets.io.DatasetIO.optimize_parquet_dataset`."""
    io = io_for(None, path, engine, filesystem, storage_options)
    return io.optimize_parquet_dataset(path, **with_long_names(options))


def adopt(
    path: Any,
    *,
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> AdoptResult:
    """Take a folder of others under the journal; options as for `fsspeckit.datasets.io.DatasetIO.adopt`.

    Without ``dry_run=False`` it only says what is in the folder.
    """
    return io_for(None, path, engine, filesystem, storage_options).adopt(path, **with_long_names(options))


def keep_history(
    path: Any,
    retain: Duration | None = "7d",
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """Keep the files that later commits replace; as `fsspeckit.datasets.io.DatasetIO.keep_history`.

    Examples:
        >>> import fsspeckit, pyarrow as pa
        >>> folder = "memory://doc/history"
        >>> _ = fsspeckit.write_dataset(pa.table({"id": [1, 2, 3]}), folder, engine="pyarrow")
        >>> version = fsspeckit.keep_history(folder)
        >>> _ = fsspeckit.delete(folder, where="id >= 2", engine="pyarrow")
        >>> fsspeckit.read_parquet(folder, version=version, engine="pyarrow").num_rows
        3
    """
    return dataset_io("pyarrow", filesystem, storage_options).keep_history(path, retain)


def history(path: Any, *, filesystem: Any = None, storage_options: Mapping[str, Any] | None = None) -> History:
    """Return the versions of a dataset, newest first; as `fsspeckit.datasets.io.DatasetIO.history`."""
    return dataset_io("pyarrow", filesystem, storage_options).history(path)


def diff(
    path: Any,
    before: int,
    after: int,
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> VersionDiff:
    """Return the files that differ between two versions; as `fsspeckit.datasets.io.DatasetIO.diff`."""
    return dataset_io("pyarrow", filesystem, storage_options).diff(path, before, after)


def changes(
    path: Any,
    *,
    since: int,
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Return the rows that commits changed; options as for `fsspeckit.datasets.io.DatasetIO.changes`."""
    io = io_for(None, path, engine, filesystem, storage_options)
    return io.changes(path, since=since, **with_long_names(options))


def restore(
    path: Any,
    *,
    engine: str = DEFAULT_ENGINE,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> RestoreResult:
    """Make a kept version the current one; options as for `fsspeckit.datasets.io.DatasetIO.restore`."""
    return io_for(None, path, engine, filesystem, storage_options).restore(path, **options)


def vacuum(
    path: Any,
    *,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> VacuumResult:
    """Remove the kept files of old versions; options as for `fsspeckit.datasets.io.DatasetIO.vacuum`."""
    return dataset_io("pyarrow", filesystem, storage_options).vacuum(path, **options)


def recover(path: Any, *, filesystem: Any = None, storage_options: Mapping[str, Any] | None = None) -> Recovery:
    """Finish the commits and remove the staged files of crashed writers."""
    return dataset_io("pyarrow", filesystem, storage_options).recover(path)


def forget(
    path: Any,
    *,
    dry_run: bool = False,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ForgetResult:
    """Remove the journal of a dataset, not its data files; as `fsspeckit.datasets.io.DatasetIO.forget`."""
    return dataset_io("pyarrow", filesystem, storage_options).forget(path, dry_run=dry_run)
