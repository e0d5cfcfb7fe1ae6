"""The command `optimize`: sort the rows of each partition."""

from __future__ import annotations

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.options import (
    Bloom,
    By,
    Compression,
    Dataset,
    DeduplicateKeys,
    DryRun,
    Force,
    MaxBytes,
    MaxFiles,
    OrderBy,
    Partitions,
    Retries,
    RowGroup,
    SortOrder,
    TargetMb,
    TargetRows,
)
from fsspeckit.common.choices import DEFAULT_RETRIES


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "optimize", example="fsspeckit optimize lake/orders --by id --engine pyarrow")(optimize)


def optimize(
    run: Run,
    path: Dataset,
    by: By = [],  # noqa: B006
    curve: SortOrder = "linear",
    target_mb: TargetMb = None,
    target_rows: TargetRows = None,
    partition: Partitions = [],  # noqa: B006
    bloom: Bloom = [],  # noqa: B006
    deduplicate_key: DeduplicateKeys = [],  # noqa: B006
    order_by: OrderBy = [],  # noqa: B006
    force: Force = False,
    compression: Compression = None,
    row_group_size: RowGroup = None,
    max_files: MaxFiles = None,
    max_bytes: MaxBytes = None,
    retries: Retries = DEFAULT_RETRIES,
    dry_run: DryRun = False,
) -> int:
    """Sort the rows of each partition, so that readers can skip files and row groups."""
    with run.bars() as progress:
        result = run.io().optimize_parquet_dataset(
            path,
            by or None,
            target_mb,
            target_rows,
            partition or None,
            compression,
            dry_run,
            curve=curve,
            deduplicate_key_columns=deduplicate_key or None,
            dedup_order_by=order_by or None,
            bloom_filter_columns=bloom or None,
            force=force,
            row_group_size=row_group_size,
            max_files=max_files,
            max_bytes=max_bytes,
            progress=progress,
            retries=retries,
        )
    return run.finish(result, noop=not result.compacted_file_count)
