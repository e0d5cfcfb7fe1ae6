"""Messages of the library for the command line: Python parameter names become options."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Collection

from fsspeckit.common.wording import reworded

_OPTIONS = {
    "key_columns": ("--key", "--deduplicate-key"),
    "zorder_columns": ("--by",),
    "dedup_order_by": ("--order-by",),
    "deduplicate_key_columns": ("--deduplicate-key",),
    "bloom_filter_columns": ("--bloom",),
    "target_mb_per_file": ("--target-mb",),
    "target_rows_per_file": ("--target-rows",),
    "partition_filter": ("--partition",),
    "partition_columns": ("--partition-by",),
    "storage_options": ("--storage-option",),
    "types": ("--schema", "--cast"),
}
"""Options whose names differ from the parameters; the first one that the command has is used."""
_ELSEWHERE = {
    "temp_directory": "TMPDIR",
    "recover()": "`fsspeckit recover`",
    "deduplicate_parquet_dataset": "`fsspeckit deduplicate`",
    "history()": "`fsspeckit history PATH`",
    "keep_history()": "`fsspeckit history PATH --retain 7d`",
}
"""Parameters and functions that are an environment variable or another command on the command line."""


def as_options(text: str, offered: Collection[str]) -> str:
    """Replace parameter names in a message of the library by the given options of a command.

    Examples:
        >>> text = 'key_columns is empty; name the columns that identify a row, such as key_columns=["id"]'
        >>> as_options(text, {"--key"})
        '--key is empty; name the columns that identify a row, such as --key id'
        >>> as_options("correct the column, or pass partition_move='unchecked'", {"--key"})
        'correct the column'
        >>> as_options("pass decimal_comma=True", {"--decimal-comma"})
        'pass --decimal-comma'
        >>> as_options("pass delimiter=';' or delimiter=','", {"--delimiter"})
        "pass --delimiter ';' or --delimiter ','"
    """

    def spelled(name: str) -> str | None:
        options = _OPTIONS.get(name, (f"--{name.replace('_', '-')}",))
        return next((option for option in options if option in offered), _ELSEWHERE.get(name))

    return reworded(text, spelled, _given)


def _given(option: str, value: str) -> str:
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        found = value
    if found is True:
        return option
    values = found if isinstance(found, list) else [found]
    return " ".join(f"{option} {_typed(str(each))}" for each in values)


def _typed(value: str) -> str:
    """Return a value as one types it in a shell. A value without letters and digits is in quotes."""
    if any(map(str.isalnum, value)):
        return shlex.quote(value)
    return "'" + value.replace("\t", "\\t") + "'"
