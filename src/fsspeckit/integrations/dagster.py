"""An IO manager for Dagster: assets are datasets, which runs merge, append or overwrite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from dagster import ConfigurableIOManager, InputContext, OutputContext
from pydantic import Field

from fsspeckit.api import dataset_io
from fsspeckit.common.errors import AlreadyCommittedError
from fsspeckit.core.storage import join
from fsspeckit.handle import Dataset

_PREFIX = "fsspeckit/"
_OPTIONS = ("key", "strategy", "mode", "partition_by", "partition_column", "merge_options")


class FsspeckitIOManager(ConfigurableIOManager):  # type: ignore[misc]
    """Stores what an asset returns in the dataset ``base/asset/key``, and reads it for the assets that depend on it.

    An asset returns anything that `fsspeckit.Dataset` accepts: Arrow, pandas or polars data, or a Spark DataFrame. The
    metadata of the asset say what happens to it:

    - ``fsspeckit/key``: columns that identify a row. Then rows are merged, by ``fsspeckit/strategy`` (upsert).
    - ``fsspeckit/mode``: without a key, ``overwrite`` (the default) or ``append``.
    - ``fsspeckit/partition_by``: partition columns of the dataset.
    - ``fsspeckit/partition_column``: the column that has the partition key of a partitioned asset. Without a key, only
      the rows of this partition are overwritten, and other assets read the rows of their partition.
    - ``fsspeckit/merge_options``: further arguments of `merge`, by name.

    Other assets get an Arrow table, a pandas or polars frame, or a Spark DataFrame, as they annotate their parameter.
    The commit has the run id as its key, so a retry in the same run does not write twice.
    """

    base: str = Field(description="The folder or URL of all datasets")
    engine: str = Field("pyarrow", description="The engine that writes: pyarrow, duckdb, spark or auto")
    storage_options: dict[str, Any] = Field({}, description="Options of the filesystem of a URL")

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Write what an asset returns; None writes nothing."""
        if obj is None:
            return
        options, path = _options_of(context.definition_metadata or {}), self._path(context.asset_key.path)
        partition = context.partition_key if context.has_partition_key else None
        key = "/".join(["dagster", context.run_id, *context.asset_key.path, partition or ""])
        io = dataset_io(self._engine(obj), None, self.storage_options or None).on_terms(idempotency_key=key)
        dataset = Dataset(path, engine=io, key=options.get("key"), partition_by=options.get("partition_by"))
        try:
            result = _write(dataset, obj, options, partition)
        except AlreadyCommittedError as error:
            context.log.info("an earlier try in this run has committed: %s", error)
            return
        rows = result["source_count"] if "key" in options else result["rows"]
        context.add_output_metadata({"path": path, "dagster/row_count": rows, "commit": result["commit_seq"] or 0})

    def load_input(self, context: InputContext) -> Any:
        """Return the rows of the dataset in the type that the asset asks for."""
        upstream = context.upstream_output
        options = _options_of((upstream.definition_metadata if upstream is not None else None) or {})
        column, filters = options.get("partition_column"), None
        if column is not None and context.has_asset_partitions:
            keys = ", ".join(_quoted(each) for each in context.asset_partition_keys)
            filters = f'"{column}" IN ({keys})'
        dataset = Dataset(
            self._path(context.asset_key.path), engine="pyarrow", storage_options=self.storage_options or None
        )
        return _as_type(dataset, filters, context.dagster_type.typing_type)

    def _engine(self, obj: Any) -> str:
        is_frame = type(obj).__module__.startswith("pyspark.")
        return "spark" if is_frame and self.engine in ("auto", "pyarrow") else self.engine.replace("auto", "pyarrow")

    def _path(self, parts: Any) -> str:
        return join(self.base.rstrip("/"), *parts)


def _options_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    found = {name.removeprefix(_PREFIX): value for name, value in metadata.items() if name.startswith(_PREFIX)}
    unknown = sorted(found.keys() - {*_OPTIONS})
    if unknown:
        raise ValueError(
            f"the metadata {_PREFIX + unknown[0]!r} are unknown. Use one of "
            f"{', '.join(_PREFIX + name for name in _OPTIONS)}."
        )
    if "key" in found and "mode" in found:
        raise ValueError("an asset has either fsspeckit/key, which merges, or fsspeckit/mode. Remove one.")
    return found


def _write(dataset: Dataset, rows: Any, options: Mapping[str, Any], partition: str | None) -> Mapping[str, Any]:
    if "key" in options:
        strategy = {"strategy": options["strategy"]} if "strategy" in options else {}
        return dataset.merge(rows, **strategy, **dict(options.get("merge_options") or {}))
    mode, column = options.get("mode", "overwrite"), options.get("partition_column")
    if partition is None or mode != "overwrite":
        return dataset.write(rows, mode=mode)
    if column is None:
        raise ValueError(
            "the asset has partitions, and overwriting it would remove the others. Set the metadata "
            "fsspeckit/partition_column, fsspeckit/key, or fsspeckit/mode to 'append'."
        )
    return dataset.write(rows, mode=mode, replace_where=f'"{column}" = {_quoted(partition)}')


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _as_type(dataset: Dataset, filters: str | None, wanted: Any) -> Any:
    library = getattr(wanted, "__module__", "").partition(".")[0]
    if library == "pyspark":
        return dataset.to_spark(filters=filters)
    table: pa.Table = dataset.read(filters=filters)
    if library == "pandas":
        return table.to_pandas()
    if library == "polars":
        import polars

        frame = polars.DataFrame(table)
        return frame.lazy() if wanted.__name__ == "LazyFrame" else frame
    return table
