"""Options of the commands, with their help texts. `OPERATIONS` has the options that commands and plan files share."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter
from typing import Annotated, Any

import typer

from fsspeckit.common.choices import (
    DEFAULT_STRATEGY,
    Curve,
    EvolveFiles,
    NullKeys,
    OnDuplicate,
    PartitionMove,
    SchemaMode,
    SourceFormat,
    StrategyName,
    Timestamps,
    WriteMode,
)

Src = Annotated[
    str,
    typer.Argument(metavar="SRC", help="Parquet, csv or json file, folder or pattern; - reads standard input."),
]
Feed = Annotated[
    str,
    typer.Argument(metavar="FEED", help="Parquet, csv or json file, folder or pattern; - reads standard input."),
]
Dest = Annotated[str, typer.Argument(metavar="DEST", help="Folder or URL of the dataset.")]
Format = Annotated[
    SourceFormat | None,
    typer.Option("--format", help="Format of the source; default: by file ending, and Arrow IPC for -."),
]
Delimiter = Annotated[str | None, typer.Option("--delimiter", help="Separator of csv values.")]
Encoding = Annotated[str | None, typer.Option("--encoding", help="Encoding of csv and json files; default: utf-8.")]
DecimalComma = Annotated[
    bool, typer.Option("--decimal-comma", help="Numbers of csv columns with a type are written like 1.234,56.")
]
DateFormat = Annotated[
    str | None,
    typer.Option("--date-format", metavar="FORMAT", help='Format of csv dates, such as "%d.%m.%Y"; default: ISO.'),
]
ColumnTypes = Annotated[
    str | None,
    typer.Option("--schema", metavar="TYPES", help='Types of csv and json columns: "zip string, at timestamp".'),
]
Casts = Annotated[
    str | None,
    typer.Option("--cast", metavar="TYPES", help='New types of Parquet and Arrow columns: "amount decimal(10, 2)".'),
]
Where = Annotated[
    str,
    typer.Option("--where", metavar="CONDITION", help='SQL condition, such as "id = 7"; true matches all rows.'),
]
Assignments = Annotated[
    list[str],
    typer.Option("--set", metavar="COLUMN=EXPRESSION", help="New value of a column, as SQL; repeatable."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Show what would change without writing.")]
Diff = Annotated[bool, typer.Option("--diff", help="Show sample rows before and after.")]
MustExist = Annotated[bool, typer.Option("--must-exist", help="Fail if there is no dataset, do not create one.")]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask before deleting all rows, all kept versions or the journal.")
]
PartitionBy = Annotated[
    list[str], typer.Option("--partition-by", metavar="COLUMN", help="Partition column of a new dataset; repeatable.")
]
Compression = Annotated[str | None, typer.Option("--compression", help="Compression codec of written files.")]
MaxRows = Annotated[int, typer.Option("--max-rows-per-file", help="Maximum rows per new file.")]
RowGroup = Annotated[int | None, typer.Option("--row-group-size", help="Maximum rows per row group.")]
Memory = Annotated[
    str | None,
    typer.Option("--memory-limit", help="Memory limit for writing, such as 500MB (1 MB is 1024 x 1024 bytes)."),
]
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
Evolution = Annotated[
    SchemaMode,
    typer.Option(
        "--schema-mode", help="strict keeps all types, widen takes wider types of SRC, evolve adds columns too."
    ),
]
EvolvedFiles = Annotated[
    EvolveFiles | None,
    typer.Option("--evolve-files", help="Files that get new columns or wider types: those that change anyway, or all."),
]
Moves = Annotated[
    PartitionMove,
    typer.Option("--partition-move", help="A key that exists in another partition: raise, do not search, or move it."),
]
UpdateColumns = Annotated[
    list[str],
    typer.Option("--update-columns", metavar="COLUMN", help="Column that matched rows get; repeatable; default: all."),
]
DeleteWhen = Annotated[
    str | None,
    typer.Option("--delete-when", metavar="CONDITION", help="Source rows that delete their key, such as \"op = 'd'\"."),
]
UpdateWhen = Annotated[
    str | None,
    typer.Option("--update-when", metavar="CONDITION", help='Matched rows to update, such as "source.at > target.at".'),
]
InsertWhen = Annotated[
    str | None,
    typer.Option("--insert-when", metavar="CONDITION", help='New rows to insert, such as "source.amount > 0".'),
]
NewerBy = Annotated[
    str | None,
    typer.Option("--newer-by", metavar="COLUMN", help="Update a matched row only if SRC has a greater value here."),
]
Scope = Annotated[
    str | None,
    typer.Option("--scope", metavar="CONDITION", help="With full_merge: delete only rows that match."),
]
SequenceBy = Annotated[
    str, typer.Option("--sequence-by", metavar="COLUMN", help="Column that orders changes; the highest wins.")
]
Columns = Annotated[
    list[str],
    typer.Option("--columns", metavar="COLUMN", help="Column to write, beside keys; repeatable; default: all."),
]
ExceptColumns = Annotated[
    list[str], typer.Option("--except-columns", metavar="COLUMN", help="Column that is not written; repeatable.")
]
IgnoreNulls = Annotated[
    bool, typer.Option("--ignore-null-updates", help="Keep the value of the dataset where a change has null.")
]
ScdType = Annotated[
    int, typer.Option("--scd-type", min=1, max=2, help="1 keeps the newest row of each key, 2 the history of each key.")
]
Tombstones = Annotated[
    str,
    typer.Option(
        "--tombstones", metavar="TIME", help="How long deleted keys are kept to drop late changes; 0 for none."
    ),
]
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
EraseHistory = Annotated[
    bool, typer.Option("--erase-history", help="Also remove all kept versions, which have the rows.")
]
Dataset = Annotated[str, typer.Argument(metavar="PATH", help="Folder or URL of the dataset.")]
TargetMb = Annotated[float | None, typer.Option("--target-mb", help="Target file size in MB of 1024 x 1024 bytes.")]
TargetRows = Annotated[int | None, typer.Option("--target-rows", help="Target rows per file.")]
Partitions = Annotated[
    list[str],
    typer.Option(
        "--partition",
        metavar="FOLDER",
        help="Partition folder or the start of its path, such as day=2026-03-01; repeatable. day=1/ means one folder.",
    ),
]
Retries = Annotated[
    int, typer.Option("--retries", min=0, help="How often to plan again if another writer commits what this one reads.")
]
MaxFiles = Annotated[int | None, typer.Option("--max-files", help="Maximum files to rewrite in this run.")]
MaxBytes = Annotated[int | None, typer.Option("--max-bytes", help="Maximum bytes to rewrite in this run.")]
By = Annotated[list[str], typer.Option("--by", metavar="COLUMN", help="Sort column; repeatable.")]
SortOrder = Annotated[Curve, typer.Option("--curve", help="Sort order: linear, zorder or hilbert.")]
Bloom = Annotated[
    list[str], typer.Option("--bloom", metavar="COLUMN", help="Column to write Bloom filters for; repeatable.")
]
ToTimestamps = Annotated[
    Timestamps | None, typer.Option("--timestamps", help="Rewrite INT96 timestamps as 64-bit microseconds.")
]
IgnoreCase = Annotated[
    bool, typer.Option("--columns-ignore-case", help="Join columns of different files that differ only in case.")
]
Force = Annotated[bool, typer.Option("--force", help="Also rewrite files that are already sorted.")]
DeduplicateKeys = Annotated[
    list[str], typer.Option("--deduplicate-key", metavar="COLUMN", help="Keep one row per key; repeatable.")
]

Version = Annotated[int | None, typer.Option("--version", metavar="N", help="Version, as `history` lists it.")]
AsOf = Annotated[
    str | None, typer.Option("--as-of", metavar="TIME", help="Version at a time, such as 2026-11-02T10:00Z.")
]
OlderThan = Annotated[
    str | None,
    typer.Option(
        "--older-than", metavar="TIME", help="Versions replaced longer ago, such as 3d; default: as `history` sets it."
    ),
]

REQUIRED = Parameter.empty
Options = dict[str, Any]
"""The options of an operation that were given, by the names of its arguments in Python."""
OptionTable = Mapping[str, tuple[Any, Any]]
"""Arguments of an operation: the option, and its default or `REQUIRED`."""
SOURCE: OptionTable = {
    "format_": (Format, None),
    "delimiter": (Delimiter, None),
    "encoding": (Encoding, None),
    "schema": (ColumnTypes, None),
    "cast": (Casts, None),
    "decimal_comma": (DecimalComma, False),
    "date_format": (DateFormat, None),
}
"""How the rows of a source are read, for every command with a source."""
_REWRITING: OptionTable = {
    "compression": (Compression, None),
    "row_group_size": (RowGroup, None),
    "memory_limit": (Memory, None),
}
_MAINTAINING: OptionTable = {
    "partition_filter": (Partitions, []),
    "compression": (Compression, None),
    "row_group_size": (RowGroup, None),
    "max_files": (MaxFiles, None),
    "max_bytes": (MaxBytes, None),
}
_TIMES: OptionTable = {"timestamps": (ToTimestamps, None)}
_SIZES: OptionTable = {"target_mb_per_file": (TargetMb, None), "target_rows_per_file": (TargetRows, None)}
OPERATIONS: Mapping[str, OptionTable] = {
    "merge": {
        "key_columns": (Keys, []),
        "strategy": (Strategy, DEFAULT_STRATEGY),
        "partition_by": (PartitionBy, []),
        "dedup_order_by": (OrderBy, []),
        "on_duplicate_source": (Duplicates, "error"),
        "null_keys": (NullsInKeys, "error"),
        "schema_mode": (Evolution, "strict"),
        "evolve_files": (EvolvedFiles, None),
        "update_columns": (UpdateColumns, []),
        "delete_when": (DeleteWhen, None),
        "update_when": (UpdateWhen, None),
        "insert_when": (InsertWhen, None),
        "newer_by": (NewerBy, None),
        "scope": (Scope, None),
        "partition_move": (Moves, "check"),
        "max_rows_per_file": (MaxRows, 5_000_000),
        **_REWRITING,
    },
    "apply_changes": {
        "key_columns": (Keys, []),
        "sequence_by": (SequenceBy, REQUIRED),
        "delete_when": (DeleteWhen, None),
        "columns": (Columns, []),
        "except_columns": (ExceptColumns, []),
        "ignore_null_updates": (IgnoreNulls, False),
        "scd_type": (ScdType, 1),
        "tombstones": (Tombstones, "7d"),
        "partition_by": (PartitionBy, []),
        "schema_mode": (Evolution, "strict"),
        "evolve_files": (EvolvedFiles, None),
    },
    "delete": {"where": (Where, REQUIRED), "erase_history": (EraseHistory, False), **_REWRITING},
    "update": {"set": (Assignments, REQUIRED), "where": (Where, REQUIRED), **_REWRITING},
    "write": {
        "mode": (Mode, "append"),
        "replace_where": (ReplaceWhere, None),
        "partition_by": (PartitionBy, []),
        "max_rows_per_file": (MaxRows, 5_000_000),
        **_REWRITING,
    },
    "compact": {**_SIZES, **_MAINTAINING, **_TIMES, "columns_ignore_case": (IgnoreCase, False)},
    "optimize": {
        "zorder_columns": (By, []),
        "curve": (SortOrder, "linear"),
        **_SIZES,
        "bloom_filter_columns": (Bloom, []),
        "force": (Force, False),
        **_MAINTAINING,
        **_TIMES,
    },
    "deduplicate": {
        "key_columns": (Keys, []),
        "dedup_order_by": (OrderBy, []),
        "null_keys": (NullsInKeys, "error"),
        **_MAINTAINING,
    },
    "restore": {"version": (Version, None), "as_of": (AsOf, None)},
    "vacuum": {"older_than": (OlderThan, None)},
}
"""The options of each operation that a plan can save, by the names of the arguments of its method."""
ROW_OPERATIONS = ("merge", "apply_changes", "delete", "update")
"""The operations whose plans have the positions of all rows that change."""
WITH_SOURCE = ("merge", "apply_changes", "write")
"""The operations that read SRC or FEED."""
WITHOUT_ENGINE = ("vacuum",)
"""The operations that read no rows and change none."""
