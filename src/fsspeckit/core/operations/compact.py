"""Join small files: snapshot, plan, execute, commit."""

from __future__ import annotations

from fsspeckit.common.choices import DEFAULT_RETRIES
from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import column_renames
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.operations.alter import check_units
from fsspeckit.core.operations.attempts import Attempts
from fsspeckit.core.operations.maintenance_run import (
    MaintenanceRun,
    RewriteWork,
    check_same_geometry,
    check_value_ranges,
    load_for,
    run_rewrites,
)
from fsspeckit.core.operations.size_trials import sizes_of_small_files
from fsspeckit.core.planning.compact import plan_compact
from fsspeckit.core.planning.maintenance_request import CompactRequest
from fsspeckit.core.planning.value_ranges import report_narrow_codes
from fsspeckit.core.progress import Progress, reporting
from fsspeckit.core.results import MaintenanceResult


def compact(
    engine: Engine,
    place: Place,
    request: CompactRequest,
    *,
    dry_run: bool = False,
    progress: Progress = None,
    retries: int = DEFAULT_RETRIES,
) -> MaintenanceResult:
    """Join small files. A dry run only returns the plan."""
    runs: list[MaintenanceRun] = []
    with (
        log_unexpected("compact", place.path),
        reporting("compact", progress) as reporter,
        Attempts(place, retries) as attempts,
    ):

        def attempt() -> MaintenanceResult:
            ignores = request.ignore_case
            snapshot = load_for(place, request.scope, dry_run=dry_run, operation="compact", ignore_case=ignores)
            scope = request.scope.with_renames(column_renames(snapshot.files)) if ignores else request.scope
            check_units(snapshot, scope, "compact")
            check_same_geometry(snapshot, "compact")
            check_value_ranges(engine, place, snapshot, "compact", reporter)
            run = MaintenanceRun.begin(place, "compact", snapshot, attempts, runs)
            with report_narrow_codes("compact", place.path, snapshot):
                sizes = sizes_of_small_files(engine, place, snapshot, request.target, scope, reporter)
                plan = run.limit(plan_compact(snapshot.files, sizes), scope.limits)
                return run_rewrites(engine, run, RewriteWork(plan, scope, {}, sizes), reporter, dry_run=dry_run)

        return attempts.run(attempt)
