"""Confirmation before all rows, all kept versions or a journal are deleted: `--yes`, or an answer on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import typer

from fsspeckit.cli.command import Run
from fsspeckit.cli.errors import CommandError, usage
from fsspeckit.cli.options import Options
from fsspeckit.cli.sources import rows_at
from fsspeckit.common.text import counted, printable

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


def ask_if_no_row_is_left(run: Run, path: str, plan: Any, *, yes: bool) -> None:
    """Ask the user if a plan deletes all rows of a dataset and inserts none."""
    if plan.target_count_before and not plan.total:
        ask(run, all_rows(plan.target_count_before, path), yes=yes)


def ask_if_all_is_replaced(run: Run, path: str, plan: Any, *, yes: bool) -> None:
    """Ask the user if the plan of a write removes all files or all rows of a dataset."""
    files = len(run.place(path).journal.view().files)
    if plan.replaced is None and files and len(plan.deleted_files) == files:
        ask(run, f"overwriting {path} deletes its {counted(files, 'data file')}", yes=yes)
    elif plan.replaced and not plan.rows and plan.replaced == rows_at(run.place(path)):
        ask(run, all_rows(plan.replaced, path), yes=yes)


def ask_if_all_versions_go(run: Run, path: str, options: Options, plan: Any, *, yes: bool) -> None:
    """Ask the user if a vacuum removes all kept versions, whatever their age."""
    from fsspeckit.datasets.arguments import parse_duration

    if plan.removed_files and parse_duration("older_than", options.get("older_than")) == 0:
        removed = counted(plan.removed_files, "file")
        ask(run, f"this removes all kept versions of {path} ({removed}), so no restore can bring them back", yes=yes)


def all_rows(count: int, path: str) -> str:
    """Say that all rows of a dataset are deleted."""
    rows = "the only row" if count == 1 else f"all {count:,} rows"
    return f"this deletes {rows} of {path}, so no row is left"


def plan_and_ask(run: Run, path: str, operation: Callable[..., Any], *, yes: bool) -> None:
    """Plan an operation that can delete all rows of a dataset, and ask the user if it does."""
    if yes or not run.place(path).journal.view().files:
        return
    with run.bars() as progress:
        plan = operation(dry_run=True, progress=progress)
    ask_if_no_row_is_left(run, path, plan, yes=yes)


def is_always_true(condition: str) -> bool:
    """Return whether a condition reads no column and is true."""
    import pyarrow as pa

    from fsspeckit.core.expressions.conditions import columns_named, compile_condition
    from fsspeckit.core.expressions.evaluate import constant_value

    if columns_named(condition):
        return False
    return constant_value(compile_condition(condition, pa.schema([]))).value.as_py() is True
