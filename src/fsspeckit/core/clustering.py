"""The straight line of `optimize`: order the rows of each partition, with or without deduplication.

Look, plan, sample, sort through the engine's exchange, commit; a bounded number of groups at a time. Files that stand
in the wanted order already are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import to_arrow, to_numpy
from fsspeckit.common.logging import log_unexpected
from fsspeckit.common.schema import unify_schemas
from fsspeckit.core.curves import Ordering
from fsspeckit.core.duplicates import stretches
from fsspeckit.core.engine import Engine
from fsspeckit.core.keys import key_type
from fsspeckit.core.maintenance import (
    CompactRequest,
    Group,
    OptimizeRequest,
    Plan,
    Target,
    outputs,
    plan_deduplicate,
    plan_optimize,
    rounds,
)
from fsspeckit.core.model import DataFile, RowNumbers
from fsspeckit.core.names import new_token, optimized_name
from fsspeckit.core.operations import Place, vanishing_is_conflict
from fsspeckit.core.progress import Progress, Reporter, reporting
from fsspeckit.core.results import MaintenanceResult
from fsspeckit.core.snapshot import Snapshot
from fsspeckit.core.sorting import (
    RANGE_BYTES,
    Route,
    Sample,
    SortedFile,
    SortGroup,
    SortItem,
    group_dress,
    make_cuts,
    sample_forms,
)
from fsspeckit.core.upkeep import (
    Ledger,
    Made,
    compact,
    deduplicate,
    deduplication_facts,
    density,
    drop_losers,
    extent,
    find_losers,
    finished,
    look,
    planned,
)

DEFAULT_TARGET = Target(128 * 1024 * 1024, None)
_GROUP_ROWS = 122_880
_SAMPLE_ROWS = 131_072
_SAMPLED_GROUPS_ROWS = 4_000_000
_TEXT_BYTES = 16
_NO_ROWS: RowNumbers = np.empty(0, dtype=np.int64)


def optimize(
    engine: Engine, place: Place, request: OptimizeRequest, *, dry_run: bool = False, progress: Progress = None
) -> MaintenanceResult:
    """Order rows over all files of each partition, or tell what that would do."""
    if request.columns is None:
        return _without_order(engine, place, request, dry_run=dry_run, progress=progress)
    with log_unexpected("optimize", place.path), reporting("optimize", progress) as reporter:
        snapshot = look(place, request.scope, dry_run=dry_run, operation="optimize", stats_for=request.columns)
        assert snapshot.schema is not None
        request.check(snapshot.schema, snapshot.partition_columns)
        work = _Work.plan(engine, place, snapshot, request, reporter)
        ledger = Ledger(place, "optimize", snapshot)
        if dry_run:
            after = sum(work.files_after(group) for group in work.sorts.groups)
            left = sum(len(work.losers[group.files[0].path]) < group.rows for group in work.drops.groups)
            rows = snapshot.rows - work.removed
            return planned(ledger, work.whole, request.scope, after_files=after + left, after_rows=rows, **work.facts())
        for groups in rounds(work.sorts.groups, request.scope.limits):
            _sort(engine, ledger, groups, work, reporter)
        on_done = reporter.stage("write", len(work.drops.groups), **extent(work.drops.groups))
        for groups in rounds(work.drops.groups, request.scope.limits):
            files = [group.files[0] for group in groups]
            drop_losers(engine, ledger, files, work.losers, request.scope, on_done)
        return finished(ledger, work.whole, request.scope, **work.facts())


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """What there is to do: groups to sort, files that only lose rows, and which rows go."""

    request: OptimizeRequest
    target: Target
    density: float
    sorts: Plan
    drops: Plan
    losers: Mapping[str, RowNumbers]
    token: str

    @classmethod
    def plan(
        cls, engine: Engine, place: Place, snapshot: Snapshot, request: OptimizeRequest, reporter: Reporter
    ) -> _Work:
        target = request.target if request.target.bytes or request.target.rows else DEFAULT_TARGET
        measured = density(engine, place, snapshot.files, target, request.scope, reporter)
        assert snapshot.schema is not None
        sorts = plan_optimize(snapshot.files, snapshot.schema, request, target, measured)
        losers: Mapping[str, RowNumbers] = {}
        if request.deduplicate is not None:
            losers = find_losers(engine, place, snapshot, request.deduplicate, reporter)
        sorted_files = {file.path for group in sorts.groups for file in group.files}
        others = [file for file in snapshot.files if file.path not in sorted_files]
        drops = plan_deduplicate(others, losers, request.scope.limits)
        return cls(request, target, measured, sorts, drops, losers, new_token())

    @property
    def whole(self) -> Plan:
        """Both kinds of groups, and why the other files are left alone."""
        touched = {file.path for group in self.drops.groups for file in group.files}
        skipped = {path: reason for path, reason in self.sorts.skipped.items() if path not in touched}
        return Plan((*self.sorts.groups, *self.drops.groups), skipped)

    @property
    def removed(self) -> int:
        """Rows that go."""
        groups = (*self.sorts.groups, *self.drops.groups)
        return sum(self.dropped(group) for group in groups)

    def dropped(self, group: Group) -> int:
        """Rows of a group that go."""
        return sum(len(self.losers.get(file.path, ())) for file in group.files)

    def files_after(self, group: Group) -> int:
        """Files that a group becomes."""
        return outputs(group.files, self.target, self.density, self.dropped(group))

    def facts(self) -> dict[str, Any]:
        """What the result says beside the usual."""
        wanted = {"zorder_columns": list(self.request.columns or ()), "curve": self.request.curve}
        if self.request.deduplicate is None:
            return wanted | {"deduplicated": False}
        return wanted | deduplication_facts(self.request.deduplicate, self.removed)


def _without_order(
    engine: Engine, place: Place, request: OptimizeRequest, *, dry_run: bool, progress: Progress
) -> MaintenanceResult:
    """Deduplication alone and, where a size is wanted, joining what is small."""
    assert request.deduplicate is not None
    first = deduplicate(engine, place, request.deduplicate, dry_run=dry_run, progress=progress)
    details = {"zorder_columns": None, "curve": request.curve} | dict(first.details)
    first = replace(first, operation="optimize", details=details)
    if dry_run or not (request.target.bytes or request.target.rows):
        return first
    joined = compact(engine, place, CompactRequest(request.target, request.scope), progress=progress)
    return replace(
        first,
        after_file_count=joined.after_file_count,
        after_total_bytes=joined.after_total_bytes,
        compacted_file_count=first.compacted_file_count + joined.compacted_file_count,
        rewritten_bytes=first.rewritten_bytes + joined.rewritten_bytes,
        skipped_files=joined.skipped_files,
        new_files=joined.new_files or first.new_files,
        commits=[*first.commits, *joined.commits],
        seconds=first.seconds + joined.seconds,
    )


def _sort(engine: Engine, ledger: Ledger, groups: Sequence[Group], work: _Work, reporter: Reporter) -> None:
    """Sort some groups together and commit their new files."""
    place = ledger.place
    with vanishing_is_conflict(place, "optimize"):
        ready = _prepare(engine, place, groups, work, reporter)
    items = [
        item
        for number, (group, found) in enumerate(zip(groups, ready, strict=True))
        if found.files
        for item in _items(number, group, work.losers)
    ]
    parts = sum(group.files for group in ready)
    on_done = reporter.stage("sort", len(items) + parts, **extent(groups))
    already = len(ledger.made)

    def produce(staging: str) -> list[Made]:
        route = Route(place.storage, ready)
        gather = SortedFile(place.storage, ready, staging, work.token)
        outcomes = engine.exchange(route, items, gather, parts, on_done)
        folders = [group.folder for group, found in zip(groups, ready, strict=True) for _ in range(found.files)]
        kept = [(folder, outcome) for folder, outcome in zip(folders, outcomes, strict=True) if outcome is not None]
        return [
            Made(outcome, optimized_name(folder, work.token, already + i)) for i, (folder, outcome) in enumerate(kept)
        ]

    retired = [file for group in groups for file in group.files]
    needed: list[DataFile] = []
    if work.losers:
        touched = {file.path for file in (*ledger.gone, *retired)}
        needed = [file for file in ledger.snapshot.files if file.path not in touched]
    ledger.commit(produce, retired, needed, {"files": len(retired)}, alone=bool(work.losers))


def _items(number: int, group: Group, losers: Mapping[str, RowNumbers]) -> list[SortItem]:
    width = _row_bytes(group.files)
    most_rows = max(1024, RANGE_BYTES // width)
    items = []
    for item in stretches(group.files, most_rows):
        drops = tuple(losers.get(stretch.file.path, _NO_ROWS) for stretch in item)
        items.append(SortItem(number, item, drops))
    return items


def _row_bytes(files: Sequence[DataFile]) -> int:
    """Bytes of a decoded row, roughly: what pages held, but no less than the types take."""
    stored = sum(file.uncompressed for file in files) // max(1, sum(file.rows for file in files))
    return max(1, stored, sum(_width(field.type) for field in files[0].schema))


def _width(type_: pa.DataType) -> int:
    try:
        return max(1, int(type_.bit_width) // 8)
    except ValueError:
        return _TEXT_BYTES


def _prepare(
    engine: Engine, place: Place, groups: Sequence[Group], work: _Work, reporter: Reporter
) -> tuple[SortGroup, ...]:
    """Sample all groups and cut each into the ranges of its files."""
    request = work.request
    assert request.columns is not None
    schemas = [unify_schemas([file.schema for file in group.files], operation="optimize") for group in groups]
    orders = [_ordering(request, schema) for schema in schemas]
    samples = _samples(engine, place, groups, orders, reporter)
    ready, first = [], 0
    for group, schema, order, sample in zip(groups, schemas, orders, samples, strict=True):
        files = work.files_after(group)
        rows = group.rows - work.dropped(group)
        inner = max(1, -(-rows * _row_bytes(group.files) // max(1, files) // RANGE_BYTES))
        inner = max(1, min(inner, rows // max(1, files)))
        learned = order.learned(sample_forms(sample, order))
        bases = np.cumsum([0, *(file.rows for file in group.files)])
        cuts = make_cuts(_without_losers(sample, group, work.losers), learned, bases, files * inner)
        dress, meta = group_dress(place.storage, group.files, schema)
        rows_each = request.scope.options.row_group_size or _GROUP_ROWS
        ready.append(
            SortGroup(
                dress, meta, learned, cuts, first, files, inner, bases, request.scope.options, rows_each, request.blooms
            )
        )
        first += files
    return tuple(ready)


def _ordering(request: OptimizeRequest, schema: pa.Schema) -> Ordering:
    assert request.columns is not None
    types = tuple(key_type(schema.field(name).type) if name in schema.names else pa.null() for name in request.columns)
    return Ordering(request.curve, request.columns, types)


def _samples(
    engine: Engine, place: Place, groups: Sequence[Group], orders: Sequence[Ordering], reporter: Reporter
) -> list[pa.Table]:
    """Some rows of each group, evenly taken; of very many row groups only some are read."""
    calls = []
    for group in groups:
        items = stretches(group.files, _SAMPLED_GROUPS_ROWS // 8)
        every = max(1, group.rows // _SAMPLED_GROUPS_ROWS)
        chosen = items[every // 2 :: every] if len(items) > every else items
        read = sum(s.file.row_groups[g] for item in chosen for s in item for g in s.row_groups)
        calls.append((chosen, max(1, read // _SAMPLE_ROWS)))
    on_done = reporter.stage("sample", sum(len(chosen) for chosen, _ in calls))
    return [
        pa.concat_tables(engine.map(Sample(place.storage, order, stride), chosen, on_done))
        for (chosen, stride), order in zip(calls, orders, strict=True)
    ]


def _without_losers(sample: pa.Table, group: Group, losers: Mapping[str, RowNumbers]) -> pa.Table:
    """A sample of the rows that stay, so that ranges are of equal size afterwards."""
    files, rows = to_numpy(sample["file"]), to_numpy(sample["row"])
    keep = np.ones(len(rows), dtype=bool)
    for number, file in enumerate(group.files):
        if file.path in losers:
            mine = np.flatnonzero(files == number)
            keep[mine] = ~np.isin(rows[mine], losers[file.path])
    return sample if keep.all() else sample.filter(to_arrow(keep))
