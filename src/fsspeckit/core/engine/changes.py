"""Read the rows that a commit removed and added, file by file. This part of the change feed runs on workers.

A rewritten file keeps its path, or the stem of its name, so it is compared with the file that it replaces. All other
files of a partition that a commit removed are compared with all others that it added: an unchanged row cannot be in
another partition, because the values of the partition are part of the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa

from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.engine.protocol import ReadRequest
from fsspeckit.core.engine.read import read_snapshot
from fsspeckit.core.file_names import name_stem
from fsspeckit.core.model import DataFile
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.row_difference import row_difference
from fsspeckit.core.values.take import take_rows

CHANGE_TYPE, VERSION, AT = "_change_type", "_version", "_at"
ADDED = (
    pa.field(CHANGE_TYPE, pa.string()),
    pa.field(VERSION, pa.int64()),
    pa.field(AT, pa.timestamp("us", "UTC")),
)
"""The columns of a change feed besides those of the dataset."""
_READ = ReadRequest(use_threads=False)


@dataclass(frozen=True, slots=True)
class FilePair:
    """Files of one partition that a commit removed, and the files that it added in their place."""

    version: int
    at: str
    removed: tuple[DataFile, ...]
    added: tuple[DataFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in (*self.removed, *self.added))


def pair_files(version: int, at: str, removed: Sequence[DataFile], added: Sequence[DataFile]) -> list[FilePair]:
    """Divide the files of a commit into pairs that can be compared by themselves."""
    old, new = _by_stem(removed), _by_stem(added)
    both = [stem for stem in old if len(old[stem]) == len(new.get(stem, ())) == 1]
    pairs = [FilePair(version, at, tuple(old.pop(stem)), tuple(new.pop(stem))) for stem in both]
    folders = dict.fromkeys(folder for folder, _ in (*old, *new))
    for folder in folders:
        rest = [
            tuple(file for (where, _), found in side.items() if where == folder for file in found)
            for side in (old, new)
        ]
        pairs.append(FilePair(version, at, rest[0], rest[1]))
    return pairs


def _by_stem(files: Sequence[DataFile]) -> dict[tuple[str, str], list[DataFile]]:
    found: dict[tuple[str, str], list[DataFile]] = {}
    for file in files:
        found.setdefault((file.folder, name_stem(file.path)), []).append(file)
    return found


@dataclass(frozen=True, slots=True)
class ReadChanges:
    """Returns the rows that differ between the files of a pair, as inserts and deletes."""

    storage: Storage
    snapshot: Snapshot
    schema: pa.Schema
    pairs: tuple[FilePair, ...]

    def __call__(self, number: int) -> Iterator[tuple[str, pa.Table]]:
        """Yield the changes of the pair with a number, with a path for error messages."""
        pair = self.pairs[number]
        old, new = self._rows(pair.removed), self._rows(pair.added)
        gone, come = row_difference(old, new)
        path = (*pair.added, *pair.removed)[0].path
        for table, rows, change in ((old, gone, "delete"), (new, come, "insert")):
            if len(rows):
                yield path, with_facts(take_rows(table, rows), change, pair.version, pair.at)

    def _rows(self, files: tuple[DataFile, ...]) -> pa.Table:
        one = replace(self.snapshot, files=files)
        return read_snapshot(self.storage, one, _READ, str, schema=self.schema)


def with_facts(table: pa.Table, change: str, version: int, at: str) -> pa.Table:
    """Return rows with the columns that say what a commit did to them, and which commit."""
    values = (change, version, datetime.fromisoformat(at))
    for field, value in zip(ADDED, values, strict=True):
        table = table.append_column(field, pa.repeat(pa.scalar(value, field.type), table.num_rows))
    return table
