"""The command `delete`: remove the rows for which a condition is true."""

from __future__ import annotations

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.commands.merge import is_noop
from fsspeckit.cli.confirm import ask
from fsspeckit.cli.options import OPERATIONS, Dataset, DryRun, Options, Yes

_EXAMPLE = """
fsspeckit delete lake/orders --where "id = 7" --dry-run --engine pyarrow
fsspeckit delete lake/orders --where "day = 'mon' AND amount < 10" --engine pyarrow
"""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "delete", example=_EXAMPLE, options=OPERATIONS["delete"])(delete)


def delete(run: Run, path: Dataset, options: Options, dry_run: DryRun = False, yes: Yes = False) -> int:
    """Delete the rows for which a condition is true. Files without such a row are not changed."""
    io = run.io()
    if not dry_run and not yes:
        with run.bars() as progress:
            plan = io.delete(path, dry_run=True, progress=progress, **options)
        if plan.deleted and not plan.total:
            ask(run, f"--where matches all {plan.deleted:,} rows of {path}, so no row is left", yes=yes)
    with run.bars() as progress:
        result = io.delete(path, dry_run=dry_run, progress=progress, **options)
    return run.finish(result, noop=is_noop(result))
