"""Rewrite files with 64-bit timestamps in place of INT96: snapshot, plan, execute, commit."""

from __future__ import annotations

from fsspeckit.common.choices import DEFAULT_RETRIES
from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.common.int96 import UNIT, unit_of
from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.model import NO_ROWS
from fsspeckit.core.operations.attempts import Attempts
from fsspeckit.core.operations.maintenance_run import MaintenanceRun, RewriteWork, load_for, run_rewrites
from fsspeckit.core.planning.maintenance_request import Group, MaintenanceScope, Plan
from fsspeckit.core.progress import Progress, reporting
from fsspeckit.core.results import MaintenanceResult


def alter(
    engine: Engine,
    place: Place,
    scope: MaintenanceScope,
    *,
    dry_run: bool = False,
    progress: Progress = None,
    retries: int = DEFAULT_RETRIES,
) -> MaintenanceResult:
    """Rewrite all files with INT96 timestamps in one commit. A dry run only returns the plan."""
    runs: list[MaintenanceRun] = []
    with (
        log_unexpected("alter", place.path),
        reporting("alter", progress) as reporter,
        Attempts(place, retries) as attempts,
    ):

        def attempt() -> MaintenanceResult:
            snapshot = load_for(place, scope, dry_run=dry_run, operation="alter")
            check_units(snapshot, scope, "alter")
            run = MaintenanceRun.begin(place, "alter", snapshot, attempts, runs)
            old = [file for file in snapshot.files if scope.options.changes_times(file)]
            groups = tuple(Group(file.folder, (file,), "INT96 timestamps", "drop") for file in old)
            left = {file.path for file in snapshot.files} - {file.path for file in old}
            plan = Plan(groups, dict.fromkeys(left, "no INT96 timestamps"))
            nothing_dropped = {file.path: NO_ROWS for file in old}
            work = RewriteWork(plan, scope, nothing_dropped)
            return run_rewrites(engine, run, work, reporter, dry_run=dry_run)

        return attempts.run(attempt)


def check_units(snapshot: Snapshot, scope: MaintenanceScope, operation: str) -> None:
    """Raise if a file has INT96 values that the wanted timestamps cannot have."""
    for file in snapshot.files:
        if scope.options.changes_times(file) and unit_of(file.schema) != UNIT:
            raise SchemaMismatchError(
                f"{operation}: {file.path} has INT96 timestamps with nanoseconds in {list(file.int96)}, which "
                "microseconds cannot have. Nothing was changed. Keep INT96, or cut the nanoseconds off first."
            )
