"""Sort the rows of each partition, with or without deduplication: snapshot, plan, sample, sort, commit.

Rows are sorted through the engine's exchange. A run commits a bounded number of groups at a time, and files that are
already sorted as requested are not rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import to_arrow, to_numpy
from fsspeckit.common.choices import DEFAULT_RETRIES
from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.dataset.place import Place, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot, joint_schema
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.file_names import new_token, optimized_name
from fsspeckit.core.kernels.file_bounds import ReadFileBounds
from fsspeckit.core.kernels.find_duplicates import row_group_spans
from fsspeckit.core.kernels.sort_files import (
    RANGE_BYTES,
    RouteRows,
    SampleRows,
    SortGroup,
    SortItem,
    Weights,
    WriteSortedFile,
    group_row_form,
    make_cuts,
    sample_forms,
)
from fsspeckit.core.kernels.trial_write import OutputStyle
from fsspeckit.core.model import NO_ROWS, DataFile, FileBounds, RowNumbers
from fsspeckit.core.operations.alter import check_units
from fsspeckit.core.operations.attempts import Attempts
from fsspeckit.core.operations.deduplicate import deduplicate, deduplication_details, find_duplicate_rows
from fsspeckit.core.operations.maintenance_run import (
    MaintenanceRun,
    RewriteWork,
    StagedOutput,
    check_same_geometry,
    check_value_ranges,
    dropped_rows,
    finished_result,
    load_for,
    planned_result,
    run_rewrites,
    work_size,
)
from fsspeckit.core.operations.row_balance import check_total
from fsspeckit.core.operations.size_trials import measure_sizes
from fsspeckit.core.parquet.batches import value_bytes
from fsspeckit.core.parquet.writer_options import report_codecs
from fsspeckit.core.planning.maintenance_request import (
    Group,
    OptimizeRequest,
    Plan,
    commit_rounds,
    plan_deduplicate,
)
from fsspeckit.core.planning.optimize import files_to_consider, files_to_read, outputs, plan_optimize
from fsspeckit.core.planning.output_sizes import DEFAULT_TARGET, OutputSizes
from fsspeckit.core.planning.value_ranges import report_narrow_codes
from fsspeckit.core.progress import Progress, Reporter, reporting
from fsspeckit.core.results import MaintenanceResult
from fsspeckit.core.values.curves import Ordering
from fsspeckit.core.values.keys import key_type

_GROUP_ROWS = 122_880
_SAMPLE_ROWS = 131_072
_SAMPLED_GROUPS_ROWS = 4_000_000
_TEXT_BYTES = 16
_LEAST_WEIGHT = 1 / 8
"""Least weight of a row, relative to the mean. It limits the number of rows in a range."""


def optimize(
    engine: Engine,
    place: Place,
    request: OptimizeRequest,
    *,
    dry_run: bool = False,
    progress: Progress = None,
    retries: int = DEFAULT_RETRIES,
) -> MaintenanceResult:
    """Sort rows over all files of each partition. A dry run only returns the plan."""
    if request.columns is None:
        return _without_order(engine, place, request, dry_run=dry_run, progress=progress, retries=retries)
    named = list(dict.fromkeys((*request.columns, *request.blooms)))
    runs: list[MaintenanceRun] = []
    with (
        log_unexpected("optimize", place.path),
        reporting("optimize", progress) as reporter,
        Attempts(place, retries) as attempts,
    ):

        def attempt() -> MaintenanceResult:
            snapshot = load_for(place, request.scope, dry_run=dry_run, operation="optimize", stats_for=named)
            assert snapshot.schema is not None
            request.check(snapshot.schema, snapshot.partition_columns)
            check_units(snapshot, request.scope, "optimize")
            check_same_geometry(snapshot, "optimize")
            check_value_ranges(engine, place, snapshot, "optimize", reporter)
            run = MaintenanceRun.begin(place, "optimize", snapshot, attempts, runs)
            with report_narrow_codes("optimize", place.path, snapshot):
                return _optimize(engine, run, request, reporter, dry_run=dry_run)

        return attempts.run(attempt)


def _optimize(
    engine: Engine, run: MaintenanceRun, request: OptimizeRequest, reporter: Reporter, *, dry_run: bool
) -> MaintenanceResult:
    work = _Work.plan(engine, run, request, reporter)
    snapshot = run.snapshot
    sorts, drops = work.groups("sort"), work.groups("drop")
    if dry_run:
        after = sum(work.files_after(group) for group in sorts)
        left = sum(work.dropped(group) < group.rows for group in drops)
        rows = snapshot.rows - work.removed
        details, files = work.details(), after + left
        return planned_result(run, work.whole, request.scope, after_files=files, after_rows=rows, **details)
    if request.scope.options.compression is None:
        report_codecs(file for group in sorts for file in group.files)
    for groups in commit_rounds(sorts, request.scope.limits):
        _sort(engine, run, groups, work, reporter)
    run_rewrites(engine, run, RewriteWork(Plan(drops, {}), request.scope, work.duplicates), reporter, dry_run=False)
    return finished_result(run, work.whole, request.scope, **work.details())


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """The plan of a run: groups to sort, files that only lose rows, and the positions of the rows to drop."""

    request: OptimizeRequest
    sizes: OutputSizes
    whole: Plan
    duplicates: Mapping[str, RowNumbers]
    token: str

    @classmethod
    def plan(cls, engine: Engine, run: MaintenanceRun, request: OptimizeRequest, reporter: Reporter) -> _Work:
        place, snapshot = run.place, run.snapshot
        bounds = _read_bounds(engine, place, snapshot, request, reporter)
        sorts, sizes = plan_sorts(engine, place, snapshot, request, reporter, bounds)
        duplicates: Mapping[str, RowNumbers] = {}
        if request.deduplicate is not None:
            duplicates = find_duplicate_rows(engine, place, snapshot, request.deduplicate, reporter)
        sorted_files = {file.path for group in sorts.groups for file in group.files}
        others = [file for file in snapshot.files if file.path not in sorted_files]
        drops = plan_deduplicate(others, duplicates).groups
        touched = {file.path for group in drops for file in group.files}
        skipped = {path: reason for path, reason in sorts.skipped.items() if path not in touched}
        whole = run.limit(Plan((*sorts.groups, *drops), skipped), request.scope.limits)
        return cls(request, sizes, whole, duplicates, new_token())

    def groups(self, work: str) -> tuple[Group, ...]:
        """Return the groups of one kind of work."""
        return tuple(group for group in self.whole.groups if group.work == work)

    @property
    def removed(self) -> int:
        """Number of rows that are dropped."""
        return dropped_rows(self.whole.groups, self.duplicates)

    def dropped(self, group: Group) -> int:
        """Return the number of rows of a group that are dropped."""
        return dropped_rows([group], self.duplicates)

    def files_after(self, group: Group) -> int:
        """Return the number of files that a group is written as."""
        return outputs(group.files, self.sizes, self.dropped(group))

    def details(self) -> dict[str, Any]:
        """Return the keys that only results of `optimize` have."""
        order = {"zorder_columns": list(self.request.columns or ()), "curve": self.request.curve}
        if self.request.deduplicate is None:
            return order | {"deduplicated": False}
        return order | deduplication_details(self.request.deduplicate, self.removed)


def plan_sorts(
    engine: Engine,
    place: Place,
    snapshot: Snapshot,
    request: OptimizeRequest,
    reporter: Reporter,
    bounds: Mapping[str, FileBounds],
    *,
    most_trials: int | None = None,
) -> tuple[Plan, OutputSizes]:
    """Return the files that are sorted together, and how large they become. Duplicates are not considered."""
    assert snapshot.schema is not None
    style = OutputStyle(_ordering(request, snapshot.schema), request.blooms, _GROUP_ROWS)
    sizes = OutputSizes.of(snapshot.files, request.target or DEFAULT_TARGET, request.scope.options, style)
    candidates = files_to_consider(snapshot.files, snapshot.schema, request, sizes.target, bounds)
    sizes = measure_sizes(engine, place, sizes, candidates, reporter, most_trials=most_trials)
    return plan_optimize(snapshot.files, snapshot.schema, request, sizes, bounds), sizes


def _read_bounds(
    engine: Engine, place: Place, snapshot: Snapshot, request: OptimizeRequest, reporter: Reporter
) -> Mapping[str, FileBounds]:
    """Read the bounds of files whose footers do not contain them: statistics are missing, or do not cover NaN."""
    assert snapshot.schema is not None
    files = files_to_read(snapshot.files, snapshot.schema, request)
    if not files:
        return {}
    on_done = reporter.stage("read bounds", len(files))
    with vanished_file_is_conflict(place, "optimize"):
        bounds = engine.map(ReadFileBounds(place.storage, _ordering(request, snapshot.schema)), files, on_done)
    return {file.path: each for file, each in zip(files, bounds, strict=True)}


def _without_order(
    engine: Engine, place: Place, request: OptimizeRequest, *, dry_run: bool, progress: Progress, retries: int
) -> MaintenanceResult:
    """Only deduplicate. With a target size, join small files in the same pass."""
    assert request.deduplicate is not None
    result = deduplicate(
        engine,
        place,
        request.deduplicate,
        operation="optimize",
        target=request.target or None,
        dry_run=dry_run,
        progress=progress,
        retries=retries,
    )
    return replace(result, details={"zorder_columns": None, "curve": request.curve} | dict(result.details))


def _sort(engine: Engine, run: MaintenanceRun, groups: Sequence[Group], work: _Work, reporter: Reporter) -> None:
    """Sort some groups together and commit their new files."""
    place = run.place
    with vanished_file_is_conflict(place, "optimize"):
        ready = _prepare(engine, place, groups, work, reporter)
    items = [
        item
        for number, (group, sort_group) in enumerate(zip(groups, ready, strict=True))
        if sort_group.files
        for item in _items(number, group, work.duplicates)
    ]
    parts = sum(group.files for group in ready)
    on_done = reporter.stage("sort", len(items) + parts, **work_size(groups))
    first_number = len(run.published)

    def stage(staging: str) -> list[StagedOutput]:
        route = RouteRows(place.storage, ready)
        gather = WriteSortedFile(place.storage, ready, staging, work.token)
        outcomes = engine.exchange(route, items, gather, parts, on_done)
        folders = [group.folder for group, sorted_ in zip(groups, ready, strict=True) for _ in range(sorted_.files)]
        kept = [(folder, outcome) for folder, outcome in zip(folders, outcomes, strict=True) if outcome is not None]
        expected = sum(group.rows - work.dropped(group) for group in groups)
        check_total(expected, [outcome for _, outcome in kept], place.path)
        return [
            StagedOutput(outcome, optimized_name(folder, work.token, first_number + i))
            for i, (folder, outcome) in enumerate(kept)
        ]

    inputs = [file for group in groups for file in group.files]
    run.commit(stage, inputs, inputs, {"files": len(inputs)}, exclusive=bool(work.duplicates))
    run.groups += [[file.path for file in group.files] for group in groups]


def _items(number: int, group: Group, duplicates: Mapping[str, RowNumbers]) -> list[SortItem]:
    most_rows = max(1024, RANGE_BYTES // _row_bytes(group.files))
    return [
        SortItem(number, spans, tuple(duplicates.get(span.file.path, NO_ROWS) for span in spans))
        for spans in row_group_spans(group.files, most_rows)
    ]


def _row_bytes(files: Sequence[DataFile]) -> int:
    """Estimate the bytes of a decoded row: the bytes of its pages, but at least the width of its types."""
    stored = sum(file.uncompressed for file in files) // max(1, sum(file.rows for file in files))
    first = next((file for file in files if file.rows), files[0])
    return max(1, stored, sum(value_bytes(field.type, _TEXT_BYTES) for field in first.schema))


def _prepare(
    engine: Engine, place: Place, groups: Sequence[Group], work: _Work, reporter: Reporter
) -> tuple[SortGroup, ...]:
    """Sample all groups and split each into the ranges of its output files."""
    request = work.request
    assert request.columns is not None
    options = request.scope.options
    schemas = [options.schema_after(joint_schema(group.files, place.path)) for group in groups]
    orders = [_ordering(request, schema) for schema in schemas]
    samples = _samples(engine, place, groups, orders, reporter)
    ready, first = [], 0
    for group, schema, order, sample in zip(groups, schemas, orders, samples, strict=True):
        files = work.files_after(group)
        rows = group.rows - work.dropped(group)
        learned = order.learned(sample_forms(sample, order))
        kept = _without_duplicates(sample, group, work.duplicates)
        weights = _weights(kept, group.files, work.sizes)
        # Ranges have equal weight, so the range of the lightest rows has the most rows.
        most_rows = rows * weights.mean() / weights.min() if len(weights) else 0.0
        inner = ceil(most_rows * _row_bytes(group.files) / max(1, files) / RANGE_BYTES)
        inner = max(1, min(inner, rows // max(1, files)))
        bases = np.cumsum([0, *(file.rows for file in group.files)])
        cuts = make_cuts(kept, learned, bases, files * inner, weights)
        row_form, footer = group_row_form(place.storage, group.files, schema)
        target = work.sizes.target
        ready.append(
            SortGroup(
                row_form,
                footer,
                learned,
                cuts,
                first,
                files,
                inner,
                bases,
                work.sizes.options_for(group.folder),
                work.sizes.group_rows,
                request.blooms,
                (target.bytes, target.rows),
            )
        )
        first += files
    return tuple(ready)


def _weights(sample: pa.Table, files: Sequence[DataFile], sizes: OutputSizes) -> Weights:
    """Return the weight of each sampled row: the bytes of a row of its file, or 1 if the target has a row count."""
    numbers = to_numpy(sample["file"])
    if not len(numbers) or sizes.target.bytes is None or sizes.target.rows is not None:
        return np.ones(len(numbers))
    each = np.array([max(1.0, sizes.weight([file]).data) / max(1, file.rows) for file in files])[numbers]
    weights: Weights = np.maximum(each, each.mean() * _LEAST_WEIGHT)
    return weights


def _ordering(request: OptimizeRequest, schema: pa.Schema) -> Ordering:
    assert request.columns is not None
    types = tuple(key_type(schema.field(name).type) if name in schema.names else pa.null() for name in request.columns)
    return Ordering(request.curve, request.columns, types)


def _samples(
    engine: Engine, place: Place, groups: Sequence[Group], orders: Sequence[Ordering], reporter: Reporter
) -> list[pa.Table]:
    """Sample rows of each group at equal distances. Of a large group only some row groups are read."""
    calls = []
    for group in groups:
        items = row_group_spans(group.files, _SAMPLED_GROUPS_ROWS // 8)
        step = max(1, group.rows // _SAMPLED_GROUPS_ROWS)
        chosen = items[step // 2 :: step] if len(items) > step else items
        rows = sum(span.rows for spans in chosen for span in spans)
        calls.append((chosen, max(1, rows // _SAMPLE_ROWS)))
    on_done = reporter.stage("sample", sum(len(chosen) for chosen, _ in calls))
    return [
        pa.concat_tables(engine.map(SampleRows(place.storage, order, stride), chosen, on_done))
        for (chosen, stride), order in zip(calls, orders, strict=True)
    ]


def _without_duplicates(sample: pa.Table, group: Group, duplicates: Mapping[str, RowNumbers]) -> pa.Table:
    """Return the sampled rows that are not dropped, so that ranges have equal size after the run."""
    files, rows = to_numpy(sample["file"]), to_numpy(sample["row"])
    keep = np.ones(len(rows), dtype=bool)
    for number, file in enumerate(group.files):
        if file.path in duplicates:
            of_file = np.flatnonzero(files == number)
            keep[of_file] = ~np.isin(rows[of_file], duplicates[file.path])
    return sample if keep.all() else sample.filter(to_arrow(keep))
