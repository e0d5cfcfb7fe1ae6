"""Asking before everything is deleted: `--yes`, or a person's word on a terminal."""

from __future__ import annotations

import sys

import typer

from fsspeckit.cli.errors import CommandError, usage
from fsspeckit.cli.run import Run
from fsspeckit.common.text import printable


def ask(run: Run, what: str, *, yes: bool) -> None:
    """Go on only where the user agrees to what is about to be deleted."""
    if yes:
        return
    if run.json_line or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise usage(what, "add --yes if that is meant")
    if not typer.confirm(f"{printable(what)}. Go on?", err=True):
        raise CommandError("nothing was done", "add --yes to go on without a question")
