"""Key matching as a join in DuckDB, over the plain form of keys in which equal keys are equal bits.

Both sides are Arrow data: whole numbers and bytes, whatever the types of the columns are, so that DuckDB's own ideas of
collation, NaN, decimals or time zones play no part. Rows are numbered; only numbers come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import to_arrow, to_numpy
from fsspeckit.core.engine import KeySetSpec, OnDone
from fsspeckit.core.matching import MAX_BATCH_ROWS, KeyColumn, Match, Scan, by_file, plain_columns, read_keys
from fsspeckit.core.model import RowNumbers
from fsspeckit.core.profile import plain_keys
from fsspeckit.core.source import Source
from fsspeckit.core.storage import Storage
from fsspeckit.core.threads import spread, workers

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_TARGET, _SOURCE = "fsspeckit_target", "fsspeckit_source"


def match_by_join(
    cursor: DuckDBPyConnection,
    storage: Storage,
    source: Source,
    specs: Sequence[KeySetSpec],
    scans: Sequence[Scan],
    on_done: OnDone,
) -> list[Match]:
    """Find, for each scan, the rows whose key stands in its key set: one join for as many files as memory allows."""
    found: dict[int, Match] = {}
    for numbers in _parts(scans, specs):
        part = [scans[number] for number in numbers]
        found.update(zip(numbers, _join(cursor, storage, source, specs, part), strict=True))
        on_done(len(part))
    return [found[number] for number in range(len(scans))]


def _parts(scans: Sequence[Scan], specs: Sequence[KeySetSpec]) -> Iterator[list[int]]:
    """Numbers of scans that compare the same columns, up to a number of rows."""
    by_keys: dict[tuple[KeyColumn, ...], list[int]] = {}
    for number, scan in enumerate(scans):
        by_keys.setdefault(specs[scan.group].keys, []).append(number)
    for numbers in by_keys.values():
        part: list[int] = []
        for number in numbers:
            if part and sum(scans[i].rows for i in part) >= MAX_BATCH_ROWS:
                yield part
                part = []
            part.append(number)
        yield part


def _join(
    cursor: DuckDBPyConnection,
    storage: Storage,
    source: Source,
    specs: Sequence[KeySetSpec],
    scans: Sequence[Scan],
) -> list[Match]:
    keys = specs[scans[0].group].keys
    groups = sorted({scan.group for scan in scans})
    scanned = spread(workers(storage), lambda scan: plain_columns(read_keys(storage, scan, keys), keys), scans)
    target = _numbered(scanned, [scan.group for scan in scans], None)
    wanted = [plain_keys(source, keys, specs[group].rows) for group in groups]
    rows = np.concatenate([_numbers(specs[group].rows) for group in groups])
    cursor.register(_TARGET, target)
    cursor.register(_SOURCE, _numbered(wanted, groups, rows))
    names = [name for name in target.column_names if name != "number"]
    same = " AND ".join(f"t.{name} IS NOT DISTINCT FROM s.{name}" for name in names)
    query = f"SELECT t.number AS position, s.number AS source_row FROM {_TARGET} t JOIN {_SOURCE} s ON {same}"  # noqa: S608
    pairs = cursor.sql(query).to_arrow_table()
    cursor.unregister(_TARGET)
    cursor.unregister(_SOURCE)
    return by_file(scans, *_in_order(to_numpy(pairs["position"]), to_numpy(pairs["source_row"])))


def _numbers(rows: range | RowNumbers) -> RowNumbers:
    return np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows


def _numbered(parts: Sequence[list[pa.ChunkedArray]], groups: Sequence[int], rows: RowNumbers | None) -> pa.Table:
    """Keys of several parts below each other, with the group of each part where there are several, and row numbers."""
    columns = {
        f"key{i}": pa.chunked_array([chunk for part in parts for chunk in part[i].chunks], parts[0][i].type)
        for i in range(len(parts[0]))
    }
    lengths = [len(part[0]) for part in parts]
    if len(set(groups)) > 1:
        columns["part"] = pa.chunked_array([to_arrow(np.repeat(np.array(groups, dtype=np.int64), lengths))])
    numbers = np.arange(sum(lengths)) if rows is None else rows
    columns["number"] = pa.chunked_array([to_arrow(numbers)])
    return pa.table(columns)


def _in_order(positions: RowNumbers, rows: RowNumbers) -> tuple[RowNumbers, RowNumbers]:
    if bool(np.all(positions[1:] >= positions[:-1])):
        return positions, rows
    order = np.argsort(positions, kind="stable")
    return positions[order], rows[order]
