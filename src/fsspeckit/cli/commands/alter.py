"""The command `alter`: change how files store timestamps."""

from __future__ import annotations

from typing import Annotated

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.operations import is_noop
from fsspeckit.cli.options import Dataset, DryRun, Retries
from fsspeckit.common.choices import DEFAULT_RETRIES, Timestamps

To = Annotated[Timestamps, typer.Option("--timestamps", help="Rewrite INT96 timestamps as 64-bit microseconds.")]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "alter", example="fsspeckit alter lake/orders --timestamps micros", commits=True)(alter)


def alter(run: Run, path: Dataset, timestamps: To, retries: Retries = DEFAULT_RETRIES, dry_run: DryRun = False) -> int:
    """Rewrite all files that store timestamps as INT96, the default of Spark, in one commit. No value changes."""
    with run.bars() as progress:
        result = run.io().alter(path, timestamps=timestamps, dry_run=dry_run, progress=progress, retries=retries)
    return run.finish(result, noop=is_noop(result))
