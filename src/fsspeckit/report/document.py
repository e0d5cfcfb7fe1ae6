"""Convert a layout to a JSON document: `inspect --json` prints it, `--compare` and the HTML page read it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from posixpath import dirname
from typing import Any

from fsspeckit.common.documents import Node, read_json
from fsspeckit.common.errors import DocumentError
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.report.layout import ColumnLayout, Layout
from fsspeckit.report.overlap import as_numbers, file_range
from fsspeckit.report.score import Score, scored_columns

_SHOWN_FILES = 300
_SIZE_CLASS = re.compile(r"(?:under |over )?\d+(?:\.\d+)? [KMGT]?B(?: to \d+(?:\.\d+)? [KMGT]?B)?")
_SHOWN_COLUMNS = 3


def document(snapshot: Snapshot, layout: Layout, score: Score, keys: Sequence[str] = ()) -> dict[str, Any]:
    """Return the layout, its score, and the range of each file in the scored columns."""
    findings = [asdict(finding) for finding in score.findings]
    ranges = [_ranges(snapshot, column) for column in scored_columns(layout, keys)[:_SHOWN_COLUMNS]]
    return layout.to_dict() | {"score": score.value, "findings": findings, "key_ranges": ranges}


def _ranges(snapshot: Snapshot, column: ColumnLayout) -> dict[str, Any]:
    """Return the ranges of files as numbers from 0 to 1, by partition, lowest first.

    If there are more than `_SHOWN_FILES` files, an even sample is returned.
    """
    ranges = [(dirname(file.path), file_range(file, column.name)) for file in snapshot.files if file.rows]
    known = sorted((folder, *bounds) for folder, bounds in ranges if bounds is not None)
    positions = _positions([bound for _, *bounds in known for bound in bounds])
    step = max(1, -(-len(known) // _SHOWN_FILES))
    shown = [[round(positions[low], 5), round(positions[high], 5)] for _, low, high in known[::step]]
    folders = Counter(folder for folder, *_ in known[::step])
    return {
        "column": column.name,
        "least": column.lower,
        "greatest": column.upper,
        "files": len(known),
        "ranges": shown,
        "partitions": [[folder, count] for folder, count in folders.items()],
    }


def _positions(bounds: Sequence[Any]) -> dict[Any, float]:
    """Return the relative position of each bound between the minimum and the maximum."""
    numbers = as_numbers(bounds)
    if not numbers:
        return {}
    low, high = min(numbers.values()), max(numbers.values())
    width = float(high - low)
    if not math.isfinite(width):  # infinite bounds have no scale
        return {bound: 0.0 if number == low else 1.0 if number == high else 0.5 for bound, number in numbers.items()}
    return {bound: float(number - low) / width if width else 0.0 for bound, number in numbers.items()}


def read_document(path: Path) -> dict[str, Any]:
    """Read the values that a comparison needs from a document that `inspect --json` wrote.

    Raises:
        DocumentError: The file is not such a document, or a value in it is invalid.
        OSError: The file cannot be read.
    """
    try:
        return _read(read_json(path, "write it with `fsspeckit inspect PATH --json`"))
    except DocumentError as error:
        raise DocumentError(f"{path}: {error}") from error


def _read(node: Node) -> dict[str, Any]:
    counts = {name: node[name].count() for name in ("score", "rows", "files", "bytes", "row_groups")}
    return counts | {
        "size_histogram": _histogram(node["size_histogram"]),
        "partitions": node["partitions"].each(
            lambda part: {"partition": part["partition"].text(), "bytes": part["bytes"].count()}
        ),
        "columns": node["columns"].each(
            lambda column: {"name": column["name"].text(), "overlap": column["overlap"].optional(_overlap)}
        ),
        "key_ranges": node["key_ranges"].each(_key_range),
    }


def _histogram(node: Node) -> dict[str, int]:
    counts = node.values(lambda each: each.count())
    for name in counts:
        if not _SIZE_CLASS.fullmatch(name):
            raise node[name].refuse("is the number of files of an unknown size")
    return counts


def _overlap(node: Node) -> dict[str, float]:
    return {"mean_depth": node["mean_depth"].number()}


def _key_range(node: Node) -> dict[str, Any]:
    bounds = {name: node[name].optional(lambda each: each.text()) for name in ("least", "greatest")}
    ranges = node["ranges"].each(_range)
    if len(ranges) > _SHOWN_FILES:
        raise node["ranges"].refuse(f"of more than {_SHOWN_FILES} files")
    known = node.keys()
    groups = node["partitions"].each(_group) if "partitions" in known else []
    if groups and sum(count for _, count in groups) != len(ranges):
        raise node["partitions"].refuse("does not agree with the ranges")
    found = {"column": node["column"].text(), "files": node["files"].count(), "ranges": ranges}
    return found | {"partitions": groups} | bounds


def _group(node: Node) -> list[Any]:
    """Read the name of a partition and the number of its ranges."""
    name, count = node.pair()
    return [name.text(), count.count()]


def _range(node: Node) -> list[float]:
    """Read the positions of a file's minimum and maximum, from 0 to 1."""
    bounds = node.each(lambda each: each.number())
    if len(bounds) != 2 or not 0 <= bounds[0] <= bounds[1] <= 1:
        raise node.refuse("is not two numbers from 0 to 1")
    return bounds


def comparison(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Return name, old value and new value of each number that both documents have."""
    numbers = [(name, before[name], after[name]) for name in ("score", "rows", "files", "bytes")]
    old, new = (mean_depths(each["columns"]) for each in (before, after))
    return [*numbers, *((f"depth of {name}", old[name], new[name]) for name in new if name in old)]


def mean_depths(columns: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean overlap depth by column, for columns that have one."""
    return {column["name"]: column["overlap"]["mean_depth"] for column in columns if column["overlap"]}
