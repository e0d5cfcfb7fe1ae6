"""Run tasks. The rows of a source that is too large to share are sent to them by an exchange."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from posixpath import dirname

import numpy as np

from fsspeckit.core.dataset.source import Source
from fsspeckit.core.engine.protocol import Engine, OnDone
from fsspeckit.core.kernels.exchange.route_rows import NumberedTask, RoutedTask, RouteRows, RunRouted
from fsspeckit.core.model import NO_ROWS, MoveTask, Outcome, RewriteTask, RowNumbers, Task, WriteTask
from fsspeckit.core.planning.exchange.routed_rows import ExchangedRows
from fsspeckit.core.storage import Storage

_MANY_PARTS = 200
_PART_BYTES = 256 * 1024 * 1024


def run_tasks(
    engine: Engine,
    storage: Storage,
    source: Source,
    exchanged: ExchangedRows | None,
    tasks: Sequence[Task],
    staging: str | None,
    on_done: OnDone,
) -> list[Outcome]:
    """Run tasks with the rows of a source, or with rows that are exchanged. Without ``staging``, only compare rows."""
    if exchanged is None:
        return engine.run(storage, source, tasks, staging, on_done)
    return _run_routed(engine, storage, exchanged, tasks, staging, on_done)


def _run_routed(
    engine: Engine,
    storage: Storage,
    rows: ExchangedRows,
    tasks: Sequence[Task],
    staging: str | None,
    on_done: OnDone,
) -> list[Outcome]:
    routed = [task for task in tasks if isinstance(task, RewriteTask | WriteTask | MoveTask)]
    assert len(routed) == len(tasks)
    if not routed:
        return []
    part_of = _parts([task.weight for task in routed])
    bundles: list[list[NumberedTask]] = [[] for _ in range(int(part_of.max()) + 1)]
    numbered = _numbered(rows, routed)
    for each in numbered:
        bundles[int(part_of[each.number])].append(each)
    parts_of_moves = [part_of[each.number] for each in numbered for _ in each.parts]
    route = RouteRows(
        rows.folder,
        _task_of_file(rows, routed),
        _new_tasks(rows, routed),
        rows.file_rows,
        np.concatenate([part_of, np.array(parts_of_moves, dtype=np.int64)]),
        replace(rows.moves, offset=len(routed)),
    )
    run = RunRouted(storage, rows.folder, rows.source, tuple(map(tuple, bundles)), staging)
    found = engine.exchange(route, rows.routes, run, len(bundles), lambda _: None)
    on_done(len(tasks))
    return [outcome for _, outcome in sorted((pair for pairs in found for pair in pairs), key=itemgetter(0))]


def _numbered(rows: ExchangedRows, tasks: Sequence[RoutedTask]) -> list[NumberedTask]:
    """Number tasks and, behind them, the parts of those that write moved rows."""
    pairs = zip(rows.files, rows.others, strict=False)
    others = {change.file.path: some for change, some in pairs if not change.drop_others}
    numbered, number = [], len(tasks)
    for at, task in enumerate(tasks):
        count = len(task.parts) if isinstance(task, MoveTask) else 0
        some = others.get(task.file.path) if isinstance(task, RewriteTask) else None
        numbered.append(NumberedTask(at, task, range(number, number + count), some))
        number += count
    return numbered


def _parts(weights: Sequence[int]) -> RowNumbers:
    """Return the part of each task. Heavy tasks are distributed first, each to the part with the least work."""
    count = min(len(weights), max(_MANY_PARTS, sum(weights) // _PART_BYTES))
    loads = [(0, part) for part in range(count)]
    result = np.zeros(len(weights), dtype=np.int64)
    for number in sorted(range(len(weights)), key=lambda number: -weights[number]):
        load, part = heapq.heappop(loads)
        result[number] = part
        heapq.heappush(loads, (load + weights[number] + 1, part))
    return result


def _task_of_file(rows: ExchangedRows, tasks: Sequence[RoutedTask]) -> RowNumbers:
    """Return the task of each file of the snapshot, or -1."""
    numbers = {task.file.path: number for number, task in enumerate(tasks) if isinstance(task, RewriteTask)}
    return np.array([numbers.get(change.file.path, -1) for change in rows.files], dtype=np.int64)


def _new_tasks(rows: ExchangedRows, tasks: Sequence[RoutedTask]) -> tuple[RowNumbers, ...]:
    """Return for each partition the tasks that write its new rows; -1 for a task that is not run."""
    known = {
        (dirname(task.path), task.rows.start): number
        for number, task in enumerate(tasks)
        if isinstance(task, WriteTask) and isinstance(task.rows, range)
    }
    found = [NO_ROWS] * (max(rows.partitions, default=-1) + 1)
    for partition, (group, new) in zip(rows.partitions, rows.inserts, strict=True):
        starts = range(0, len(new), rows.file_rows)
        found[partition] = np.array([known.get((group.folder, start), -1) for start in starts], dtype=np.int64)
    return tuple(found)
