"""The command `merge`: merge rows into a dataset by key."""

from __future__ import annotations

from typing import Any

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.confirm import ask
from fsspeckit.cli.options import OPERATIONS, Delimiter, Dest, DryRun, Encoding, Format, Options, Src, Yes
from fsspeckit.cli.sources import Source, is_empty

_EXAMPLE = """
fsspeckit merge updates.csv lake/orders --key id --strategy upsert --engine pyarrow
fsspeckit merge updates.csv lake/orders --key id --update-columns amount --insert-when "source.amount > 0" \\
    --engine pyarrow
fsspeckit merge updates.csv lake/orders --key id --strategy full_merge --scope "day IN ('mon', 'tue')" \\
    --partition-move move --engine pyarrow
"""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "merge", example=_EXAMPLE, options=OPERATIONS["merge"])(merge)


def merge(
    run: Run,
    src: Src,
    dest: Dest,
    options: Options,
    format_: Format = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> int:
    """Merge the rows of SRC into the dataset DEST, rewriting only files in which a row changes.

    Conditions are SQL, the same on every engine. --update-when and --insert-when name columns as source.COLUMN and
    target.COLUMN. --delete-when names columns of SRC, and --scope columns of DEST, without a prefix.
    """
    source = Source.of(run, src, format_, delimiter, encoding)
    rows, io = source.rows(), run.io()
    if options["strategy"] == "full_merge" and not dry_run:
        place = run.place(dest)
        rows = source.rows_for(place)
        existing = len(place.journal.view().files)
        if existing and is_empty(rows, source.options):
            if "scope" not in options:
                ask(run, f"SRC has no rows, so a full merge deletes all {existing:,} data files of {dest}", yes=yes)
            elif not yes and not io.merge(rows, dest, dry_run=True, **options).total:
                ask(run, f"SRC has no rows and --scope matches all rows of {dest}, so no row is left", yes=yes)
    with run.bars() as progress:
        result = io.merge(rows, dest, dry_run=dry_run, progress=progress, **options)
    return run.finish(result, noop=is_noop(result))


def is_noop(result: Any) -> bool:
    """Return whether a merge or its plan does not change the dataset."""
    if "entries" in result:
        return all(entry.action == "keep" for entry in result.entries)
    return result.commit_seq is None
