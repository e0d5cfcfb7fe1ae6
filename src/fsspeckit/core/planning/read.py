"""Plan a read with a filter as text: compile it, and find the row groups that can have a matching row."""

from __future__ import annotations

from dataclasses import replace

from fsspeckit.core.commit.listing import View
from fsspeckit.core.dataset.snapshot import Snapshot, load_snapshot
from fsspeckit.core.engine.protocol import ReadRequest
from fsspeckit.core.engine.read import full_schema
from fsspeckit.core.expressions.conditions import columns_named, compile_condition, errors_name, parse_once
from fsspeckit.core.planning.conditions import select_rows
from fsspeckit.core.storage import Storage


def plan_read(storage: Storage, view: View, request: ReadRequest) -> tuple[Snapshot, ReadRequest]:
    """Return a snapshot, and the request with the rows to read in place of a filter as text.

    Raises:
        ExpressionError: The filter is not one condition over the columns of the dataset.
    """
    if not isinstance(request.filters, str):
        return load_snapshot(storage, view, keep_footers=request.columns is None and not storage.is_local), request
    with errors_name("filters"):
        parsed = parse_once(request.filters)
    snapshot = load_snapshot(storage, view, stats_for=columns_named(parsed))
    schema = full_schema(snapshot)
    with errors_name("filters"):
        condition = compile_condition(parsed, schema)
    selections = select_rows(storage, snapshot, schema, condition)
    return snapshot, replace(request, filters=None, selections=selections)
