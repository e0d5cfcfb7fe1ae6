"""A layout as one JSON document: what `inspect --json` prints, what `--compare` reads, and what the HTML page draws."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from posixpath import dirname
from typing import Any

from fsspeckit.common.documents import Node, read_json
from fsspeckit.common.errors import DocumentError
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.report.layout import ColumnLayout, Layout
from fsspeckit.report.overlap import file_range
from fsspeckit.report.score import Score, judged

_SHOWN_FILES = 300
_SIZE_CLASS = re.compile(r"(?:under |over )?\d+(?:\.\d+)? [KMGT]?B(?: to \d+(?:\.\d+)? [KMGT]?B)?")
_SHOWN_COLUMNS = 3


def document(snapshot: Snapshot, layout: Layout, found: Score, keys: Sequence[str] = ()) -> dict[str, Any]:
    """The layout, its score, and the range of each file in the columns that count."""
    findings = [asdict(finding) for finding in found.findings]
    ranges = [_ranges(snapshot, column) for column in judged(layout, keys)[:_SHOWN_COLUMNS]]
    return layout.to_dict() | {"score": found.value, "findings": findings, "key_ranges": ranges}


def _ranges(snapshot: Snapshot, column: ColumnLayout) -> dict[str, Any]:
    """Ranges of files from 0 to 1, partition by partition, lowest first; of very many files some, evenly taken."""
    found = [(dirname(file.path), file_range(file, column.name)) for file in snapshot.files if file.rows]
    known = sorted((folder, *bounds) for folder, bounds in found if bounds is not None)
    places = _places([bound for _, *bounds in known for bound in bounds])
    step = max(1, -(-len(known) // _SHOWN_FILES))
    shown = [[round(places[low], 5), round(places[high], 5)] for _, low, high in known[::step]]
    return {
        "column": column.name,
        "least": column.lower,
        "greatest": column.upper,
        "files": len(known),
        "ranges": shown,
    }


def _places(bounds: Sequence[Any]) -> dict[Any, float]:
    """Where values stand between the least and the greatest; texts by what follows their common beginning."""
    if not bounds:
        return {}
    if isinstance(bounds[0], bytes):
        first, last = min(bounds), max(bounds)
        start = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
        numbers = {bound: int.from_bytes(bound[start : start + 8].ljust(8, b"\0"), "big") for bound in bounds}
    else:
        numbers = {bound: bound for bound in bounds}
    low, high = min(numbers.values()), max(numbers.values())
    width = float(high - low)
    if not math.isfinite(width):  # between infinite ends there is no scale
        return {bound: 0.0 if number == low else 1.0 if number == high else 0.5 for bound, number in numbers.items()}
    return {bound: float(number - low) / width if width else 0.0 for bound, number in numbers.items()}


def read_document(path: Path) -> dict[str, Any]:
    """What a comparison needs of a document that `inspect --json` wrote.

    Raises:
        DocumentError: The file is something else, or a value in it is not as `inspect` writes it.
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
    found = node.values(lambda each: each.count())
    for name in found:
        if not _SIZE_CLASS.fullmatch(name):
            raise node[name].refuse("is the number of files of an unknown size")
    return found


def _overlap(node: Node) -> dict[str, float]:
    return {"mean_depth": node["mean_depth"].number()}


def _key_range(node: Node) -> dict[str, Any]:
    ends = {name: node[name].optional(lambda each: each.text()) for name in ("least", "greatest")}
    ranges = node["ranges"].each(_range)
    if len(ranges) > _SHOWN_FILES:
        raise node["ranges"].refuse(f"of more than {_SHOWN_FILES} files")
    return {"column": node["column"].text(), "files": node["files"].count(), "ranges": ranges, **ends}


def _range(node: Node) -> list[float]:
    """The place of a file's least and greatest value, from 0 to 1."""
    found = node.each(lambda each: each.number())
    if len(found) != 2 or not 0 <= found[0] <= found[1] <= 1:
        raise node.refuse("is not two numbers from 0 to 1")
    return found


def comparison(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """What has changed, number by number."""
    numbers = [(name, before[name], after[name]) for name in ("score", "rows", "files", "bytes")]
    old, new = (mean_depths(each["columns"]) for each in (before, after))
    return [*numbers, *((f"depth of {name}", old[name], new[name]) for name in new if name in old)]


def mean_depths(columns: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean overlap depths of the columns that have one."""
    return {column["name"]: column["overlap"]["mean_depth"] for column in columns if column["overlap"]}
