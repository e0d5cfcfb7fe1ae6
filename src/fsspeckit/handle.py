"""`Dataset`: one dataset folder with its key, partitioning, storage and engine, and every operation as a method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fsspeckit.api import compact_options, dataset_io, io_for
from fsspeckit.common.choices import (
    DEFAULT_ENGINE,
    DEFAULT_STRATEGY,
    CatalogName,
    ExportFormat,
    ForeignChange,
    Timestamps,
    WriteMode,
)
from fsspeckit.common.errors import KeyColumnError
from fsspeckit.core.dataset.place import Place
from fsspeckit.datasets.arguments import Columns, Duration, column_names, with_long_names
from fsspeckit.datasets.io import DatasetIO

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from fsspeckit.core.commit.forget import ForgetResult
    from fsspeckit.core.commit.replay import Recovery
    from fsspeckit.core.commit.versions import History
    from fsspeckit.core.operations.adopt import AdoptResult
    from fsspeckit.core.operations.export import ExportResult
    from fsspeckit.core.operations.register import RegisterResult
    from fsspeckit.core.operations.versions import RestoreResult, VacuumResult, VersionDiff
    from fsspeckit.core.results import MaintenanceResult, MergePlan, MergeResult, WriteResult
    from fsspeckit.doctor import Diagnosis


class Dataset:
    """A dataset folder of plain Parquet files.

    Args:
        path: The folder or URL. It need not exist.
        engine: ``"spark"``, ``"duckdb"``, ``"pyarrow"``, or ``"auto"``, which chooses for each call: Spark for a Spark
            DataFrame, DuckDB for a DuckDB relation, else PyArrow for up to 4 GB of rows and dataset files together, and
            Spark beyond. Or a `DatasetIO`, such as ``SparkDatasetIO(spark)``, for a session or connection of your own.
        key: The column or columns that identify a row, for `merge`, `apply_changes` and `deduplicate`.
        partition_by: Partition columns, for the first write.
        filesystem: The fsspec filesystem of the path.
        storage_options: Options for the filesystem of a URL, such as credentials.

    Every method takes the further options of the method of `DatasetIO` that it calls, with the names of this class or
    the longer ones: ``order_by`` or ``dedup_order_by``. Only operations that change rows or files start Spark.

    Examples:
        >>> import pyarrow as pa, tempfile
        >>> events = Dataset(tempfile.mkdtemp() + "/events", engine="pyarrow", key="id")
        >>> events.merge(pa.table({"id": [1, 2], "v": ["a", "b"]})).inserted
        2
        >>> events.merge(pa.table({"id": [2, 3], "v": ["B", "C"]})).stats()
        {'inserted': 1, 'updated': 1, 'deleted': 0, 'total': 3}
        >>> events.delete("id = 1").deleted
        1
        >>> events.read(filters="v = 'B'").to_pylist()
        [{'id': 2, 'v': 'B'}]
    """

    def __init__(
        self,
        path: Any,
        *,
        engine: str | DatasetIO = DEFAULT_ENGINE,
        key: Columns | None = None,
        partition_by: Columns | None = None,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(engine, DatasetIO) and (filesystem is not None or storage_options):
            raise ValueError(
                "engine is a DatasetIO, which has its own filesystem and storage_options. Pass them there."
            )
        self.path, self.engine = path, engine
        self.key, self.partition_by = column_names(key), column_names(partition_by)
        self._filesystem, self._storage_options = filesystem, storage_options
        if engine != "auto":
            self._io()

    def __repr__(self) -> str:
        engine = self.engine if isinstance(self.engine, str) else repr(self.engine)
        return f"Dataset({str(self._place().path)!r}, engine={engine!r}, key={self.key!r})"

    def merge(
        self, data: Any, *, strategy: str = DEFAULT_STRATEGY, key: Columns | None = None, **options: Any
    ) -> MergeResult | MergePlan:
        """Merge rows by key; see `DatasetIO.merge`. ``dry_run=True`` returns the plan."""
        found = self._of_rows(options, key)
        return self._io(data).merge(data, self.path, strategy=strategy, **found)

    def apply_changes(
        self, data: Any, *, sequence_by: str, key: Columns | None = None, **options: Any
    ) -> MergeResult | MergePlan:
        """Apply a change feed; see `DatasetIO.apply_changes`."""
        found = self._of_rows(options, key)
        return self._io(data).apply_changes(data, self.path, sequence_by=sequence_by, **found)

    def write(self, data: Any, *, mode: WriteMode = "append", **options: Any) -> WriteResult:
        """Write rows as new files; see `DatasetIO.write_dataset`."""
        return self._io(data).write_dataset(data, self.path, mode=mode, **self._partitioned(options))

    def append(self, data: Any, **options: Any) -> WriteResult:
        """Add rows as new files, without looking for their keys."""
        return self.write(data, mode="append", **options)

    def delete(self, where: Any, **options: Any) -> MergeResult | MergePlan:
        """Delete the rows for which a condition is true; see `DatasetIO.delete`."""
        return self._io().delete(self.path, where=where, **options)

    def update(
        self,
        set: Mapping[str, str],  # noqa: A002 - the word of SQL
        where: Any,
        **options: Any,
    ) -> MergeResult | MergePlan:
        """Set columns to computed values in the rows that match a condition; see `DatasetIO.update`."""
        return self._io().update(self.path, set=set, where=where, **options)

    def compact(self, **options: Any) -> MaintenanceResult:
        """Join small files, to 128 MB if no target is given; see `DatasetIO.compact_parquet_dataset`."""
        return self._io().compact_parquet_dataset(self.path, **compact_options(options))

    def optimize(self, by: Columns | None = None, **options: Any) -> MaintenanceResult:
        """Sort rows by columns, so that readers skip files; see `DatasetIO.optimize_parquet_dataset`."""
        return self._io().optimize_parquet_dataset(self.path, by, **with_long_names(options))

    def alter(self, *, timestamps: Timestamps, **options: Any) -> MaintenanceResult:
        """Rewrite INT96 timestamps as 64-bit ones, in one commit; see `DatasetIO.alter`."""
        return self._io().alter(self.path, timestamps=timestamps, **options)

    def adopt(self, *, key: Columns | None = None, **options: Any) -> AdoptResult:
        """Look at a folder of others; ``dry_run=False`` records its key and types. See `DatasetIO.adopt`."""
        found = with_long_names(options if key is None else {**options, "key": key})
        return self._io().adopt(self.path, **{"key_columns": self.key, **found})

    def deduplicate(self, *, key: Columns | None = None, **options: Any) -> MaintenanceResult:
        """Keep one row of each key; see `DatasetIO.deduplicate_parquet_dataset`."""
        return self._io().deduplicate_parquet_dataset(self.path, **self._keyed(options, key))

    def read(self, *, columns: Columns | None = None, filters: Any = None, **options: Any) -> pa.Table:
        """Read one consistent state into an Arrow table, without Spark; see `DatasetIO.read_parquet`."""
        io = dataset_io("pyarrow", self._filesystem, self._storage_options) if self.engine == "auto" else self._io()
        return io.read_parquet(self.path, columns=columns, filters=filters, **options)

    def to_spark(self, *, columns: Columns | None = None, filters: Any = None, **options: Any) -> DataFrame:
        """Return a lazy Spark DataFrame of one consistent state; see `SparkDatasetIO.read`."""
        from fsspeckit.datasets.spark import SparkDatasetIO

        io = self.engine
        if not isinstance(io, SparkDatasetIO):
            io = SparkDatasetIO(None, *self._storage())
        return io.read(self.path, columns=columns, filters=filters, **options)

    def keep_history(self, retain: Duration | None = "7d") -> int:
        """Keep the files that later commits replace; see `DatasetIO.keep_history`."""
        return self._without_engine().keep_history(self.path, retain)

    def history(self) -> History:
        """Return the versions of the dataset, newest first; see `DatasetIO.history`."""
        return self._without_engine().history(self.path)

    def diff(self, before: int, after: int) -> VersionDiff:
        """Return the files that differ between two versions; see `DatasetIO.diff`."""
        return self._without_engine().diff(self.path, before, after)

    def changes(self, *, since: int, until: int | None = None, key: Columns | None = None) -> Any:
        """Return the rows that commits changed, on Spark a DataFrame; see `DatasetIO.changes`."""
        keys = self.key if key is None else key
        return self._io().changes(self.path, since=since, until=until, key_columns=keys)

    def export(
        self,
        format: ExportFormat = "delta",  # noqa: A002 - the word of Spark and pandas
        *,
        keep_exported: bool = False,
    ) -> ExportResult:
        """Write Delta or Iceberg metadata for the files of the dataset; see `DatasetIO.export`."""
        return self._without_engine().export(self.path, format, keep_exported=keep_exported)

    def remove_export(self, format: ExportFormat = "delta", *, foreign: ForeignChange | None = None) -> bool:  # noqa: A002
        """Delete the metadata that `export` wrote; see `DatasetIO.remove_export`."""
        return self._without_engine().remove_export(self.path, format, foreign=foreign)

    def register(
        self,
        *,
        catalog: CatalogName,
        table: str,
        keep_registered: bool = False,
        catalog_options: Mapping[str, str] | None = None,
    ) -> RegisterResult:
        """Write the dataset to a catalog; see `DatasetIO.register`."""
        io, kept, options = self._without_engine(), keep_registered, catalog_options
        return io.register(self.path, catalog=catalog, table=table, keep_registered=kept, catalog_options=options)

    def unregister(self, *, catalog: CatalogName) -> bool:
        """Delete the table that `register` wrote; see `DatasetIO.unregister`."""
        return self._without_engine().unregister(self.path, catalog=catalog)

    def restore(self, **options: Any) -> RestoreResult:
        """Make a kept version the current one; see `DatasetIO.restore`."""
        return self._io().restore(self.path, **options)

    def vacuum(self, **options: Any) -> VacuumResult:
        """Remove the kept files of old versions; see `DatasetIO.vacuum`."""
        return self._without_engine().vacuum(self.path, **options)

    def inspect(self, *, key: Columns | None = None, progress: Any = None) -> dict[str, Any]:
        """Return files, row groups, partitions, statistics and the score of the layout, as `fsspeckit inspect --json`.

        ``key`` are columns that readers search by; by default the columns with statistics are scored.
        """
        from fsspeckit.report.inspection import inspect_layout

        return inspect_layout(self._place(), column_names(key) or (), progress)[0]

    def doctor(self, *, start_spark: bool = False) -> Diagnosis:
        """Check the engine, access, credentials and the journal; print the result to see what to do."""
        from fsspeckit.doctor import diagnose

        filesystem, options = self._storage()
        engine = self.engine if isinstance(self.engine, str) else self.engine.engine.name
        return diagnose(self.path, engine, filesystem=filesystem, storage_options=options, start_spark=start_spark)

    def recover(self) -> Recovery:
        """Finish the commits and remove the staged files of crashed writers. Operations that write do this first."""
        return self._without_engine().recover(self.path)

    def forget(self, *, dry_run: bool = False) -> ForgetResult:
        """Remove the journal, not the data files; see `DatasetIO.forget`."""
        return self._without_engine().forget(self.path, dry_run=dry_run)

    def _without_engine(self) -> DatasetIO:
        return dataset_io("pyarrow", *self._storage())

    def _io(self, data: Any = None) -> DatasetIO:
        if isinstance(self.engine, DatasetIO):
            return self.engine
        return io_for(data, self.path, self.engine, self._filesystem, self._storage_options)

    def _storage(self) -> tuple[Any, Mapping[str, Any] | None]:
        if isinstance(self.engine, DatasetIO):
            return self.engine._filesystem_for(self.path), self.engine.storage_options
        return self._filesystem, self._storage_options

    def _place(self) -> Place:
        return Place.of(self.path, *self._storage())

    def _partitioned(self, options: Mapping[str, Any]) -> dict[str, Any]:
        found = with_long_names(options)
        return found if self.partition_by is None else {"partition_by": self.partition_by, **found}

    def _keyed(self, options: Mapping[str, Any], key: Columns | None) -> dict[str, Any]:
        found = with_long_names(options if key is None else {**options, "key": key})
        if found.get("key_columns", self.key) is None and self._place().journal.key_columns() is None:
            raise KeyColumnError(
                f'{self._place().path} has no key here. Pass key="id" to Dataset or to this call, or run adopt.'
            )
        return {"key_columns": self.key, **found}

    def _of_rows(self, options: Mapping[str, Any], key: Columns | None) -> dict[str, Any]:
        return self._partitioned(self._keyed(options, key))
