"""How files of other writers can look, and the values in the names of their folders."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from installed import has_duckdb

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
ODD_VALUES = (
    "a b", "ü", "100%", "%20", "a=b", "..", ".", "it's", '"q"', "01", "x/y", "a\\b", "a+b", "a:b?c#d", "😀", "A", "a",
    "_x", ".x", "[*]", "{}", "new\nline", "null", "true", " pad ",
)  # fmt: skip
if not has_duckdb("2.0"):  # the second reader of the tests reads the folder p=null as no value
    ODD_VALUES = tuple(value for value in ODD_VALUES if value != "null")
LAYOUTS: tuple[dict[str, Any], ...] = (
    {},
    {"write_statistics": False},
    {"row_group_size": 1},
    {"compression": "none", "use_dictionary": False},
    {"compression": "gzip", "data_page_version": "2.0", "row_group_size": 2},
    {"compression": "brotli", "dictionary_pagesize_limit": 1, "write_batch_size": 1},
    {"compression": "lz4", "write_page_index": True, "row_group_size": 2},
    {"write_page_checksum": True, "data_page_size": 64, "write_batch_size": 1},
)
"""Options of a writer that knows nothing of fsspeckit. None may change the outcome of an operation."""


def folder_values(path: str) -> dict[str, str | None]:
    """The partition values of a relative path."""
    parts = [part.partition("=") for part in path.split("/")[:-1]]
    return {name: None if value == NULL_FOLDER else unquote(value) for name, _, value in parts}
