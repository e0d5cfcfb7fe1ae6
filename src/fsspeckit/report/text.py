"""Render the layout of a dataset as plain text tables."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from fsspeckit.common.text import counted, printable, shortened
from fsspeckit.core.result_view import columns, readable_bytes
from fsspeckit.report.layout import ColumnLayout, Layout
from fsspeckit.report.score import Score

_SHOWN_PARTITIONS = 10
_WIDEST = 24


def render(layout: Layout, score: Score) -> str:
    """Return the text that `inspect` prints."""
    parts = [_headline(layout, score), _sizes(layout), _columns(layout), _partitions(layout), _findings(score)]
    return "\n\n".join(part for part in parts if part)


def _headline(layout: Layout, score: Score) -> str:
    folders = [("partitions", f"{len(layout.partitions):,}, by {', '.join(layout.partition_columns)}")]
    lines = [
        ("dataset", layout.path),
        ("score", f"{score.value} of 100"),
        ("rows", f"{layout.rows:,}"),
        ("files", f"{layout.files:,} ({readable_bytes(layout.bytes)})"),
        *(folders if layout.partition_columns else []),
        ("row groups", _row_groups(layout)),
        ("codecs", ", ".join(f"{name} ({count:,})" for name, count in layout.codecs.items())),
        *([("timestamps", _timestamps(layout))] if layout.int96 else []),
        *([("other files", f"not Parquet, not read: {shortened(layout.other_files)}")] if layout.other_files else []),
        ("journal", _journal(layout)),
    ]
    return columns(lines)


def _timestamps(layout: Layout) -> str:
    command = f"fsspeckit alter {shlex.quote(layout.path)} --timestamps micros"
    return f"INT96, without statistics, in {', '.join(map(_short, layout.int96))}; 64 bits: {command}"


def _row_groups(layout: Layout) -> str:
    size = readable_bytes(layout.uncompressed_per_row_group)
    return f"{layout.row_groups:,}, of {layout.rows_per_row_group:,} rows and {size} uncompressed on average"


def _journal(layout: Layout) -> str:
    status = layout.journal
    if status.sidecar is None:
        return "none yet"
    if status.needs_recovery:
        return f"needs recovery: fsspeckit recover {shlex.quote(layout.path)}"
    return f"{counted(status.newest, 'commit')}, nothing pending"


def _sizes(layout: Layout) -> str:
    most = max(layout.size_histogram.values())
    rows = [(name, f"{count:,}", "#" * round(24 * count / most)) for name, count in layout.size_histogram.items()]
    return columns([("file size", "files", ""), *rows])


def _columns(layout: Layout) -> str:
    head = ("column", "type", "min", "max", "mean depth", "max depth", "no statistics", "bloom filters")
    measured = {column.name: _column(column) for column in layout.columns}
    rows = [measured.get(name, (_short(name), _short(kind), *"------")) for name, kind in layout.schema.items()]
    return columns([head, *rows])


def _column(column: ColumnLayout) -> tuple[str, ...]:
    overlap = column.overlap
    depths = ("-", "-") if overlap is None else (f"{overlap.mean_depth:,.1f}", f"{overlap.max_depth:,}")
    bounds = (_short(column.lower), _short(column.upper))
    gaps = tuple(counted(count, "file") for count in (column.files_without_statistics, column.files_with_bloom_filter))
    return (_short(column.name), _short(column.type), *bounds, *depths, *gaps)


def _short(text: str | None) -> str:
    plain = "-" if text is None else printable(text)
    return plain if len(plain) <= _WIDEST else plain[: _WIDEST - 3] + "..."


def _partitions(layout: Layout) -> str:
    if not layout.partition_columns:
        return ""
    largest = sorted(layout.partitions, key=lambda part: -part.bytes)[:_SHOWN_PARTITIONS]
    rows = [(part.partition, f"{part.files:,}", f"{part.rows:,}", readable_bytes(part.bytes)) for part in largest]
    more = len(layout.partitions) - len(largest)
    tail = f"\n... and {more:,} smaller ones" if more else ""
    skew = f"\nskew: the largest partition is {layout.skew:,.1f} times as large as the mean"
    return columns([("partition", "files", "rows", "size"), *rows]) + tail + skew


def _findings(score: Score) -> str:
    rows = [(finding.name, f"{-finding.points or 0:g}", finding.detail) for finding in score.findings]
    advised = [finding for finding in score.findings if finding.command]
    commands = [f"  {printable(finding.command)}\n    {printable(finding.effect)}" for finding in advised]
    advice = "\n".join(["", "to do:", *dict.fromkeys(commands)]) if commands else ""
    return columns([("score", "points", "reason"), *rows]) + advice


def render_comparison(changed: Sequence[tuple[str, float, float]]) -> str:
    """Return a table of the numbers before and now."""
    rows = [(name, *(readable(name, value) for value in (old, new))) for name, old, new in changed]
    return columns([("compared", "before", "now"), *rows])


def readable(name: str, value: float) -> str:
    """Format a number of a comparison."""
    if name == "bytes":
        return readable_bytes(round(value))
    return f"{value:,.1f}" if name.startswith("depth") else f"{value:,.0f}"
