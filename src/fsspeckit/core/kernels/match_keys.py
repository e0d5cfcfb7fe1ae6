"""Find the source row of each target row by scanning the key columns of the row groups that pruning left.

Files are scanned in batches that are large enough for the cost of a lookup to be small compared with decoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from fsspeckit.common.types import is_bytes, is_text
from fsspeckit.core.model import DataFile, KeyColumn, Match, RowNumbers, Scan
from fsspeckit.core.parquet.batches import BATCH_BYTES, read_batches, read_groups
from fsspeckit.core.parquet.damage import report_damage
from fsspeckit.core.parquet.reader import check_rows, open_parquet
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.keys import FEW_TEXTS, KeyIndex, comparable

MAX_BATCH_ROWS = 4_000_000
_SEARCHED_ROWS = 200_000  # rows of a batch if no hash table is built for it
_MOST_SEARCHED = 8_000_000  # the most source strings for which one hash table is built for all batches


def batches(
    scans: Sequence[Scan], key_sets: Sequence[tuple[int, Sequence[KeyColumn]]], at_once: int
) -> Iterator[list[Scan]]:
    """Split scans into batches of one key set, with the rows that suit its lookup or the share of one worker.

    ``key_sets`` are the number of source rows and the key columns of each key set; ``at_once`` batches run in parallel.
    """
    share = _rows(scans) // at_once + 1
    batch_rows = [min(share, _batch_rows(rows, keys)) for rows, keys in key_sets]
    batch: list[Scan] = []
    for scan in scans:
        if batch and (batch[0].group != scan.group or _rows(batch) >= batch_rows[scan.group]):
            yield batch
            batch = []
        batch.append(scan)
    if batch:
        yield batch


def _rows(scans: Sequence[Scan]) -> int:
    return sum(scan.rows for scan in scans)


def _batch_rows(source_rows: int, keys: Sequence[KeyColumn]) -> int:
    """Return the rows of a batch. A hash table is built for each batch, except for single numbers and strings."""
    if is_one_number(keys):
        return 1
    built_once = _is_one_text(keys) and source_rows <= _MOST_SEARCHED
    return min(_SEARCHED_ROWS if built_once else MAX_BATCH_ROWS, 4 * source_rows)


def is_one_number(keys: Sequence[KeyColumn]) -> bool:
    """Return whether keys are single numbers, which are found by binary search instead of hashing."""
    return len(keys) == 1 and (pa.types.is_primitive(keys[0].type) or pa.types.is_boolean(keys[0].type))


def is_searched(source_rows: int, keys: Sequence[KeyColumn]) -> bool:
    """Return whether keys are found without hashing every row: single numbers, and few strings by their last bytes."""
    return is_one_number(keys) or (source_rows <= FEW_TEXTS and _is_one_text(keys))


def _is_one_text(keys: Sequence[KeyColumn]) -> bool:
    return len(keys) == 1 and (is_text(keys[0].type) or is_bytes(keys[0].type))


def match_files(storage: Storage, scans: Sequence[Scan], index: KeyIndex, keys: Sequence[KeyColumn]) -> list[Match]:
    """Look up the keys of some files in one index, and return the match of each file."""
    held: list[pa.Table] = []
    found: list[tuple[RowNumbers, RowNumbers]] = []
    start = size = 0

    def look_up() -> None:
        positions, source_rows = index.lookup(joined_columns(held, keys))
        found.append((positions + start, source_rows))

    for scan in scans:
        for table in key_batches(storage, scan, keys):
            held.append(table)
            size += table.nbytes
            if size > BATCH_BYTES and len(table) < scan.rows:
                look_up()
                start, size = start + sum(map(len, held)), 0
                held.clear()
    if held or not found:
        look_up()
    positions, source_rows = zip(*found, strict=True)
    return by_file(scans, (np.concatenate(positions), np.concatenate(source_rows)))


def by_file(scans: Sequence[Scan], matched: tuple[RowNumbers, RowNumbers]) -> list[Match]:
    """Split matched positions in the concatenation of all scanned rows into the match of each file."""
    positions, source_rows = matched
    stops = np.cumsum([scan.rows for scan in scans])
    cuts = np.searchsorted(positions, stops)
    result, low = [], 0
    for scan, stop, high in zip(scans, stops, cuts, strict=True):
        local = positions[low:high] - (stop - scan.rows)
        result.append(Match(in_file(scan, local), source_rows[low:high]))
        low = high
    return result


def in_file(scan: Scan, local: RowNumbers) -> RowNumbers:
    """Convert positions among the scanned rows to positions in the file."""
    if len(scan.row_groups) == len(scan.file.row_groups) or len(local) == 0:
        return local
    sizes = np.array([scan.file.row_groups[i] for i in scan.row_groups])
    starts = np.concatenate([[0], np.cumsum(scan.file.row_groups)])[list(scan.row_groups)]
    scanned = np.cumsum(sizes) - sizes
    which = np.searchsorted(scanned, local, "right") - 1
    return np.asarray(local - scanned[which] + starts[which])


def read_keys(storage: Storage, scan: Scan, keys: Sequence[KeyColumn]) -> pa.Table:
    """Read the key columns of the scanned row groups."""
    return pa.concat_tables(key_batches(storage, scan, keys))


def key_batches(storage: Storage, scan: Scan, keys: Sequence[KeyColumn]) -> Iterator[pa.Table]:
    """Yield the key columns of the scanned row groups in batches, often one."""
    names, rows = [key.name for key in keys], 0
    with (
        report_damage("reading keys", scan.file.path),
        open_parquet(storage, scan.file, verify=True, partial=True) as reader,
    ):
        for table in read_groups(reader, scan.row_groups, names):
            rows += table.num_rows
            yield table.select(names)
    check_rows(rows, scan.file, scan.row_groups)


def plain_columns(table: pa.Table, keys: Sequence[KeyColumn]) -> list[pa.ChunkedArray]:
    """Return key columns in the form in which they are compared."""
    return [comparable(table[key.name], key.type) for key in keys]


def joined_columns(tables: Sequence[pa.Table], keys: Sequence[KeyColumn]) -> list[pa.ChunkedArray]:
    """Return the key columns of the concatenation of some tables, in the form in which they are compared."""
    plains = [plain_columns(table, keys) for table in tables]
    return [_joined(columns) for columns in zip(*plains, strict=True)]


def _joined(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], columns[0].type)


def find_nulls(storage: Storage, file: DataFile, column: str) -> int:
    """Count the nulls of a column of a file. Only that column is read."""
    with (
        report_damage("checking keys for null", file.path),
        open_parquet(storage, file, verify=True, partial=True) as reader,
    ):
        return sum(
            table[column].null_count
            for group in range(reader.num_row_groups)
            for table in read_batches(reader, group, [column])
        )
