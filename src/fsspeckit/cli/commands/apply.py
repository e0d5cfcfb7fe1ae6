"""The command `apply`: run a saved plan exactly, or change nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.confirm import ask_if_all_is_replaced, ask_if_no_row_is_left
from fsspeckit.cli.operations import call_operation, is_noop
from fsspeckit.cli.options import Yes
from fsspeckit.cli.plan_files import DryRun, SavedPlan, SavedSource, facts_of, read_plan, state_of, state_of_dataset
from fsspeckit.cli.sources import Source

if TYPE_CHECKING:
    from fsspeckit.core.commit.listing import View
    from fsspeckit.datasets.io import DatasetIO

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A file that `fsspeckit plan` wrote.")]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "apply", example="fsspeckit apply plan.json")(apply)


def apply(run: Run, plan_file: PlanFile, yes: Yes = False) -> int:
    """Run a saved plan exactly. Exit with 3 if the dataset or the source has changed since."""
    saved = read_plan(plan_file)
    plan = saved.plan
    source = None if saved.source is None else _source(run, saved.source)
    rows = [] if source is None else [source.rows_for(run.place(saved.dest))]
    _check_source(source, saved)
    if isinstance(plan, DryRun):
        return _apply_dry_run(run, saved, plan, source, rows, yes=yes)
    ask_if_no_row_is_left(run, saved.dest, plan, yes=yes)
    operation = getattr(run.io(saved.engine), saved.command)
    with run.bars() as progress:
        result = operation(*rows, saved.dest, progress=progress, plan=plan, **saved.options)
    return run.finish(result, noop=is_noop(result))


def _apply_dry_run(
    run: Run, saved: SavedPlan, plan: DryRun, source: Source | None, rows: list[Any], *, yes: bool
) -> int:
    """Plan the operation again, compare both plans, and run it on the condition that nothing has changed."""
    io = run.io(saved.engine)

    def call(io: DatasetIO, progress: Any, **more: Any) -> Any:
        return call_operation(io, saved.command, (*rows, saved.dest), progress, **more, **saved.options)

    with run.bars() as progress:
        found = call(io, progress, dry_run=True)
    if state_of_dataset(run.place(saved.dest).journal.view()) != plan.state or facts_of(found) != plan.facts:
        raise _changed(saved)
    if is_noop(found):
        return run.finish(found, noop=True)
    if saved.command == "write":
        ask_if_all_is_replaced(run, saved.dest, found, yes=yes)
    with run.bars() as progress:
        done = call(io.on_terms(check=_check(saved, plan, source)), progress)
    return run.finish(done, noop=is_noop(done))


def _check(saved: SavedPlan, plan: DryRun, source: Source | None) -> Callable[..., None]:
    """Return a check for the commit: the files of the dataset and of the source are those of the plan."""

    def check(before: View, *_: object) -> None:
        _check_source(source, saved)
        if state_of_dataset(before) != plan.state:
            raise _changed(saved)

    return check


def _changed(saved: SavedPlan) -> Exception:
    from fsspeckit.common.errors import CommitConflictError

    return CommitConflictError(
        f"{saved.dest} or the options are not what the plan was made for. Nothing was changed; make a new plan."
    )


def _source(run: Run, found: SavedSource) -> Source:
    reading = (found.delimiter, found.encoding, found.schema, found.cast, found.decimal_comma, found.date_format)
    return Source(found.path, found.format, *reading, run.options())


def _check_source(source: Source | None, saved: SavedPlan) -> None:
    """Raise if a file of the source has changed since the plan was made."""
    from fsspeckit.common.errors import CommitConflictError

    if source is not None and saved.source is not None and state_of(source) != saved.source.files:
        raise CommitConflictError(f"the source {source.path} has changed since the plan was made; make a new plan")
