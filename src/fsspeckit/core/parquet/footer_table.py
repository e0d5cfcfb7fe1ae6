"""The facts of many footers as columns: one row for each file, one row for each row group, and statistics.

All files of a table have one schema. A million files are a few arrays, and a `DataFile` is built only where one is
needed. Tables are also what the footer index of a dataset stores (`fsspeckit.core.parquet.footer_format`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import binary_array, text_array, to_arrow, to_numpy
from fsspeckit.core.model import ColumnStats, DataFile, PartitionValues, ViewFile
from fsspeckit.core.parquet.footer import CODECS
from fsspeckit.core.parquet.sort_note import parse_sort_note, sort_note_text
from fsspeckit.core.storage import Entry

Numbers = npt.NDArray[np.int64]
CODEC_NAMES = ("", *CODECS)
"""Names of codecs by their numbers in a table. A file without row groups has none."""
FILES = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("version", pa.string(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("row_groups", pa.int64(), nullable=False),
        pa.field("uncompressed", pa.int64(), nullable=False),
        pa.field("codec", pa.int8(), nullable=False),
        pa.field("footer", pa.int64(), nullable=False),
        pa.field("sort_note", pa.binary()),
    ]
)
"""The columns of the table of files."""
_SMALLEST_FOOTER = 13  # bytes; a file without a footer has none, and the index accepts no smaller number
ROWS = "rows"
LOWER, UPPER, NULLS, BLOOM_OFFSET, BLOOM_SIZE = "lower", "upper", "nulls", "bloom_offset", "bloom_size"
STATISTICS = (LOWER, UPPER, NULLS, BLOOM_OFFSET, BLOOM_SIZE)


@dataclass(frozen=True, slots=True)
class SharedFacts:
    """What all files of a table have in common.

    Attributes:
        schema: The Arrow schema.
        int96: Columns of INT96 timestamps.
        natives: The types of the statistics, by the columns that have some; ``None`` if they cannot be used.
    """

    schema: pa.Schema
    int96: tuple[str, ...]
    natives: Mapping[str, pa.DataType | None]

    @property
    def key(self) -> tuple[Any, ...]:
        """A key that is equal for tables that can be joined."""
        natives = tuple((name, str(native)) for name, native in self.natives.items())
        return self.schema.serialize().to_pybytes(), self.int96, natives


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """Statistics of a column as arrays with an entry for each row group; ``None`` if no row group has a filter."""

    lower: pa.Array
    upper: pa.Array
    nulls: pa.Array
    bloom_offset: pa.Array | None = None
    bloom_size: pa.Array | None = None

    def arrays(self) -> dict[str, pa.Array]:
        """The arrays by name."""
        found = {name: getattr(self, name) for name in STATISTICS}
        return {name: array for name, array in found.items() if array is not None}

    def take(self, numbers: pa.Array) -> ColumnFacts:
        """Return the statistics of some row groups."""
        return ColumnFacts(**{name: array.take(numbers) for name, array in self.arrays().items()})


@dataclass(frozen=True, slots=True, eq=False)
class FooterTable:
    """The facts of files with one schema.

    ``columns`` has the statistics that were loaded; ``shared.natives`` names all columns that the table describes.
    """

    shared: SharedFacts
    files: pa.RecordBatch
    group_rows: Numbers
    columns: Mapping[str, ColumnFacts]
    starts: Numbers = field(init=False)
    """The first row group of each file, and the number of all row groups."""

    def __post_init__(self) -> None:
        counts = self.numbers("row_groups")
        object.__setattr__(self, "starts", np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    def __len__(self) -> int:
        return int(self.files.num_rows)

    def numbers(self, name: str) -> Numbers:
        """Return a column of numbers of the files."""
        return np.asarray(to_numpy(self.files.column(name)))

    def groups_of(self, rows: Numbers) -> Numbers:
        """Return the numbers of the row groups of some files, in order."""
        counts = self.starts[rows + 1] - self.starts[rows]
        ends = np.cumsum(counts)
        inside = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
        return np.asarray(inside + np.repeat(self.starts[rows], counts), dtype=np.int64)

    def take(self, rows: Numbers) -> FooterTable:
        """Return the facts of some files."""
        groups = self.groups_of(rows)
        numbers = to_arrow(groups)
        columns = {name: facts.take(numbers) for name, facts in self.columns.items()}
        return FooterTable(self.shared, self.files.take(to_arrow(rows)), self.group_rows[groups], columns)

    def data_files(
        self,
        rows: Numbers,
        listed: Sequence[ViewFile],
        partitions: Sequence[PartitionValues | None],
        stats_for: Iterable[str],
    ) -> list[DataFile]:
        """Return some files with the statistics of some columns; ``listed`` are their entries in the listing."""
        chosen = self.files.take(to_arrow(rows)).to_pydict()
        groups = self.groups_of(rows)
        counts = (self.starts[rows + 1] - self.starts[rows]).tolist()
        group_rows = self.group_rows[groups].tolist()
        wanted = [name for name in self.shared.natives if name in set(stats_for)]
        lists = {name: _lists(self.columns[name], groups) for name in wanted}
        result, at = [], 0
        for number, (file, partition, count) in enumerate(zip(listed, partitions, counts, strict=True)):
            part = slice(at, at + count)
            stats, blooms = self._statistics(lists, part)
            note = chosen["sort_note"][number]
            result.append(
                DataFile(
                    path=file.path,
                    location=file.location,
                    size=file.size,
                    stamp=file.stamp,
                    rows=chosen["rows"][number],
                    row_groups=tuple(group_rows[part]),
                    uncompressed=chosen["uncompressed"][number],
                    codec=CODEC_NAMES[chosen["codec"][number]],
                    schema=self.shared.schema,
                    partition=partition,
                    stats=stats,
                    blooms=blooms,
                    sort_note=None if note is None else parse_sort_note(note, chosen["rows"][number]),
                    footer=chosen["footer"][number],
                    int96=self.shared.int96,
                    version=file.version,
                    from_index=True,
                )
            )
            at += count
        return result

    def _statistics(
        self, lists: Mapping[str, Mapping[str, list[Any]]], part: slice
    ) -> tuple[dict[str, ColumnStats], dict[str, tuple[tuple[int, int] | None, ...]]]:
        stats, blooms = {}, {}
        for name, facts in lists.items():
            native = self.shared.natives[name]
            lower, upper = (tuple(_restored(facts[side][part], native)) for side in (LOWER, UPPER))
            stats[name] = ColumnStats(lower, upper, tuple(facts[NULLS][part]), native)
            if BLOOM_OFFSET in facts:
                pairs = zip(facts[BLOOM_OFFSET][part], facts[BLOOM_SIZE][part], strict=True)
                found = tuple(None if offset is None or size is None else (offset, size) for offset, size in pairs)
                if any(found):
                    blooms[name] = found
        return stats, blooms


_OTHERS = SharedFacts(pa.schema([], {b"fsspeckit.files": b"others"}), (), {})


def is_of_others(shared: SharedFacts) -> bool:
    """Return whether a table is that of files that are not Parquet."""
    return len(shared.schema) == 0 and shared.schema.metadata == _OTHERS.schema.metadata


def table_of_others(entries: Sequence[Entry]) -> FooterTable:
    """Return a table of files that are not Parquet. Of them, the index keeps only size and version."""
    count = len(entries)
    zeros, smallest = [0] * count, [_SMALLEST_FOOTER] * count
    values: list[Sequence[Any]] = [
        [entry.path for entry in entries],
        [entry.size for entry in entries],
        [entry.version for entry in entries],
        *(zeros, zeros, zeros, zeros),
        smallest,
        [None] * count,
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(values, FILES, strict=True)]
    return FooterTable(_OTHERS, pa.RecordBatch.from_arrays(arrays, schema=FILES), np.array([], dtype=np.int64), {})


def _lists(facts: ColumnFacts, groups: Numbers) -> dict[str, list[Any]]:
    numbers = to_arrow(groups)
    return {name: array.take(numbers).to_pylist() for name, array in facts.arrays().items()}


def _restored(values: list[Any], native: pa.DataType | None) -> list[Any]:
    """Return stored bounds as the reader of footers returns them."""
    if native is not None and pa.types.is_boolean(native):
        return [None if value is None else bool(value) for value in values]
    return values


def tables_of(files: Iterable[DataFile]) -> list[FooterTable]:
    """Return the facts of files as tables, one for each schema and set of columns with statistics."""
    by_shape: dict[tuple[Any, ...], list[DataFile]] = {}
    for file in files:
        natives = tuple((name, stats.native) for name, stats in file.stats.items())
        by_shape.setdefault((id(file.schema), file.int96, natives), []).append(file)
    return [_table_of(group) for group in by_shape.values()]


def _table_of(files: Sequence[DataFile]) -> FooterTable:
    first = files[0]
    shared = SharedFacts(first.schema, first.int96, {name: stats.native for name, stats in first.stats.items()})
    batch = pa.RecordBatch.from_arrays(
        [
            text_array([file.path for file in files]),
            _integers([file.size for file in files]),
            text_array([file.version for file in files]),
            _integers([file.rows for file in files]),
            _integers([len(file.row_groups) for file in files]),
            _integers([file.uncompressed for file in files]),
            to_arrow(np.array([CODEC_NAMES.index(file.codec) for file in files], dtype=np.int8)),
            _integers([file.footer for file in files]),
            binary_array([_note_text(file) for file in files], pa.binary()),
        ],
        schema=FILES,
    )
    group_rows = np.array([rows for file in files for rows in file.row_groups], dtype=np.int64)
    columns = {name: _column_of(files, name, native) for name, native in shared.natives.items()}
    return FooterTable(shared, batch, group_rows, columns)


def _note_text(file: DataFile) -> bytes | None:
    return None if file.sort_note is None else sort_note_text(file.sort_note)


def _integers(values: Sequence[int | None]) -> pa.Array:
    if None not in values:
        return to_arrow(np.array(values, dtype=np.int64))
    valid = np.array([value is not None for value in values])
    return to_arrow(np.array([value or 0 for value in values], dtype=np.int64), valid)


def _column_of(files: Sequence[DataFile], name: str, native: pa.DataType | None) -> ColumnFacts:
    stats = [file.stats[name] for file in files]
    lower, upper = ([bound for each in stats for bound in getattr(each, side)] for side in (LOWER, UPPER))
    type_ = stored_type(native, (*lower, *upper))
    nulls = _integers([count for each in stats for count in each.nulls])
    blooms: dict[str, pa.Array] = {}
    if any(name in file.blooms for file in files):
        none: tuple[None, ...] = (None,)
        pairs = [pair for file in files for pair in file.blooms.get(name, none * len(file.row_groups))]
        for at, part in enumerate((BLOOM_OFFSET, BLOOM_SIZE)):
            blooms[part] = _integers([None if pair is None else pair[at] for pair in pairs])
    return ColumnFacts(_bounds(lower, type_), _bounds(upper, type_), nulls, **blooms)


def _bounds(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_binary(type_):
        return binary_array(values, type_)
    if pa.types.is_integer(type_):
        return _integers([None if value is None else int(value) for value in values])
    valid = np.array([value is not None for value in values], dtype=bool)
    return to_arrow(np.array([value or 0.0 for value in values], dtype=np.float64), valid)


def stored_type(native: pa.DataType | None, values: Iterable[Any] = ()) -> pa.DataType:
    """Return the type in which bounds are stored. Decimals are numbers or bytes, as in the file."""
    if native is None:
        return pa.int64()
    if pa.types.is_decimal(native):
        return pa.binary() if any(isinstance(value, bytes) for value in values) else pa.int64()
    if pa.types.is_binary(native):
        return pa.binary()
    return pa.float64() if pa.types.is_floating(native) else pa.int64()
