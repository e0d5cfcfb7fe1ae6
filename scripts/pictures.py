"""Draw pictures of the documentation: `python scripts/pictures.py` writes benchmarks.svg, commit.svg and pipeline.svg.

The bars are the wall seconds of the table in docs/benchmarks.md; the graph is what `fsspeckit run --graph svg` prints
for a pipeline of the tour. Fonts are named by family only, and the output depends on nothing else.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from fsspeckit.pipeline import Pipeline

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PIPELINE = ROOT / "examples" / "tour" / "daily.toml"
CASES = {  # the beginning of a case in the table, and its label in the picture
    "Small upsert": "Upsert, 10,000 rows in 3 of 100 files",
    "Scattered upsert": "Upsert, 100,000 rows in all of 100 files",
    "Random uuid keys": "Upsert, 1,000 rows with random uuid keys",
    "Delete of a narrow": "Delete in 3 of 100 files",
    "Change feed": "Change feed, 100,000 changes in all files",
}
BY_HAND = "best by hand"  # the fastest program with polars or DuckDB, which has no commit
TOOLS = ("fsspeckit", "delta-rs", BY_HAND)
WIDTH, LEFT, BAR, GAP = 720, 110, 16, 26
STEPS = (
    ("1  Stage", "New files are written beside the dataset, flushed and checked.", "crash: nothing has changed"),
    ("2  Check", "Has another writer changed what this change depends on?", "then: plan again, or an error"),
    ("3  Record", "One record is created exclusively. This is the commit.", "before: old state; after: new state"),
    ("4  Publish", "New files are moved in, replaced files are removed.", "crash: recovery repeats this step"),
)


def seconds(text: str) -> dict[str, dict[str, float]]:
    """Return the wall seconds of each contender in each chosen case of the table."""
    found: dict[str, dict[str, float]] = {}
    case = ""
    for row in re.findall(r"^\| (.*) \|$", text.partition("## Results")[2], re.MULTILINE):
        cells = [cell.strip() for cell in row.split("|")]
        case = cells[0] or case
        label = next((label for start, label in CASES.items() if case.startswith(start)), None)
        tool = BY_HAND if cells[1].startswith(("polars", "DuckDB")) else cells[1]
        if label and tool in TOOLS and cells[2]:
            times = found.setdefault(label, {})
            times[tool] = min(float(cells[2]), times.get(tool, float("inf")))
    return found


def bars() -> str:
    """Return the picture of the benchmarks."""
    cases = seconds((DOCS / "benchmarks.md").read_text("utf-8"))
    scale = (WIDTH - LEFT - 70) / max(max(times.values()) for times in cases.values())
    parts, top = [], 34
    for label, times in cases.items():
        parts.append(f'<text class="title" x="10" y="{top}">{escape(label)}</text>')
        for tool in TOOLS:
            top += BAR + 4
            parts += _bar(tool, times[tool], top - 12, times[tool] * scale)
        top += GAP
    return _picture("Wall seconds; shorter is better. By hand: polars or DuckDB, without a commit", top, parts)


def commit() -> str:
    """Return the picture of the commit protocol."""
    parts = []
    for number, (title, what, crash) in enumerate(STEPS):
        top = 34 + 70 * number
        kind = "ours" if title.endswith("Record") else "other"
        parts += [
            f'<rect class="{kind}" x="10" y="{top}" width="110" height="46" rx="6"/>',
            f'<text class="{"light" if kind == "ours" else "title"}" x="24" y="{top + 28}">{title}</text>',
            f'<text x="136" y="{top + 19}">{escape(what)}</text>',
            f'<text class="quiet" x="136" y="{top + 38}">{escape(crash)}</text>',
        ]
        if number:
            parts.append(f'<path d="M60 {top - 24} V{top - 8} H54 L65 {top - 1} L76 {top - 8} H70 V{top - 24} z"/>')
    return _picture("A change of many files is one commit", 34 + 70 * len(STEPS), parts)


def pipeline() -> str:
    """Return the graph of a pipeline."""
    return Pipeline.load(PIPELINE, {"folder": "lake", "day": "2026-11-02"}).graph("svg") + "\n"


def _bar(tool: str, time: float, top: int, width: float) -> list[str]:
    kind = "ours" if tool == "fsspeckit" else "other"
    return [
        f'<text x="{LEFT - 8}" y="{top + 12}" text-anchor="end">{tool}</text>',
        f'<rect class="{kind}" x="{LEFT}" y="{top}" width="{max(width, 1):.1f}" height="{BAR}"/>',
        f'<text x="{LEFT + width + 6:.1f}" y="{top + 12}">{time:.2f} s</text>',
    ]


def _picture(title: str, height: int, parts: list[str]) -> str:
    head = _HEAD.format(width=WIDTH, height=height, title=title)
    return "\n".join([head, *parts, "</svg>", ""])


_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>{title}</title>
<style>
text {{ font: 13px sans-serif; fill: #1d2733; }}
.title {{ font-weight: bold; }}
.light {{ font-weight: bold; fill: #ffffff; }}
.quiet {{ fill: #5b6875; }}
.ours {{ fill: #2f6fb5; }}
.other {{ fill: #c9d3de; }}
path {{ fill: #8794a3; }}
</style>
<rect width="{width}" height="{height}" fill="#ffffff"/>
<text class="quiet" x="10" y="16">{title}</text>"""

PICTURES = {"benchmarks.svg": bars, "commit.svg": commit, "pipeline.svg": pipeline}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (DOCS / name).write_text(draw(), "utf-8")
        print(f"wrote docs/{name}")
