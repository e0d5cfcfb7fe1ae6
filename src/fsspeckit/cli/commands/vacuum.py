"""The command `vacuum`: remove the kept files of old versions."""

from __future__ import annotations

from typing import Annotated

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.options import Dataset, DryRun

OlderThan = Annotated[
    str | None,
    typer.Option(
        "--older-than", metavar="TIME", help="Versions replaced longer ago, such as 3d; default: as `history` sets it."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    example = "fsspeckit vacuum lake/orders --older-than 3d --dry-run"
    command(app, "vacuum", example=example, without=("engine",))(vacuum)


def vacuum(run: Run, path: Dataset, older_than: OlderThan = None, dry_run: DryRun = False) -> int:
    """Remove the kept files of old versions. The current version does not change."""
    from fsspeckit.core.operations import versions
    from fsspeckit.datasets.arguments import parse_duration

    with run.bars():
        result = versions.vacuum(run.place(path), parse_duration("older_than", older_than), dry_run=dry_run)
    return run.finish(result, noop=not result.removed_files)
