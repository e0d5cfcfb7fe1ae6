"""The command `forget`: remove the journal of a dataset, not its data files."""

from __future__ import annotations

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.confirm import ask
from fsspeckit.cli.options import Dataset, DryRun, Yes

_EXAMPLE = """
fsspeckit forget lake/monday --dry-run
fsspeckit forget lake/monday --yes
"""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "forget", example=_EXAMPLE, without=("engine",))(forget)


def forget(run: Run, path: Dataset, dry_run: DryRun = False, yes: Yes = False) -> int:
    """Remove the journal of a dataset. The data files are not changed.

    Versions, idempotency keys and positions of pipelines are lost, so it asks first. A pipeline loads all files again.
    """
    from fsspeckit.core.operations.forget import forget as forget_journal

    place = run.place(path)
    found = forget_journal(place, dry_run=True)
    if not dry_run and found.journal is not None:
        what = f"this removes the journal {found.journal} with all versions, idempotency keys and positions"
        ask(run, what, yes=yes)
        with run.bars():
            found = forget_journal(place, dry_run=False)
    return run.finish(found, noop=found.journal is None)
