"""Messages of the library in the words of another interface: options of a command, keys of a pipeline file.

Messages name parameters of Python (`null_keys="match"`). An interface that has no such setting drops the alternative
that names it ("..., or pass null_keys=...") and, where nothing else is left, says the name in plain words.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# Parameters that messages name by themselves; `tests/cli/test_wording.py` compares them with the signatures.
PARAMETERS = (
    *(
        "basename_template",
        "batch_rows",
        "bloom_filter_columns",
        "dedup_order_by",
        "deduplicate_key_columns",
        "dry_run",
    ),
    *("idempotency_key", "include_file_path", "key_columns", "max_bytes", "max_files", "max_groups_per_commit"),
    *("max_rows_per_file", "memory_limit", "memory_map", "null_keys", "on_duplicate_source", "partition_by"),
    *("partition_columns", "partition_filter", "partition_move", "partition_schema", "query_name", "rewrite_mode"),
    *(
        "row_group_size",
        "schema_mode",
        "evolve_files",
        "share_limit",
        "skip_unchanged",
        "storage_options",
        "target_mb_per_file",
    ),
    *("target_rows_per_file", "temp_directory", "use_threads", "zorder_columns"),
    *("delete_when", "except_columns", "ignore_null_updates", "insert_when", "newer_by", "sequence_by"),
    *("replace_where", "scd_type", "update_columns", "update_when", "as_of", "older_than", "erase_history"),
    *(
        "catalog_options",
        "columns_ignore_case",
        "partition_types",
        "keep_exported",
        "keep_registered",
        "decimal_comma",
        "date_format",
    ),
)
# Parameters whose names are plain words too: they count only where a value follows.
WORDS = (
    *(
        "columns",
        "compression",
        "connection",
        "curve",
        "delimiter",
        "encoding",
        "engine",
        "filesystem",
        "mode",
        "schema",
    ),
    *("after", "before", "format", "publish", "retain", "retries", "since", "strategy", "table", "tombstones"),
    *("types", "until"),
    *("foreign", "version"),
)
# Arguments that hold expressions; messages about an expression begin with them ("where: unknown column ...").
EXPRESSIONS = ("delete_when", "insert_when", "replace_where", "scope", "set", "update_when", "where")
FUNCTIONS = (
    *("create_duckdb_connection", "deduplicate_parquet_dataset", "read_parquet"),
    *(r"recover\(\)", r"keep_history\(\)", r"history\(\)"),
)
# Quoted text is replaced by its number between two null characters before names are searched.
_LITERAL = r"\[[^\]]*\]|\0\d+\0|\.\.\.|(?=[\s,.;)]|$)"
_NUMBER = r"-?\d[\d.]*(?<!\.)|-?(?:nan|inf)|True|False|None"
# A number after a plain word may be a partition, except in a sentence about the argument.
_OUT_OF_RANGE = rf"(?:{_NUMBER})(?= (?:is|must|or|seconds) )"
# Data is left as it is: quoted text, paths, and folders of partitions such as plan=pro, whose values have no quotes.
_NAME = re.compile(
    rf"(?<![\w'\"`/.=-])(?:({'|'.join(PARAMETERS)})\b(?:=({_LITERAL}|{_NUMBER}))?|({'|'.join(WORDS)})=({_LITERAL}|{_OUT_OF_RANGE})"
    rf"|({'|'.join(FUNCTIONS)}))(?![\w'\"`/%=]|[-.:+@]\w)"
)
_EXPRESSION = re.compile(rf"({'|'.join(EXPRESSIONS)})(?=: )")
_QUOTED = re.compile(r"(?<!\w)(?:'[^']*'|\"[^\"]*\"|`[^`]*`)(?!\w)")
_MASK = re.compile(r"\0(\d+)\0")
Spelling = Callable[[str], str | None]


def reworded(message: str, spelled: Spelling, given: Callable[[str, str], str] = "{0}={1}".format) -> str:
    """A message with every parameter and function as another interface spells it.

    Args:
        message: A message of the library.
        spelled: The spelling of a parameter or function; None where the interface has nothing like it.
        given: How a parameter and its value are written together, from its spelling and the value.

    Examples:
        >>> reworded("1 null; fill it, or pass null_keys='match'", {"null_keys": "null"}.get)
        "1 null; fill it, or pass null='match'"
        >>> reworded("1 null; fill it, or pass null_keys='match'", {}.get)
        '1 null; fill it'
        >>> reworded("null_keys='x' is unknown", {}.get)
        "null keys 'x' is unknown"
        >>> reworded("where: unknown column 'x'", {"where": "--where"}.get)
        "--where: unknown column 'x'"
    """
    argument = _EXPRESSION.match(message)
    if argument is not None:
        rest = reworded(message[argument.end() :], spelled, given)
        return (spelled(argument[0]) or argument[0]) + rest
    quoted = _QUOTED.findall(message)
    numbers = iter(range(len(quoted)))
    masked = _QUOTED.sub(lambda _: f"\0{next(numbers)}\0", message)
    sentences = re.split(r"(?<=[.;]) ", masked)
    kept = " ".join(left for sentence in sentences if (left := _possible(sentence, spelled)))

    def unmasked(text: str) -> str:
        return _MASK.sub(lambda found: quoted[int(found[1])], text)

    return unmasked(_NAME.sub(lambda found: _replaced(found, spelled, lambda o, v: given(o, unmasked(v))), kept))


def _possible(sentence: str, spelled: Spelling) -> str:
    """A sentence without the alternatives that nobody can follow here; as it is where no other is left."""
    if sentence.startswith("Or "):
        return "" if _is_impossible(sentence, spelled) else sentence
    body = sentence.rstrip(".;")
    parts = body.split(", or ")
    left = [part for part in parts if not _is_impossible(part, spelled)]
    if not left or len(left) == len(parts):
        return sentence
    text = ", or ".join(left)
    return (text[0].upper() if body[0].isupper() else text[0]) + text[1:] + sentence[len(body) :]


def _is_impossible(text: str, spelled: Spelling) -> bool:
    return any(spelled(_name(found)) is None for found in _NAME.finditer(text))


def _name(found: re.Match[str]) -> str:
    return found[1] or found[3] or found[5]


def _replaced(found: re.Match[str], spelled: Spelling, given: Callable[[str, str], str]) -> str:
    name, value = _name(found), found[2] or found[4]
    spelling = spelled(name)
    if spelling is None:
        plain = name.removesuffix("()").replace("_", " ")
        return f"{plain} {value}" if value else plain
    return given(spelling, value) if value else spelling
