"""The command `compact`: join small files."""

from __future__ import annotations

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.options import (
    Compression,
    Dataset,
    DryRun,
    MaxBytes,
    MaxFiles,
    Partitions,
    Retries,
    RowGroup,
    TargetMb,
    TargetRows,
)
from fsspeckit.common.choices import DEFAULT_RETRIES, DEFAULT_TARGET_MB


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "compact", example="fsspeckit compact lake/orders --target-mb 128 --engine pyarrow")(compact)


def compact(
    run: Run,
    path: Dataset,
    target_mb: TargetMb = None,
    target_rows: TargetRows = None,
    partition: Partitions = [],  # noqa: B006 - read by typer, never changed
    compression: Compression = None,
    row_group_size: RowGroup = None,
    max_files: MaxFiles = None,
    max_bytes: MaxBytes = None,
    retries: Retries = DEFAULT_RETRIES,
    dry_run: DryRun = False,
) -> int:
    """Join small files of each partition into files of about the target size; 128 MB by default."""
    with run.bars() as progress:
        result = run.io().compact_parquet_dataset(
            path,
            DEFAULT_TARGET_MB if target_mb is None and target_rows is None else target_mb,
            target_rows,
            partition or None,
            compression,
            dry_run,
            row_group_size=row_group_size,
            max_files=max_files,
            max_bytes=max_bytes,
            progress=progress,
            retries=retries,
        )
    return run.finish(result, noop=not result.compacted_file_count)
