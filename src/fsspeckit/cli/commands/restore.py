"""The command `restore`: make a kept version of a dataset the current one."""

from __future__ import annotations

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.operations import is_noop
from fsspeckit.cli.options import OPERATIONS, Dataset, DryRun, Options, Retries
from fsspeckit.common.choices import DEFAULT_RETRIES

_EXAMPLE = """
fsspeckit restore lake/orders --version 12 --dry-run
fsspeckit restore lake/orders --version 12
"""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "restore", example=_EXAMPLE, options=OPERATIONS["restore"], without=("engine",), commits=True)(restore)


def restore(
    run: Run, path: Dataset, options: Options, retries: Retries = DEFAULT_RETRIES, dry_run: DryRun = False
) -> int:
    """Make a kept version the current one. This is a commit like any other, and a restore can undo it."""
    from fsspeckit.core.operations import versions

    with run.bars():
        result = versions.restore(
            run.place(path), options.get("version"), options.get("as_of"), dry_run=dry_run, retries=retries
        )
    return run.finish(result, noop=is_noop(result))
