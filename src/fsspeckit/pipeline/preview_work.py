"""How much a step would do to an existing dataset, by footers and statistics; no rows are read."""

from __future__ import annotations

from dataclasses import replace

from fsspeckit.common.choices import DEFAULT_TARGET_MB
from fsspeckit.common.errors import DatasetNotFoundError
from fsspeckit.common.text import scrub
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot, full_schema, load_snapshot
from fsspeckit.core.expressions.conditions import columns_named, compile_condition, errors_name
from fsspeckit.core.model import WriteOptions
from fsspeckit.core.operations.forecast import forecast
from fsspeckit.core.planning.conditions import select_rows
from fsspeckit.core.planning.maintenance_request import CompactRequest, MaintenanceScope, OptimizeRequest
from fsspeckit.core.planning.output_sizes import Target
from fsspeckit.pipeline.model import AnyStep, Compact, Delete, Optimize, Update


def work_of(step: AnyStep, place: Place, snapshot: Snapshot, *, is_changed: bool = False) -> dict[str, int]:
    """Return numbers of files and rows; none for a step whose rows decide.

    If ``is_changed``, steps above may write the partitions that the step names.
    """
    if not snapshot.files:
        return {}
    if isinstance(step, Optimize) and not {*step.by, *step.bloom} <= {*full_schema(snapshot).names}:
        return {}  # a step above adds the column
    if isinstance(step, Delete | Update):
        return _matching(step, place, snapshot)
    return _maintained(step, place, snapshot, is_changed=is_changed) if isinstance(step, Compact | Optimize) else {}


def _matching(step: Delete | Update, place: Place, snapshot: Snapshot) -> dict[str, int]:
    """Count the files and the rows of row groups that may match."""
    with errors_name("where"):
        known = load_snapshot(place.storage, snapshot.view, stats_for=columns_named(step.where))
        schema = full_schema(known)
        found = select_rows(place.storage, known, schema, compile_condition(step.where, schema))
    rows = [
        file.row_groups[group] for file in known.files if file.path in found for group in found[file.path].row_groups
    ]
    return {"files_at_most": len(found), "rows_at_most": sum(rows)}


def _maintained(step: Compact | Optimize, place: Place, snapshot: Snapshot, *, is_changed: bool) -> dict[str, int]:
    """Count the files that compact or optimize rewrites, and all files after it."""
    prefixes = None if step.partitions is None else tuple(step.partitions)
    scope = MaintenanceScope(prefixes, WriteOptions(step.compression, row_group_size=step.row_group_size))
    request: CompactRequest | OptimizeRequest
    if isinstance(step, Compact):
        size = DEFAULT_TARGET_MB if step.target_mb is None and step.target_rows is None else step.target_mb
        request, names = CompactRequest(Target.of(size, step.target_rows), scope), tuple[str, ...]()
    else:
        target, by, bloom = Target.of(step.target_mb, step.target_rows), tuple(step.by), tuple(step.bloom)
        request, names = OptimizeRequest(by, step.curve, target, scope, bloom), (*by, *bloom)
    chosen = scope.select(snapshot.view.files)
    if not chosen and is_changed:
        return {}
    if not chosen:
        raise DatasetNotFoundError(f"{scrub(place.path)} has no files in {step.partitions}. Correct partitions.")
    view = replace(snapshot.view, files=chosen)
    known = load_snapshot(place.storage, view, stats_for=names)
    found = forecast(place, known, request, most_trials=0)
    if found is None:
        return {}
    others = len(snapshot.files) - len(chosen)
    return {"files_rewritten": found.rewritten, "files_after": found.files + others}
