"""The command `write`: write rows as new files of a dataset."""

from __future__ import annotations

from typing import Any

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.confirm import all_rows, ask, is_always_true
from fsspeckit.cli.operations import call_operation, is_noop
from fsspeckit.cli.options import OPERATIONS, Dest, DryRun, MustExist, Options, Retries, Src, Yes
from fsspeckit.cli.sources import Source, is_empty, rows_at
from fsspeckit.common.choices import DEFAULT_RETRIES
from fsspeckit.common.text import counted

_EXAMPLE = """
fsspeckit write orders.csv lake/orders --partition-by day --engine pyarrow
fsspeckit write monday.csv lake/orders --mode overwrite --replace-where "day = 'mon'" --engine pyarrow
"""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "write", example=_EXAMPLE, options=OPERATIONS["write"], commits=True)(write)


def write(
    run: Run,
    src: Src,
    dest: Dest,
    options: Options,
    reading: Options,
    retries: Retries = DEFAULT_RETRIES,
    dry_run: DryRun = False,
    must_exist: MustExist = False,
    yes: Yes = False,
) -> int:
    """Write the rows of SRC as new files of the dataset DEST."""
    source = Source.of(run, src, **reading)
    place, existed = run.place(dest), run.existed(dest, must_exist=must_exist)
    mode, replace_where = options["mode"], options.get("replace_where")
    existing = len(place.journal.view().files) if mode == "overwrite" and not (dry_run or yes) else 0
    replaces_all = replace_where is None or (existing and is_always_true(replace_where))
    if existing and replaces_all:
        ask(run, f"overwriting {dest} deletes its {counted(existing, 'data file')}", yes=yes)
    only_deletes = existing and not replaces_all
    rows = source.rows_for(place) if only_deletes else None
    io = run.io()

    def operation(rows: Any, progress: Any, *, dry_run: bool) -> Any:
        given = {"dry_run": dry_run, "retries": retries, **options}
        return call_operation(io, "write", (rows, dest), progress, **given)

    if only_deletes and is_empty(rows, source.options):
        before = rows_at(place)
        if before and operation(rows, None, dry_run=True).replaced == before:
            ask(run, all_rows(before, dest), yes=yes)
    rows = source.rows() if rows is None else rows  # with a bar of its own for standard input
    with run.bars() as progress:
        result = operation(rows, progress, dry_run=dry_run)
    return run.finish(result, noop=is_noop(result), existed=existed)
