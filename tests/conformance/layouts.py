"""How files of a target dataset can look: written by plain pyarrow (or others), never by fsspeckit.

A `Layout` is a named set of writer options. Every layout holds the same rows; none may change the outcome of a merge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from installed import has_duckdb

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
ODD_VALUES = (
    "a b", "ü", "100%", "%20", "a=b", "..", ".", "it's", '"q"', "01", "x/y", "a\\b", "a+b", "a:b?c#d", "😀", "A", "a",
    "_x", ".x", "[*]", "{}", "new\nline", "null", "true", " pad ",
)  # fmt: skip
if not has_duckdb("2.0"):  # the second reader of the tests reads the folder p=null as no value
    ODD_VALUES = tuple(value for value in ODD_VALUES if value != "null")
INTEGERS = ("0", "1", "-1", "10", "2024")


@dataclass(frozen=True, slots=True)
class Layout:
    """Writer options of one file; ``reverse`` turns the order of its columns."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    reverse: bool = False


LAYOUTS = (
    Layout("default"),
    Layout("no statistics", {"write_statistics": False}),
    Layout("row groups of one", {"row_group_size": 1}),
    Layout("row groups of three", {"row_group_size": 3, "compression": "zstd"}),
    Layout("uncompressed", {"compression": "none", "use_dictionary": False}),
    Layout("gzip, pages v2", {"compression": "gzip", "data_page_version": "2.0", "row_group_size": 2}),
    Layout("brotli, reversed columns", {"compression": "brotli"}, reverse=True),
    Layout("lz4, page index", {"compression": "lz4", "write_page_index": True, "row_group_size": 2}),
    Layout("dictionaries given up", {"dictionary_pagesize_limit": 1, "write_batch_size": 1, "row_group_size": 4}),
    Layout("checksums, tiny pages", {"write_page_checksum": True, "data_page_size": 1, "write_batch_size": 1}),
)


def folder(partitions: Mapping[str, str | None]) -> str:
    """The hive folder of partition values, as pyarrow and Hive write it."""
    return "".join(f"{k}={NULL_FOLDER if v is None else quote(v, safe='')}/" for k, v in partitions.items())


def folder_values(path: str) -> dict[str, str | None]:
    """The partition values of a relative path."""
    parts = [part.partition("=") for part in path.split("/")[:-1]]
    return {name: None if value == NULL_FOLDER else unquote(value) for name, _, value in parts}


def write_file(path: Path, table: pa.Table, layout: Layout) -> None:
    """Write one file; an empty table becomes a file without row groups when the layout has small ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if layout.reverse:
        table = table.select(table.column_names[::-1])
    if table.num_rows == 0 and "row_group_size" in layout.options:
        options = {k: v for k, v in layout.options.items() if k != "row_group_size"}
        pq.ParquetWriter(path, table.schema, **options).close()
        return
    pq.write_table(table, path, **layout.options)
