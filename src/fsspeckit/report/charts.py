"""Draw the charts of a layout as SVG text.

matplotlib draws with placeholder colours, which are replaced with variables of the page's style sheet, so that a chart
fits a light and a dark page. Every chart has a title for screen readers. Callers pass printable text only.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from itertools import accumulate
from typing import Any

from fsspeckit.report.document import mean_depths

_INK, _FAINT, _MAIN, _BEFORE = "#010203", "#040506", "#070809", "#0a0b0c"
_VARIABLES = {_INK: "var(--ink)", _FAINT: "var(--faint)", _MAIN: "var(--main)", _BEFORE: "var(--before)"}
_WIDTH = 4.2
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fsspeckit",
    "font.size": 11,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
}
_SHOWN = 24
_NAMESPACES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'


def size_histogram(after: Mapping[str, int], before: Mapping[str, int] | None) -> str:
    """Return a bar chart of the number of files by size class."""
    names = list(dict.fromkeys([*(before or {}), *after]))
    names.sort(key=_size_rank)
    summary = ", ".join(f"{after.get(name, 0):,} {name}" for name in names)
    series = [[mapping.get(name, 0) for name in names] for mapping in (before, after) if mapping is not None]
    return _bars("sizes", f"Files by size: {summary}", names, series, "files")


def _size_rank(name: str) -> tuple[bool, float]:
    """Return the sort key of a size class: "under", then "from to", then "over"."""
    number, unit = re.findall(r"([\d.]+) (\w+)", name)[0]
    size = float(number) * 1024 ** ("B", "KB", "MB", "GB", "TB").index(unit)
    return name.startswith("over"), 0.0 if name.startswith("under") else size


def partition_sizes(partitions: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]] | None) -> str:
    """Return a bar chart of the largest partitions in MB."""
    largest = sorted(partitions, key=lambda part: -part["bytes"])[:_SHOWN]
    names = [part["partition"] or "(no partition)" for part in largest]
    old = {part["partition"]: part["bytes"] for part in before or ()}
    series = [[part["bytes"] / 2**20 for part in largest]]
    if before is not None:
        series.insert(0, [old.get(part["partition"], 0) / 2**20 for part in largest])
    summary = f"{len(partitions):,} partitions, the largest is {names[0]} with {series[-1][0]:,.1f} MB"
    return _bars("partitions", f"Partition sizes: {summary}", names, series, "MB")


def overlap_depths(columns: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]] | None) -> str:
    """Return a bar chart of the mean number of files of a partition that can contain a value, by column."""
    depths = mean_depths(columns)
    names = list(depths)[:_SHOWN]
    series = [[depths[name] for name in names]]
    if before is not None:
        old = mean_depths(before)
        series.insert(0, [old.get(name, 0.0) for name in names])
    summary = ", ".join(f"{name} {depths[name]:,.1f}" for name in names)
    title = f"Mean overlap depth by column: {summary}"
    return _bars("depths", title, names, series, "files, on average")


def key_ranges(number: int, key_range: Mapping[str, Any], *, is_before: bool) -> str:
    """Return a chart with one bar for each file, from the minimum to the maximum of a column."""
    when = "before" if is_before else "now"
    ranges, column = key_range["ranges"], key_range["column"]
    share = sum(high - low for low, high in ranges) / max(1, len(ranges))
    groups = len(key_range.get("partitions") or [])
    with _drawing(2.6 + 0.12 * max(0, min(groups, _SHOWN) - 8)) as (figure, axes):
        for row, (low, high) in enumerate(ranges):
            left, width = min(low, 0.996), max(high - low, 0.004)
            axes.barh(row, width, left=left, height=0.9, color=_BEFORE if is_before else _MAIN, linewidth=0)
        axes.set_xlim(-0.01, 1.01)
        bounds = [_start(key_range.get(name) or name) for name in ("least", "greatest")]
        for label, side in zip(axes.set_xticks([0, 1], bounds, parse_math=False), ("left", "right"), strict=True):
            label.label1.set_horizontalalignment(side)
        axes.set_xlabel(column, parse_math=False)
        axes.set_ylabel("files")
        axes.invert_yaxis()
        _label_partitions(axes, key_range.get("partitions") or [])
        summary = f"a file spans {share:.0%} of all values on average"
        return _svg(
            figure, f"ranges{number}{when}", f"Ranges of {column} in {key_range['files']:,} files, {when}: {summary}"
        )


def _label_partitions(axes: Any, groups: Sequence[tuple[str, int]]) -> None:
    """Separate the bars of partitions by lines, and write the name of each partition at its bars."""
    axes.set_yticks([])
    if len(groups) < 2:
        return
    ends = list(accumulate(count for _, count in groups))
    for end in ends[:-1]:
        axes.axhline(end - 0.5, color=_FAINT, linewidth=0.8)
    step = -(-len(groups) // _SHOWN)
    middles = [end - (count + 1) / 2 for end, (_, count) in zip(ends, groups, strict=True)][::step]
    names = [_short(name) for name, _ in groups[::step]]
    axes.set_yticks(middles, names, parse_math=False, fontsize=9)
    axes.tick_params(axis="y", length=0)


def _bars(prefix: str, title: str, labels: Sequence[str], series: Sequence[Sequence[float]], unit: str) -> str:
    """Draw horizontal bars. Of two series, the first is the one before the change."""
    height = 0.7 / len(series)
    colors = [_MAIN] if len(series) == 1 else [_BEFORE, _MAIN]
    with _drawing(0.9 + 0.34 * max(1, len(labels)) * (1 if len(series) == 1 else 1.4)) as (figure, axes):
        for index, (values, color) in enumerate(zip(series, colors, strict=True)):
            rows = [row + (index - (len(series) - 1) / 2) * height for row in range(len(labels))]
            bars = axes.barh(rows, values, height=height * 0.92, color=color, linewidth=0)
            axes.bar_label(bars, [_number(value) for value in values], padding=3, fontsize=10)
        axes.set_yticks(range(len(labels)), [_short(label) for label in labels], parse_math=False)
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.set_xlabel(unit)
        axes.locator_params(axis="x", nbins=4)
        axes.xaxis.set_major_formatter("{x:,g}")
        return _svg(figure, prefix, title)


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def _short(label: str) -> str:
    """Shorten a name at its start, because names of partitions differ at the end."""
    return label if len(label) <= 18 else "..." + label[-15:]


def _start(value: str) -> str:
    """Shorten a value at its end."""
    return value if len(value) <= 18 else value[:16] + "..."


@contextmanager
def _drawing(height: float) -> Iterator[tuple[Any, Any]]:
    """Yield a figure and its axes, with the settings of this module."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        yield figure, figure.subplots()


def _svg(figure: Any, prefix: str, title: str) -> str:
    """Return a figure as an SVG element with a title, unique ids and the colours of the page."""
    sink = io.StringIO()
    figure.savefig(sink, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = sink.getvalue()
    opening, body = text[text.index("<svg") :].split(">", 1)
    box = re.search(r'viewBox="([^"]*)"', opening)
    assert box is not None
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'(\sid="|url\(#|href="#)', rf"\g<1>{prefix}-", body)
    for color, variable in _VARIABLES.items():
        body = body.replace(color, variable)
    head = f'<svg role="img" aria-labelledby="{prefix}-title" viewBox="{box[1]}" {_NAMESPACES}>'
    return f'{head}<title id="{prefix}-title">{escape(title)}</title>{body}'
