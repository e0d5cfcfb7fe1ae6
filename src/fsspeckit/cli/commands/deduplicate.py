"""The command `deduplicate`: keep one row per key."""

from __future__ import annotations

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.operations import is_noop
from fsspeckit.cli.options import OPERATIONS, Dataset, DryRun, Options, Retries
from fsspeckit.common.choices import DEFAULT_RETRIES


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    example = "fsspeckit deduplicate lake/orders --key id --dry-run --engine pyarrow"
    command(app, "deduplicate", example=example, options=OPERATIONS["deduplicate"], commits=True)(deduplicate)


def deduplicate(
    run: Run, path: Dataset, options: Options, retries: Retries = DEFAULT_RETRIES, dry_run: DryRun = False
) -> int:
    """Keep one row per key, rewriting only files that lose rows."""
    with run.bars() as progress:
        result = run.io().deduplicate_parquet_dataset(
            path, dry_run=dry_run, progress=progress, retries=retries, **options
        )
    return run.finish(result, noop=is_noop(result))
