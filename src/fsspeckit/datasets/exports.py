"""Methods of `DatasetIO` for other programs: export a dataset as a table of Delta Lake or Apache Iceberg."""

from __future__ import annotations

from typing import Any

from fsspeckit.common.choices import ExportFormat
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.operations import export
from fsspeckit.core.operations.export import ExportResult


class Exports:
    """The methods of a `DatasetIO` for exports."""

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
            keep_exported: Whether every later commit writes a new version, whoever commits. ``False`` ends that.

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

    def remove_export(self, path: Any, format: ExportFormat = "delta") -> bool:  # noqa: A002
        """Delete the metadata that `export` wrote, and return whether there was any. The data files stay."""
        return export.remove_export(self._place(path), format)
