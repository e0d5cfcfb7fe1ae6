"""Score a layout from 0 to 100, and recommend commands that improve it.

Three properties that footers show cost readers time: too many small files, files that overlap so that none can be
skipped, and row groups that are too small or too large. Each reduces the score.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.model import DataFile
from fsspeckit.core.result_view import readable_bytes
from fsspeckit.report.layout import MB, ColumnLayout, Layout, by_folder

TARGET = 128 * MB
_LEAST_ROW_GROUP, _LARGEST_ROW_GROUP = 1 * MB, 1024 * MB
_DEFAULT_ROWS = 1_000_000
_WEIGHTS = {"small files": 50, "overlap": 30, "row groups": 20}


@dataclass(frozen=True, slots=True)
class Finding:
    """One part of the score: the points lost, the reason, the recommended command and its estimated effect.

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


def score(snapshot: Snapshot, layout: Layout, keys: Sequence[str] = ()) -> Score:
    """Score a layout; ``keys`` are the columns whose overlap is scored, by default the column that overlaps least."""
    path = shlex.quote(layout.path)
    found = (_small_files(snapshot, path), _overlap(layout, keys, path), _row_groups(snapshot, layout, keys, path))
    findings = _with_one_command(found)
    return Score(max(0, round(100 - sum(finding.points for finding in findings))), findings)


def _with_one_command(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Recommend one command if it does the work of all: `optimize` also joins small files.

    The command of a later finding includes that of an earlier one: sorting joins files, new row groups are sorted.
    """
    advised = [finding for finding in findings if finding.command]
    if len(advised) < 2:
        return findings
    last, effects = advised[-1], "; ".join(finding.effect for finding in advised)
    return tuple(
        replace(each, effect=effects) if each is last else replace(each, command="", effect="") for each in findings
    )


def _finding(name: str, share: float, detail: str, command: str, effect: str = "") -> Finding:
    points = round(_WEIGHTS[name] * min(max(share, 0.0), 1.0), 1)
    return Finding(name, points, detail, command, effect) if points else Finding(name, points, detail)


def _small_files(snapshot: Snapshot, path: str) -> Finding:
    """Score the share of files that a compaction would remove."""
    excess = 0
    for part in by_folder(snapshot.files).values():
        small = [file.size for file in part if file.size < _target(file) / 4]
        excess += max(0, len(small) - math.ceil(sum(small) / TARGET))
    total = len(snapshot.files)
    detail = f"{total:,} files could be {total - excess:,}" if excess else f"{total:,} files, none can be combined"
    effect = f"a full scan opens {_files(total - excess)} instead of {total:,}"
    return _finding("small files", excess / max(total, 1), detail, f"fsspeckit compact {path} --target-mb 128", effect)


def _target(file: DataFile) -> float:
    """Return the size that a file is meant to have: the target of the run of `optimize` that wrote it, or 128 MB.

    A file that was written for a number of rows has no size to compare with.
    """
    if file.sort_note is None or file.sort_note.target == (None, None):
        return TARGET
    return file.sort_note.target[0] or 0.0


def _overlap(layout: Layout, keys: Sequence[str], path: str) -> Finding:
    """Score the mean depth between the best and the worst case.

    In the worst case every file of a partition can contain every value. In the best case one file can contain a value
    of one column; with k columns on one curve over n files, about n ** (1 - 1/k) files.
    """
    worst = sum(part.files**2 for part in layout.partitions) / max(layout.files, 1)
    if worst <= 1:
        return _finding("overlap", 0, "no partition has more than one file", "")
    known = scored_columns(layout, keys, worst)
    if not known:
        names, order = ", ".join(keys) or "any column", _order(layout, keys)
        effect = "files get statistics, so that readers can skip files"
        command = f"fsspeckit optimize {path} {order} --force"
        return _finding("overlap", 1 if order else 0, f"no statistics for {names}", command, effect)
    best = worst ** (1 - 1 / len(known))
    share = sum(max(0.0, _share(column, worst, best)) for column in known) / len(known)
    deepest = max(known, key=lambda column: _share(column, worst))
    depth, most = (deepest.overlap.mean_depth, deepest.overlap.max_depth) if deepest.overlap is not None else (0.0, 0)
    names = ", ".join(column.name for column in known)
    found = f"{depth:,.1f} files on average, {most:,} at most, can contain a value of {names}"
    detail = f"{found}; 1 is best, and {worst:,.1f} on average if no file could be skipped"
    opens, size = _sorted_lookup(layout, len(known))
    effect = (
        f"a lookup of one {deepest.name} opens about {_files(opens)} ({readable_bytes(round(size * opens))}) "
        f"instead of {depth:,.1f} ({readable_bytes(round(layout.bytes / max(layout.files, 1) * depth))})"
    )
    return _finding("overlap", share, detail, f"fsspeckit optimize {path} {_order(layout, keys)}", effect)


def _sorted_lookup(layout: Layout, columns: int) -> tuple[float, float]:
    """Estimate how many files a lookup opens after sorting into files of the target size, and their mean size."""
    counts = [max(1, math.ceil(part.bytes / TARGET)) for part in layout.partitions]
    worst = sum(count**2 for count in counts) / sum(counts)
    return worst ** (1 - 1 / columns), layout.bytes / sum(counts)


def _files(count: float) -> str:
    return "1 file" if round(count) == 1 else f"{count:,.0f} files"


def scored_columns(layout: Layout, keys: Sequence[str], worst: float = 2.0) -> list[ColumnLayout]:
    """Return the columns whose overlap is scored: ``keys``, or the column in which files overlap least."""
    known = [column for column in layout.columns if column.overlap is not None]
    if keys:
        return [column for column in known if column.name in keys]
    return [min(known, key=lambda column: _share(column, worst))] if known else []


def _order(layout: Layout, keys: Sequence[str]) -> str:
    """Return the sort options of `optimize`; without statistics, the keys or the first column."""
    plain = [column.name for column in layout.columns]
    scored = [column.name for column in scored_columns(layout, keys)]
    names = scored or [key for key in keys if key in plain] or plain[:1]
    options = " ".join(f"--by {shlex.quote(name)}" for name in names)
    return f"{options} --curve hilbert" if len(names) > 1 else options


def _share(column: ColumnLayout, worst: float, best: float = 1.0) -> float:
    return 0.0 if column.overlap is None else (column.overlap.mean_depth - best) / (worst - best)


def _row_groups(snapshot: Snapshot, layout: Layout, keys: Sequence[str], path: str) -> Finding:
    """Score the share of rows in files whose row groups are too small for one request or too large to skip."""
    bad = [file for file in snapshot.files if _has_bad_row_groups(file)]
    share = sum(file.rows for file in bad) / max(snapshot.rows, 1)
    detail = f"{len(bad):,} of {len(snapshot.files):,} files have row groups that are too small or too large"
    rows = _rows_per_group(bad)
    order = _order(layout, keys)
    command = f"fsspeckit optimize {path} {order} --force --row-group-size {rows}" if order else ""
    groups = sum(-(-file.rows // rows) if file in bad else len(file.row_groups) for file in snapshot.files)
    return _finding(
        "row groups", share, detail, command, f"about {groups:,} row groups instead of {layout.row_groups:,}"
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
