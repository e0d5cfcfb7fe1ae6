"""The command `apply`: run a saved plan exactly, or change nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.confirm import ask_if_all_is_replaced, ask_if_all_versions_go, ask_if_no_row_is_left
from fsspeckit.cli.operations import call_operation, is_noop, operation_io
from fsspeckit.cli.options import ROW_OPERATIONS, Diff, Yes
from fsspeckit.cli.options import DryRun as DryRunOption
from fsspeckit.cli.plan_files import DryRun, SavedPlan, SavedSource, facts_of, read_plan, state_of, state_of_dataset
from fsspeckit.cli.sources import Source

if TYPE_CHECKING:
    from fsspeckit.cli.diff import RowSampler
    from fsspeckit.core.commit.listing import View
    from fsspeckit.datasets.io import DatasetIO

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A file that `fsspeckit plan` wrote.")]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    example = "fsspeckit apply plan.json --dry-run\nfsspeckit apply plan.json --diff"
    command(app, "apply", example=example, commits=True)(apply)


def apply(run: Run, plan_file: PlanFile, yes: Yes = False, dry_run: DryRunOption = False, diff: Diff = False) -> int:
    """Run a saved plan exactly. Exit with 3 if the dataset or the source has changed since."""
    from fsspeckit.cli.diff import sample_rows

    saved = read_plan(plan_file)
    source = None if saved.source is None else _source(run, saved.source)
    rows = [] if source is None else [source.rows_for(run.place(saved.dest))]
    _check_source(source, saved)
    is_exact = not isinstance(saved.plan, DryRun)
    io = operation_io(run, saved.command, saved.engine)
    call = partial(_call, run, saved, (*rows, saved.dest))
    found = saved.plan if is_exact else _planned_again(run, saved, io, call)
    if dry_run:
        sample = None
        if diff or is_exact:  # the rows of an exact plan are compared with it when they are staged
            with run.bars() as progress:
                sample = sample_rows(io, _sampler(run, saved, source), partial(call, progress=progress))
        return run.finish(found, noop=is_noop(found), sample=sample if diff else None)
    if not is_exact and is_noop(found):
        return run.finish(replace(found, dry_run=False), noop=True)
    _ask(run, saved, found, yes=yes)
    sampler = _sampler(run, saved, source)
    check = None if is_exact and (not diff or is_noop(found)) else sampler if diff else _check(saved, source)
    with run.bars() as progress:
        done = call(io if check is None else io.on_terms(check=check), progress=progress)
    return run.finish(done, noop=is_noop(done), sample=sampler.found)


def _call(run: Run, saved: SavedPlan, arguments: tuple[Any, ...], io: DatasetIO, progress: Any, **more: Any) -> Any:
    """Call the operation of a plan."""
    if not isinstance(saved.plan, DryRun):
        more |= {"plan": saved.plan}
    elif saved.command == "vacuum":
        from fsspeckit.core.operations import versions

        before = saved.plan.facts.get("oldest_version")
        if type(before) is not int:
            raise _changed(saved)
        dry_run = more.get("dry_run", False)
        return versions.vacuum(run.place(saved.dest), None, before=before, dry_run=dry_run)
    return call_operation(io, saved.command, arguments, progress, **more, **saved.options)


def _planned_again(run: Run, saved: SavedPlan, io: DatasetIO, call: Callable[..., Any]) -> Any:
    """Plan the operation again. Raise if the plan is another one."""
    with run.bars() as progress:
        found = call(io, progress=progress, dry_run=True)
    plan = saved.plan
    if isinstance(plan, DryRun):
        state = state_of_dataset(run.place(saved.dest).journal.view())
        if state != plan.state or facts_of(found) != plan.facts:
            raise _changed(saved)
    return found


def _ask(run: Run, saved: SavedPlan, plan: Any, *, yes: bool) -> None:
    """Ask the user if the plan deletes all rows or all kept versions."""
    if saved.command == "write":
        ask_if_all_is_replaced(run, saved.dest, plan, yes=yes)
    elif saved.command == "vacuum":
        ask_if_all_versions_go(run, saved.dest, saved.options, plan, yes=yes)
    elif saved.command in ROW_OPERATIONS:
        ask_if_no_row_is_left(run, saved.dest, plan, yes=yes)


def _sampler(run: Run, saved: SavedPlan, source: Source | None) -> RowSampler:
    from fsspeckit.cli.diff import RowSampler

    check = _check(saved, source) if isinstance(saved.plan, DryRun) else None
    return RowSampler(run.place(saved.dest).storage, saved.command, saved.options.get("key_columns", ()), check)


def _check(saved: SavedPlan, source: Source | None) -> Callable[..., None]:
    """Return a check for the commit: the files of the dataset and of the source are those of the plan."""

    def check(before: View, *_: object) -> None:
        _check_source(source, saved)
        if isinstance(saved.plan, DryRun) and state_of_dataset(before) != saved.plan.state:
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
