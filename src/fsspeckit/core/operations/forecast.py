"""Predict the files that compact or optimize would write, with the planner that their dry run uses.

Nothing is written. Few rows are read: footers that lack bounds are not completed from rows, and at most `_TRIALS` trial
writes to memory are made. So the prediction can differ from a dry run for datasets with more kinds of files.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from fsspeckit.common.errors import FsspeckitError
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.engine.local import LocalEngine
from fsspeckit.core.model import DataFile
from fsspeckit.core.operations.optimize import plan_sorts
from fsspeckit.core.operations.size_trials import sizes_of_small_files
from fsspeckit.core.planning.compact import plan_compact
from fsspeckit.core.planning.maintenance_request import CompactRequest, OptimizeRequest, Plan
from fsspeckit.core.planning.optimize import outputs
from fsspeckit.core.planning.output_sizes import OutputSizes
from fsspeckit.core.progress import SILENT

_MOST_FILES = 20_000
_TRIALS = 16


@dataclass(frozen=True, slots=True)
class FolderForecast:
    """The files of a folder after a run: kept ones and new ones."""

    files: int
    row_groups: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """A dataset after a run; ``rewritten`` is the number of files that the run replaces."""

    folders: tuple[FolderForecast, ...]
    rewritten: int

    @property
    def files(self) -> int:
        """Files of the dataset."""
        return sum(folder.files for folder in self.folders)

    @property
    def row_groups(self) -> int:
        """Row groups of the dataset."""
        return sum(folder.row_groups for folder in self.folders)


def forecast(
    place: Place, snapshot: Snapshot, request: CompactRequest | OptimizeRequest, *, most_trials: int = _TRIALS
) -> Forecast | None:
    """Return the dataset after a run, or None if it has too many files, or if its rows cannot be read or joined.

    Args:
        place: The dataset.
        snapshot: Its files, with the statistics of the columns that the request names.
        request: The run, without deduplication and limits.
        most_trials: The most trial writes; without them no rows are read, and sizes are estimated from footers.
    """
    if len(snapshot.files) > _MOST_FILES:
        return None
    try:
        plan, sizes = _plan(place, snapshot, request, most_trials)
    except (FsspeckitError, OSError, pa.ArrowException):
        return None
    return _result(snapshot, plan, sizes)


def _plan(
    place: Place, snapshot: Snapshot, request: CompactRequest | OptimizeRequest, most_trials: int
) -> tuple[Plan, OutputSizes]:
    engine = LocalEngine()
    if isinstance(request, OptimizeRequest):
        return plan_sorts(engine, place, snapshot, request, SILENT, {}, most_trials=most_trials)
    sizes = sizes_of_small_files(
        engine, place, snapshot, request.target, request.scope, SILENT, most_trials=most_trials
    )
    return plan_compact(snapshot.files, sizes), sizes


def _result(snapshot: Snapshot, plan: Plan, sizes: OutputSizes) -> Forecast:
    taken = {file.path for group in plan.groups for file in group.files}
    folders: dict[str, list[FolderForecast]] = {}
    for file in snapshot.files:
        if file.path not in taken:
            kept = FolderForecast(1, len(file.row_groups))
            folders.setdefault(file.folder, []).append(kept)
    for group in plan.groups:
        count = 1 if group.work == "join" else outputs(group.files, sizes)
        folders.setdefault(group.folder, []).append(_written(group.files, count, sizes))
    return Forecast(tuple(_sum(parts) for parts in folders.values()), len(taken))


def _written(files: tuple[DataFile, ...], count: int, sizes: OutputSizes) -> FolderForecast:
    """Return what some files become if they are written as ``count`` files."""
    rows = -(-sum(file.rows for file in files) // max(1, count))
    return FolderForecast(count, count * max(1, -(-rows // sizes.group_rows)))


def _sum(parts: list[FolderForecast]) -> FolderForecast:
    return FolderForecast(sum(part.files for part in parts), sum(part.row_groups for part in parts))
