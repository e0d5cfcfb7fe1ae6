"""A number for a layout, from 0 to 100, and the commands that would better it.

Three things cost readers time and show in footers: files that could be fewer, files that overlap in every column so
that none can be skipped, and row groups that are too small or too large. Each takes its share off 100.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.model import DataFile
from fsspeckit.core.results import readable_bytes
from fsspeckit.report.layout import MB, ColumnLayout, Layout, by_folder

TARGET = 128 * MB
_SMALL = TARGET // 4
_LEAST_ROW_GROUP, _LARGEST_ROW_GROUP = 1 * MB, 1024 * MB
_USUAL_ROWS = 1_000_000
_WEIGHTS = {"small files": 50, "overlap": 30, "row groups": 20}


@dataclass(frozen=True, slots=True)
class Finding:
    """One part of the score: points lost, why, what to do and what that is likely to bring.

    ``command`` and ``effect`` are empty where all is well.
    """

    name: str
    points: float
    detail: str
    command: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a dataset and what it is made of."""

    value: int
    findings: tuple[Finding, ...]


def score(snapshot: Snapshot, layout: Layout, keys: Sequence[str] = ()) -> Score:
    """Score a layout; ``keys`` are the columns whose overlap counts, by default the one that overlaps least."""
    path = shlex.quote(layout.path)
    findings = (_small_files(snapshot, path), _overlap(layout, keys, path), _row_groups(snapshot, layout, keys, path))
    return Score(max(0, round(100 - sum(finding.points for finding in findings))), findings)


def _finding(name: str, share: float, detail: str, command: str, effect: str = "") -> Finding:
    points = round(_WEIGHTS[name] * min(max(share, 0.0), 1.0), 1)
    return Finding(name, points, detail, command, effect) if points else Finding(name, points, detail)


def _small_files(snapshot: Snapshot, path: str) -> Finding:
    """The share of files that a compaction would do away with."""
    excess = 0
    for part in by_folder(snapshot.files).values():
        small = [file.size for file in part if file.size < _SMALL]
        excess += max(0, len(small) - math.ceil(sum(small) / TARGET))
    total = len(snapshot.files)
    detail = f"{total:,} files could be {total - excess:,}" if excess else f"none of {total:,} files is too many"
    effect = f"a full scan opens {_files(total - excess)} in place of {total:,}"
    return _finding("small files", excess / max(total, 1), detail, f"fsspeckit compact {path} --target-mb 128", effect)


def _overlap(layout: Layout, keys: Sequence[str], path: str) -> Finding:
    """How near the mean depth is to its worst, at which every file of a partition holds every value.

    The best is one file for one column. Several columns share the order: of n files a curve leaves about n ** (1 - 1/k)
    for each of k columns.
    """
    worst = sum(part.files**2 for part in layout.partitions) / max(layout.files, 1)
    if worst <= 1:
        return _finding("overlap", 0, "no partition has two files", "")
    known = judged(layout, keys, worst)
    if not known:
        named, order = ", ".join(keys) or "any column", _order(layout, keys)
        effect = "files get statistics, by which readers skip them"
        command = f"fsspeckit optimize {path} {order} --force"
        return _finding("overlap", 1 if order else 0, f"no statistics of {named}", command, effect)
    best = worst ** (1 - 1 / len(known))
    share = sum(max(0.0, _share(column, worst, best)) for column in known) / len(known)
    deepest = max(known, key=lambda column: _share(column, worst))
    depth = deepest.overlap.mean_depth if deepest.overlap is not None else 0.0
    named = ", ".join(column.name for column in known)
    detail = f"a value of {named} is looked for in {depth:,.1f} files on average, {worst:,.1f} at worst"
    opens, size = _after(layout, len(known))
    effect = (
        f"a look-up of one {deepest.name} opens about {_files(opens)} ({readable_bytes(round(size * opens))}) "
        f"in place of {depth:,.1f} ({readable_bytes(round(layout.bytes / max(layout.files, 1) * depth))})"
    )
    return _finding("overlap", share, detail, f"fsspeckit optimize {path} {_order(layout, keys)}", effect)


def _after(layout: Layout, columns: int) -> tuple[float, float]:
    """How many files a look-up opens once files of the usual size are in order, and the mean size of one."""
    counts = [max(1, math.ceil(part.bytes / TARGET)) for part in layout.partitions]
    worst = sum(count**2 for count in counts) / sum(counts)
    return worst ** (1 - 1 / columns), layout.bytes / sum(counts)


def _files(count: float) -> str:
    return "1 file" if round(count) == 1 else f"{count:,.0f} files"


def judged(layout: Layout, keys: Sequence[str], worst: float = 2.0) -> list[ColumnLayout]:
    """The columns that count: those that were named, else the one in which files overlap least."""
    known = [column for column in layout.columns if column.overlap is not None]
    if keys:
        return [column for column in known if column.name in keys]
    return [min(known, key=lambda column: _share(column, worst))] if known else []


def _order(layout: Layout, keys: Sequence[str]) -> str:
    """The options that say by what to order; the first column where statistics speak for none."""
    plain = [column.name for column in layout.columns]
    names = [column.name for column in judged(layout, keys)] or [key for key in keys if key in plain] or plain[:1]
    words = " ".join(f"--by {shlex.quote(name)}" for name in names)
    return f"{words} --curve hilbert" if len(names) > 1 else words


def _share(column: ColumnLayout, worst: float, best: float = 1.0) -> float:
    return 0.0 if column.overlap is None else (column.overlap.mean_depth - best) / (worst - best)


def _row_groups(snapshot: Snapshot, layout: Layout, keys: Sequence[str], path: str) -> Finding:
    """The share of rows in files whose row groups are too small to be worth a request, or too large to skip in."""
    bad = [file for file in snapshot.files if _has_bad_row_groups(file)]
    share = sum(file.rows for file in bad) / max(snapshot.rows, 1)
    detail = f"{len(bad):,} of {len(snapshot.files):,} files have row groups that are too small or too large"
    rows = _rows_of_a_group(bad)
    order = _order(layout, keys)
    command = f"fsspeckit optimize {path} {order} --force --row-group-size {rows}" if order else ""
    groups = sum(-(-file.rows // rows) if file in bad else len(file.row_groups) for file in snapshot.files)
    return _finding(
        "row groups", share, detail, command, f"about {groups:,} row groups in place of {layout.row_groups:,}"
    )


def _rows_of_a_group(bad: Sequence[DataFile]) -> int:
    """The usual number, else as many rows of these files as make a group of a size that is neither."""
    row = sum(file.uncompressed for file in bad) / max(sum(file.rows for file in bad), 1)
    if row * _USUAL_ROWS < 4 * _LEAST_ROW_GROUP:
        return math.ceil(4 * _LEAST_ROW_GROUP / max(row, 0.01))
    return max(1, min(_USUAL_ROWS, int(_LARGEST_ROW_GROUP / 4 / row)))


def _has_bad_row_groups(file: DataFile) -> bool:
    mean = file.uncompressed / max(len(file.row_groups), 1)
    return (len(file.row_groups) > 1 and mean < _LEAST_ROW_GROUP) or mean > _LARGEST_ROW_GROUP
