"""The graph of a pipeline as Mermaid text or as SVG: sources, steps and datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Literal

from fsspeckit.pipeline.model import PipelineFile
from fsspeckit.pipeline.order import changed_by, dataset_of, graph, inputs_of

GraphFormat = Literal["mermaid", "svg"]
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 190, 40, 60, 20, 20
_SHAPES = {"source": ("([", "])"), "step": ("[", "]"), "dataset": ("[(", ")]")}
_COLOURS = {"source": "#dbeafe", "step": "#f1f5f9", "dataset": "#dcfce7"}

_ARROW = (
    '<defs><marker id="end" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#64748b"/></marker></defs>'
)


@dataclass(frozen=True, slots=True)
class Node:
    """A source, step or dataset."""

    kind: Literal["source", "step", "dataset"]
    name: str
    label: str


def render_graph(file: PipelineFile, format_: GraphFormat) -> str:
    """Return the graph of a pipeline.

    Examples:
        >>> steps = [{"name": "tidy", "do": "compact", "dataset": "orders"}]
        >>> raw = {"name": "upkeep", "datasets": {"orders": {"path": "lake/orders"}}, "steps": steps}
        >>> print(render_graph(PipelineFile.model_validate(raw), "mermaid"))
        flowchart LR
            n0["tidy (compact)"]
            n1[("orders")]
            n0 --> n1
    """
    nodes, edges = _nodes(file), list(dict.fromkeys(_edges(file)))
    return _mermaid(nodes, edges) if format_ == "mermaid" else _svg(nodes, edges)


def _nodes(file: PipelineFile) -> dict[str, Node]:
    """Return the nodes by keys; a dataset and a source can have the same name."""
    found = {f"source {name}": Node("source", name, f"{name} ({each.format})") for name, each in file.sources.items()}
    found |= {f"step {step.name}": Node("step", step.name, f"{step.name} ({step.do})") for step in file.steps}
    return found | {f"dataset {name}": Node("dataset", name, name) for name in file.datasets}


def _edges(file: PipelineFile) -> Iterator[tuple[str, str]]:
    steps = {step.name for step in file.steps}
    for name, source in file.sources.items():
        if source.dataset is not None:
            yield f"dataset {source.dataset}", f"source {name}"
    before = graph(file)
    for step in file.steps:
        here = f"step {step.name}"
        for name in inputs_of(step):
            kind = "source" if name in file.sources else "step" if name in steps else "dataset"
            yield f"{kind} {name}", here
        for name in sorted(before[step.name] - set(inputs_of(step))):
            yield f"step {name}", here
        changed = changed_by(step)
        for name in sorted(changed):
            yield here, f"dataset {name}"
        checked = dataset_of(step)
        if checked is not None and checked not in changed:
            yield f"dataset {checked}", here


def _mermaid(nodes: Mapping[str, Node], edges: list[tuple[str, str]]) -> str:
    ids = {key: f"n{number}" for number, key in enumerate(nodes)}
    lines = ["flowchart LR"]
    for key, node in nodes.items():
        left, right = _SHAPES[node.kind]
        lines.append(f'    {ids[key]}{left}"{escape(node.label)}"{right}')
    return "\n".join([*lines, *(f"    {ids[a]} --> {ids[b]}" for a, b in edges)])


def _columns(nodes: Mapping[str, Node], edges: list[tuple[str, str]]) -> dict[str, int]:
    """Return the column of each node: one after those before it. An edge that closes a circle counts for nothing."""
    column = dict.fromkeys(nodes, 0)
    for _ in nodes:
        for before, after in edges:
            if column[before] + 1 > column[after] and column[before] + 1 < len(nodes):
                column[after] = column[before] + 1
    used = sorted(set(column.values()))
    return {key: used.index(number) for key, number in column.items()}


def _without_circles(edges: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Leave out edges from a dataset back to a source, which close circles where a pipeline reads what it writes."""
    return [(a, b) for a, b in edges if not (a.startswith("dataset ") and b.startswith("source "))]


def _svg(nodes: Mapping[str, Node], edges: list[tuple[str, str]]) -> str:
    straight = _without_circles(edges)
    column = _columns(nodes, straight)
    rows: dict[int, int] = {}
    place: dict[str, tuple[int, int]] = {}
    for key in nodes:
        row = rows[column[key]] = rows.get(column[key], -1) + 1
        place[key] = (_MARGIN + column[key] * (_WIDTH + _GAP_X), _MARGIN + row * (_HEIGHT + _GAP_Y))
    width = 2 * _MARGIN + (max(column.values()) + 1) * (_WIDTH + _GAP_X) - _GAP_X
    height = 2 * _MARGIN + (max(rows.values()) + 1) * (_HEIGHT + _GAP_Y) - _GAP_Y
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">', _ARROW]
    for before, after in edges:
        (x1, y1), (x2, y2) = place[before], place[after]
        half = _HEIGHT // 2
        lines.append(
            f'<path d="M{x1 + _WIDTH} {y1 + half}C{x1 + _WIDTH + 30} {y1 + half} {x2 - 30} {y2 + half} '
            f'{x2} {y2 + half}" fill="none" stroke="#64748b" marker-end="url(#end)"/>'
        )
    for key, node in nodes.items():
        x, y = place[key]
        radius = {"source": 20, "step": 4, "dataset": 12}[node.kind]
        lines.append(
            f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="{radius}" fill="{_COLOURS[node.kind]}" '
            'stroke="#64748b"/>'
        )
        lines.append(
            f'<text x="{x + _WIDTH // 2}" y="{y + _HEIGHT // 2 + 5}" text-anchor="middle">{escape(node.label)}</text>'
        )
    return "\n".join([*lines, "</svg>"])
