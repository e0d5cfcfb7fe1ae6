"""Inspect a dataset: its layout, the score of the layout, and both as one document."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from fsspeckit.common.errors import ColumnNameError
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.operations.forecast import Forecast, forecast
from fsspeckit.core.progress import Progress
from fsspeckit.report.advice import Request
from fsspeckit.report.document import document
from fsspeckit.report.layout import Layout, analyse, load_all_statistics
from fsspeckit.report.score import Score, score, searched_columns


def inspect_layout(
    place: Place, keys: Sequence[str] = (), progress: Progress = None
) -> tuple[dict[str, Any], Layout, Score]:
    """Return the document of `inspect`, and the layout and score that it consists of.

    The effect of the recommended command comes from its planner.

    Args:
        place: The dataset.
        keys: Columns that readers search by; they are scored. Default: the order in which `optimize` sorted the rows.
        progress: A callback for `ProgressEvent`.
    """
    snapshot = load_all_statistics(place, progress)
    layout = analyse(snapshot, place.path, place.journal.status())
    _check_keys(keys, layout)

    @cache
    def planned(request: Request) -> Forecast | None:
        return forecast(place, snapshot, request)

    found = score(snapshot, layout, keys, planned)
    return document(snapshot, layout, found, searched_columns(snapshot, layout, keys)), layout, found


def _check_keys(keys: Sequence[str], layout: Layout) -> None:
    remedy = f"choose among {', '.join(layout.schema)}"
    if folders := [name for name in keys if name in layout.partition_columns]:
        raise ValueError(f"{folders[0]!r} is a partition column: every file has one value of it; {remedy}")
    if unknown := [name for name in keys if name not in layout.schema]:
        raise ColumnNameError(f"the dataset has no column {unknown[0]!r}; {remedy}")
