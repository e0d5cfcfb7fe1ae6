"""The operations of `fsspeckit.datasets.io` on Spark, and the ones that only Spark has: DataFrames and streams."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fsspeckit.common.choices import DEFAULT_PUBLISH, DEFAULT_STRATEGY, PublishMode, SchemaMode
from fsspeckit.core.engine.protocol import ReadRequest
from fsspeckit.core.operations.changes import plan_changes, with_last_version
from fsspeckit.core.operations.read import requested_view
from fsspeckit.core.planning.read import plan_read
from fsspeckit.datasets.io import Columns, DatasetIO, column_names
from fsspeckit.datasets.spark.engine import SparkEngine
from fsspeckit.datasets.spark.frames import changes_frame, snapshot_frame
from fsspeckit.datasets.spark.hadoop_options import is_object_store, session_options
from fsspeckit.datasets.spark.stream import BatchChange, start_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class SparkDatasetIO(DatasetIO):
    """Write, read and merge plain Parquet dataset folders with Spark.

    Args:
        spark: The session; by default the active one, else one from the environment, else a local one.
        filesystem: An fsspec filesystem that paths belong to; without it, paths are local or URLs.
        storage_options: Options for the filesystem of URLs, such as credentials; executors get them too. Credentials
            and endpoints that are not among them are taken from the Hadoop settings of the session (``fs.s3a.*``).
        share_limit: Bytes of source rows up to which every executor may open all of them, by default 256 MB, or 1 GB
            where all executors are on one machine. The rows of a larger source are sent to the tasks that need
            them by an exchange; a plan shows the route.
        publish: As for `DatasetIO`.
    """

    def __init__(
        self,
        spark: SparkSession | None = None,
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        share_limit: int | None = None,
        publish: PublishMode = DEFAULT_PUBLISH,
    ) -> None:
        super().__init__(filesystem, storage_options, publish)
        self.engine: SparkEngine = SparkEngine(spark, share_limit)

    @property
    def spark(self) -> SparkSession:
        """The session; found or started on first use."""
        return self.engine.spark

    def _options_for(self, path: Any) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
        """Return the options of a path, with those from the Hadoop settings of the session."""
        if self.filesystem is not None or not is_object_store(path):
            return self.storage_options, ()
        return session_options(self.spark, os.fspath(path), self.storage_options)

    def read(
        self,
        path: Any,
        *,
        columns: Columns | None = None,
        filters: Any = None,
        version: int | None = None,
        as_of: Any = None,
    ) -> DataFrame:
        """Return a Spark DataFrame of one consistent snapshot of a dataset.

        Args:
            path: The dataset's folder.
            columns: Columns to read; all by default.
            filters: As for `read_parquet`: text in the expression language, not in Spark SQL, or filters of pyarrow.
                They are applied while files are read; files that cannot match a text are not read.
            version: The number of a kept version, as `history` lists it.
            as_of: A time such as ``"2026-11-02T10:00Z"``: read the version that was current then.

        Returns:
            A lazy DataFrame over the current files. If another writer replaces one of them before Spark reads it, the
            Spark job fails with an error that names the file; read again.
        """
        place = self._place(path)
        request = ReadRequest(column_names(columns), filters)
        snapshot, planned = plan_read(place.storage, requested_view(place, version, as_of), request)
        return snapshot_frame(self.spark, place.storage, snapshot, planned)

    def changes(
        self, path: Any, *, since: int, until: int | None = None, key_columns: Columns | None = None
    ) -> DataFrame:
        """Return a lazy DataFrame of the rows that commits inserted, updated and deleted; see `DatasetIO.changes`.

        Executors compare the files; the driver reads footers only.
        """
        place, keys = self._place(path), column_names(key_columns) or ()
        feed = with_last_version(place, until, lambda versions, last: plan_changes(place, versions, since, last, keys))
        return changes_frame(self.spark, place.storage, feed, keys)

    def merge_batches(
        self,
        path: Any,
        *,
        key_columns: Columns | None = None,
        checkpoint: str,
        strategy: str = DEFAULT_STRATEGY,
        **options: Any,
    ) -> BatchChange:
        """Return a function for `foreachBatch` that merges each batch into a dataset exactly once.

        Args:
            path: The dataset's folder.
            key_columns: The column or columns that identify a row; by default those that `adopt` has recorded.
            checkpoint: The ``checkpointLocation`` of the query; it identifies the query.
            strategy: As for `merge`; ``"deduplicate"`` accepts batches in which a key occurs more than once.
            **options: Further options of `merge`.
        """
        given = {"key_columns": key_columns, "strategy": strategy, **options}
        return BatchChange(self, "merge", path, checkpoint, given)

    def merge_stream(
        self,
        df: DataFrame,
        path: Any,
        *,
        key_columns: Columns | None = None,
        checkpoint: str,
        strategy: str = DEFAULT_STRATEGY,
        trigger: Mapping[str, Any] | None = None,
        query_name: str | None = None,
        **options: Any,
    ) -> StreamingQuery:
        """Merge a streaming DataFrame into a dataset, every batch exactly once.

        Args:
            df: A streaming DataFrame.
            path: The dataset's folder.
            key_columns: The column or columns that identify a row; by default those that `adopt` has recorded.
            checkpoint: The folder in which Spark stores the progress of the stream.
            strategy: As for `merge`; ``"deduplicate"`` accepts batches in which a key occurs more than once.
            trigger: The arguments of Spark's ``trigger``, such as ``{"availableNow": True}``.
            query_name: A name for the query.
            **options: Further options of `merge`, such as ``newer_by`` and ``delete_when``.

        Returns:
            The running query.
        """
        each = self.merge_batches(path, key_columns=key_columns, checkpoint=checkpoint, strategy=strategy, **options)
        return start_query(each, df, checkpoint, trigger=trigger, query_name=query_name)

    def apply_changes_batches(
        self, path: Any, *, key_columns: Columns | None = None, sequence_by: str, checkpoint: str, **options: Any
    ) -> BatchChange:
        """Return a function for `foreachBatch` that applies each batch of a change feed exactly once.

        Args:
            path: The dataset's folder.
            key_columns: The column or columns that identify a row; by default those that `adopt` has recorded.
            sequence_by: The column that orders changes.
            checkpoint: The ``checkpointLocation`` of the query; it identifies the query.
            **options: Further options of `apply_changes`.
        """
        given = {"key_columns": key_columns, "sequence_by": sequence_by, **options}
        return BatchChange(self, "apply_changes", path, checkpoint, given)

    def apply_changes_stream(
        self,
        df: DataFrame,
        path: Any,
        *,
        key_columns: Columns | None = None,
        sequence_by: str,
        checkpoint: str,
        trigger: Mapping[str, Any] | None = None,
        query_name: str | None = None,
        **options: Any,
    ) -> StreamingQuery:
        """Apply a streaming change feed to a dataset, every batch exactly once.

        Args:
            df: A streaming DataFrame of changes; a batch may have several changes of a key.
            path: The dataset's folder.
            key_columns: The column or columns that identify a row; by default those that `adopt` has recorded.
            sequence_by: The column that orders changes, such as a log sequence number.
            checkpoint: The folder in which Spark stores the progress of the stream.
            trigger: The arguments of Spark's ``trigger``, such as ``{"availableNow": True}``.
            query_name: A name for the query.
            **options: Further options of `apply_changes`, such as ``delete_when``.

        Returns:
            The running query.
        """
        each = self.apply_changes_batches(
            path, key_columns=key_columns, sequence_by=sequence_by, checkpoint=checkpoint, **options
        )
        return start_query(each, df, checkpoint, trigger=trigger, query_name=query_name)


def merge_parquet_dataset_spark(
    source: Any,
    target_path: Any,
    key_columns: Columns | None = None,
    strategy: str = DEFAULT_STRATEGY,
    *,
    spark: SparkSession | None = None,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    schema_mode: SchemaMode = "widen",
    **options: Any,
) -> dict[str, int]:
    """Merge a source into a dataset and return the canonical counts.

    Args:
        source: A DataFrame, Arrow rows or a path, as for `SparkDatasetIO.merge`.
        target_path: The dataset's folder.
        key_columns: The column or columns that identify a row; by default those that `adopt` has recorded.
        strategy: ``"upsert"``, ``"insert"``, ``"update"``, ``"full_merge"`` or ``"deduplicate"``.
        spark: The session, as for `SparkDatasetIO`.
        filesystem: An fsspec filesystem.
        storage_options: Options for the filesystem of a URL.
        schema_mode: ``"widen"`` by default, so that different types of a column become their common type.
        **options: Further options of `SparkDatasetIO.merge`.

    Returns:
        ``inserted``, ``updated``, ``deleted`` and ``total``.
    """
    io = SparkDatasetIO(spark, filesystem, storage_options)
    result = io.merge(
        source, target_path, key_columns=key_columns, strategy=strategy, schema_mode=schema_mode, **options
    )
    return result.stats()
