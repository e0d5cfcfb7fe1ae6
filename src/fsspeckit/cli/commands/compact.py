"""The command `compact`: join small files."""

from __future__ import annotations

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.operations import is_noop
from fsspeckit.cli.options import OPERATIONS, Dataset, DryRun, Options, Retries
from fsspeckit.common.choices import DEFAULT_RETRIES


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    example = "fsspeckit compact lake/orders --target-mb 128 --engine pyarrow"
    command(app, "compact", example=example, options=OPERATIONS["compact"], commits=True)(compact)


def compact(
    run: Run, path: Dataset, options: Options, retries: Retries = DEFAULT_RETRIES, dry_run: DryRun = False
) -> int:
    """Join small files of each partition into files of about the target size; 128 MB by default."""
    from fsspeckit.api import compact_options

    with run.bars() as progress:
        result = run.io().compact_parquet_dataset(
            path, dry_run=dry_run, progress=progress, retries=retries, **compact_options(options)
        )
    return run.finish(result, noop=is_noop(result))
