"""The command `write`: write rows as new files of a dataset."""

from __future__ import annotations

from functools import partial

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.confirm import ask, is_always_true
from fsspeckit.cli.options import (
    Compression,
    Dest,
    DryRun,
    MaxRows,
    Memory,
    Mode,
    MustExist,
    Options,
    PartitionBy,
    ReplaceWhere,
    Retries,
    RowGroup,
    Src,
    Yes,
)
from fsspeckit.cli.sources import Source, is_empty, rows_at
from fsspeckit.common.choices import DEFAULT_RETRIES

_EXAMPLE = """
fsspeckit write orders.csv lake/orders --partition-by day --engine pyarrow
fsspeckit write monday.csv lake/orders --mode overwrite --replace-where "day = 'mon'" --engine pyarrow
"""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(app, "write", example=_EXAMPLE)(write)


def write(
    run: Run,
    src: Src,
    dest: Dest,
    reading: Options,
    mode: Mode = "append",
    replace_where: ReplaceWhere = None,
    partition_by: PartitionBy = [],  # noqa: B006 - read by typer, never changed
    compression: Compression = None,
    max_rows_per_file: MaxRows = 5_000_000,
    row_group_size: RowGroup = None,
    memory_limit: Memory = None,
    retries: Retries = DEFAULT_RETRIES,
    dry_run: DryRun = False,
    must_exist: MustExist = False,
    yes: Yes = False,
) -> int:
    """Write the rows of SRC as new files of the dataset DEST."""
    source = Source.of(run, src, **reading)
    place, existed = run.place(dest), run.existed(dest, must_exist=must_exist)
    existing = len(place.journal.view().files) if mode == "overwrite" and not (dry_run or yes) else 0
    replaces_all = replace_where is None or (existing and is_always_true(replace_where))
    if existing and replaces_all:
        ask(run, f"overwriting {dest} deletes its {existing:,} data files", yes=yes)
    only_deletes = existing and not replaces_all
    rows = source.rows_for(place) if only_deletes else None
    operation = partial(
        run.io().write_dataset,
        path=dest,
        mode=mode,
        replace_where=replace_where,
        partition_by=partition_by or None,
        compression=compression,
        max_rows_per_file=max_rows_per_file,
        row_group_size=row_group_size,
        memory_limit=memory_limit,
        retries=retries,
    )
    if only_deletes and is_empty(rows, source.options):
        before = rows_at(place)
        if before and operation(rows, dry_run=True).replaced == before:
            ask(run, f"this deletes all {before:,} rows of {dest}, so no row is left", yes=yes)
    with run.bars() as progress:
        result = operation(source.rows() if rows is None else rows, dry_run=dry_run, progress=progress)
    noop = not (result.files or result.deleted_files or result.rewritten_files)
    return run.finish(result, noop=noop, existed=existed)
