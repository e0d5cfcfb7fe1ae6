"""The command `delete`: remove the rows for which a condition is true."""

from __future__ import annotations

from typing import Any

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.commands.merge import is_noop
from fsspeckit.cli.confirm import ask
from fsspeckit.cli.options import Compression, Dataset, DryRun, Memory, RowGroup, Where, Yes

_EXAMPLE = """
fsspeckit delete lake/orders --where "id = 7" --dry-run --engine pyarrow
fsspeckit delete lake/orders --where "day = 'mon' AND amount < 10" --engine pyarrow
"""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "delete", example=_EXAMPLE)(delete)


def delete(
    run: Run,
    path: Dataset,
    where: Where,
    compression: Compression = None,
    row_group_size: RowGroup = None,
    memory_limit: Memory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> int:
    """Delete the rows for which a condition is true. Files without such a row are not changed."""
    options, io = delete_options(locals()), run.io()
    if not dry_run and not yes:
        with run.bars() as progress:
            plan = io.delete(path, dry_run=True, progress=progress, **options)
        if plan.deleted and not plan.total:
            ask(run, f"--where matches all {plan.deleted:,} rows of {path}, so no row is left", yes=yes)
    with run.bars() as progress:
        result = io.delete(path, dry_run=dry_run, progress=progress, **options)
    return run.finish(result, noop=is_noop(result))


_REWRITING = ("compression", "row_group_size", "memory_limit")


def delete_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `DatasetIO.delete` from those of the command."""
    return {name: given[name] for name in ("where", *_REWRITING)}
