"""Small datasets for examples, written by pyarrow, and functions that read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from conformance.rows import duckdb_rows
from conformance.tree import data_files
from fsspeckit.core.parquet.bytes.thrift import Struct, read_struct, write_struct


def numbers(ids: list[int | None], v: list[Any] | str = "old", **columns: Any) -> pa.Table:
    """A table of ``id`` (int64) and ``v``, with more columns as given; a string ``v`` is repeated in every row."""
    values = [v] * len(ids) if isinstance(v, str) else v
    return pa.table({"id": pa.array(ids, pa.int64()), "v": values, **columns})


def put(path: Path, table: pa.Table, **options: Any) -> Path:
    """Write one file with plain pyarrow."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def three_files(dataset: Path) -> list[Path]:
    """Ids 0 to 9, 10 to 19 and 20 to 29 in one file each."""
    return [
        put(dataset / f"part-{i}.parquet", numbers(list(range(10 * i, 10 * i + 10))), row_group_size=5)
        for i in range(3)
    ]


def by_day(dataset: Path, **days: list[int]) -> None:
    """A dataset partitioned by ``day``: one file of ids per day."""
    for day, ids in days.items():
        put(dataset / f"day={day}" / "a.parquet", numbers(list(ids)))


def look(dataset: Path, *columns: str) -> list[tuple[Any, ...]]:
    """The given columns (``id`` and ``v`` by default) of all data files, sorted, as DuckDB reads them."""
    names = columns or ("id", "v")
    files = data_files(dataset)
    hive = sorted({part.partition("=")[0] for f in files for part in f.relative_to(dataset).parts[:-1]})
    rows = duckdb_rows(files, names, hive)
    return sorted((tuple(row[name] for name in names) for row in rows), key=repr)


def flip_page(path: Path, column: str, row_group: int = 0) -> None:
    """Flip one bit in the last byte of a column chunk's pages: the footer stays good, reading the values does not."""
    metadata = pq.read_metadata(path).row_group(row_group)
    at = {metadata.column(i).path_in_schema: metadata.column(i) for i in range(metadata.num_columns)}[column]
    start = at.dictionary_page_offset if at.has_dictionary_page else at.data_page_offset
    content = bytearray(path.read_bytes())
    content[start + at.total_compressed_size - 1] ^= 1
    path.write_bytes(bytes(content))


def ruin_pages(path: Path, column: str) -> None:
    """Overwrite all pages of a column: reading them fails, and an operation that does not read them succeeds."""
    metadata = pq.read_metadata(path)
    content = bytearray(path.read_bytes())
    for group in (metadata.row_group(i) for i in range(metadata.num_row_groups)):
        for at in (group.column(i) for i in range(group.num_columns)):
            if at.path_in_schema == column:
                start = at.dictionary_page_offset if at.has_dictionary_page else at.data_page_offset
                content[start : start + at.total_compressed_size] = b"\xff" * at.total_compressed_size
    path.write_bytes(bytes(content))


def edit_footer(path: Path, change: Callable[[Struct], Any]) -> None:
    """Change a file's footer: the tree of its fields, by number."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little") + 8
    tree, _ = read_struct(data[-length:-8])
    change(tree)
    words = write_struct(tree)
    path.write_bytes(data[:-length] + words + len(words).to_bytes(4, "little") + b"PAR1")
