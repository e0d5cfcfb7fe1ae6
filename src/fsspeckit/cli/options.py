"""Options that several commands share, with their help texts."""

from __future__ import annotations

from typing import Annotated

import typer

from fsspeckit.common.choices import Curve, NullKeys, OnDuplicate, SchemaMode, SourceFormat, StrategyName, WriteMode

Src = Annotated[
    str, typer.Argument(metavar="SRC", help="Parquet, csv or json: file, folder, pattern; - for Arrow IPC.")
]
Dest = Annotated[str, typer.Argument(metavar="DEST", help="The dataset's folder or URL.")]
Format = Annotated[SourceFormat | None, typer.Option("--format", help="Format of SRC.")]
Delimiter = Annotated[str | None, typer.Option("--delimiter", help="What stands between two values of a csv.")]
Encoding = Annotated[str | None, typer.Option("--encoding", help="Encoding of csv and json files; utf-8 by default.")]
Where = Annotated[
    str,
    typer.Option("--where", metavar="CONDITION", help='SQL condition, such as "id = 7"; true matches all rows.'),
]
Assignments = Annotated[
    list[str],
    typer.Option("--set", metavar="COLUMN=EXPRESSION", help="New value of a column, as SQL; repeatable."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Say what would be done and write nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation before deleting all rows.")]
PartitionBy = Annotated[list[str], typer.Option("--partition-by", metavar="COLUMN", help="Of a new dataset.")]
Compression = Annotated[str | None, typer.Option("--compression", help="Codec of written files.")]
MaxRows = Annotated[int, typer.Option("--max-rows-per-file", help="Most rows of a new file.")]
RowGroup = Annotated[int | None, typer.Option("--row-group-size", help="Most rows of a row group.")]
Memory = Annotated[str | None, typer.Option("--memory-limit", help="What writing may use, such as 500MB.")]
Keys = Annotated[list[str], typer.Option("--key", metavar="COLUMN", help="Column that identifies a row; repeatable.")]
Strategy = Annotated[
    StrategyName,
    typer.Option("--strategy", help="What to do with rows that match and that do not."),
]
OrderBy = Annotated[
    list[str],
    typer.Option("--order-by", metavar="COLUMN", help="Of rows with one key the highest stays; -COLUMN: lowest."),
]
Duplicates = Annotated[OnDuplicate, typer.Option("--on-duplicate-source", help="What to do with a key twice in SRC.")]
NullsInKeys = Annotated[NullKeys, typer.Option("--null-keys", help="Whether null equals null in keys.")]
Evolution = Annotated[SchemaMode, typer.Option("--schema-mode", help="evolve takes new columns.")]
Mode = Annotated[WriteMode, typer.Option("--mode", help="What goes first.")]
Dataset = Annotated[str, typer.Argument(metavar="PATH", help="The dataset's folder or URL.")]
TargetMb = Annotated[float | None, typer.Option("--target-mb", help="Wanted size of a file in MB.")]
TargetRows = Annotated[int | None, typer.Option("--target-rows", help="Wanted rows of a file.")]
Partitions = Annotated[
    list[str],
    typer.Option("--partition", metavar="FOLDER", help="Only this folder, such as day=2026-03-01; repeatable."),
]
MaxFiles = Annotated[int | None, typer.Option("--max-files", help="Most files to rewrite in this run.")]
MaxBytes = Annotated[int | None, typer.Option("--max-bytes", help="Most bytes to rewrite in this run.")]
By = Annotated[list[str], typer.Option("--by", metavar="COLUMN", help="Column to order by; repeatable.")]
SortOrder = Annotated[Curve, typer.Option("--curve", help="How columns make one order.")]
Bloom = Annotated[list[str], typer.Option("--bloom", metavar="COLUMN", help="Column that gets Bloom filters.")]
Force = Annotated[bool, typer.Option("--force", help="Rewrite files that are in this order already, too.")]
DedupeKeys = Annotated[list[str], typer.Option("--dedupe-key", metavar="COLUMN", help="Leave one row of each key.")]
