"""Run the steps that change a dataset: each is one operation and one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspeckit.core.dataset.source import RowFiles
from fsspeckit.core.progress import Progress
from fsspeckit.core.results import MaintenanceResult, MergePlan, MergeResult, WriteResult
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.pipeline.model import AnyStep, Compact, Deduplicate, Delete, Merge, Optimize, Update, Write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Rows = DataFrame | RowFiles | None

_DEFAULT_MB = 128.0


def change(
    io: SparkDatasetIO, path: str, step: AnyStep, rows: Rows, progress: Progress
) -> MergeResult | WriteResult | MaintenanceResult:
    """Run a step that changes a dataset; ``rows`` are its source rows, or None."""
    match step:
        case Merge():
            return _merge(io, path, step, rows, progress)
        case Write():
            return io.write_dataset(
                rows,
                path,
                mode=step.mode,
                replace_where=step.replace_where,
                partition_by=step.partition_by,
                compression=step.compression,
                max_rows_per_file=step.max_rows_per_file,
                row_group_size=step.row_group_size,
                progress=progress,
            )
        case Delete() | Update():
            return _change_rows(io, path, step, progress)
        case Deduplicate():
            return io.deduplicate_parquet_dataset(path, step.keys, step.order_by or None, progress=progress)
        case Compact() | Optimize():
            return _maintain(io, path, step, progress)
        case _:
            raise AssertionError(f"{step.do} changes no dataset")


def _merge(io: SparkDatasetIO, path: str, step: Merge, rows: Rows, progress: Progress) -> MergeResult:
    result = io.merge(
        rows,
        path,
        strategy=step.strategy,
        key_columns=step.keys,
        partition_by=step.partition_by,
        dedup_order_by=step.order_by or None,
        on_duplicate_source=step.on_duplicate_source,
        null_keys=step.null_keys,
        schema_mode=step.schema_mode,
        compression=step.compression,
        max_rows_per_file=step.max_rows_per_file,
        row_group_size=step.row_group_size,
        progress=progress,
    )
    assert not isinstance(result, MergePlan)
    return result


def _change_rows(io: SparkDatasetIO, path: str, step: Delete | Update, progress: Progress) -> MergeResult:
    options: dict[str, Any] = {
        "where": step.where,
        "compression": step.compression,
        "row_group_size": step.row_group_size,
        "progress": progress,
    }
    result = io.update(path, set=step.set, **options) if isinstance(step, Update) else io.delete(path, **options)
    assert not isinstance(result, MergePlan)
    return result


def _maintain(io: SparkDatasetIO, path: str, step: Compact | Optimize, progress: Progress) -> MaintenanceResult:
    if isinstance(step, Compact):
        size = _DEFAULT_MB if step.target_mb is None and step.target_rows is None else step.target_mb
        return io.compact_parquet_dataset(
            path,
            size,
            step.target_rows,
            step.partitions,
            step.compression,
            row_group_size=step.row_group_size,
            progress=progress,
        )
    return io.optimize_parquet_dataset(
        path,
        step.by,
        step.target_mb,
        step.target_rows,
        step.partitions,
        step.compression,
        curve=step.curve,
        bloom_filter_columns=step.bloom or None,
        row_group_size=step.row_group_size,
        progress=progress,
    )
