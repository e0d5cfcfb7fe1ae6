"""Options that several commands share, with their help texts."""

from __future__ import annotations

from typing import Annotated

import typer

from fsspeckit.common.choices import Curve, NullKeys, OnDuplicate, SchemaMode, SourceFormat, StrategyName, WriteMode

Src = Annotated[
    str,
    typer.Argument(metavar="SRC", help="Parquet, csv or json file, folder or pattern; - reads Arrow IPC from stdin."),
]
Dest = Annotated[str, typer.Argument(metavar="DEST", help="Folder or URL of the dataset.")]
Format = Annotated[SourceFormat | None, typer.Option("--format", help="Format of SRC; default: by file ending.")]
Delimiter = Annotated[str | None, typer.Option("--delimiter", help="Separator of csv values.")]
Encoding = Annotated[str | None, typer.Option("--encoding", help="Encoding of csv and json files; default: utf-8.")]
Where = Annotated[
    str,
    typer.Option("--where", metavar="CONDITION", help='SQL condition, such as "id = 7"; true matches all rows.'),
]
Assignments = Annotated[
    list[str],
    typer.Option("--set", metavar="COLUMN=EXPRESSION", help="New value of a column, as SQL; repeatable."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Show what would change without writing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation before deleting all rows.")]
PartitionBy = Annotated[
    list[str], typer.Option("--partition-by", metavar="COLUMN", help="Partition column of a new dataset; repeatable.")
]
Compression = Annotated[str | None, typer.Option("--compression", help="Compression codec of written files.")]
MaxRows = Annotated[int, typer.Option("--max-rows-per-file", help="Maximum rows per new file.")]
RowGroup = Annotated[int | None, typer.Option("--row-group-size", help="Maximum rows per row group.")]
Memory = Annotated[str | None, typer.Option("--memory-limit", help="Memory limit for writing, such as 500MB.")]
Keys = Annotated[list[str], typer.Option("--key", metavar="COLUMN", help="Column that identifies a row; repeatable.")]
Strategy = Annotated[
    StrategyName,
    typer.Option("--strategy", help="How to treat rows that match and rows that do not."),
]
OrderBy = Annotated[
    list[str],
    typer.Option("--order-by", metavar="COLUMN", help="Keep the highest row of each key; -COLUMN: lowest."),
]
Duplicates = Annotated[
    OnDuplicate, typer.Option("--on-duplicate-source", help="How to treat a key that occurs more than once in SRC.")
]
NullsInKeys = Annotated[
    NullKeys, typer.Option("--null-keys", help="match: null equals null in key columns; error: raise.")
]
Evolution = Annotated[SchemaMode, typer.Option("--schema-mode", help="evolve adds new columns of SRC to the dataset.")]
Mode = Annotated[
    WriteMode,
    typer.Option(
        "--mode",
        help="Add files, replace all files, or replace the partitions in SRC; if DEST exists, fail or do nothing.",
    ),
]
ReplaceWhere = Annotated[
    str | None,
    typer.Option(
        "--replace-where",
        metavar="CONDITION",
        help="With --mode overwrite, replace only rows for which this is true, such as \"day = 'mon'\".",
    ),
]
Dataset = Annotated[str, typer.Argument(metavar="PATH", help="Folder or URL of the dataset.")]
TargetMb = Annotated[float | None, typer.Option("--target-mb", help="Target file size in MB.")]
TargetRows = Annotated[int | None, typer.Option("--target-rows", help="Target rows per file.")]
Partitions = Annotated[
    list[str],
    typer.Option("--partition", metavar="FOLDER", help="Partition folder, such as day=2026-03-01; repeatable."),
]
MaxFiles = Annotated[int | None, typer.Option("--max-files", help="Maximum files to rewrite in this run.")]
MaxBytes = Annotated[int | None, typer.Option("--max-bytes", help="Maximum bytes to rewrite in this run.")]
By = Annotated[list[str], typer.Option("--by", metavar="COLUMN", help="Sort column; repeatable.")]
SortOrder = Annotated[Curve, typer.Option("--curve", help="Sort order: linear, zorder or hilbert.")]
Bloom = Annotated[
    list[str], typer.Option("--bloom", metavar="COLUMN", help="Column to write Bloom filters for; repeatable.")
]
Force = Annotated[bool, typer.Option("--force", help="Also rewrite files that are already sorted.")]
DedupeKeys = Annotated[
    list[str], typer.Option("--dedupe-key", metavar="COLUMN", help="Keep one row per key; repeatable.")
]
