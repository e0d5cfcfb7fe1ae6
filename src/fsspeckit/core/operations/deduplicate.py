"""Keep one row of each key in a dataset: snapshot, find duplicates, plan, execute, commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsspeckit.common.choices import DEFAULT_RETRIES
from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot, full_schema
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.kernels.find_duplicates import FindDuplicates, SplitKeys, by_file, partition_count, row_group_spans
from fsspeckit.core.model import RowNumbers
from fsspeckit.core.operations.attempts import Attempts
from fsspeckit.core.operations.maintenance_run import (
    MaintenanceRun,
    RewriteWork,
    check_value_ranges,
    load_for,
    run_rewrites,
)
from fsspeckit.core.operations.size_trials import sizes_of_small_files
from fsspeckit.core.planning.compact import plan_compact
from fsspeckit.core.planning.maintenance_request import DeduplicateRequest, plan_deduplicate
from fsspeckit.core.planning.output_sizes import Target
from fsspeckit.core.planning.value_ranges import report_narrow_codes
from fsspeckit.core.progress import Progress, Reporter, reporting
from fsspeckit.core.results import MaintenanceResult


def deduplicate(
    engine: Engine,
    place: Place,
    request: DeduplicateRequest,
    *,
    operation: str = "deduplicate",
    target: Target | None = None,
    dry_run: bool = False,
    progress: Progress = None,
    retries: int = DEFAULT_RETRIES,
) -> MaintenanceResult:
    """Keep one row of each key and drop the others. With a target size, join small files in the same pass."""
    runs: list[MaintenanceRun] = []
    with (
        log_unexpected(operation, place.path),
        reporting(operation, progress) as reporter,
        Attempts(place, retries) as attempts,
    ):

        def attempt() -> MaintenanceResult:
            snapshot = load_for(place, request.scope, dry_run=dry_run, operation=operation)
            check_value_ranges(engine, place, snapshot, operation, reporter, None if target else request.named)
            run = MaintenanceRun.begin(place, operation, snapshot, attempts, runs)
            return _deduplicate(engine, run, request, target, reporter, dry_run=dry_run)

        return attempts.run(attempt)


def _deduplicate(
    engine: Engine,
    run: MaintenanceRun,
    request: DeduplicateRequest,
    target: Target | None,
    reporter: Reporter,
    *,
    dry_run: bool,
) -> MaintenanceResult:
    place, snapshot = run.place, run.snapshot
    duplicates = find_duplicate_rows(engine, place, snapshot, request, reporter)
    with report_narrow_codes(run.operation, place.path, snapshot):
        sizes = None
        if target:
            sizes = sizes_of_small_files(engine, place, snapshot, target, request.scope, reporter)
            plan = plan_compact(snapshot.files, sizes, duplicates)
        else:
            plan = plan_deduplicate(snapshot.files, duplicates)
        work = RewriteWork(run.limit(plan, request.scope.limits), request.scope, duplicates, sizes)
        details = deduplication_details(request, work.removed)
        return run_rewrites(engine, run, work, reporter, dry_run=dry_run, **details)


def deduplication_details(request: DeduplicateRequest, removed: int) -> dict[str, Any]:
    """Return the keys that a deduplication adds to a result."""
    return {
        "key_columns": list(request.key_columns),
        "dedup_order_by": list(request.order_by),
        "deduplicated": True,
        "deduplicated_rows": removed,
    }


def find_duplicate_rows(
    engine: Engine, place: Place, snapshot: Snapshot, request: DeduplicateRequest, reporter: Reporter
) -> Mapping[str, RowNumbers]:
    """Return the positions of the rows to drop, by file. Only keys and order columns are read."""
    keys, order_by, lowest = request.columns(full_schema(snapshot))
    items, parts = row_group_spans(snapshot.files), partition_count(snapshot.rows)
    if not items:
        return {}
    nulls_match = request.null_keys == "match"
    split = SplitKeys(place.storage, keys, order_by, lowest, snapshot.partition_columns, nulls_match, parts)
    on_done = reporter.stage("find duplicates", len(items) + parts)
    with vanished_file_is_conflict(place, "deduplicate"):
        found = engine.exchange(split, items, FindDuplicates(len(keys), lowest), parts, on_done)
    return by_file(found, snapshot.files)
