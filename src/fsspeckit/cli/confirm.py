"""Confirmation before all rows are deleted: `--yes`, or an answer on the terminal."""

from __future__ import annotations

import sys

import typer

from fsspeckit.cli.command import Run
from fsspeckit.cli.errors import CommandError, usage
from fsspeckit.common.text import printable

_REMEDY = "add --yes to go on without a question"


def ask(run: Run, what: str, *, yes: bool) -> None:
    """Ask the user to confirm a deletion; raise `CommandError` if the user does not confirm."""
    if yes:
        return
    if run.json_line or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise usage(what, "add --yes if that is meant")
    try:
        agreed = typer.confirm(f"{printable(what)}. Go on?", err=True)
    except typer.Abort as error:
        raise CommandError("nothing was answered", _REMEDY) from error
    if not agreed:
        raise CommandError("nothing was done", _REMEDY)
