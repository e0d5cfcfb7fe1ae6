"""The command `apply`: run a saved plan exactly, or change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.commands.merge import is_noop
from fsspeckit.cli.confirm import ask_if_no_row_is_left
from fsspeckit.cli.options import Yes
from fsspeckit.cli.plan_files import SavedPlan, SavedSource, read_plan, state_of
from fsspeckit.cli.sources import Source

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A file that `fsspeckit plan` wrote.")]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "apply", example="fsspeckit apply plan.json")(apply)


def apply(run: Run, plan_file: PlanFile, yes: Yes = False) -> int:
    """Run a saved plan exactly. Exit with 3 if the dataset or the source has changed since."""
    saved = read_plan(plan_file)
    plan = saved.plan
    rows = [] if saved.source is None else [_rows(run, saved, saved.source)]
    ask_if_no_row_is_left(run, saved.dest, plan, yes=yes)
    operation = getattr(run.io(saved.engine), saved.command)
    with run.bars() as progress:
        result = operation(*rows, saved.dest, progress=progress, plan=plan, **saved.options)
    return run.finish(result, noop=is_noop(result))


def _rows(run: Run, saved: SavedPlan, found: SavedSource) -> Any:
    """Return the rows of the source; raise if the source has changed since the plan was made."""
    from fsspeckit.common.errors import CommitConflictError

    reading = (found.delimiter, found.encoding, found.schema, found.cast)
    source = Source(found.path, found.format, *reading, run.options())
    rows = source.rows_for(run.place(saved.dest))
    if state_of(source) != found.files:
        raise CommitConflictError(f"the source {source.path} has changed since the plan was made; make a new plan")
    return rows
