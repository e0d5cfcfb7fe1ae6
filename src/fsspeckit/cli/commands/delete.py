"""The command `delete`: remove the rows for which a condition is true."""

from __future__ import annotations

from functools import partial

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.confirm import plan_and_ask
from fsspeckit.cli.operations import is_noop
from fsspeckit.cli.options import OPERATIONS, Dataset, DryRun, Options, Retries, Yes
from fsspeckit.common.choices import DEFAULT_RETRIES

_EXAMPLE = """
fsspeckit delete lake/orders --where "id = 7" --dry-run --engine pyarrow
fsspeckit delete lake/orders --where "day = 'mon' AND amount < 10" --engine pyarrow
"""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "delete", example=_EXAMPLE, options=OPERATIONS["delete"], commits=True)(delete)


def delete(
    run: Run,
    path: Dataset,
    options: Options,
    retries: Retries = DEFAULT_RETRIES,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> int:
    """Delete the rows for which a condition is true. Files without such a row are not changed."""
    operation = partial(run.io().delete, path, retries=retries, **options)
    if not dry_run:
        plan_and_ask(run, path, operation, yes=yes)
    with run.bars() as progress:
        result = operation(dry_run=dry_run, progress=progress)
    return run.finish(result, noop=is_noop(result))
