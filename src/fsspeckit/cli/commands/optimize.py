"""The command `optimize`: sort the rows of each partition."""

from __future__ import annotations

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.operations import is_noop
from fsspeckit.cli.options import OPERATIONS, Dataset, DeduplicateKeys, DryRun, Options, OrderBy, Retries
from fsspeckit.common.choices import DEFAULT_RETRIES


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    example = "fsspeckit optimize lake/orders --by id --engine pyarrow"
    command(app, "optimize", example=example, options=OPERATIONS["optimize"], commits=True)(optimize)


def optimize(
    run: Run,
    path: Dataset,
    options: Options,
    deduplicate_key: DeduplicateKeys = [],  # noqa: B006 - read by typer, never changed
    order_by: OrderBy = [],  # noqa: B006
    retries: Retries = DEFAULT_RETRIES,
    dry_run: DryRun = False,
) -> int:
    """Sort the rows of each partition, so that readers can skip files and row groups."""
    with run.bars() as progress:
        result = run.io().optimize_parquet_dataset(
            path,
            dry_run=dry_run,
            deduplicate_key_columns=deduplicate_key or None,
            dedup_order_by=order_by or None,
            progress=progress,
            retries=retries,
            **options,
        )
    return run.finish(result, noop=is_noop(result))
