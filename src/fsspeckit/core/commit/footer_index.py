"""The footer index of a dataset: facts of footers in the sidecar, so that files need not be opened to plan a change.

The index proves nothing about the dataset. An entry is used for a file only if path, size and version are those of the
current listing, so a missing, damaged, foreign or outdated index costs time and changes no result. That is also why it
is written without a lock and without a sync, after a commit is complete, and why an error while it is written is
ignored. Each commit adds a small file; a commit that finds many of them joins them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import to_arrow, to_numpy, valid_mask
from fsspeckit.core.commit.file_list import paths_of, sizes_of, versions_of
from fsspeckit.core.commit.record import Published, Record, new_id
from fsspeckit.core.model import DataFile, ViewFile
from fsspeckit.core.parquet.data_files import FooterFacts
from fsspeckit.core.parquet.footer_format import InvalidIndexError, from_bytes, joined, to_bytes
from fsspeckit.core.parquet.footer_table import FooterTable, Numbers, is_of_others, tables_of
from fsspeckit.core.parquet.int96 import known_unit
from fsspeckit.core.storage import Entry, Storage, for_each, join

FOLDER = "index"
"""The folder of the index in a sidecar."""
MIN_FILES, MIN_LOCAL_FILES = 16, 80
"""The number of files from which on a dataset has an index, on remote and on local storage. Fewer footers are read in
the time in which an index is read and written."""
_ENDING = ".footers"
_NAME = re.compile(rf"{FOLDER}/\d{{20}}-[0-9a-f]{{8}}\{_ENDING}", re.ASCII)
_SMALL = 4 * 2**20  # bytes of an index that is joined often, and kept in memory until the commit
_MAX_PARTS, _MAX_LARGE_PARTS = 3, 8
_MAX_BYTES = 2**31
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Part:
    """A file of the index, and its tables."""

    name: str
    tables: tuple[FooterTable, ...]


@dataclass(slots=True)
class FooterIndex:
    """The index as one operation sees it: what it read, and what the next commit adds."""

    storage: Storage
    sidecar: str | None
    listed: tuple[Entry, ...] | None = None
    added: list[FooterTable] = field(default_factory=list)
    is_used: bool = False
    broken: list[str] = field(default_factory=list)
    kept: dict[str, pa.Buffer] = field(default_factory=dict)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Return the constructor of None: executors do not use the index."""
        return type(None), ()

    def tables(self, columns: Collection[str] | None, *, others: bool = False) -> list[FooterTable]:
        """Return all tables, the newest first, with the statistics of some columns or of all.

        ``others``: also the tables of files that are not Parquet.
        """
        self.is_used = True
        found = (table for part in self._load(self._names(), columns) for table in part.tables)
        return [table for table in found if others or not is_of_others(table.shared)]

    def add(self, files: Iterable[DataFile]) -> None:
        """Remember the facts of files that were read, for the next commit."""
        self.added += tables_of(file for file in files if has_identity(file.version))

    def add_tables(self, tables: Iterable[FooterTable]) -> None:
        """Remember tables of files that were read, for the next commit."""
        for table in tables:
            versions = table.files.column("version").to_pylist()
            self.added.append(table.take(np.flatnonzero([has_identity(version) for version in versions])))

    def published_files(self, root: str, record: Record, footers: Mapping[str, bytes]) -> list[DataFile]:
        """Return the files that a commit published, with all facts of their footers."""
        facts = FooterFacts(None)
        found = [
            facts.describe(file, footers[item.path])
            for item in record.publish
            if (file := self._published(root, item)) is not None and item.path in footers
        ]
        return [file for file in found if not file.int96 or known_unit(file.schema.metadata)]

    def _published(self, root: str, item: Published) -> ViewFile | None:
        """Return a published file as the next listing has it. An object store is not asked: a copy keeps the stamp."""
        path = join(root, item.path)
        if not self.storage.in_place:
            return ViewFile(item.path, path, item.size, item.stamp, item.stamp)
        entry = self.storage.stat_file(path)
        if not item.is_at(entry, in_place=True) or entry is None:
            return None
        return ViewFile(item.path, path, entry.size, entry.stamp, entry.version)

    def save(
        self,
        sidecar: str,
        seq: int,
        published: Sequence[DataFile],
        paths: Callable[[], pa.Array],
        *,
        anew: bool = False,
    ) -> None:
        """Write the facts of the files that were read, and of those that a commit published.

        Args:
            sidecar: The sidecar of the dataset.
            seq: The slot of the commit.
            published: The published files.
            paths: Returns the paths of the dataset after the commit.
            anew: Whether the index is replaced.
        """
        self.sidecar = sidecar
        self.add(published)
        tables, self.added = self.added[::-1], []
        try:
            old = [] if anew else self._parts_to_join()
            if tables or old or anew:
                self._write(seq, tables, old, paths, anew=anew)
        except (OSError, pa.ArrowException, MemoryError) as error:
            _logger.info("the footer index of %s was not written: %s", self.sidecar, error)

    def _write(
        self,
        seq: int,
        tables: Sequence[FooterTable],
        old: Sequence[_Part],
        paths: Callable[[], pa.Array],
        *,
        anew: bool,
    ) -> None:
        names = self._names()
        sidecar = self.sidecar or ""
        if old:
            tables = newest_entries([*tables, *(table for part in old for table in part.tables)], paths())
        self.storage.make_dirs(join(sidecar, FOLDER))
        name = f"{seq:020d}-{new_id()[:8]}{_ENDING}"
        self.storage.write_bytes(join(sidecar, FOLDER, name), to_bytes(joined(tables)))
        gone = [entry.path for entry in names] if anew else [*self.broken, *(part.name for part in old)]
        self.storage.remove_many([join(sidecar, each) for each in gone])

    def _parts_to_join(self) -> list[_Part]:
        """Return the parts to join with the new one: none, or all but a much larger one, or all."""
        names = self._names()
        is_small = sum(entry.size for entry in names) <= _SMALL
        if len(names) < (_MAX_PARTS if is_small else _MAX_LARGE_PARTS):
            return []
        largest = max(names, key=lambda entry: entry.size)
        others = [entry for entry in names if entry is not largest]
        is_large = largest.size > 4 * sum(entry.size for entry in others)
        return self._load(others if is_large else names, None)

    def _names(self) -> tuple[Entry, ...]:
        """Return the files of the index, the newest first."""
        if self.listed is None:
            try:
                found = [] if self.sidecar is None else self.storage.list_dir(join(self.sidecar, FOLDER))
            except OSError as error:
                _logger.info("the footer index of %s is not used: %s", self.sidecar, error)
                found = []
            entries = [replace(entry, path=join(FOLDER, entry.path)) for entry in found]
            self.broken += [entry.path for entry in entries if entry.path.endswith(".tmp")]  # of a crashed writer
            self.listed = index_files(entries)
        return self.listed

    def _load(self, entries: Iterable[Entry], columns: Collection[str] | None) -> list[_Part]:
        parts = for_each(self.storage, lambda entry: self._load_part(entry, columns), entries)
        return [part for part in parts if part is not None]

    def _load_part(self, entry: Entry, columns: Collection[str] | None) -> _Part | None:
        path = join(self.sidecar or "", entry.path)
        try:
            if entry.size > _MAX_BYTES:
                raise InvalidIndexError(f"it has {entry.size:,} bytes")
            data = self.kept.get(entry.path)
            if data is None:
                with self.storage.open_input(path, entry.size, entry.stamp) as file:
                    data = file.read_buffer()
            if entry.size <= _SMALL:
                self.kept[entry.path] = data
            return _Part(entry.path, tuple(from_bytes(data, columns)))
        except (OSError, InvalidIndexError, MemoryError) as error:
            _logger.info("the footer index %s is not used: %s", path, error)
            self.broken.append(entry.path)
            return None


def remove_index(storage: Storage, sidecar: str) -> None:
    """Remove the index of a dataset: it has bounds of columns, also of files that are gone."""
    folder = join(sidecar, FOLDER)
    storage.remove_many([join(folder, name) for name in storage.list_names(folder)])


def index_files(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the files of the index among the entries of a sidecar, the newest first."""
    found = [entry for entry in entries if _NAME.fullmatch(entry.path) and entry.size >= 0]
    return tuple(sorted(found, key=lambda entry: entry.path, reverse=True))


def has_identity(version: str) -> bool:
    """Return whether a version in a listing shows that a file was changed. Some filesystems report no time."""
    return bool(version) and not version.endswith(":0.0")


def newest_entries(tables: Sequence[FooterTable], paths: pa.Array) -> list[FooterTable]:
    """Return the first entry of each path in some tables, for paths of the dataset."""
    numbers = locate(tables, paths)
    return [table.take(np.sort(rows)) for table, rows in zip(tables, _by_table(tables, numbers), strict=True)]


def _by_table(tables: Sequence[FooterTable], numbers: Numbers) -> list[Numbers]:
    """Split numbers of entries in all tables into rows of each table."""
    ends = np.cumsum([len(table) for table in tables])
    found = np.unique(numbers[numbers >= 0])
    cuts = np.searchsorted(found, [0, *ends])
    return [found[cuts[i] : cuts[i + 1]] - (ends[i] - len(table)) for i, table in enumerate(tables)]


def locate(tables: Sequence[FooterTable], paths: pa.Array) -> Numbers:
    """Return for each path the number of its first entry in the concatenation of some tables, or -1."""
    if not tables:
        return np.full(len(paths), -1, dtype=np.int64)
    known = pa.concat_arrays([table.files.column("path") for table in tables])
    found = pc.index_in(paths, value_set=known)
    return np.where(valid_mask(found), to_numpy(found), -1).astype(np.int64)


def usable_entries(tables: Sequence[FooterTable], files: Sequence[ViewFile], stats_for: Sequence[str]) -> Numbers:
    """Return for each file the number of its entry in the concatenation of the tables, or -1.

    An entry is used if it has the file's size and version, and the statistics of all the columns.
    """
    entries = locate(tables, paths_of(files)) if tables else np.full(len(files), -1, dtype=np.int64)
    if not (entries >= 0).any():
        return entries
    at = to_arrow(np.maximum(entries, 0))
    size = to_numpy(pa.concat_arrays([table.files.column("size") for table in tables]).take(at))
    version = pa.concat_arrays([table.files.column("version") for table in tables]).take(at)
    covers = np.repeat([_covers(table, stats_for) for table in tables], [len(table) for table in tables])
    usable = (entries >= 0) & covers[np.maximum(entries, 0)] & (size == sizes_of(files))
    usable &= to_numpy(pc.equal(version, versions_of(files)))
    return np.where(usable, entries, -1)


def _covers(table: FooterTable, stats_for: Sequence[str]) -> bool:
    """Return whether a table has the statistics of all the columns that its files have and that can have some."""
    schema = table.shared.schema
    present = [name for name in stats_for if schema.names.count(name) == 1]
    return all(name in table.shared.natives or pa.types.is_nested(schema.field(name).type) for name in present)
