"""Run the steps that change a dataset: each is one operation and one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspeckit.common.choices import DEFAULT_TARGET_MB
from fsspeckit.core.dataset.source import RowFiles
from fsspeckit.core.progress import Progress
from fsspeckit.core.results import MaintenanceResult, MergeResult, WriteResult
from fsspeckit.datasets.spark import SparkDatasetIO
from fsspeckit.pipeline.model import (
    AnyStep,
    ApplyChanges,
    Compact,
    Deduplicate,
    Delete,
    Merge,
    Optimize,
    RowStep,
    Step,
    Update,
    Write,
)
from fsspeckit.pipeline.parts import Expecting
from fsspeckit.pipeline.wording import ARGUMENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Rows = DataFrame | RowFiles | None


def change(
    io: SparkDatasetIO, path: str, step: AnyStep, rows: Rows, progress: Progress
) -> MergeResult | WriteResult | MaintenanceResult:
    """Run a step that changes a dataset; ``rows`` are its source rows, or None."""
    match step:
        case Merge() | ApplyChanges() | Delete() | Update():
            return _change_rows(io, path, step, rows, progress)
        case Write():
            return io.write_dataset(rows, path, progress=progress, **options_of(step))
        case Deduplicate():
            return io.deduplicate_parquet_dataset(
                path, step.keys, step.order_by or None, progress=progress, retries=step.retries
            )
        case Compact() | Optimize():
            return _maintain(io, path, step, progress)
        case _:
            raise AssertionError(f"{step.do} changes no dataset")


def _change_rows(io: SparkDatasetIO, path: str, step: RowStep, rows: Rows, progress: Progress) -> MergeResult:
    """Call the method that has the name of the step."""
    source = [] if rows is None else [rows]
    result = getattr(io, step.do)(*source, path, progress=progress, **options_of(step))
    assert isinstance(result, MergeResult)
    return result


def options_of(step: RowStep | Write) -> dict[str, Any]:
    """Return the options of a step that have a value, by the names of arguments."""
    names = type(step).model_fields.keys() - {
        *Step.model_fields,
        *Expecting.model_fields,
        "do",
        "source",
        "dataset",
        "checks",
    }
    found = {name: getattr(step, name) for name in names}
    return {ARGUMENTS.get(name, name): value for name, value in found.items() if value is not None}


def _maintain(io: SparkDatasetIO, path: str, step: Compact | Optimize, progress: Progress) -> MaintenanceResult:
    if isinstance(step, Compact):
        size = DEFAULT_TARGET_MB if step.target_mb is None and step.target_rows is None else step.target_mb
        return io.compact_parquet_dataset(
            path,
            size,
            step.target_rows,
            step.partitions,
            step.compression,
            row_group_size=step.row_group_size,
            progress=progress,
            retries=step.retries,
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
        retries=step.retries,
    )
