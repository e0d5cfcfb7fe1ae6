"""Join small files: snapshot, plan, execute, commit."""

from __future__ import annotations

from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.operations.maintenance_run import Ledger, Rewrites, carry_out, check_units, look, small_sizes
from fsspeckit.core.planning.compact import plan_compact
from fsspeckit.core.planning.maintenance_request import (
    CompactRequest,
    limited,
)
from fsspeckit.core.planning.value_ranges import codes_may_run_out
from fsspeckit.core.progress import Progress, reporting
from fsspeckit.core.results import MaintenanceResult


def compact(
    engine: Engine, place: Place, request: CompactRequest, *, dry_run: bool = False, progress: Progress = None
) -> MaintenanceResult:
    """Join small files, or tell which would be joined."""
    with log_unexpected("compact", place.path), reporting("compact", progress) as reporter:
        snapshot = look(place, request.scope, dry_run=dry_run, operation="compact")
        check_units(engine, place, snapshot, "compact", reporter)
        ledger = Ledger(place, "compact", snapshot)
        with codes_may_run_out("compact", place.path, snapshot):
            sizes = small_sizes(engine, place, snapshot, request.target, request.scope, reporter)
            plan = limited(plan_compact(snapshot.files, sizes), request.scope.limits)
            return carry_out(engine, ledger, Rewrites(plan, request.scope, {}, sizes), reporter, dry_run=dry_run)
