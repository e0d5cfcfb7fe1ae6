"""The data files of a snapshot: columns where the footer index describes them, the others read from footers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
import pyarrow as pa

from fsspeckit.core.commit.footer_index import MIN_FILES, MIN_LOCAL_FILES, usable_entries
from fsspeckit.core.commit.listing import View
from fsspeckit.core.model import DataFile, PartitionValues, ViewFile
from fsspeckit.core.parquet.footer_table import FooterTable, Numbers, tables_of

ReadFooters = Callable[[Sequence[ViewFile], Sequence[str]], Sequence[DataFile]]
"""Reads the footers of files, with the statistics of some columns."""
ReadTables = Callable[[Sequence[ViewFile], Sequence[str]], list[FooterTable]]
"""Reads the footers of very many files, with the statistics of some columns."""
_CHUNK = 2_000
_MOST_KEPT = 50_000  # files that stay in memory once they are built
MANY_FOOTERS = 4_000
"""The number of footers from which on executors read them."""


@dataclass(frozen=True, slots=True, eq=False)
class Partitions(Sequence[PartitionValues | None]):
    """The partition values of files: ``values`` of folders, and the folder of each file."""

    values: Sequence[PartitionValues | None]
    folders: Numbers

    def __len__(self) -> int:
        return len(self.folders)

    @overload
    def __getitem__(self, at: int) -> PartitionValues | None: ...
    @overload
    def __getitem__(self, at: slice) -> list[PartitionValues | None]: ...
    def __getitem__(self, at: int | slice) -> PartitionValues | list[PartitionValues | None] | None:
        if isinstance(at, slice):
            return [self.values[folder] for folder in self.folders[at].tolist()]
        return self.values[int(self.folders[at])]


class DataFiles(Sequence[DataFile]):
    """The files of a view with the statistics of some columns; those in the footer index are built when asked for.

    Attributes:
        listed: The files of the view.
        partitions: The partition values of each file.
        read: The files whose footers were read, by their numbers.
        entries: The number of each file's entry in the concatenation of the tables, or -1.
    """

    def __init__(
        self,
        listed: Sequence[ViewFile],
        partitions: Partitions,
        stats_for: Sequence[str],
        tables: Sequence[FooterTable],
        entries: Numbers,
        read: dict[int, DataFile],
    ) -> None:
        self.listed, self.partitions, self.tables, self.entries, self.read = listed, partitions, tables, entries, read
        self._stats_for, self._built = stats_for, dict(read)
        self._starts = np.cumsum([0, *(len(table) for table in tables)])

    def __reduce__(self) -> tuple[type[tuple[DataFile, ...]], tuple[list[DataFile]]]:
        return tuple, (list(self),)

    def __len__(self) -> int:
        return len(self.listed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    @overload
    def __getitem__(self, at: int) -> DataFile: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[DataFile, ...]: ...
    def __getitem__(self, at: int | slice) -> DataFile | tuple[DataFile, ...]:
        numbers = range(len(self))[at]
        return tuple(self.take(numbers)) if isinstance(numbers, range) else self.take([numbers])[0]

    def __iter__(self) -> Iterator[DataFile]:
        for start in range(0, len(self), _CHUNK):
            yield from self.take(range(start, min(start + _CHUNK, len(self))))

    def take(self, numbers: Sequence[int]) -> list[DataFile]:
        """Return some files."""
        found = self._built if len(self) <= _MOST_KEPT else {n: self.read[n] for n in numbers if n in self.read}
        wanted = np.array([number for number in numbers if number not in found], dtype=np.int64)
        for table, mine in self.by_table(wanted):
            listed, values = ([each[number] for number in mine] for each in (self.listed, self.partitions))
            built = table.data_files(self.rows_in(table, mine), listed, values, self._stats_for)
            found.update(zip(mine.tolist(), built, strict=True))
        return [found[number] for number in numbers]

    def by_table(self, numbers: Numbers) -> Iterator[tuple[FooterTable, Numbers]]:
        """Yield each table with the numbers of the files that it describes, of some files."""
        entries = self.entries[numbers]
        for number, table in enumerate(self.tables):
            mine = (entries >= self._starts[number]) & (entries < self._starts[number + 1])
            if mine.any():
                yield table, numbers[mine]

    def rows_in(self, table: FooterTable, numbers: Numbers) -> Numbers:
        """Return the rows of a table that describe some files."""
        start = self._starts[next(at for at, each in enumerate(self.tables) if each is table)]
        return np.asarray(self.entries[numbers] - start)

    @property
    def row_counts(self) -> Numbers:
        """The rows of each file."""
        found = np.zeros(len(self), dtype=np.int64)
        for table, mine in self.by_table(np.arange(len(self))):
            found[mine] = table.numbers("rows")[self.rows_in(table, mine)]
        for number, file in self.read.items():
            found[number] = file.rows
        return found

    def by_schema(self) -> Iterator[tuple[pa.Schema, Numbers]]:
        """Yield schemas with the numbers of their files, ascending. Equal schemas can be there twice."""
        for table, mine in self.by_table(np.arange(len(self))):
            yield table.shared.schema, mine
        yield from schemas_of(self.read)


def partition_values(files: Sequence[DataFile]) -> Sequence[PartitionValues | None]:
    """Return the partition values of all files, each at least once."""
    return files.partitions.values if isinstance(files, DataFiles) else [file.partition for file in files]


def schemas_of(files: Mapping[int, DataFile]) -> Iterator[tuple[pa.Schema, Numbers]]:
    """Yield the schemas of numbered files with their numbers."""
    found: dict[int, tuple[pa.Schema, list[int]]] = {}
    for number, file in files.items():
        found.setdefault(id(file.schema), (file.schema, []))[1].append(number)
    for schema, numbers in found.values():
        yield schema, np.array(numbers, dtype=np.int64)


def files_of_view(
    view: View, partitions: Partitions, stats_for: Sequence[str], read: ReadFooters, read_many: ReadTables | None
) -> DataFiles:
    """Return the files of a view with the statistics of some columns. Files that the index describes are not opened."""
    files = view.files
    index = view.index
    if index is not None and len(files) < (MIN_LOCAL_FILES if index.storage.is_local else MIN_FILES):
        index = None
    tables = [] if index is None else index.tables(stats_for)
    entries = usable_entries(tables, files, stats_for)
    missing = np.flatnonzero(entries < 0).tolist()
    columns = list(dict.fromkeys((*stats_for, *_known_columns(tables))))
    if read_many is not None and len(missing) >= MANY_FOOTERS:
        fresh = read_many([files[number] for number in missing], columns)
        if index is not None:
            index.add_tables(fresh)
        tables = [*fresh, *tables]
        entries = usable_entries(tables, files, stats_for)
        missing = np.flatnonzero(entries < 0).tolist()
    found = read([files[number] for number in missing], columns) if missing else ()
    if index is not None and found:
        fresh = tables_of(found)
        index.add_tables(fresh)
        tables = [*fresh, *tables]
        entries = usable_entries(tables, files, stats_for)
    if any(value is not None for value in partitions.values):
        found = [replace(file, partition=partitions[number]) for number, file in zip(missing, found, strict=True)]
    return DataFiles(files, partitions, stats_for, tables, entries, dict(zip(missing, found, strict=True)))


def _known_columns(tables: Sequence[FooterTable]) -> list[str]:
    """Return the columns that most entries of the index have, so that no entry replaces one that describes more."""
    return list(max(tables, key=len).shared.natives) if tables else []
