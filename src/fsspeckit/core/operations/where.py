"""The common part of delete and update: find the rows of a dataset for which a condition is true, and change them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fsspeckit.common.errors import DatasetNotFoundError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot, check_one_dataset, load_snapshot
from fsspeckit.core.dataset.source import Input
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.engine.read import full_schema
from fsspeckit.core.expressions.conditions import columns_named, compile_condition, errors_name, parse_once
from fsspeckit.core.model import WriteOptions
from fsspeckit.core.operations.change import PreparedChange, run_change
from fsspeckit.core.planning.conditions import MatchingRows, find_matching_rows
from fsspeckit.core.planning.pinned_plan import check_plan_names
from fsspeckit.core.progress import Progress, Reporter, reporting
from fsspeckit.core.results import MergePlan, MergeResult, RowOperation


@dataclass(frozen=True, slots=True)
class Target:
    """A dataset whose rows are changed; ``schema`` has all its columns, those of folders included."""

    snapshot: Snapshot
    schema: pa.Schema


Prepare = Callable[[Sequence[MatchingRows], Reporter], PreparedChange]
"""Plans the change of the matching rows."""


def change_rows_where(
    engine: Engine,
    place: Place,
    operation: RowOperation,
    where: Any,
    compile_change: Callable[[Target], Prepare],
    *,
    dry_run: bool,
    progress: Progress,
    pinned: MergePlan | None,
) -> MergeResult | MergePlan:
    """Change the rows for which ``where`` is true. A dry run only returns the plan.

    ``compile_change`` checks the change against the columns, before any row is read.
    """
    started = time.perf_counter()
    with log_unexpected(operation, place.path), reporting(operation, progress) as reporter:
        if pinned is not None:
            check_plan_names(pinned)
        with errors_name("where"):
            where = parse_once(where)
            columns = columns_named(where)
        snapshot = _load(place, operation, columns, dry_run=dry_run)
        if snapshot.files:
            prepared = _prepared(engine, place, operation, where, compile_change, snapshot, reporter)
        else:
            prepared = PreparedChange(operation, operation, WriteOptions(), snapshot, {})
        with engine.open_source(Input(pa.table({})), place.storage, place.scratch) as no_rows:
            return run_change(
                engine, place, no_rows, prepared, reporter, started=started, dry_run=dry_run, pinned=pinned
            )


def _prepared(
    engine: Engine,
    place: Place,
    operation: RowOperation,
    where: Any,
    compile_change: Callable[[Target], Prepare],
    snapshot: Snapshot,
    reporter: Reporter,
) -> PreparedChange:
    target = Target(snapshot, full_schema(snapshot))
    with errors_name("where"):
        condition = compile_condition(where, target.schema)
    prepare = compile_change(target)
    with vanished_file_is_conflict(place, operation):
        with errors_name("where"):
            rows = find_matching_rows(engine, place.storage, snapshot, target.schema, condition, reporter)
        return prepare(rows, reporter)


def _load(place: Place, operation: str, stats_for: Sequence[str], *, dry_run: bool) -> Snapshot:
    """Return a snapshot of a dataset that must exist. A real run first recovers from a crashed writer.

    A dataset with commits and without files has lost its last row; it exists.
    """
    if not dry_run:
        place.journal.recover()
    view = place.journal.view_to_change()
    if not view.files and not view.head:
        raise DatasetNotFoundError(f"no parquet dataset at {place.path}. Check the path.")
    with vanished_file_is_conflict(place, operation):
        snapshot = load_snapshot(place.storage, view, stats_for=stats_for)
    check_one_dataset(snapshot)
    return snapshot
