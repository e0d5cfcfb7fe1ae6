"""The lower limit: pyarrow rewrites only the files that change, in one pass; these files are known in advance.

The code is tuned for this data: files on all cores, memory-mapped, dictionaries only where they help, and numpy arrays
passed as buffers, because pyarrow's conversions import pandas. It does not plan or prove anything, writes no checksums,
syncs no files and is not crash-safe.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.job import KEY, Job, Work

CORES = os.cpu_count() or 1
TUNED = {"use_dictionary": ["status"]}
_DEFAULT: dict[str, list[str]] = {}
Positions = npt.NDArray[np.int64]


def upsert(job: Job) -> Work:
    return lambda: _upsert(job, TUNED)


def upsert_default_writer(job: Job) -> Work:
    """Upsert with pyarrow's default writer options, which use a dictionary for every column."""
    return lambda: _upsert(job, _DEFAULT)


def scan_keys_and_upsert(job: Job) -> Work:
    """Upsert without known files, for keys that statistics cannot exclude: read all keys first."""

    def work() -> None:
        with ThreadPoolExecutor(CORES) as pool:
            list(pool.map(_read_key, job.files()))
        _upsert(job, TUNED)

    return work


def full_sync(job: Job) -> Work:
    return lambda: _run(job, TUNED, keep_unmatched=False)


def compare(job: Job) -> Work:
    """Read only the files with matching rows: the minimum that proves that no row changed."""

    def work() -> None:
        with ThreadPoolExecutor(CORES) as pool:
            list(pool.map(lambda name: read(str(job.target / name)).num_rows, job.affected))

    return work


def footers(job: Job) -> Work:
    """Read all footers with threads, in batches to reduce the overhead of the pool."""

    def work() -> None:
        with ThreadPoolExecutor(CORES) as pool:
            files = job.files()
            batches = [files[at : at + 64] for at in range(0, len(files), 64)]
            list(pool.map(lambda batch: [pq.read_metadata(file).num_rows for file in batch], batches))

    return work


def _upsert(job: Job, options: dict[str, list[str]]) -> None:
    _run(job, options, keep_unmatched=True)


def _run(job: Job, options: dict[str, list[str]], *, keep_unmatched: bool) -> None:
    lookup = _Lookup(job.source)
    seen = np.zeros(job.source.num_rows, dtype=bool)

    def rewrite(name: str) -> None:
        path = str(job.target / name)
        table = read(path)
        at, found = lookup.find(table[KEY])
        seen[found] = True
        rows = job.source.take(_arrow(found))
        if keep_unmatched:
            order = np.arange(table.num_rows)
            order[at] = table.num_rows + np.arange(len(found))
            rows = _gather(table, rows, order)
        write(rows, path, options)

    with ThreadPoolExecutor(CORES) as pool:
        list(pool.map(rewrite, job.affected))
    new = job.source.take(_arrow(np.flatnonzero(~seen)))
    if new.num_rows:
        write(new, str(job.target / "part-new.parquet"), options)


class _Lookup:
    """Find keys in the source: by binary search if they are sorted integers, otherwise by a hash table."""

    def __init__(self, source: pa.Table) -> None:
        self._keys = source[KEY].combine_chunks()
        values = _numpy(self._keys) if pa.types.is_integer(self._keys.type) else None
        self._sorted = values if values is not None and bool(np.all(values[1:] > values[:-1])) else None

    def find(self, column: pa.ChunkedArray) -> tuple[Positions, Positions]:
        """Return the matching positions in the column, and the source row of each."""
        if self._sorted is None:
            codes = pc.index_in(column.combine_chunks(), self._keys)
            hits = pc.indices_nonzero(codes.is_valid()).cast(pa.int64())
            return _numpy(hits), _numpy(codes.take(hits).cast(pa.int64()))
        target = _numpy(column.combine_chunks())
        low, high = np.searchsorted(self._sorted, [target[0], target[-1] + 1])
        places = np.searchsorted(target, self._sorted[low:high])
        places[places == len(target)] = 0
        hit = np.flatnonzero(target[places] == self._sorted[low:high])
        return places[hit], hit + low


def _gather(table: pa.Table, source: pa.Table, order: Positions) -> pa.Table:
    indices = _arrow(order)
    columns = [
        pa.concat_arrays([*target.chunks, *new.chunks]).take(indices)
        for target, new in zip(table.columns, source.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _arrow(values: Positions) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _numpy(array: pa.Array) -> Positions:
    return np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array)]


def read(path: str) -> pa.Table:
    with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
        return file.read(use_threads=False)


def _read_key(path: str) -> int:
    with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
        return int(file.read([KEY], use_threads=False).num_rows)


def write(table: pa.Table, path: str, options: dict[str, list[str]]) -> None:
    pq.write_table(table, f"{path}.tmp", **options)
    os.replace(f"{path}.tmp", path)
