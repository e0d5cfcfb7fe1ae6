"""Match keys with a DuckDB join over the comparable form of keys, in which equal keys have equal bits.

Source and target are Arrow data of integers and bytes, so DuckDB's rules for collation, NaN, decimals and time zones
have no effect. The join returns only row numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import to_arrow, to_numpy
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.dataset.source_keys import plain_keys
from fsspeckit.core.engine.local import run_in_threads, workers
from fsspeckit.core.engine.protocol import OnDone
from fsspeckit.core.kernels.match_keys import MAX_BATCH_ROWS, by_file, joined_columns, read_keys
from fsspeckit.core.model import KeyColumn, KeySetSpec, Match, RowNumbers, Scan
from fsspeckit.core.storage import Storage
from fsspeckit.datasets.duckdb.failures import report_duckdb_errors

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
    """Return the match of each scan. One join processes as many files as memory allows."""
    matches: dict[int, Match] = {}
    for numbers in _parts(scans, specs):
        part = [scans[number] for number in numbers]
        matches.update(zip(numbers, _join(cursor, storage, source, specs, part), strict=True))
        on_done(len(part))
    return [matches[number] for number in range(len(scans))]


def _parts(scans: Sequence[Scan], specs: Sequence[KeySetSpec]) -> Iterator[list[int]]:
    """Yield numbers of scans that compare the same columns, up to a number of rows."""
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
    tables = run_in_threads(workers(storage), lambda scan: read_keys(storage, scan, keys), scans)
    groups = np.repeat([scan.group for scan in scans], [scan.rows for scan in scans])
    target = _numbered(joined_columns(tables, keys), groups, np.arange(len(groups)))
    key_sets = sorted({scan.group for scan in scans})
    compared = [f"key{i}" for i in range(len(keys))] + (["part"] if len(key_sets) > 1 else [])
    same = " AND ".join(f"t.{name} IS NOT DISTINCT FROM s.{name}" for name in compared)
    query = f"SELECT t.number AS position, s.number AS source_row FROM {_TARGET} t JOIN {_SOURCE} s ON {same}"  # noqa: S608
    with report_duckdb_errors("matching keys"):
        cursor.register(_TARGET, target)
        cursor.register(_SOURCE, _source_rows(source, {group: specs[group] for group in key_sets}))
        pairs = cursor.sql(query).to_arrow_table()
        cursor.unregister(_TARGET)
        cursor.unregister(_SOURCE)
    matched = _in_order(to_numpy(pairs["position"]), to_numpy(pairs["source_row"]))
    return by_file(scans, matched)


def _source_rows(source: Source, specs: Mapping[int, KeySetSpec]) -> pa.Table:
    """Return the concatenated keys of some key sets."""
    parts = [plain_keys(source, spec.keys, spec.rows) for spec in specs.values()]
    columns = [
        pa.chunked_array([chunk for column in columns for chunk in column.chunks], columns[0].type)
        for columns in zip(*parts, strict=True)
    ]
    groups = np.repeat(list(specs), [len(spec.rows) for spec in specs.values()])
    return _numbered(columns, groups, np.concatenate([_numbers(spec.rows) for spec in specs.values()]))


def _numbers(rows: range | RowNumbers) -> RowNumbers:
    return np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows


def _numbered(keys: Sequence[pa.ChunkedArray], parts: RowNumbers, numbers: RowNumbers) -> pa.Table:
    columns = {f"key{i}": key for i, key in enumerate(keys)}
    return pa.table({**columns, "part": to_arrow(parts), "number": to_arrow(numbers)})


def _in_order(positions: RowNumbers, rows: RowNumbers) -> tuple[RowNumbers, RowNumbers]:
    if bool(np.all(positions[1:] >= positions[:-1])):
        return positions, rows
    order = np.argsort(positions, kind="stable")
    return positions[order], rows[order]
