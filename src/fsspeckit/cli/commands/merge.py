"""The command `merge`: merge rows into a dataset by key."""

from __future__ import annotations

from functools import partial

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.confirm import plan_and_ask
from fsspeckit.cli.operations import is_noop
from fsspeckit.cli.options import OPERATIONS, Dest, DryRun, MustExist, Options, Retries, Src, Yes
from fsspeckit.cli.sources import Source, is_empty
from fsspeckit.common.choices import DEFAULT_RETRIES

_EXAMPLE = """
fsspeckit merge updates.csv lake/orders --key id --strategy upsert --engine pyarrow
fsspeckit merge updates.csv lake/orders --key id --update-columns amount --insert-when "source.amount > 0" \\
    --engine pyarrow
fsspeckit merge updates.csv lake/orders --key id --strategy full_merge --scope "day IN ('mon', 'tue')" \\
    --partition-move move --engine pyarrow
"""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "merge", example=_EXAMPLE, options=OPERATIONS["merge"], commits=True)(merge)


def merge(
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
    """Merge the rows of SRC into the dataset DEST, rewriting only files in which a row changes.

    Conditions are SQL, the same on every engine. --update-when and --insert-when name columns as source.COLUMN and
    target.COLUMN. --delete-when names columns of SRC, and --scope columns of DEST, without a prefix.
    """
    source = Source.of(run, src, **reading)
    existed = run.existed(dest, must_exist=must_exist)
    rows, io = source.rows(), run.io()
    may_delete = "delete_when" in options
    if options["strategy"] == "full_merge" and not dry_run:
        rows = source.rows_for(run.place(dest))
        may_delete = may_delete or "insert_when" in options or is_empty(rows, source.options)
    operation = partial(io.merge, rows, dest, retries=retries, **options)
    if may_delete and not dry_run:
        plan_and_ask(run, dest, operation, yes=yes)
    with run.bars() as progress:
        result = operation(dry_run=dry_run, progress=progress)
    return run.finish(result, noop=is_noop(result), existed=existed)
