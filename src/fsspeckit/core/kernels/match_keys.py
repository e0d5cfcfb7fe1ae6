"""Which target rows have which source row: a scan of key columns only, of row groups that pruning left over.

Files are scanned in batches large enough that looking up their keys costs little more than decoding them. The
functions here run anywhere a file can be opened; engines decide where.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from fsspeckit.common.types import is_bytes, is_text
from fsspeckit.core.model import DataFile, KeyColumn, Match, RowNumbers, Scan
from fsspeckit.core.parquet.reader import check_int96, check_rows, open_parquet, report_damage
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.keys import FEW_TEXTS, KeyIndex, comparable

MAX_BATCH_ROWS = 4_000_000
_SEARCHED_ROWS = 200_000  # no table is built for them, so they need only outweigh the calls
_MOST_SEARCHED = 8_000_000  # texts; more may be too large for a table that is built once


def batches(
    scans: Sequence[Scan], wanted: Sequence[tuple[int, Sequence[KeyColumn]]], at_once: int
) -> Iterator[list[Scan]]:
    """Scans of one key set together, until they decode the rows that its lookups are worth, or one worker's share.

    ``wanted`` are the source rows and key columns of each key set; ``at_once`` batches are looked up in parallel.
    """
    share = _rows(scans) // at_once + 1
    worth = [min(share, _rows_worth(rows, keys)) for rows, keys in wanted]
    batch: list[Scan] = []
    for scan in scans:
        if batch and (batch[0].group != scan.group or _rows(batch) >= worth[scan.group]):
            yield batch
            batch = []
        batch.append(scan)
    if batch:
        yield batch


def _rows(scans: Sequence[Scan]) -> int:
    return sum(scan.rows for scan in scans)


def _rows_worth(source_rows: int, keys: Sequence[KeyColumn]) -> int:
    """Rows to look up at once: a hash table is built for each lookup, except of numbers and of many texts."""
    if is_one_number(keys):
        return 1
    built_once = _is_one_text(keys) and source_rows <= _MOST_SEARCHED
    return min(_SEARCHED_ROWS if built_once else MAX_BATCH_ROWS, 4 * source_rows)


def is_one_number(keys: Sequence[KeyColumn]) -> bool:
    """Whether keys are single numbers, which are searched in a sorted list rather than hashed."""
    return len(keys) == 1 and (pa.types.is_primitive(keys[0].type) or pa.types.is_boolean(keys[0].type))


def is_searched(source_rows: int, keys: Sequence[KeyColumn]) -> bool:
    """Whether keys are found without hashing every row: single numbers by searching, few texts by their ends."""
    return is_one_number(keys) or (source_rows <= FEW_TEXTS and _is_one_text(keys))


def _is_one_text(keys: Sequence[KeyColumn]) -> bool:
    return len(keys) == 1 and (is_text(keys[0].type) or is_bytes(keys[0].type))


def match_files(storage: Storage, scans: Sequence[Scan], index: KeyIndex, keys: Sequence[KeyColumn]) -> list[Match]:
    """Look up the keys of some files in one index."""
    tables = [read_keys(storage, scan, keys) for scan in scans]
    return by_file(scans, index.lookup(joined_columns(tables, keys)))


def by_file(scans: Sequence[Scan], matched: tuple[RowNumbers, RowNumbers]) -> list[Match]:
    """Cut matched positions, which count the rows of one file after the other, into the matches of each file."""
    positions, found = matched
    ends = np.cumsum([scan.rows for scan in scans])
    cuts = np.searchsorted(positions, ends)
    result, low = [], 0
    for scan, end, high in zip(scans, ends, cuts, strict=True):
        local = positions[low:high] - (end - scan.rows)
        result.append(Match(in_file(scan, local), found[low:high]))
        low = high
    return result


def in_file(scan: Scan, local: RowNumbers) -> RowNumbers:
    """Turn positions among the scanned rows into positions in the file."""
    if len(scan.row_groups) == len(scan.file.row_groups) or len(local) == 0:
        return local
    sizes = np.array([scan.file.row_groups[i] for i in scan.row_groups])
    starts = np.concatenate([[0], np.cumsum(scan.file.row_groups)])[list(scan.row_groups)]
    scanned = np.cumsum(sizes) - sizes
    which = np.searchsorted(scanned, local, "right") - 1
    return np.asarray(local - scanned[which] + starts[which])


def read_keys(storage: Storage, scan: Scan, keys: Sequence[KeyColumn]) -> pa.Table:
    """The key columns of the scanned row groups."""
    names = [key.name for key in keys]
    with (
        report_damage("reading keys", scan.file.path),
        open_parquet(storage, scan.file, verify=True, partial=True) as reader,
    ):
        if len(scan.row_groups) == len(scan.file.row_groups):
            table = reader.read(names, use_threads=False)
        else:
            table = reader.read_row_groups(list(scan.row_groups), names, use_threads=False)
    check_rows(table.num_rows, scan.file, scan.row_groups)
    check_int96(storage, scan.file, scan.row_groups, names)
    return table.select(names)


def plain_columns(table: pa.Table, keys: Sequence[KeyColumn]) -> list[pa.ChunkedArray]:
    """Key columns in the form in which they are compared."""
    return [comparable(table[key.name], key.type) for key in keys]


def joined_columns(tables: Sequence[pa.Table], keys: Sequence[KeyColumn]) -> list[pa.ChunkedArray]:
    """Key columns of several tables below each other, in the form in which they are compared."""
    plains = [plain_columns(table, keys) for table in tables]
    return [_joined(columns) for columns in zip(*plains, strict=True)]


def _joined(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for column in columns for chunk in column.chunks], columns[0].type)


def find_nulls(storage: Storage, file: DataFile, column: str) -> int:
    """How many nulls a column of a file has, by reading only that column."""
    with (
        report_damage("checking keys for null", file.path),
        open_parquet(storage, file, verify=True, partial=True) as reader,
    ):
        return sum(
            reader.read_row_group(i, [column], use_threads=False)[column].null_count
            for i in range(reader.num_row_groups)
        )
