"""Run the tasks of a merge whose source rows are sent to them by an exchange."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

import numpy as np

from fsspeckit.core.engine.protocol import Engine, OnDone
from fsspeckit.core.kernels.route_rows import NumberedTask, RoutedTask, RouteRows, RunRouted
from fsspeckit.core.model import MoveTask, Outcome, RewriteTask, RowNumbers, Task, WriteTask
from fsspeckit.core.planning.exchanged_merge import ExchangedMerge
from fsspeckit.core.storage import Storage

_MANY_PARTS = 200
_PART_BYTES = 256 * 1024 * 1024


def run_routed(
    engine: Engine,
    storage: Storage,
    merge: ExchangedMerge,
    tasks: Sequence[Task],
    staging: str | None,
    on_done: OnDone,
) -> list[Outcome]:
    """Run tasks with the rows of a large source. Without ``staging``, only compare and count rows."""
    routed = [task for task in tasks if isinstance(task, RewriteTask | WriteTask | MoveTask)]
    assert len(routed) == len(tasks)
    if not routed:
        return []
    part_of = _parts([task.weight for task in routed])
    bundles: list[list[NumberedTask]] = [[] for _ in range(int(part_of.max()) + 1)]
    numbered = _numbered(merge, routed)
    for each in numbered:
        bundles[int(part_of[each.number])].append(each)
    parts_of_moves = [part_of[each.number] for each in numbered for _ in each.parts]
    route = RouteRows(
        merge.folder,
        _task_of_file(merge, routed),
        _first_tasks(merge, routed),
        merge.file_rows,
        np.concatenate([part_of, np.array(parts_of_moves, dtype=np.int64)]),
        replace(merge.move_routes, offset=len(routed)),
    )
    run = RunRouted(storage, merge.folder, merge.source, tuple(map(tuple, bundles)), staging)
    found = engine.exchange(route, merge.routes, run, len(bundles), lambda _: None)
    on_done(len(tasks))
    return [outcome for _, outcome in sorted((pair for pairs in found for pair in pairs), key=itemgetter(0))]


def _numbered(merge: ExchangedMerge, tasks: Sequence[RoutedTask]) -> list[NumberedTask]:
    """Number tasks and, behind them, the parts of those that write moved rows."""
    pairs = zip(merge.files, merge.others, strict=False)
    others = {change.file.path: rows for change, rows in pairs if not change.drop_others}
    numbered, number = [], len(tasks)
    for at, task in enumerate(tasks):
        count = len(task.parts) if isinstance(task, MoveTask) else 0
        rows = others.get(task.file.path) if isinstance(task, RewriteTask) else None
        numbered.append(NumberedTask(at, task, range(number, number + count), rows))
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


def _task_of_file(merge: ExchangedMerge, tasks: Sequence[RoutedTask]) -> RowNumbers:
    """Return the task of each file of the snapshot, or -1."""
    numbers = {task.file.path: number for number, task in enumerate(tasks) if isinstance(task, RewriteTask)}
    return np.array([numbers.get(change.file.path, -1) for change in merge.files], dtype=np.int64)


def _first_tasks(merge: ExchangedMerge, tasks: Sequence[RoutedTask]) -> RowNumbers:
    """Return for each partition the first task that writes its new rows; -1 if new rows are not written."""
    number = next((i for i, task in enumerate(tasks) if isinstance(task, WriteTask)), -1)
    result = np.full(max(merge.partitions, default=-1) + 1, -1, dtype=np.int64)
    for partition, (_, rows) in zip(merge.partitions, merge.inserts if number >= 0 else (), strict=False):
        result[partition] = number
        number += -(-len(rows) // merge.file_rows)
    return result
