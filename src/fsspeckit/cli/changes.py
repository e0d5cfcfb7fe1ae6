"""The commands that bring rows in: `write` and `merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fsspeckit.cli.consent import ask
from fsspeckit.cli.run import Run, command
from fsspeckit.cli.sources import Source, is_empty

Src = Annotated[
    str, typer.Argument(metavar="SRC", help="Parquet, csv or json: file, folder, pattern; - for Arrow IPC.")
]
Dest = Annotated[str, typer.Argument(metavar="DEST", help="The dataset's folder or URL.")]
Format = Annotated[Literal["parquet", "csv", "json"] | None, typer.Option("--format", help="Format of SRC.")]
Delimiter = Annotated[str | None, typer.Option("--delimiter", help="What stands between two values of a csv.")]
Encoding = Annotated[str | None, typer.Option("--encoding", help="Encoding of csv and json files; utf-8 by default.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Say what would be done and write nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Agree to what deletes everything.")]
PartitionBy = Annotated[list[str], typer.Option("--partition-by", metavar="COLUMN", help="Of a new dataset.")]
Compression = Annotated[str | None, typer.Option("--compression", help="Codec of written files.")]
MaxRows = Annotated[int, typer.Option("--max-rows-per-file", help="Most rows of a new file.")]
RowGroup = Annotated[int | None, typer.Option("--row-group-size", help="Most rows of a row group.")]
Memory = Annotated[str | None, typer.Option("--memory-limit", help="What writing may use, such as 500MB.")]
Keys = Annotated[list[str], typer.Option("--key", metavar="COLUMN", help="Column that identifies a row; repeatable.")]
Strategy = Annotated[
    Literal["upsert", "insert", "update", "full_merge", "deduplicate"],
    typer.Option("--strategy", help="What to do with rows that match and that do not."),
]
OrderBy = Annotated[
    list[str],
    typer.Option("--order-by", metavar="COLUMN", help="Of rows with one key the highest stays; -COLUMN: lowest."),
]
Duplicates = Annotated[
    Literal["error", "first", "last"], typer.Option("--on-duplicate-source", help="What to do with a key twice in SRC.")
]
NullKeys = Annotated[Literal["error", "match"], typer.Option("--null-keys", help="Whether null equals null in keys.")]
SchemaMode = Annotated[Literal["strict", "evolve"], typer.Option("--schema-mode", help="evolve takes new columns.")]
Mode = Annotated[
    Literal["append", "overwrite", "overwrite_partitions"], typer.Option("--mode", help="What goes first.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    command(app, "write", example="fsspeckit write orders.csv lake/orders --partition-by day --engine pyarrow")(write)
    command(
        app, "merge", example="fsspeckit merge updates.csv lake/orders --key id --strategy upsert --engine pyarrow"
    )(merge)


def write(
    run: Run,
    src: Src,
    dest: Dest,
    mode: Mode = "append",
    partition_by: PartitionBy = [],  # noqa: B006 - read by typer, never changed
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
    """Write the rows of SRC as new files of the dataset DEST."""
    source = Source.of(run, src, format_, delimiter, encoding)
    existing = len(run.place(dest).journal.view().files) if mode == "overwrite" and not dry_run else 0
    if existing:
        ask(run, f"overwriting {dest} deletes its {existing:,} data files", yes=yes)
    with run.bars() as progress:
        result = run.io().write_dataset(
            source.rows(),
            dest,
            mode=mode,
            partition_by=partition_by or None,
            compression=compression,
            max_rows_per_file=max_rows_per_file,
            row_group_size=row_group_size,
            memory_limit=memory_limit,
            dry_run=dry_run,
            progress=progress,
        )
    return run.finish(result, noop=not result.files and not result.deleted_files)


def merge(
    run: Run,
    src: Src,
    dest: Dest,
    key: Keys,
    strategy: Strategy = "upsert",
    partition_by: PartitionBy = [],  # noqa: B006
    order_by: OrderBy = [],  # noqa: B006
    on_duplicate_source: Duplicates = "error",
    null_keys: NullKeys = "error",
    schema_mode: SchemaMode = "strict",
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
    """The arguments of `DatasetIO.merge` from those of the command."""
    options = {name: given[name] for name in _OPTIONS}
    lists = {"key_columns": given["key"], "partition_by": given["partition_by"], "dedup_order_by": given["order_by"]}
    return options | {name: list(value) for name, value in lists.items() if value}


def is_noop(result: Any) -> bool:
    """Whether a merge, or its plan, leaves the dataset as it is."""
    if "entries" in result:
        return all(entry.action == "keep" for entry in result.entries)
    return result.commit_seq is None


def absolute(path: str) -> str:
    """A path that means the same from every folder."""
    return path if "://" in path or "::" in path else str(Path(path).expanduser().absolute())
