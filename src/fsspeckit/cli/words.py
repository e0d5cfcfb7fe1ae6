"""The library's words in those of whoever reads: arguments of Python become options, or keys of a pipeline file."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

_KEYS = {
    "key_columns": "keys",
    "dedup_order_by": "order_by",
    "zorder_columns": "by",
    "bloom_filter_columns": "bloom",
    "target_mb_per_file": "target_mb",
    "target_rows_per_file": "target_rows",
    "partition_filter": "partitions",
}
_OPTIONS = {
    "key_columns": "--key",
    "zorder_columns": "--by",
    "dedup_order_by": "--order-by",
    "deduplicate_key_columns": "--dedupe-key",
    "bloom_filter_columns": "--bloom",
    "target_mb_per_file": "--target-mb",
    "target_rows_per_file": "--target-rows",
    "partition_filter": "--partition",
    "storage_options": "--storage-option",
} | {
    name: f"--{name.replace('_', '-')}"
    for name in (
        "partition_by",
        "on_duplicate_source",
        "null_keys",
        "schema_mode",
        "max_rows_per_file",
        "row_group_size",
        "memory_limit",
        "max_files",
        "max_bytes",
    )
}
_PLAIN = ("strategy", "mode", "compression", "curve", "engine", "encoding")
"""Words that name an option only where a value follows."""
_VALUE = r"=(\[[^\]]*\]|\"[^\"]*\"|'[^']*'|-?\w[\w.]*)"


def as_options(text: str) -> str:
    """A message of the library as one of the command line.

    Example:
        >>> as_options('key_columns is empty; name the columns that identify a row, such as key_columns=["id"]')
        '--key is empty; name the columns that identify a row, such as --key id'
        >>> as_options("target_mb_per_file=0.0 must be a number above zero, and the strategy is strategy='upsert'")
        '--target-mb 0.0 must be a number above zero, and the strategy is --strategy upsert'
    """
    text = _replaced(text, {**_OPTIONS, **{name: f"--{name}" for name in _PLAIN}}, _VALUE, _given)
    return _replaced(text, _OPTIONS, "()", lambda option, _: option)


def as_keys(text: str) -> str:
    """A message of the library as one about a pipeline file.

    Example:
        >>> as_keys("zorder_columns names 'x', which no file has")
        "by names 'x', which no file has"
    """
    return _replaced(text, _KEYS, "()", lambda key, _: key)


def _replaced(text: str, names: dict[str, str], rest: str, make: Callable[[str, str], str]) -> str:
    pattern = rf"(?<![\w-])({'|'.join(names)})\b{rest}"
    return re.sub(pattern, lambda found: make(names[found[1]], found[2]), text)


def _given(option: str, value: str) -> str:
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        found = value
    return " ".join(f"{option} {each}" for each in found) if isinstance(found, list) else f"{option} {found}"
