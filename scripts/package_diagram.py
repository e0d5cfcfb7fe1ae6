"""Draw the packages of fsspeckit and their imports: `python scripts/package_diagram.py` writes docs/packages.svg.

The rows are the layers of the import contracts in pyproject.toml. An arrow is an import in the source. An import is
omitted if a longer chain of arrows leads to the same package.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES, TARGET = ROOT / "src" / "fsspeckit", ROOT / "docs" / "packages.svg"
EXPANDED = {"core", "datasets"}  # packages whose modules are shown
OMITTED = {"__main__", "api", "core.merge"}
PLAIN_DATA = {f"core.{name}" for name in ("file_names", "formats", "progress", "results", "model")}
SHARED = {f"datasets.{name}" for name in ("io", "maintenance", "row_changes", "versions", "arguments")}
GROUPED = dict.fromkeys(PLAIN_DATA, "core.model") | dict.fromkeys(SHARED, "datasets.io")  # one box for each group
SHIFTED = {"report": 180, "core.incremental": -180}  # horizontal offsets, so that arrows do not cross boxes
WIDTH, BOX_HEIGHT, ROW, GAP = 620, 34, 66, 16
Edges = dict[str, set[str]]


def layers() -> list[list[str]]:
    """Return the packages in rows, from the command line down to the data model."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    rows = {c["containers"][0]: c["layers"] for c in contracts if c["type"] == "layers"}

    def names(container: str) -> Iterator[list[str]]:
        prefix = container.removeprefix("fsspeckit").lstrip(".")
        for row in rows[container]:
            members = [name.strip(" ()") for name in row.split("|")]
            if members[0] in EXPANDED and container == "fsspeckit":
                yield from names(f"fsspeckit.{members[0]}")
            else:
                packages = [f"{prefix}.{name}".lstrip(".") for name in members]
                yield [name for name in packages if GROUPED.get(name, name) == name and name not in OMITTED]

    return [row for row in names("fsspeckit") if row]


def package_of(module: str, packages: set[str]) -> str | None:
    """Return the package of the diagram that contains a module."""
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((package for name in names if (package := GROUPED.get(name, name)) in packages), None)


def imports(packages: set[str]) -> Edges:
    """Return the imports of each package, from the source."""
    edges: Edges = {name: set() for name in packages}
    for path in SOURCES.rglob("*.py"):
        module = ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
        importer = package_of(module, packages)
        if importer is None:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fsspeckit."):
                target = str(node.module).removeprefix("fsspeckit.")
                names = [f"{target}.{alias.name}" for alias in node.names]
                edges[importer] |= {name for each in names if (name := package_of(each, packages))} - {importer}
    return edges


def without_shortcuts(edges: Edges) -> Edges:
    """Return the edges without those that a longer path replaces."""

    def reachable(start: str) -> set[str]:
        return {start} | {far for near in edges[start] for far in reachable(near)}

    return {
        name: {t for t in targets if not any(t in reachable(other) for other in targets - {t})}
        for name, targets in edges.items()
    }


def svg() -> str:
    """Return the diagram as SVG."""
    rows = layers()
    edges = without_shortcuts(imports({name for row in rows for name in row}))
    boxes = {}
    for number, row in enumerate(rows):
        widths = [max(70, 9 * len(name.rpartition(".")[2]) + 24) for name in row]
        left = (WIDTH - sum(widths) - GAP * (len(row) - 1)) / 2
        for name, width in zip(row, widths, strict=True):
            boxes[name] = (left + SHIFTED.get(name, 0), 20 + number * ROW, width)
            left += width + GAP
    lines = [_arrow(boxes[name], boxes[target]) for name in boxes for target in sorted(edges[name])]
    shapes = [_box(name, *box) for name, box in boxes.items()]
    height = 20 + len(rows) * ROW
    return "\n".join([_HEAD.format(width=WIDTH, height=height), *lines, *shapes, "</svg>", ""])


_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>Packages of fsspeckit; an arrow is an import</title>
<style>
rect {{ fill: #eef3fb; stroke: #4a6fa5; }}
.core {{ fill: #fdf3e3; stroke: #b5832f; }}
text {{ font: 14px sans-serif; fill: #1d2733; text-anchor: middle; }}
line {{ stroke: #8794a3; stroke-width: 1.3; marker-end: url(#arrow); }}
</style>
<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0 L8 4 L0 8 z" fill="#8794a3"/></marker></defs>
<rect width="{width}" height="{height}" style="fill: #ffffff; stroke: none"/>"""


def _arrow(start: tuple[float, float, float], end: tuple[float, float, float]) -> str:
    (x1, y1, w1), (x2, y2, w2) = start, end
    return f'<line x1="{x1 + w1 / 2:.0f}" y1="{y1 + BOX_HEIGHT}" x2="{x2 + w2 / 2:.0f}" y2="{y2}"/>'


def _box(name: str, left: float, top: float, width: float) -> str:
    package, _, short = name.rpartition(".")
    kind = ' class="core"' if package == "core" else ""
    return (
        f'<rect{kind} x="{left:.0f}" y="{top}" width="{width}" height="{BOX_HEIGHT}" rx="6"/>'
        f'<text x="{left + width / 2:.0f}" y="{top + 22}">{short}</text>'
    )


if __name__ == "__main__":
    TARGET.write_text(svg(), "utf-8")
    print(f"wrote {TARGET.relative_to(ROOT)}")
