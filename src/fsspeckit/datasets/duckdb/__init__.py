"""Datasets on the DuckDB engine: the local engine, with DuckDB for relations and joins.

Must not: import the other engines.
Read first: engine.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fsspeckit.common.choices import DEFAULT_PUBLISH, DEFAULT_STRATEGY, PublishMode, SchemaMode
from fsspeckit.core.results import MergePlan, MergeResult, WriteResult
from fsspeckit.core.storage import INT96
from fsspeckit.datasets.duckdb.connection import create_duckdb_connection, registered_filesystem
from fsspeckit.datasets.duckdb.engine import DuckDBEngine
from fsspeckit.datasets.io import Columns, DatasetIO

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = [
    "DuckDBDatasetIO",
    "compact_parquet_dataset",
    "create_duckdb_connection",
    "deduplicate_parquet_dataset",
    "merge",
    "merge_parquet_dataset_duckdb",
    "optimize_parquet_dataset",
    "read_parquet",
    "write_dataset",
]


class DuckDBDatasetIO(DatasetIO):
    """Write, read, merge and maintain plain Parquet dataset folders with DuckDB.

    Args:
        connection: The connection to use, through cursors; its settings are not changed. By default, a new in-memory
            database.
        filesystem: The fsspec filesystem of all paths; without it, paths are local or URLs. A filesystem that
            `create_duckdb_connection` registered is used for its URLs.
        storage_options: Options for the filesystem of URLs, such as credentials.
        memory_limit: The memory limit of a new database, in bytes or as a text such as ``"1GB"``. It also limits the
            rows that are sorted or compared.
        temp_directory: The folder for data that does not fit into memory.
        publish: As for `DatasetIO`.

    Examples:
        >>> import duckdb, tempfile
        >>> connection, folder = duckdb.connect(), tempfile.mkdtemp() + "/events"
        >>> io = DuckDBDatasetIO(connection)
        >>> _ = io.write_dataset(connection.sql("SELECT range AS id, 'a' AS v FROM range(3)"), folder)
        >>> updates = connection.sql("SELECT 2 AS id, 'B' AS v UNION ALL SELECT 3, 'C'")
        >>> io.merge(updates, folder, strategy="upsert", key_columns="id").stats()
        {'inserted': 1, 'updated': 1, 'deleted': 0, 'total': 4}
        >>> io.read_parquet(folder, filters="v IN ('B', 'C') AND id > 2").to_pylist()
        [{'id': 3, 'v': 'C'}]
    """

    engine: DuckDBEngine

    def __init__(
        self,
        connection: DuckDBPyConnection | None = None,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        *,
        memory_limit: int | str | None = None,
        temp_directory: Any = None,
        publish: PublishMode = DEFAULT_PUBLISH,
    ) -> None:
        super().__init__(filesystem, storage_options, publish)
        self.engine = DuckDBEngine(connection, memory_limit, temp_directory)
        self._given = connection

    @property
    def connection(self) -> DuckDBPyConnection:
        """The connection of the database that is used."""
        return self.engine.database.connection

    def _filesystem_for(self, path: Any) -> Any:
        if self.filesystem is not None or set(self.storage_options or ()) - {INT96}:
            return self.filesystem
        return registered_filesystem(self._given, path)


def merge(
    data: Any,
    path: Any,
    key_columns: Columns | None = None,
    strategy: str = DEFAULT_STRATEGY,
    *,
    connection: DuckDBPyConnection | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> MergeResult | MergePlan:
    """Merge rows into a dataset.

    Args:
        data: A DuckDB relation, Arrow rows or a path, as for `DuckDBDatasetIO.merge`.
        path: The dataset's folder.
        key_columns: The column or columns that identify a row; by default those that `adopt` has recorded.
        strategy: ``"upsert"``, ``"insert"``, ``"update"``, ``"full_merge"`` or ``"deduplicate"``.
        connection: The connection to use.
        filesystem: An fsspec filesystem.
        storage_options: Options for the filesystem of a URL.
        **options: Further options of `DuckDBDatasetIO.merge`.
    """
    io = DuckDBDatasetIO(connection, filesystem, storage_options)
    return io.merge(data, path, key_columns=key_columns, strategy=strategy, **options)


def write_dataset(
    data: Any,
    path: Any,
    *,
    connection: DuckDBPyConnection | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> WriteResult:
    """Write rows as new files of a dataset; options as for `DuckDBDatasetIO.write_dataset`."""
    return DuckDBDatasetIO(connection, filesystem, storage_options).write_dataset(data, path, **options)


def read_parquet(
    path: Any,
    *,
    connection: DuckDBPyConnection | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> pa.Table:
    """Read a dataset into an Arrow table; options as for `DuckDBDatasetIO.read_parquet`."""
    return DuckDBDatasetIO(connection, filesystem, storage_options).read_parquet(path, **options)


def merge_parquet_dataset_duckdb(
    source: Any,
    target_path: Any,
    key_columns: Columns | None = None,
    strategy: str = DEFAULT_STRATEGY,
    *,
    connection: DuckDBPyConnection | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    schema_mode: SchemaMode = "widen",
    **options: Any,
) -> dict[str, int]:
    """Merge a source into a dataset and return the counts; arguments as for `merge`.

    Returns:
        ``inserted``, ``updated``, ``deleted`` and ``total``.
    """
    io = DuckDBDatasetIO(connection, filesystem, storage_options)
    result = io.merge(
        source, target_path, key_columns=key_columns, strategy=strategy, schema_mode=schema_mode, **options
    )
    return result.stats()


def compact_parquet_dataset(
    path: Any,
    target_mb_per_file: float | None = None,
    target_rows_per_file: int | None = None,
    partition_filter: Columns | None = None,
    compression: str | None = None,
    dry_run: bool = False,
    *,
    connection: DuckDBPyConnection | None = None,
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
        connection: The connection to use.
        filesystem: An fsspec filesystem.
        storage_options: Options for the filesystem of a URL.
        **options: Further options of `DuckDBDatasetIO.compact_parquet_dataset`.
    """
    io = DuckDBDatasetIO(connection, filesystem, storage_options)
    chosen = (target_mb_per_file, target_rows_per_file, partition_filter, compression, dry_run)
    return io.compact_parquet_dataset(path, *chosen, **options).to_dict()


def deduplicate_parquet_dataset(
    path: Any,
    key_columns: Columns | None = None,
    dedup_order_by: Columns | None = None,
    partition_filter: Columns | None = None,
    compression: str | None = None,
    dry_run: bool = False,
    *,
    connection: DuckDBPyConnection | None = None,
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
        connection: The connection to use.
        filesystem: An fsspec filesystem.
        storage_options: Options for the filesystem of a URL.
        **options: Further options of `DuckDBDatasetIO.deduplicate_parquet_dataset`.
    """
    io = DuckDBDatasetIO(connection, filesystem, storage_options)
    chosen = (key_columns, dedup_order_by, partition_filter, compression, dry_run)
    return io.deduplicate_parquet_dataset(path, *chosen, **options).to_dict()


def optimize_parquet_dataset(
    path: Any,
    zorder_columns: Columns | None = None,
    target_mb_per_file: float | None = None,
    target_rows_per_file: int | None = None,
    partition_filter: Columns | None = None,
    compression: str | None = None,
    dry_run: bool = False,
    *,
    connection: DuckDBPyConnection | None = None,
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
        connection: The connection to use.
        filesystem: An fsspec filesystem.
        storage_options: Options for the filesystem of a URL.
        **options: Further options of `DuckDBDatasetIO.optimize_parquet_dataset`, such as ``curve``.
    """
    io = DuckDBDatasetIO(connection, filesystem, storage_options)
    chosen = (zorder_columns, target_mb_per_file, target_rows_per_file, partition_filter, compression, dry_run)
    return io.optimize_parquet_dataset(path, *chosen, **options).to_dict()
