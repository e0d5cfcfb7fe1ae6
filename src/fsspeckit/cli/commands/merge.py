"""The command `merge`: merge rows into a dataset by key."""

from __future__ import annotations

from typing import Any

import typer

from fsspeckit.cli.command import Run, command
from fsspeckit.cli.confirm import ask
from fsspeckit.cli.options import (
    Compression,
    Delimiter,
    Dest,
    DryRun,
    Duplicates,
    Encoding,
    Evolution,
    Format,
    Keys,
    MaxRows,
    Memory,
    NullsInKeys,
    OrderBy,
    PartitionBy,
    RowGroup,
    Src,
    Strategy,
    Yes,
)
from fsspeckit.cli.sources import Source, is_empty


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    command(
        app, "merge", example="fsspeckit merge updates.csv lake/orders --key id --strategy upsert --engine pyarrow"
    )(merge)


def merge(
    run: Run,
    src: Src,
    dest: Dest,
    key: Keys,
    strategy: Strategy = "upsert",
    partition_by: PartitionBy = [],  # noqa: B006
    order_by: OrderBy = [],  # noqa: B006
    on_duplicate_source: Duplicates = "error",
    null_keys: NullsInKeys = "error",
    schema_mode: Evolution = "strict",
    format_: Format = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    compression: Compression = None,
    max_rows_per_file: MaxRows = 5_000_000,
    row_group_size: RowGroup = None,
    memory_limit: Memory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> int:
    """Merge the rows of SRC into the dataset DEST, rewriting only files in which a row changes."""
    source = Source.of(run, src, format_, delimiter, encoding)
    options = merge_options(locals())
    rows = source.rows()
    if strategy == "full_merge" and not dry_run:
        place = run.place(dest)
        rows = source.rows_for(place)
        existing = len(place.journal.view().files)
        if existing and is_empty(rows, source.options):
            ask(run, f"SRC has no rows, so a full merge deletes all {existing:,} data files of {dest}", yes=yes)
    with run.bars() as progress:
        result = run.io().merge(rows, dest, dry_run=dry_run, progress=progress, **options)
    return run.finish(result, noop=is_noop(result))


_OPTIONS = (
    "strategy",
    "on_duplicate_source",
    "null_keys",
    "schema_mode",
    "compression",
    "max_rows_per_file",
    "row_group_size",
    "memory_limit",
)


def merge_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `DatasetIO.merge` from those of the command."""
    options = {name: given[name] for name in _OPTIONS}
    lists = {"key_columns": given["key"], "partition_by": given["partition_by"], "dedup_order_by": given["order_by"]}
    return options | {name: list(value) for name, value in lists.items() if value}


def is_noop(result: Any) -> bool:
    """Return whether a merge or its plan does not change the dataset."""
    if "entries" in result:
        return all(entry.action == "keep" for entry in result.entries)
    return result.commit_seq is None
