"""The command `deduplicate`: keep one row per key."""

from __future__ import annotations

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.options import (
    Compression,
    Dataset,
    DryRun,
    Keys,
    MaxBytes,
    MaxFiles,
    NullsInKeys,
    OrderBy,
    Partitions,
    Retries,
    RowGroup,
)
from fsspeckit.common.choices import DEFAULT_RETRIES


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "deduplicate", example="fsspeckit deduplicate lake/orders --key id --dry-run --engine pyarrow")(
        deduplicate
    )


def deduplicate(
    run: Run,
    path: Dataset,
    key: Keys,
    order_by: OrderBy = [],  # noqa: B006
    partition: Partitions = [],  # noqa: B006
    null_keys: NullsInKeys = "error",
    compression: Compression = None,
    row_group_size: RowGroup = None,
    max_files: MaxFiles = None,
    max_bytes: MaxBytes = None,
    retries: Retries = DEFAULT_RETRIES,
    dry_run: DryRun = False,
) -> int:
    """Keep one row per key, rewriting only files that lose rows."""
    with run.bars() as progress:
        result = run.io().deduplicate_parquet_dataset(
            path,
            key,
            order_by or None,
            partition or None,
            compression,
            dry_run,
            null_keys=null_keys,
            row_group_size=row_group_size,
            max_files=max_files,
            max_bytes=max_bytes,
            progress=progress,
            retries=retries,
        )
    return run.finish(result, noop=not result.compacted_file_count)
