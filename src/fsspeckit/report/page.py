"""Render the layout of a dataset as one self-contained HTML page, without network access or scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fsspeckit.common.errors import FsspeckitError
from fsspeckit.common.install import install_command
from fsspeckit.common.text import printable
from fsspeckit.core.result_view import readable_bytes
from fsspeckit.report import charts
from fsspeckit.report.document import comparison
from fsspeckit.report.text import readable

GOOD, FAIR = 80, 50
"""The least scores that are called good and fair."""
_TEMPLATE = Path(__file__).with_name("page.html")


class ReportNotInstalledError(FsspeckitError, ImportError):
    """A package that renders the HTML report is not installed."""


def render_page(after: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> str:
    """Return the HTML page of a document of `fsspeckit.report.document`, optionally compared with an earlier one."""
    missing = [name for name in ("jinja2", "matplotlib") if find_spec(name) is None]
    if missing:
        raise ReportNotInstalledError(
            f"the HTML report needs {' and '.join(missing)}; install it with `{install_command(*missing)}`"
        )
    from jinja2 import Environment, StrictUndefined

    after, before = _printable(after), _printable(before)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_TEMPLATE.read_text("utf-8"))
    changed = [] if before is None else comparison(before, after)
    return template.render(
        after=after,
        before=before,
        facts=_facts(after),
        headline=_headline(after, before),
        grade=_grade(after["score"]),
        changed=[(name, readable(name, old), readable(name, new)) for name, old, new in changed],
        charts=_charts(after, before),
        findings=[finding for finding in after["findings"] if finding["points"]],
        columns=_columns(after),
    )


def _printable(value: Any) -> Any:
    """Return the document with control characters in texts escaped."""
    if isinstance(value, Mapping):
        return {printable(name): _printable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_printable(each) for each in value]
    return printable(value) if isinstance(value, str) else value


def _headline(after: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[dict[str, str]]:
    plain = "{:,}".format
    numbers: dict[str, tuple[str, Callable[[int], str]]] = {
        "rows": ("rows", plain),
        "files": ("files", plain),
        "size": ("bytes", readable_bytes),
        "row groups": ("row_groups", plain),
    }
    shown = [
        {
            "name": name,
            "value": show(after[key]),
            "before": show(before[key]) if before is not None and key in before else "",
        }
        for name, (key, show) in numbers.items()
    ]
    if after["pending_journal"]:
        shown.append({"name": "journal", "value": "needs recovery", "before": ""})
    return shown


def _grade(score: int) -> str:
    """Return the colour class of a score; the limits are shown on the scale of the page."""
    return "good" if score >= GOOD else "fair" if score >= FAIR else "bad"


def _facts(after: Mapping[str, Any]) -> list[str]:
    """Return the facts that have no chart."""
    folders = ", ".join(after["partition_columns"])
    codecs = ", ".join(f"{name} ({count:,})" for name, count in after["codecs"].items())
    size = readable_bytes(after["uncompressed_per_row_group"])
    journal = "needs recovery" if after["pending_journal"] else "nothing pending"
    return [
        *([f"partitioned by {folders}"] if folders else []),
        f"files by codec: {codecs}",
        f"a row group has {after['rows_per_row_group']:,} rows and {size} uncompressed on average",
        f"journal: {journal}",
    ]


def _columns(after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every column of the schema; nested columns have only a type."""
    measured = {column["name"]: column for column in after["columns"]}
    unmeasured: dict[str, Any] = {"lower": None, "upper": None, "overlap": None}
    unmeasured |= {"files_without_statistics": "-", "files_with_bloom_filter": "-"}
    return [measured.get(name) or {"name": name, "type": kind, **unmeasured} for name, kind in after["schema"].items()]


def _charts(after: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return every chart with its title and a note on how to read it."""
    old = before or {}
    shown: list[dict[str, Any]] = [
        {
            "title": "File sizes",
            "note": "A reader opens every file of a scan: many small files cost many requests.",
            "svgs": [charts.size_histogram(after["size_histogram"], old.get("size_histogram"))],
        }
    ]
    earlier = {each["column"]: each for each in old.get("key_ranges", ())}
    for number, each in enumerate(after["key_ranges"]):
        earlier_range = earlier.get(each["column"])
        shown.append(
            {
                "title": f"Ranges of {each['column']}",
                "note": "One bar for each file, from its minimum to its maximum, by partition. Readers can skip files "
                "if the bars of a partition do not overlap.",
                "svgs": [
                    *([charts.key_ranges(number, earlier_range, is_before=True)] if earlier_range is not None else []),
                    charts.key_ranges(number, each, is_before=False),
                ],
            }
        )
    if any(column["overlap"] for column in after["columns"]):
        shown.append(
            {
                "title": "Overlap depth by column",
                "note": "The number of files of a partition that a reader must open to find one value; 1 is ideal.",
                "svgs": [charts.overlap_depths(after["columns"], old.get("columns"))],
            }
        )
    shown.append(
        {
            "title": "Partition sizes",
            "note": f"The largest partition is {after['skew']:,.1f} times as large as the mean.",
            "svgs": [charts.partition_sizes(after["partitions"], old.get("partitions"))],
        }
    )
    return shown
