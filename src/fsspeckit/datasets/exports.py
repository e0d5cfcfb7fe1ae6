"""Methods of `DatasetIO` for other programs: export a dataset as a table, and register it in a catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsspeckit.common.choices import CatalogName, ExportFormat, ForeignChange
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.operations import export, register
from fsspeckit.core.operations.export import ExportResult
from fsspeckit.core.operations.register import RegisterResult


class Exports:
    """The methods of a `DatasetIO` for exports and catalogs."""

    def _place(self, path: Any) -> Place:
        raise NotImplementedError

    def export(
        self,
        path: Any,
        format: ExportFormat = "delta",  # noqa: A002 - the word of Spark and pandas
        *,
        keep_exported: bool = False,
    ) -> ExportResult:
        """Write the metadata of a table format for the files of a dataset, so that its readers see one snapshot.

        No data file is copied or changed, and readers of plain Parquet continue to work. From the first export on,
        rewritten files get new names. A commit removes the files that it replaces, so an export describes the dataset
        until the next commit, unless it is kept.

        Args:
            path: The dataset's folder.
            format: ``"delta"`` writes a Delta log to ``_delta_log`` in the folder, ``"iceberg"`` writes Iceberg
                metadata to the folder ``<name>.iceberg`` beside it, for which it needs pyiceberg.
            keep_exported: Whether every later commit writes a new version, of every writer. ``False`` ends that.

        Raises:
            UnsupportedDataError: The format cannot describe a column. Nothing was written.
            TableFormatError: Another program has committed to the table. Nothing was written.

        Example:
            >>> import pyarrow as pa, tempfile
            >>> from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
            >>> io, folder = PyarrowDatasetIO(), tempfile.mkdtemp() + "/events"
            >>> _ = io.write_dataset(pa.table({"id": [1, 2]}), folder)
            >>> io.export(folder, "delta", keep_exported=True).version
            0
            >>> _ = io.delete(folder, where="id = 1")
            >>> io.export(folder, "delta", keep_exported=True).version
            1
        """
        return export.export(self._place(path), format, keep_exported=keep_exported)

    def remove_export(
        self,
        path: Any,
        format: ExportFormat = "delta",  # noqa: A002
        *,
        foreign: ForeignChange | None = None,
    ) -> bool:
        """Delete the metadata that `export` wrote, and return whether there was any. The data files stay.

        Args:
            path: The dataset's folder.
            format: The format of the export.
            foreign: What to do if another program committed to the table. ``"keep"``: the dataset takes over what the
                newest version of the Delta table holds. ``"discard"``: the files that the program added are deleted,
                and the dataset stays as it was. Either is one commit. ``None`` refuses, and the error lists the files.

        Raises:
            TableFormatError: Another program has committed to the table, and ``foreign`` does not say what to do, or a
                folder of plain Parquet files cannot hold its rows. Nothing was changed.
        """
        return export.remove_export(self._place(path), format, foreign)

    def register(
        self,
        path: Any,
        *,
        catalog: CatalogName,
        table: str,
        keep_registered: bool = False,
        catalog_options: Mapping[str, str] | None = None,
    ) -> RegisterResult:
        """Write a table with the columns and partitions of a dataset to a catalog, or update it.

        Args:
            path: The dataset's folder.
            catalog: ``"glue"`` is the AWS Glue Data Catalog, for which it needs boto3; ``"hive"`` a Hive metastore, for
                which it needs pyiceberg and thrift.
            table: The database, which must exist, and the table, such as ``"sales.orders"``.
            keep_registered: Whether every later commit updates the table. ``False`` ends that.
            catalog_options: Of Glue: ``region_name``, ``endpoint_url``, ``profile_name``, ``catalog_id``; credentials
                come from the environment, as boto3 finds them. Of Hive: ``uri``, such as
                ``"thrift://metastore:9083"``, or several separated by commas, of which the first that answers is used,
                and ``s3_scheme`` of addresses (``s3a`` by default). They are stored beside the dataset.

        Raises:
            CatalogError: The catalog refuses the table, or has another one with this name.
            UnsupportedDataError: Hive has no type for a column.
        """
        options = dict(catalog_options or {})
        return register.register(self._place(path), catalog, table, options, keep_registered=keep_registered)

    def unregister(self, path: Any, *, catalog: CatalogName) -> bool:
        """Delete the table that `register` wrote, and return whether there was one. The data files stay."""
        return register.unregister(self._place(path), catalog)
