"""dbt with dbt-duckdb: a materialization that merges or writes the rows of a model into a dataset, and sources.

`Plugin` is a plugin of dbt-duckdb, and the folder of this module (`PACKAGE`) a package of dbt with the materialization.

Must not: write rows other than through `fsspeckit.Dataset`.
Read first: this file.
"""

from __future__ import annotations

import os
from typing import Any

from dbt.adapters.duckdb.plugins import BasePlugin

from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.handle import Dataset

PACKAGE = os.path.dirname(os.path.abspath(__file__))
"""The folder of the dbt package, for ``packages.yml``."""
_OPTIONS = ("key", "strategy", "mode", "partition_by", "merge_options", "location")


class Plugin(BasePlugin):  # type: ignore[misc]
    """Writes the rows of models, and reads datasets as sources."""

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        """Keep the options of the storage."""
        unknown = sorted(plugin_config.keys() - {"storage_options"})
        if unknown:
            raise ValueError(f"the plugin has no option {unknown[0]!r}. Use storage_options.")
        self._storage_options = plugin_config.get("storage_options") or None
        self._connection: Any = None

    def configure_connection(self, conn: Any) -> None:
        """Keep the connection, to read the rows of models."""
        self._connection = conn

    def load(self, source_config: Any) -> Any:
        """Return the rows of the dataset that the metadata ``path`` of a source names."""
        path = source_config.get("path")
        if not path:
            raise ValueError("the source has no path. Set meta.path to the folder of the dataset.")
        version = source_config.get("version")
        dataset = Dataset(path, engine="pyarrow", storage_options=self._storage_options)
        return dataset.read(version=None if version is None else int(version))

    def store(self, target_config: Any) -> None:
        """Merge or write the table that has the rows of a model."""
        config, path = target_config.config, target_config.location.path
        options = {name: value for name in _OPTIONS if (value := config.get(name)) is not None}
        with self._connection.cursor() as cursor:
            rows = cursor.sql(f"SELECT * FROM {target_config.relation.render()}")  # noqa: S608 - dbt quotes it
            io = DuckDBDatasetIO(None, self._storage_options)
            dataset = Dataset(path, engine=io, key=options.get("key"), partition_by=options.get("partition_by"))
            if "key" in options:
                strategy = {"strategy": options["strategy"]} if "strategy" in options else {}
                dataset.merge(rows, **strategy, **dict(options.get("merge_options") or {}))
            else:
                dataset.write(rows, mode=options.get("mode", "overwrite"))
