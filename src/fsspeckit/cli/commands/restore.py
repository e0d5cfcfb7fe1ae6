"""The command `restore`: make a kept version of a dataset the current one."""

from __future__ import annotations

from typing import Annotated

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.options import Dataset, DryRun

_EXAMPLE = """
fsspeckit restore lake/orders --version 12 --dry-run
fsspeckit restore lake/orders --version 12
"""
Version = Annotated[int | None, typer.Option("--version", metavar="N", help="Version, as `history` lists it.")]
AsOf = Annotated[
    str | None, typer.Option("--as-of", metavar="TIME", help="Version at a time, such as 2026-11-02T10:00Z.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "restore", example=_EXAMPLE, without=("engine",))(restore)


def restore(run: Run, path: Dataset, version: Version = None, as_of: AsOf = None, dry_run: DryRun = False) -> int:
    """Make a kept version the current one. This is a commit like any other, and a restore can undo it."""
    from fsspeckit.core.operations import versions

    with run.bars():
        result = versions.restore(run.place(path), version, as_of, dry_run=dry_run)
    return run.finish(result, noop=not result.restored_files and not result.removed_files)
