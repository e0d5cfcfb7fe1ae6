"""Decode timestamps exactly: INT96 columns as instants, and no values of an old calendar.

`CheckedParquet` is how files with such columns are opened. It raises where a value is not exact in the unit of its
column, and where a file has values that Spark would shift when it reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as pat

from fsspeckit.common.bridge import to_numpy, valid_mask
from fsspeckit.common.errors import OldCalendarError, SchemaMismatchError
from fsspeckit.common.int96 import int96_columns, replace_leaves, unit_of
from fsspeckit.core.model import ColumnStats, DataFile
from fsspeckit.core.parquet.damage import open_file, report_damage
from fsspeckit.core.parquet.int96 import SPARK_VERSION, as_described
from fsspeckit.core.storage import Storage

_MARKS = {b"org.apache.spark.legacyDateTime": False, b"org.apache.spark.legacyINT96": True}
_BATCH_ROWS = 1_000_000
_TIME_ZONE = b"org.apache.spark.timeZone"
_FIRST_EXACT = {False: (3, 0), True: (3, 1)}
"""The first versions of Spark that write other types, and INT96, in the calendar of today."""
_FIRST_DAY = -141_427  # 1582-10-15
_FIRST_SECOND = -2_208_988_800  # 1900-01-01: before, the offsets of time zones differ too
_LAST_SECOND = 2**63 // 10**9  # in the year 2262: 64-bit nanoseconds do not have all of it


def old_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns of a file that Spark reads in the calendar of before 1582, by the metadata of the file."""
    pairs, int96 = schema.metadata or {}, int96_columns(schema)
    if not any(_is_old(pairs, is_int96) for is_int96 in (False, True)):
        return ()
    return tuple(f.name for f in schema if _is_old(pairs, f.name in int96) and _has_instants(f.type))


def _is_old(pairs: Mapping[bytes, bytes], is_int96: bool) -> bool:
    if any(mark in pairs for mark, of_int96 in _MARKS.items() if of_int96 == is_int96):
        return True
    version = pairs.get(SPARK_VERSION)
    return version is not None and _numbers(version) < _FIRST_EXACT[is_int96]


def _numbers(version: bytes) -> tuple[int, ...]:
    parts = version.decode("utf-8", "replace").split(".")[:2]
    return tuple(int(part) if part.isdecimal() else 0 for part in parts)


def _has_instants(type_: pa.DataType) -> bool:
    """Return whether a type has dates or instants: Spark never shifts times without a zone."""
    found: list[bool] = []

    def look(leaf: pa.DataType) -> pa.DataType:
        found.append(bool(pat.is_date(leaf) or (pat.is_timestamp(leaf) and leaf.tz is not None)))
        return leaf

    replace_leaves(type_, look)
    return any(found)


def without_old_marks(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes]:
    """Return metadata for a new file: its values are in the calendar of today."""
    pairs = dict(metadata or {})
    if _is_old(pairs, False) or _is_old(pairs, True):
        return {key: value for key, value in pairs.items() if key not in (*_MARKS, _TIME_ZONE, SPARK_VERSION)}
    return pairs


def first_exact(type_: pa.DataType) -> int:
    """Return the first value of a date or a timestamp that is the same in both calendars and all time zones."""
    if pat.is_date(type_):
        return _FIRST_DAY if pat.is_date32(type_) else _FIRST_DAY * 86_400_000
    return _FIRST_SECOND * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[type_.unit]


class CheckedParquet(pq.ParquetFile):  # type: ignore[misc]
    """An open file whose timestamps are checked and have the types of its description."""

    def __init__(self, storage: Storage, file: DataFile, source: pa.NativeFile, **options: Any) -> None:
        super().__init__(source, coerce_int96_timestamp_unit=unit_of(file.schema), **options)
        self._storage, self._file = storage, file
        self._checked: set[tuple[int, tuple[str, ...]]] = set()

    @property
    def schema_arrow(self) -> pa.Schema:
        """The schema of the file."""
        return as_described(super().schema_arrow.empty_table(), self._file.schema).schema

    def read_row_group(self, i: int, columns: Any = None, use_threads: bool = True, **options: Any) -> pa.Table:
        """Read a row group."""
        return self.read_row_groups([i], columns, use_threads, **options)

    def read_row_groups(
        self, row_groups: Any, columns: Any = None, use_threads: bool = True, **options: Any
    ) -> pa.Table:
        """Read row groups."""
        table = super().read_row_groups(row_groups, columns, use_threads, **options)
        self._check(row_groups, columns)
        return as_described(table, self._file.schema)

    def read(self, columns: Any = None, use_threads: bool = True, **options: Any) -> pa.Table:
        """Read all row groups."""
        table = super().read(columns, use_threads, **options)
        self._check(range(self.num_row_groups), columns)
        return as_described(table, self._file.schema)

    def iter_batches(
        self, batch_size: int = 65536, row_groups: Any = None, columns: Any = None, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        """Read row groups in batches."""
        groups = range(self.num_row_groups) if row_groups is None else row_groups
        self._check(groups, columns)
        for batch in super().iter_batches(batch_size, row_groups, columns, **options):
            yield as_described(batch, self._file.schema)

    def _check(self, row_groups: Iterable[int], columns: Sequence[str] | None) -> None:
        """Check row groups, unless the same columns of them were checked before."""
        names = tuple(self._file.schema.names if columns is None else columns)
        left = [group for group in row_groups if (group, names) not in self._checked]
        check_times(self._storage, self._file, left, names)
        self._checked.update((group, names) for group in left)


def check_times(
    storage: Storage, file: DataFile, row_groups: Iterable[int], columns: Iterable[str] | None = None
) -> None:
    """Raise if timestamps, in all columns or in some, are not exact, or are in a calendar that Spark would shift.

    INT96 has more days than 64 bits have microseconds, and nanoseconds. Values in three units show that: overflow in a
    finer unit gives other seconds.

    Raises:
        SchemaMismatchError: INT96 values do not fit the unit of their column.
        OldCalendarError: A file of an old Spark has dates before 1582 or times before 1900.
    """
    wanted = None if columns is None else set(columns)
    int96, old = (
        [name for name in names if wanted is None or name in wanted] for names in (file.int96, old_columns(file.schema))
    )
    old = [name for name in old if not _is_proven(file, name)]
    groups = list(row_groups) if int96 or old else []
    if not groups:
        return
    for tables in _decoded(storage, file, groups, [*int96, *old], ("s", "us", "ns")):
        for name in int96:
            _check_exact(file, name, tables)
        for name in old:
            if any(map(_has_old_values, _leaves(tables["us"][name]))):
                raise OldCalendarError(
                    f"column {name!r} of {file.path} has dates before 1582 or times before 1900 in the calendar of an "
                    "old Spark, which other programs read as other days. Nothing was changed. Write the file again "
                    f"with Spark and spark.sql.parquet.{_rebase_mode(file, name)}=CORRECTED."
                )


def _rebase_mode(file: DataFile, name: str) -> str:
    """Return the option of Spark that chooses the calendar of a column."""
    return "int96RebaseModeInWrite" if name in file.int96 else "datetimeRebaseModeInWrite"


def needs_nanoseconds(storage: Storage, file: DataFile) -> bool:
    """Return whether an INT96 column of a file has values with nanoseconds. All its values are read."""
    for tables in _decoded(storage, file, list(range(len(file.row_groups))), file.int96, ("us", "ns")):
        for name in file.int96:
            # Both overflow alike, so the difference is exact.
            for us, ns in zip(*(_leaves(table[name]) for table in tables.values()), strict=True):
                if us.type != ns.type and bool(((to_numpy(us) * 1000 != to_numpy(ns)) & valid_mask(us)).any()):
                    return True
    return False


def fits_nanoseconds(storage: Storage, file: DataFile) -> bool:
    """Return whether 64-bit nanoseconds have all INT96 values of a file: many readers decode INT96 as these.

    All its values are read, as seconds, which cannot overflow.
    """
    for tables in _decoded(storage, file, list(range(len(file.row_groups))), file.int96, ("s",)):
        for name in file.int96:
            for seconds in _leaves(tables["s"][name]):
                is_time = pat.is_timestamp(seconds.type) and seconds.type.unit == "s"
                if is_time and bool(((np.abs(to_numpy(seconds)) >= _LAST_SECOND) & valid_mask(seconds)).any()):
                    return False
    return True


def without_old_bounds(stats: ColumnStats) -> ColumnStats:
    """Return the statistics of a column of an old file; unknown where values can differ between the calendars."""
    if stats.native is None:
        return stats
    first = first_exact(stats.native)
    known = [low is not None and low >= first for low in stats.lower]
    lower, upper = (
        tuple(bound if is_known else None for bound, is_known in zip(bounds, known, strict=True))
        for bounds in (stats.lower, stats.upper)
    )
    return replace(stats, lower=lower, upper=upper)


def _is_proven(file: DataFile, name: str) -> bool:
    """Return whether the statistics of a column, from which those of old values were removed, are known."""
    stats = file.stats.get(name)
    return stats is not None and stats.native is not None and None not in stats.lower


def _decoded(
    storage: Storage, file: DataFile, row_groups: Sequence[int], names: Sequence[str], units: Sequence[str]
) -> Iterator[dict[str, pa.RecordBatch]]:
    """Yield batches of some columns, each with INT96 in several units."""
    wanted = list(dict.fromkeys(names))
    with report_damage("reading", file.path), ExitStack() as stack:
        readers = [
            stack.enter_context(pq.ParquetFile(open_file(storage, file), coerce_int96_timestamp_unit=unit))
            for unit in units
        ]
        batches = (reader.iter_batches(_BATCH_ROWS, row_groups, wanted, use_threads=False) for reader in readers)
        yield from (dict(zip(units, each, strict=True)) for each in zip(*batches, strict=True))


def _check_exact(file: DataFile, name: str, tables: Mapping[str, pa.RecordBatch]) -> None:
    unit = unit_of(file.schema)
    for s, us, ns in zip(*(_leaves(tables[unit][name]) for unit in ("s", "us", "ns")), strict=True):
        if not pat.is_timestamp(s.type) or s.type == us.type:
            continue  # a nested column also has leaves that are not INT96
        seconds, micros, nanos = map(to_numpy, (s, us, ns))
        lost = nanos // 1000 != micros if unit == "ns" else micros * 1000 != nanos
        if bool(((lost | (micros // 1_000_000 != seconds)) & valid_mask(us)).any()):
            raise SchemaMismatchError(
                f"column {name!r} of {file.path} has INT96 timestamps with nanoseconds and years that 64 bits cannot "
                "have together, or after the year 290000. Nothing was changed. Write the file again with 64-bit "
                "timestamps."
            )


def _has_old_values(values: pa.Array) -> bool:
    if not (pat.is_date(values.type) or pat.is_timestamp(values.type)):
        return False
    return bool(((to_numpy(values) < first_exact(values.type)) & valid_mask(values)).any())


def _leaves(array: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """Yield the leaf arrays of a column. The order depends only on the type."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pat.is_map(array.type):
        inner = [array.keys, array.items]
    elif pat.is_struct(array.type):
        inner = array.flatten()
    elif pat.is_nested(array.type):
        inner = [array.flatten()]
    else:
        yield array
        return
    for child in inner:
        yield from _leaves(child)
