"""Plan a read with a filter as text: compile it, and find the row groups that can have a matching row."""

from __future__ import annotations

from dataclasses import replace

from fsspeckit.core.commit.listing import View
from fsspeckit.core.dataset.snapshot import Snapshot, full_schema, load_snapshot
from fsspeckit.core.engine.protocol import ReadRequest
from fsspeckit.core.expressions.conditions import columns_named, compile_condition, errors_name, parse_once
from fsspeckit.core.model import DataFile
from fsspeckit.core.parquet.reader import confirmed
from fsspeckit.core.planning.conditions import select_rows
from fsspeckit.core.storage import Storage, for_each


def plan_read(storage: Storage, view: View, request: ReadRequest) -> tuple[Snapshot, ReadRequest]:
    """Return a snapshot, and the request with the rows to read in place of a filter as text.

    Raises:
        ExpressionError: The filter is not one condition over the columns of the dataset.
    """
    if not isinstance(request.filters, str):
        keeps = request.columns is None and not storage.is_local
        named = request.columns if request.filters is None else None
        return load_snapshot(storage, view, keep_footers=keeps, use_index=False, read=named), request
    with errors_name("filters"):
        parsed = parse_once(request.filters)
    tested = columns_named(parsed)
    named = None if request.columns is None else (*request.columns, *tested)
    snapshot = load_snapshot(storage, view, stats_for=tested, read=named)
    schema = full_schema(snapshot)
    with errors_name("filters"):
        condition = compile_condition(parsed, schema)
    selections = select_rows(storage, snapshot, schema, condition)

    def opened(file: DataFile) -> DataFile:
        return confirmed(storage, file, reads_rows=False) if file.path in selections else file

    files = tuple(for_each(storage, opened, snapshot.files))
    return replace(snapshot, files=files), replace(request, filters=None, selections=selections)
