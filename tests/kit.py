"""What tests of all folders build datasets with and look at them with: plain pyarrow, DuckDB and the file system."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from conformance.rows import duckdb_rows
from inside import Struct, read_struct, write_struct

SUFFIXES = (".parquet", ".parq", ".pq")


@dataclass(frozen=True, slots=True)
class Stamp:
    """One file or folder: bytes (None for a folder), and its metadata in the file system."""

    content: bytes | None
    mtime_ns: int
    inode: int


def tree_of(root: Path) -> dict[str, Stamp]:
    """All files and folders below a root, hidden ones too, by relative path; folders count by name only."""
    found = {}
    for here, folders, files in os.walk(root):
        for name in folders:
            found[os.path.relpath(os.path.join(here, name), root)] = Stamp(None, 0, 0)
        for name in files:
            path = Path(here, name)
            status = path.lstat()
            content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
            found[str(path.relative_to(root))] = Stamp(content, status.st_mtime_ns, status.st_ino)
    return found


def contents(root: Path) -> dict[str, bytes | None]:
    """Names and bytes below a root."""
    return {path: stamp.content for path, stamp in tree_of(root).items()}


def table_of(path: Path) -> pa.Table:
    """One file as it is, without partition columns."""
    return pq.ParquetFile(path).read()


def data_files(dataset: Path) -> list[Path]:
    """Data files below a dataset, sorted: Parquet by name or content, nothing hidden; a hive folder is never hidden."""
    found = []
    for path in sorted(dataset.rglob("*")):
        *folders, name = path.relative_to(dataset).parts
        hidden = name[0] in "_." or any(part[0] in "_." and "=" not in part for part in folders)
        if path.is_file() and not hidden and (path.suffix.lower() in SUFFIXES or _is_parquet(path)):
            found.append(path)
    return found


def _is_parquet(path: Path) -> bool:
    content = path.read_bytes()
    return content[:4] == content[-4:] == b"PAR1"


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
