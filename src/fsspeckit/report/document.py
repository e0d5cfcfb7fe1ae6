"""A layout as one JSON document: what `inspect --json` prints, what `--compare` reads, and what the HTML page draws."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from posixpath import dirname
from typing import Any

from fsspeckit.core.snapshot import Snapshot
from fsspeckit.report.layout import ColumnLayout, Layout
from fsspeckit.report.overlap import file_range
from fsspeckit.report.score import Score, judged

_NEEDED = frozenset(
    {"path", "rows", "files", "bytes", "size_histogram", "partitions", "columns", "score", "findings", "key_ranges"}
)
_SHOWN_FILES = 300
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
    return {bound: float(number - low) / width if width else 0.0 for bound, number in numbers.items()}


def read_document(path: Path) -> dict[str, Any]:
    """A document that `inspect --json` wrote; ValueError where the file is something else."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); write it with `fsspeckit inspect PATH --json`") from error
    missing = sorted(_NEEDED - found.keys()) if isinstance(found, dict) else ["everything"]
    if missing:
        raise ValueError(
            f"{path} is not a layout of this version (without {', '.join(missing)}); "
            "write it with `fsspeckit inspect PATH --json`"
        )
    return dict(found)


def comparison(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """What has changed, number by number."""
    numbers = [(name, before[name], after[name]) for name in ("score", "rows", "files", "bytes")]
    old, new = (mean_depths(each["columns"]) for each in (before, after))
    return [*numbers, *((f"depth of {name}", old[name], new[name]) for name in new if name in old)]


def mean_depths(columns: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean overlap depths of the columns that have one."""
    return {column["name"]: column["overlap"]["mean_depth"] for column in columns if column["overlap"]}
