"""Score a layout from 0 to 100, and recommend one command that improves it.

Three properties that footers show cost readers time: too many small files, files that overlap so that none can be
skipped, and row groups that are too small or too large. Each reduces the score, unless the planner of the command finds
nothing to change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fsspeckit.common.text import counted
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.model import DataFile
from fsspeckit.core.operations.forecast import Forecast
from fsspeckit.core.planning.maintenance_request import OptimizeRequest
from fsspeckit.report.advice import (
    Order,
    Request,
    command_text,
    dataset_target,
    noted_order,
    target_of,
    target_text,
    to_compact,
    to_optimize,
)
from fsspeckit.report.layout import MB, ColumnLayout, Layout, by_folder

_LEAST_ROW_GROUP, _LARGEST_ROW_GROUP = 1 * MB, 1024 * MB
_DEFAULT_ROWS = 1_000_000
_SMALL = 1 / 4
"""A file of less than this share of the target is small."""
_WEIGHTS = {"small files": 50, "overlap": 30, "row groups": 20}
_UNKNOWN_EFFECT = "not computed; run the command with --dry-run to see it"
_STATISTICS = "files get statistics, so that readers can skip files"
Forecaster = Callable[[Request], Forecast | None]


@dataclass(frozen=True, slots=True)
class Finding:
    """One part of the score: the points lost, the reason, the recommended command and its effect, from the planner.

    ``command`` and ``effect`` are empty if no points are lost, and if the command of another finding does it too.
    """

    name: str
    points: float
    detail: str
    command: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a dataset and its parts."""

    value: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the score before its command is chosen; ``effect`` describes the dataset after the command.

    ``done`` is why a command would change nothing.
    """

    name: str
    share: float
    detail: str
    request: Request | None = None
    effect: Callable[[Forecast], str] = lambda _: ""
    done: str = "no command improves this"

    @property
    def points(self) -> float:
        return round(_WEIGHTS[self.name] * min(max(self.share, 0.0), 1.0), 1)


def score(snapshot: Snapshot, layout: Layout, keys: Sequence[str] = (), forecast: Forecaster = lambda _: None) -> Score:
    """Score a layout.

    Args:
        snapshot: The files.
        layout: Their layout.
        keys: The columns whose overlap is scored; see `searched_columns` for the default.
        forecast: Returns the dataset after a command, as its planner predicts it.
    """
    order = _order(snapshot, layout, keys)
    keys = searched_columns(snapshot, layout, keys)
    parts = (_small_files(snapshot, layout), _overlap(snapshot, layout, keys, order), _row_groups(snapshot, order))
    findings = _findings([_improvable(part, forecast) for part in parts], layout, forecast)
    return Score(max(0, round(100 - sum(finding.points for finding in findings))), findings)


def _improvable(part: _Part, forecast: Forecaster) -> _Part:
    """Return the part without its points if its command would change nothing. Small files can always be joined."""
    if not part.points or not isinstance(part.request, OptimizeRequest):
        return part
    after = forecast(part.request)
    if after is None or after.rewritten:
        return part
    return _Part(part.name, 0.0, f"{part.detail}; {part.done}")


def _findings(parts: Sequence[_Part], layout: Layout, forecast: Forecaster) -> tuple[Finding, ...]:
    """Recommend the command of the last part that has one: sorting joins files, new row groups are sorted."""
    findings = [Finding(part.name, part.points, part.detail) for part in parts]
    advised = [part for part in parts if part.points and part.request is not None]
    if advised and (request := advised[-1].request) is not None:
        after = forecast(request)
        effect = _UNKNOWN_EFFECT if after is None else "; ".join(part.effect(after) for part in advised)
        at = parts.index(advised[-1])
        findings[at] = replace(findings[at], command=command_text(request, layout.path), effect=effect)
    return tuple(findings)


def searched_columns(snapshot: Snapshot, layout: Layout, keys: Sequence[str] = ()) -> Sequence[str]:
    """Return the columns that readers search by: ``keys``, or those by which `optimize` has sorted most rows."""
    noted = noted_order(snapshot.files, [column.name for column in layout.columns])
    return keys or (noted.searched if noted is not None else ())


def scored_columns(layout: Layout, keys: Sequence[str], worst: float = 2.0) -> list[ColumnLayout]:
    """Return the columns whose overlap is scored: ``keys``, or the column in which files overlap least."""
    known = [column for column in layout.columns if column.overlap is not None]
    if keys:
        return [column for column in known if column.name in keys]
    return [min(known, key=lambda column: _share(column, worst))] if known else []


def _order(snapshot: Snapshot, layout: Layout, keys: Sequence[str]) -> Order | None:
    """Return the order to recommend: that of the sort notes if it serves the keys, otherwise one of the keys.

    Without keys and statistics, it is the first column.
    """
    plain = [column.name for column in layout.columns]
    noted = noted_order(snapshot.files, plain)
    if noted is not None and (not keys or set(noted.searched) == set(keys)):
        return noted
    scored = [column.name for column in scored_columns(layout, keys)]
    names = scored or [key for key in keys if key in plain] or plain[:1]
    return Order("hilbert" if len(names) > 1 else "linear", tuple(names)) if names else None


def _small_files(snapshot: Snapshot, layout: Layout) -> _Part:
    """Score the share of files that a compaction would remove. A sorted dataset is sorted, so that it stays sorted."""
    target, total = dataset_target(snapshot.files), len(snapshot.files)
    excess = joinable = 0
    for part in by_folder(snapshot.files).values():
        small = [file for file in part if (target_of(file) or target).fill(file.size, file.rows) < _SMALL]
        removed = max(0, len(small) - math.ceil(sum(target.fill(file.size, file.rows) for file in small)))
        excess += removed
        joinable += len(small) if removed else 0
    size = target_text(target)
    detail = f"{counted(total, 'file')}, none can be combined"
    if excess:
        detail = f"{joinable:,} of {counted(total, 'file')} are smaller than a quarter of {size} and can be joined"
    noted = noted_order(snapshot.files, [column.name for column in layout.columns])
    request = to_compact(target) if noted is None else to_optimize(noted, target, force=False)

    def effect(after: Forecast) -> str:
        return f"a full scan opens {counted(after.files, 'file')} instead of {total:,}"

    return _Part("small files", excess / max(total, 1), detail, request, effect)


def _overlap(snapshot: Snapshot, layout: Layout, keys: Sequence[str], order: Order | None) -> _Part:
    """Score the mean depth between the best and the worst case.

    In the worst case every file of a partition can contain every value. In the best case one file can contain a value
    of one column; with k columns on one curve over n files, about n ** (1 - 1/k) files.
    """
    worst = sum(part.files**2 for part in layout.partitions) / max(layout.files, 1)
    if worst <= 1:
        return _Part("overlap", 0, "no partition has more than one file")
    known, target = scored_columns(layout, keys, worst), dataset_target(snapshot.files)
    if not known:
        forced = None if order is None else to_optimize(order, target, force=True)
        found = f"no statistics for {', '.join(keys) or 'any column'}"
        return _Part("overlap", 0 if order is None else 1, found, forced, lambda _: _STATISTICS)
    best = worst ** (1 - 1 / len(known))
    share = sum(max(0.0, _share(column, worst, best)) for column in known) / len(known)
    deepest = max(known, key=lambda column: _share(column, worst))
    depth, most = (deepest.overlap.mean_depth, deepest.overlap.max_depth) if deepest.overlap is not None else (0.0, 0)
    found = f"{depth:,.1f} files on average, {most:,} at most, can contain a value of {deepest.name}"
    detail = f"{found}; {_least(best)} is best, and {worst:,.1f} on average if no file could be skipped"

    def effect(after: Forecast) -> str:
        return f"a lookup of one {deepest.name} opens {_lookup(after, len(known))} instead of {depth:,.1f}"

    request = None if order is None else to_optimize(order, target, force=False)
    done = f"the files are sorted by {', '.join(order.columns if order is not None else ())} already"
    return _Part("overlap", share, detail, request, effect, done)


def _least(depth: float) -> str:
    return "1" if depth <= 1 else f"about {depth:,.1f}"


def _lookup(after: Forecast, columns: int) -> str:
    """Return how many sorted files a lookup opens: one for one column, more on a curve of several."""
    counts = [folder.files for folder in after.folders]
    opens = sum(count ** (2 - 1 / columns) for count in counts) / max(1, sum(counts))
    return "about 1 file" if round(opens, 1) <= 1 else f"about {opens:,.1f} files"


def _share(column: ColumnLayout, worst: float, best: float = 1.0) -> float:
    return 0.0 if column.overlap is None else (column.overlap.mean_depth - best) / (worst - best)


def _row_groups(snapshot: Snapshot, order: Order | None) -> _Part:
    """Score the share of rows in files whose row groups are too small for one request or too large to skip."""
    bad = [file for file in snapshot.files if _has_bad_row_groups(file)]
    share = sum(file.rows for file in bad) / max(snapshot.rows, 1)
    detail = f"{len(bad):,} of {counted(len(snapshot.files), 'file')} have row groups that are too small or too large"
    now = sum(len(file.row_groups) for file in snapshot.files)
    request = None
    if order is not None:
        request = to_optimize(order, dataset_target(snapshot.files), _rows_per_group(bad), force=True)
    effect = f"instead of {now:,}"
    return _Part(
        "row groups", share, detail, request, lambda after: f"about {counted(after.row_groups, 'row group')} {effect}"
    )


def _rows_per_group(bad: Sequence[DataFile]) -> int:
    """Return the default number of rows, adjusted if groups of it would be too small or too large."""
    row = sum(file.uncompressed for file in bad) / max(sum(file.rows for file in bad), 1)
    if row * _DEFAULT_ROWS < 4 * _LEAST_ROW_GROUP:
        return math.ceil(4 * _LEAST_ROW_GROUP / max(row, 0.01))
    return max(1, min(_DEFAULT_ROWS, int(_LARGEST_ROW_GROUP / 4 / row)))


def _has_bad_row_groups(file: DataFile) -> bool:
    mean = file.uncompressed / max(len(file.row_groups), 1)
    return (len(file.row_groups) > 1 and mean < _LEAST_ROW_GROUP) or mean > _LARGEST_ROW_GROUP
