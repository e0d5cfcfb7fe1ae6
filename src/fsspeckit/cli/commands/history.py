"""The command `history`: list the versions of a dataset, or set for how long they are kept."""

from __future__ import annotations

from typing import Annotated

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.options import Dataset

_EXAMPLE = """
fsspeckit history lake/orders --retain 7d
fsspeckit history lake/orders
"""
Retain = Annotated[
    str | None,
    typer.Option("--retain", metavar="TIME", help="Keep replaced files for a time, such as 7d; off stops keeping."),
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="List the newest N versions.")]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "history", example=_EXAMPLE, without=("engine", "noop_exit_code"))(history)


def history(run: Run, path: Dataset, retain: Retain = None, limit: Limit = 20) -> int:
    """List the versions of a dataset, newest first. With --retain, keep the files that later commits replace."""
    from fsspeckit.core.operations import versions
    from fsspeckit.datasets.arguments import parse_duration

    place = run.place(path)
    facts = {"operation": "history", "path": place.path}
    if retain is not None:
        seconds = None if retain == "off" else parse_duration("retain", retain)
        first = versions.keep_history(place, seconds)
        text = "no more versions are kept" if seconds is None else f"versions from {first} on are kept for {retain}"
        run.say(facts | {"retain": retain, "version": first}, text)
        return 0
    found = versions.history(place)
    run.say(facts | {"versions": [version.to_dict() for version in found[:limit]]}, found.shown(limit))
    return 0
