"""Merge a source that is too large to share: match keys by a hash exchange, then send rows to their tasks.

The first of two exchanges partitions key columns of both sides, with row numbers, by hash and finds the matches. The
second sends each source row to the task that needs it. Rows of the target are not shuffled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import to_arrow, to_numpy
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.kernels.match_keys import MAX_BATCH_ROWS, in_file, plain_columns, read_keys
from fsspeckit.core.kernels.run_task import run_task
from fsspeckit.core.model import (
    KeyColumn,
    KeySetSpec,
    Match,
    MoveTask,
    Outcome,
    RewriteTask,
    RowNumbers,
    Scan,
    WriteTask,
)
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.hashing import cut_by_part, hash_keys, partition_numbers
from fsspeckit.core.values.keys import KeyIndex
from fsspeckit.core.values.take import in_parts, take_rows, with_one_dictionary
from fsspeckit.datasets.spark.shared_source import Handle

SourceTask = RewriteTask | WriteTask | MoveTask
Found = tuple[RowNumbers, RowNumbers, RowNumbers]
_NONE: RowNumbers = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class SourceKeys:
    """Rows of a spill file to match: positions in the file, key set of each, and the number of the file's first row."""

    file: int
    rows: RowNumbers
    groups: RowNumbers
    first: int


@dataclass(frozen=True, slots=True)
class TargetKeys:
    """A scan of a target file, with its number."""

    number: int
    scan: Scan


def key_items(
    handle: Handle, specs: Sequence[KeySetSpec], scans: Sequence[tuple[int, Scan]]
) -> list[SourceKeys | TargetKeys]:
    """Return the items to split for one set of key columns: all source files first, then the scans."""
    wanted = sorted({scan.group for _, scan in scans})
    rows = np.concatenate([_NONE, *(np.asarray(specs[group].rows, dtype=np.int64) for group in wanted)])
    groups = np.repeat(np.array(wanted, dtype=np.int64), [len(specs[group].rows) for group in wanted])
    sources = [
        SourceKeys(file, rows[at] - first, groups[at], first) for file, first, at in _by_file(handle, rows) if len(at)
    ]
    return [*sources, *(TargetKeys(number, scan) for number, scan in scans)]


def _by_file(handle: Handle, rows: RowNumbers) -> Iterator[tuple[int, int, RowNumbers]]:
    """Yield for each spill file its number, the number of its first row, and which of the given rows it holds."""
    ends = np.cumsum([file.rows for file in handle.files])
    where = np.searchsorted(ends, rows, "right")
    order = np.argsort(where, kind="stable")
    cuts = np.searchsorted(where[order], np.arange(len(ends) + 1))
    for file, end in enumerate(ends.tolist()):
        yield file, end - handle.files[file].rows, order[cuts[file] : cuts[file + 1]]


@dataclass(frozen=True, slots=True)
class SplitKeys:
    """Splits keys with their row numbers by the hash of the key."""

    storage: Storage
    handle: Handle
    keys: tuple[KeyColumn, ...]
    grouped: bool
    parts: int

    def __call__(self, item: SourceKeys | TargetKeys) -> Iterator[tuple[int, pa.Table]]:
        """Yield the keys of one item by part."""
        if isinstance(item, SourceKeys):
            table = take_rows(self.handle.file(item.file, [key.name for key in self.keys]), item.rows)
            numbers, groups, side = item.rows + item.first, item.groups, b"source"
        else:
            table = read_keys(self.storage, item.scan, self.keys)
            numbers = in_file(item.scan, np.arange(table.num_rows))
            groups, side = np.full(table.num_rows, item.scan.group), b"%d" % item.number
        columns = plain_columns(table, self.keys)
        if self.grouped:
            columns.insert(0, pa.chunked_array([to_arrow(groups)]))
        names = [str(i) for i in range(len(columns))]
        keyed = pa.table([*columns, to_arrow(numbers)], [*names, "row"]).replace_schema_metadata({b"side": side})
        yield from cut_by_part(keyed, partition_numbers(hash_keys(columns), self.parts))


def gather_keys(part: int, pieces: Iterator[pa.Table]) -> Found:  # noqa: ARG001 - required by `exchange`
    """Return scan numbers, positions in the files and source rows of the keys that occur on both sides."""
    sources: list[pa.Table] = []
    waiting: list[tuple[int, pa.Table]] = []
    index: KeyIndex | None = None
    found: list[Found] = []
    for piece in pieces:
        side = (piece.schema.metadata or {})[b"side"]
        if side == b"source":
            sources.append(piece)
            continue
        if not sources:
            continue
        waiting.append((int(side), piece.replace_schema_metadata(None)))
        if sum(table.num_rows for _, table in waiting) >= MAX_BATCH_ROWS:
            index = index or _index(sources)
            found.append(_lookup(index, waiting))
            waiting = []
    if waiting:
        found.append(_lookup(index or _index(sources), waiting))
    if not found:
        return _NONE, _NONE, _NONE
    scans, positions, rows = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    return scans, positions, rows


def _index(sources: Sequence[pa.Table]) -> KeyIndex:
    whole = pa.concat_tables(sources)
    return KeyIndex(whole.columns[:-1], to_numpy(whole["row"]))


def _lookup(index: KeyIndex, pieces: Sequence[tuple[int, pa.Table]]) -> Found:
    """Look up several pieces at once, because each lookup builds a hash table."""
    whole = pa.concat_tables([table for _, table in pieces])
    scans = np.repeat([scan for scan, _ in pieces], [table.num_rows for _, table in pieces])
    at, rows = index.lookup(whole.columns[:-1])
    return scans[at], to_numpy(whole["row"])[at], rows


def matches(found: Iterable[Found], count: int) -> list[Match]:
    """Return the matches of all parts by scan."""
    scans, positions, rows = (np.concatenate([_NONE, *arrays]) for arrays in zip(*found, strict=True))
    order = np.lexsort((positions, scans))
    cuts = np.searchsorted(scans[order], np.arange(count + 1))
    return [Match(positions[at], rows[at]) for at in (order[cuts[i] : cuts[i + 1]] for i in range(count))]


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """The destinations of the rows of one spill file.

    Positions in the file, and for each row the task, its order in the task, and the target row that it replaces.
    """

    file: int
    rows: RowNumbers
    tasks: RowNumbers
    order: RowNumbers
    positions: RowNumbers


def routes(handle: Handle, tasks: Sequence[SourceTask]) -> list[Routes]:
    """Return the destinations of the rows of each spill file."""
    wanted = [np.asarray(_rows(task), dtype=np.int64) for task in tasks]
    rows = np.concatenate([_NONE, *wanted])
    numbers = np.repeat(np.arange(len(tasks)), [len(part) for part in wanted])
    order = np.concatenate([_NONE, *(np.arange(len(part)) for part in wanted)])
    positions = np.concatenate(
        [
            _NONE,
            *(
                task.change.replaced if isinstance(task, RewriteTask) else np.zeros_like(part)
                for task, part in zip(tasks, wanted, strict=True)
            ),
        ]
    )
    found = ((file, first, at) for file, first, at in _by_file(handle, rows) if len(at))
    return [Routes(file, rows[at] - first, numbers[at], order[at], positions[at]) for file, first, at in found]


def _rows(task: SourceTask) -> range | RowNumbers:
    if isinstance(task, MoveTask):
        return np.concatenate([_NONE, *(part.change.source_rows for part in task.parts)])
    return task.change.source_rows if isinstance(task, RewriteTask) else task.rows


def without_rows(task: SourceTask) -> SourceTask:
    """Return a task without row numbers: the exchange sends them with the rows.

    A moved row keeps its position, because positions of several files are not in one order.
    """
    if isinstance(task, MoveTask):
        return _renumbered(task)
    if isinstance(task, RewriteTask):
        return replace(task, change=replace(task.change, replaced=_NONE, source_rows=_NONE))
    return replace(task, rows=range(0))


def _renumbered(task: MoveTask) -> MoveTask:
    """Return a task whose source rows are numbered in the order in which the parts need them."""
    ends = np.cumsum([len(part.change.source_rows) for part in task.parts])
    parts = [
        replace(part, change=replace(part.change, source_rows=np.arange(end - len(part.change.source_rows), end)))
        for part, end in zip(task.parts, ends.tolist(), strict=True)
    ]
    return replace(task, parts=tuple(parts))


@dataclass(frozen=True, slots=True)
class SplitRows:
    """Splits source rows by the part of their task; the first three columns are task, order and position."""

    handle: Handle
    part_of: npt.NDArray[np.int64]

    def __call__(self, item: Routes) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows of one spill file by part."""
        part = self.part_of[item.tasks]
        order = in_parts(part)
        rows = take_rows(self.handle.file(item.file, self.handle.schema.names), item.rows[order])
        numbers = [to_arrow(values[order]) for values in (item.tasks, item.order, item.positions)]
        numbered = pa.table([*numbers, *rows.columns], ["task", "order", "position", *rows.column_names])
        yield from cut_by_part(numbered, part[order])


@dataclass(frozen=True, slots=True)
class RunRouted:
    """Runs the tasks of a part with the rows that the exchange sent to it."""

    storage: Storage
    schema: pa.Schema
    tasks: tuple[tuple[tuple[int, SourceTask], ...], ...]
    staging: str | None

    def __call__(self, part: int, pieces: Iterator[pa.Table]) -> list[tuple[int, Outcome]]:
        """Return the outcomes of the tasks of one part, with their numbers."""
        names = [f"{i}" for i in range(3)]
        numbers = pa.schema([(name, pa.int64()) for name in names]).empty_table()
        rows = self.schema.empty_table()
        for piece in pieces:
            numbers = pa.concat_tables([numbers, piece.select([0, 1, 2]).rename_columns(names)])
            rows = pa.concat_tables([rows, pa.table(piece.columns[3:], schema=self.schema)])
        task_of, order, positions = (to_numpy(column) for column in numbers.columns)
        by_task = np.lexsort((order, task_of))
        cuts = np.searchsorted(task_of[by_task], [number for number, _ in self.tasks[part]])
        ends = np.searchsorted(task_of[by_task], [number for number, _ in self.tasks[part]], "right")
        outcomes = []
        for (number, task), low, high in zip(self.tasks[part], cuts, ends, strict=True):
            mine = by_task[low:high]
            source = Source(with_one_dictionary(take_rows(rows, mine)))
            ready = _numbered(task, positions[mine])
            outcomes.append((number, run_task(ready, source.take, self.storage, self.staging, at_once=1)))
        return outcomes


def _numbered(task: SourceTask, positions: RowNumbers) -> SourceTask:
    """Return a task with the numbers of its rows in order of arrival."""
    if isinstance(task, RewriteTask):
        change = replace(task.change, replaced=positions, source_rows=np.arange(len(positions)))
        return replace(task, change=change)
    return replace(task, rows=range(len(positions))) if isinstance(task, WriteTask) else task
