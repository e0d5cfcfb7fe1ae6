"""Send the rows of a large source to the tasks that need them, and run the tasks.

Each worker reads a part of the source and the decisions about its rows (`decide_keys.py`), and writes the rows to a
file, in the order of tasks and positions. Only the numbers of rows and the places of these runs are exchanged. A task
merges the runs by position and reads the rows of one row group at a time, so it never holds all rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import to_arrow, to_numpy
from fsspeckit.common.errors import DamagedFileError
from fsspeckit.common.schema import cast_schema
from fsspeckit.core.kernels.exchange.decide_keys import DROP, KEEP, SEND
from fsspeckit.core.kernels.exchange.partition_source import inserted_rows
from fsspeckit.core.kernels.exchange.route_moves import MovedPlaces, MoveRoutes
from fsspeckit.core.kernels.exchange.stored_rows import StoredRows
from fsspeckit.core.kernels.exchange.table_files import TableFolder, TablePlace, TableWriter, in_chunks
from fsspeckit.core.kernels.run_task import run_task
from fsspeckit.core.model import NO_ROWS, MoveTask, Outcome, RewriteTask, RowNumbers, WriteTask
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.hashing import runs_of
from fsspeckit.core.values.take import take_rows, with_one_dictionary

RoutedTask = RewriteTask | WriteTask | MoveTask
_RUN_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class SourceRoutes:
    """The routes of a part of the source.

    Attributes:
        piece: Reads the rows.
        places: The decisions about its rows, of all parts of the key exchange.
        ranks: For each partition the number of rows that earlier parts of the source insert there.
        moved: Rows that move and keep values, of all parts of the key exchange.
        partitions: The number of each partition that the decisions number; None if their numbers are the same.
        every: The number of rows, if all of them are inserted in one partition and there are no decisions.
    """

    piece: Any
    places: tuple[TablePlace, ...]
    ranks: RowNumbers
    moved: MovedPlaces
    partitions: RowNumbers | None = None
    every: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class RouteRows:
    """Sends the rows of a part of the source to the parts of their tasks.

    A task that writes moved rows has a number for each file from which the rows come.

    Attributes:
        folder: Where the decisions are, and where rows are written.
        task_of_file: The number of the task of each file, or -1.
        new_tasks: For each partition the numbers of the tasks that write its new rows, in order; -1 if one is not run.
        file_rows: The most rows of a new file.
        part_of: The part of each task.
        moves: The numbers of the tasks that write moved rows.
    """

    folder: TableFolder
    task_of_file: RowNumbers
    new_tasks: tuple[RowNumbers, ...]
    file_rows: int
    part_of: RowNumbers
    moves: MoveRoutes

    def __call__(self, item: SourceRoutes) -> Iterator[tuple[int, pa.Table]]:
        """Yield by part the task and the order of each row, and where the rows are; before, positions without rows."""
        decisions = self._read(item)
        kinds = to_numpy(decisions["kind"])
        for kind in (DROP, KEEP):
            yield from self._positions(decisions.filter(to_arrow(kinds == kind)), kind) if (kinds == kind).any() else ()
        rows, tasks, orders = self._decisions(item, decisions.filter(to_arrow(kinds == SEND)))
        if not len(rows):
            return
        with self.folder.writer() as writer:
            start = 0
            for chunk in in_chunks(item.piece.batches()):
                low, high = np.searchsorted(rows, [start, start + chunk.num_rows])
                wanted = slice(int(low), int(high))
                yield from self._runs(chunk, rows[wanted] - start, tasks[wanted], orders[wanted], writer)
                start += chunk.num_rows

    def _read(self, item: SourceRoutes) -> pa.Table:
        """Return the decisions about the rows of a part of the source."""
        if item.every:
            return inserted_rows(0, np.full(item.every, -1))
        return pa.concat_tables([_DECISION.empty_table(), *(self.folder.read(place) for place in item.places)])

    def _positions(self, decisions: pa.Table, kind: int) -> Iterator[tuple[int, pa.Table]]:
        """Yield by part the task and the position of each row that is dropped or kept. Removed files have no task."""
        tasks = self.task_of_file[to_numpy(decisions["target"])]
        orders, known = to_numpy(decisions["position"]), tasks >= 0
        tasks, orders = tasks[known], orders[known]
        order = np.argsort(self.part_of[tasks], kind="stable")
        numbers = _numbers(tasks[order], orders[order]).replace_schema_metadata({b"kind": b"%d" % kind})
        for part, start, stop in runs_of(self.part_of[tasks][order]):
            yield part, numbers.slice(start, stop - start)

    def _decisions(self, item: SourceRoutes, decisions: pa.Table) -> tuple[RowNumbers, RowNumbers, RowNumbers]:
        """Return the rows that are sent, ascending, with their tasks and their orders in the tasks."""
        rows, targets, orders = (to_numpy(decisions[name]).astype(np.int64) for name in ("row", "target", "position"))
        by_row = np.argsort(rows, kind="stable")
        rows, targets, orders = rows[by_row], targets[by_row], orders[by_row]
        is_new = targets < 0
        if item.partitions is not None:
            targets[is_new] = -1 - item.partitions[-1 - targets[is_new]]
        tasks = np.where(is_new, -1, self.task_of_file[np.where(is_new, 0, targets)] if len(self.task_of_file) else -1)
        for partition in np.unique(targets[is_new]).tolist():
            mine = np.flatnonzero(targets == partition)
            ranks = item.ranks[-1 - partition] + np.arange(len(mine))
            tasks[mine] = self.new_tasks[-1 - partition][ranks // self.file_rows]
            orders[mine] = ranks % self.file_rows
        kept = ~is_new | (tasks >= 0)
        rows, tasks, orders = rows[kept], tasks[kept], orders[kept]
        if not item.moved.places:
            return rows, tasks, orders
        moved = item.moved.read(self.folder)
        rows, tasks = np.concatenate([rows, moved.rows]), np.concatenate([tasks, self.moves.tasks(moved)])
        orders = np.concatenate([orders, moved.positions])
        by_row = np.argsort(rows, kind="stable")
        return rows[by_row], tasks[by_row], orders[by_row]

    def _runs(
        self, chunk: pa.Table, rows: RowNumbers, tasks: RowNumbers, orders: RowNumbers, writer: TableWriter
    ) -> Iterator[tuple[int, pa.Table]]:
        """Write some rows in the order of parts, tasks and orders."""
        if not len(rows):
            return
        parts = self.part_of[tasks]
        order = np.lexsort((orders, tasks, parts))
        table, parts = take_rows(chunk, rows[order]), parts[order]
        numbers = _numbers(tasks[order], orders[order])
        row_bytes = max(1, table.nbytes // table.num_rows)
        step = max(1, _RUN_BYTES // row_bytes)
        for part, start, stop in runs_of(parts):
            runs = []
            for at in range(start, stop, step):
                place = writer.add(table.slice(at, min(step, stop - at)))
                runs.append((place.path, place.start, place.size, min(step, stop - at)))
            piece = numbers.slice(start, stop - start)
            yield part, piece.replace_schema_metadata({b"runs": json.dumps(runs)})


_DECISION = pa.schema([("row", pa.uint32()), ("target", pa.int32()), ("position", pa.uint32()), ("kind", pa.int8())])


def _numbers(tasks: RowNumbers, orders: RowNumbers) -> pa.Table:
    return pa.table([to_arrow(tasks.astype(np.int32)), to_arrow(orders.astype(np.uint32))], ["task", "order"])


@dataclass(frozen=True, slots=True)
class NumberedTask:
    """A task with its numbers.

    Attributes:
        number: The number of the task, which source rows are sent to.
        task: The task.
        parts: The numbers to which rows of the parts of a task that moves rows are sent.
        others: The rows of the file of which those without a match are removed.
    """

    number: int
    task: RoutedTask
    parts: range = range(0)
    others: StoredRows | None = None


@dataclass(frozen=True, slots=True)
class RunRouted:
    """Runs the tasks of a part with the rows that were sent to it."""

    storage: Storage
    folder: TableFolder
    schema: pa.Schema
    tasks: tuple[tuple[NumberedTask, ...], ...]
    staging: str | None

    def __call__(self, part: int, pieces: Iterator[pa.Table]) -> list[tuple[int, Outcome]]:
        """Return the outcomes of the tasks of one part, with their numbers."""
        sent = {kind: _ByTask() for kind in (SEND, DROP, KEEP)}
        runs: list[tuple[TablePlace, int]] = []
        for piece in pieces:
            metadata = piece.schema.metadata or {}
            sent[int(metadata.get(b"kind", SEND))].add(piece)
            found = json.loads(metadata.get(b"runs", b"[]"))
            runs += [(TablePlace(path, at, size), rows) for path, at, size, rows in found]
        outcomes = []
        for each in self.tasks[part]:
            ready, mine = self._ready(each, sent)
            rows = RoutedRows(self.folder, self.schema, runs, mine)
            outcomes.append((each.number, run_task(ready, rows.take, self.storage, self.staging, at_once=1)))
        return outcomes

    def _ready(self, each: NumberedTask, sent: Mapping[int, _ByTask]) -> tuple[RoutedTask, RowNumbers]:
        """Return a task with the numbers of its rows, and their numbers among all rows."""
        if isinstance(each.task, MoveTask):
            found = [sent[SEND].rows_of(number) for number in each.parts]
            return _with_moved(each.task, [orders for _, orders in found]), np.concatenate([rows for rows, _ in found])
        rows, orders = sent[SEND].rows_of(each.number)
        if isinstance(each.task, WriteTask):
            return _with_new(each.task, orders), rows
        dropped = sent[DROP].rows_of(each.number)[1]
        if each.others is not None:
            matched = [orders, dropped, sent[KEEP].rows_of(each.number)[1]]
            others = np.setdiff1d(each.others.positions(self.folder), np.concatenate(matched))
            dropped = np.union1d(dropped, others)
        return _with_replaced(each.task, orders, dropped), rows


class _ByTask:
    """The numbers of rows that were sent, by task."""

    def __init__(self) -> None:
        self._tasks, self._orders = [NO_ROWS], [NO_ROWS]

    def add(self, piece: pa.Table) -> None:
        """Add the rows of a piece."""
        self._tasks.append(to_numpy(piece["task"]))
        self._orders.append(to_numpy(piece["order"]))

    @cached_property
    def _sorted(self) -> tuple[RowNumbers, RowNumbers, RowNumbers]:
        """The rows in the order of tasks and orders: their numbers among all rows, tasks, and orders."""
        tasks, orders = (np.concatenate(each).astype(np.int64) for each in (self._tasks, self._orders))
        order = np.lexsort((orders, tasks))
        return order, tasks[order], orders[order]

    def rows_of(self, task: int) -> tuple[RowNumbers, RowNumbers]:
        """Return the rows of a task in order: their numbers among all rows, and their orders."""
        numbers, tasks, orders = self._sorted
        low, high = np.searchsorted(tasks, task, "left"), np.searchsorted(tasks, task, "right")
        return numbers[low:high], orders[low:high]


def _with_new(task: WriteTask, orders: RowNumbers) -> WriteTask:
    """Return a task with the numbers of its new rows. Raise if rows are missing, as the functions below."""
    if len(orders) != len(task.rows) or not np.array_equal(orders, np.arange(len(orders))):
        raise _lost_rows(task.path)
    return replace(task, rows=range(len(orders)))


def _with_replaced(task: RewriteTask, orders: RowNumbers, dropped: RowNumbers) -> RewriteTask:
    change = task.change
    if change.remote is None:
        return task
    if (len(orders), len(dropped)) != (change.hits, change.drops) or not (_ascends(orders) and _ascends(dropped)):
        raise _lost_rows(task.file.path)
    rows = np.arange(len(orders))
    return replace(task, change=replace(change, replaced=orders, source_rows=rows, dropped=dropped, remote=None))


def _with_moved(task: MoveTask, positions: Sequence[RowNumbers]) -> MoveTask:
    parts, first = [], 0
    for part, mine in zip(task.parts, positions, strict=True):
        if len(mine) != part.change.hits or not _ascends(mine):
            raise _lost_rows(part.file.path)
        rows = np.arange(first, first + len(mine))
        parts.append(replace(part, change=replace(part.change, replaced=mine, source_rows=rows, remote=None)))
        first += len(mine)
    return replace(task, parts=tuple(parts))


def _ascends(numbers: RowNumbers) -> bool:
    return not bool((np.diff(numbers) <= 0).any())


def _lost_rows(path: str) -> DamagedFileError:
    return DamagedFileError(
        f"the rows that were exchanged for {path} are not those of the plan: a file of the scratch folder was changed. "
        "Nothing was changed; run it again."
    )


class RoutedRows:
    """The source rows of a task, in runs; ``rows`` are their numbers among the rows of all runs, in order."""

    def __init__(
        self, folder: TableFolder, schema: pa.Schema, runs: Sequence[tuple[TablePlace, int]], rows: RowNumbers
    ) -> None:
        self._folder, self._schema, self._rows = folder, schema, rows
        self._places = [place for place, _ in runs]
        self._ends: npt.NDArray[np.int64] = np.cumsum([count for _, count in runs], dtype=np.int64)

    def take(self, rows: range | RowNumbers, schema: pa.Schema) -> pa.Table:
        """Return some rows with a schema, as `Source.take`. Only the runs that have them are read."""
        wanted = self._rows[rows.start : rows.stop] if isinstance(rows, range) else self._rows[rows]
        names = [name for name in schema.names if name in self._schema.names]
        which = np.searchsorted(self._ends, wanted, "right")
        used = np.flatnonzero(np.bincount(which, minlength=len(self._ends)))
        tables = [self._read(int(number), names) for number in used]
        counts = np.array([table.num_rows for table in tables], dtype=np.int64)
        before = np.zeros(len(self._ends), dtype=np.int64)
        before[used] = np.cumsum(counts) - counts
        starts = np.concatenate([[0], self._ends[:-1]])
        empty = pa.schema([self._schema.field(name) for name in names or self._schema.names[:1]]).empty_table()
        joined = with_one_dictionary(pa.concat_tables([empty, *tables]))
        part = take_rows(joined, wanted - starts[which] + before[which])
        return cast_schema(part.select(names), schema, fill_missing=True, operation="source")

    def _read(self, number: int, names: Sequence[str]) -> pa.Table:
        table = self._folder.read(self._places[number])
        rows = int(self._ends[number]) - (int(self._ends[number - 1]) if number else 0)
        if table.num_rows != rows:
            raise _lost_rows(self._places[number].path)
        if not table.schema.equals(self._schema):
            table = self._cast(table, self._places[number].path)
        return table.select(list(names) or self._schema.names[:1])

    def _cast(self, table: pa.Table, path: str) -> pa.Table:
        """Return a table with the schema of the source: Spark before 4.2 names the time zone of the session."""
        try:
            return table.cast(self._schema)
        except (ValueError, pa.ArrowException) as error:
            raise _lost_rows(path) from error
