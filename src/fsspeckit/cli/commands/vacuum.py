"""The command `vacuum`: remove the kept files of old versions."""

from __future__ import annotations

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.confirm import ask_if_all_versions_go
from fsspeckit.cli.operations import is_noop
from fsspeckit.cli.options import OPERATIONS, Dataset, DryRun, Options, Yes

_EXAMPLE = """
fsspeckit vacuum lake/orders --older-than 3d --dry-run
fsspeckit vacuum lake/orders
"""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "vacuum", example=_EXAMPLE, options=OPERATIONS["vacuum"], without=("engine",))(vacuum)


def vacuum(run: Run, path: Dataset, options: Options, dry_run: DryRun = False, yes: Yes = False) -> int:
    """Remove the kept files of old versions. The current version does not change.

    With --older-than 0d it removes all kept versions, and asks first.
    """
    from fsspeckit.core.operations import versions
    from fsspeckit.datasets.arguments import parse_duration

    place, seconds = run.place(path), parse_duration("older_than", options.get("older_than"))
    if not dry_run and not yes:
        ask_if_all_versions_go(run, path, options, versions.vacuum(place, seconds, dry_run=True), yes=yes)
    with run.bars():
        result = versions.vacuum(place, seconds, dry_run=dry_run)
    return run.finish(result, noop=is_noop(result))
