"""The straight line of `optimize`: order the rows of each partition, with or without deduplication.

Look, plan, sample, sort through the engine's exchange, commit; a bounded number of groups at a time. Files that stand
in the wanted order already are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import to_arrow, to_numpy
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
from fsspeckit.core.model import DataFile, FileBounds, RowNumbers
from fsspeckit.core.operations.deduplicate import deduplicate, deduplication_details, find_duplicate_rows
from fsspeckit.core.operations.maintenance_run import (
    MaintenanceRun,
    RewriteWork,
    StagedOutput,
    check_value_ranges,
    finished_result,
    load_for,
    measure_sizes,
    planned_result,
    run_rewrites,
    work_size,
)
from fsspeckit.core.operations.row_balance import check_total
from fsspeckit.core.parquet.writer_options import report_codecs
from fsspeckit.core.planning.maintenance_request import (
    Group,
    OptimizeRequest,
    Plan,
    apply_limits,
    commit_rounds,
    plan_deduplicate,
)
from fsspeckit.core.planning.optimize import files_to_consider, files_to_read, outputs, plan_optimize
from fsspeckit.core.planning.output_sizes import OutputSizes, Target
from fsspeckit.core.planning.value_ranges import report_narrow_codes
from fsspeckit.core.progress import Progress, Reporter, reporting
from fsspeckit.core.results import MaintenanceResult
from fsspeckit.core.values.curves import Ordering
from fsspeckit.core.values.keys import key_type

DEFAULT_TARGET = Target(128 * 1024 * 1024, None)
_GROUP_ROWS = 122_880
_SAMPLE_ROWS = 131_072
_SAMPLED_GROUPS_ROWS = 4_000_000
_TEXT_BYTES = 16
_LIGHTEST = 1 / 8  # of the mean: lighter rows would make ranges of too many rows
_NO_ROWS: RowNumbers = np.empty(0, dtype=np.int64)


def optimize(
    engine: Engine, place: Place, request: OptimizeRequest, *, dry_run: bool = False, progress: Progress = None
) -> MaintenanceResult:
    """Order rows over all files of each partition, or tell what that would do."""
    if request.columns is None:
        return _without_order(engine, place, request, dry_run=dry_run, progress=progress)
    with log_unexpected("optimize", place.path), reporting("optimize", progress) as reporter:
        named = list(dict.fromkeys((*request.columns, *request.blooms)))
        snapshot = load_for(place, request.scope, dry_run=dry_run, operation="optimize", stats_for=named)
        assert snapshot.schema is not None
        request.check(snapshot.schema, snapshot.partition_columns)
        check_value_ranges(engine, place, snapshot, "optimize", reporter)
        with report_narrow_codes("optimize", place.path, snapshot):
            return _optimize(engine, place, snapshot, request, reporter, dry_run=dry_run)


def _optimize(
    engine: Engine, place: Place, snapshot: Snapshot, request: OptimizeRequest, reporter: Reporter, *, dry_run: bool
) -> MaintenanceResult:
    work = _Work.plan(engine, place, snapshot, request, reporter)
    run = MaintenanceRun(place, "optimize", snapshot)
    sorts, drops = work.groups("sort"), work.groups("drop")
    if dry_run:
        after = sum(work.files_after(group) for group in sorts)
        left = sum(work.dropped(group) < group.rows for group in drops)
        rows = snapshot.rows - work.removed
        return planned_result(run, work.whole, request.scope, after_files=after + left, after_rows=rows, **work.facts())
    if request.scope.options.compression is None:
        report_codecs(file for group in sorts for file in group.files)
    for groups in commit_rounds(sorts, request.scope.limits):
        _sort(engine, run, groups, work, reporter)
    losses = RewriteWork(Plan(drops, {}), request.scope, work.duplicates)
    run_rewrites(engine, run, losses, reporter, dry_run=False)
    return finished_result(run, work.whole, request.scope, **work.facts())


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """What there is to do: groups to sort, files that only lose rows, and which rows go."""

    request: OptimizeRequest
    sizes: OutputSizes
    whole: Plan
    duplicates: Mapping[str, RowNumbers]
    token: str

    @classmethod
    def plan(
        cls, engine: Engine, place: Place, snapshot: Snapshot, request: OptimizeRequest, reporter: Reporter
    ) -> _Work:
        assert snapshot.schema is not None
        style = OutputStyle(_ordering(request, snapshot.schema), request.blooms, _GROUP_ROWS)
        sizes = OutputSizes.of(snapshot.files, request.target or DEFAULT_TARGET, request.scope.options, style)
        read = _read_ends(engine, place, snapshot, request, reporter)
        at_stake = files_to_consider(snapshot.files, snapshot.schema, request, sizes.target, read)
        sizes = measure_sizes(engine, place, sizes, at_stake, reporter)
        sorts = plan_optimize(snapshot.files, snapshot.schema, request, sizes, read)
        duplicates: Mapping[str, RowNumbers] = {}
        if request.deduplicate is not None:
            duplicates = find_duplicate_rows(engine, place, snapshot, request.deduplicate, reporter)
        sorted_files = {file.path for group in sorts.groups for file in group.files}
        others = [file for file in snapshot.files if file.path not in sorted_files]
        drops = plan_deduplicate(others, duplicates).groups
        touched = {file.path for group in drops for file in group.files}
        skipped = {path: reason for path, reason in sorts.skipped.items() if path not in touched}
        whole = apply_limits(Plan((*sorts.groups, *drops), skipped), request.scope.limits)
        return cls(request, sizes, whole, duplicates, new_token())

    def groups(self, work: str) -> tuple[Group, ...]:
        """The groups of one kind."""
        return tuple(group for group in self.whole.groups if group.work == work)

    @property
    def removed(self) -> int:
        """Rows that go."""
        return sum(self.dropped(group) for group in self.whole.groups)

    def dropped(self, group: Group) -> int:
        """Rows of a group that go."""
        return sum(len(self.duplicates.get(file.path, ())) for file in group.files)

    def files_after(self, group: Group) -> int:
        """Files that a group becomes."""
        return outputs(group.files, self.sizes, self.dropped(group))

    def facts(self) -> dict[str, Any]:
        """What the result says beside the usual."""
        wanted = {"zorder_columns": list(self.request.columns or ()), "curve": self.request.curve}
        if self.request.deduplicate is None:
            return wanted | {"deduplicated": False}
        return wanted | deduplication_details(self.request.deduplicate, self.removed)


def _read_ends(
    engine: Engine, place: Place, snapshot: Snapshot, request: OptimizeRequest, reporter: Reporter
) -> Mapping[str, FileBounds]:
    """How far files reach whose footers do not tell: statistics are missing, or say nothing of NaN."""
    assert snapshot.schema is not None
    files = files_to_read(snapshot.files, snapshot.schema, request)
    if not files:
        return {}
    on_done = reporter.stage("look", len(files))
    with vanished_file_is_conflict(place, "optimize"):
        found = engine.map(ReadFileBounds(place.storage, _ordering(request, snapshot.schema)), files, on_done)
    return {file.path: ends for file, ends in zip(files, found, strict=True)}


def _without_order(
    engine: Engine, place: Place, request: OptimizeRequest, *, dry_run: bool, progress: Progress
) -> MaintenanceResult:
    """Deduplication alone and, where a size is wanted, joining what is small in the same pass."""
    assert request.deduplicate is not None
    result = deduplicate(
        engine,
        place,
        request.deduplicate,
        operation="optimize",
        target=request.target or None,
        dry_run=dry_run,
        progress=progress,
    )
    return replace(result, details={"zorder_columns": None, "curve": request.curve} | dict(result.details))


def _sort(engine: Engine, run: MaintenanceRun, groups: Sequence[Group], work: _Work, reporter: Reporter) -> None:
    """Sort some groups together and commit their new files."""
    place = run.place
    with vanished_file_is_conflict(place, "optimize"):
        ready = _prepare(engine, place, groups, work, reporter)
    items = [
        item
        for number, (group, found) in enumerate(zip(groups, ready, strict=True))
        if found.files
        for item in _items(number, group, work.duplicates)
    ]
    parts = sum(group.files for group in ready)
    on_done = reporter.stage("sort", len(items) + parts, **work_size(groups))
    already = len(run.made)

    def produce(staging: str) -> list[StagedOutput]:
        route = RouteRows(place.storage, ready)
        gather = WriteSortedFile(place.storage, ready, staging, work.token)
        outcomes = engine.exchange(route, items, gather, parts, on_done)
        folders = [group.folder for group, found in zip(groups, ready, strict=True) for _ in range(found.files)]
        kept = [(folder, outcome) for folder, outcome in zip(folders, outcomes, strict=True) if outcome is not None]
        expected = sum(group.rows - work.dropped(group) for group in groups)
        check_total(expected, [outcome for _, outcome in kept], place.path)
        return [
            StagedOutput(outcome, optimized_name(folder, work.token, already + i))
            for i, (folder, outcome) in enumerate(kept)
        ]

    retired = [file for group in groups for file in group.files]
    needed: list[DataFile] = []
    if work.duplicates:
        touched = {file.path for file in (*run.gone, *retired)}
        needed = [file for file in run.snapshot.files if file.path not in touched]
    run.commit(produce, retired, needed, {"files": len(retired)}, alone=bool(work.duplicates))


def _items(number: int, group: Group, duplicates: Mapping[str, RowNumbers]) -> list[SortItem]:
    width = _row_bytes(group.files)
    most_rows = max(1024, RANGE_BYTES // width)
    items = []
    for item in row_group_spans(group.files, most_rows):
        drops = tuple(duplicates.get(stretch.file.path, _NO_ROWS) for stretch in item)
        items.append(SortItem(number, item, drops))
    return items


def _row_bytes(files: Sequence[DataFile]) -> int:
    """Bytes of a decoded row, roughly: what pages held, but no less than the types take."""
    stored = sum(file.uncompressed for file in files) // max(1, sum(file.rows for file in files))
    first = next((file for file in files if file.rows), files[0])
    return max(1, stored, sum(_width(field.type) for field in first.schema))


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
    schemas = [joint_schema(group.files, place.path) for group in groups]
    orders = [_ordering(request, schema) for schema in schemas]
    samples = _samples(engine, place, groups, orders, reporter)
    ready, first = [], 0
    for group, schema, order, sample in zip(groups, schemas, orders, samples, strict=True):
        files = work.files_after(group)
        rows = group.rows - work.dropped(group)
        learned = order.learned(sample_forms(sample, order))
        staying = _without_duplicates(sample, group, work.duplicates)
        weights = _weights(staying, group.files, work.sizes)
        # Ranges weigh the same, so those of the lightest rows have the most of them.
        most_rows = rows * weights.mean() / weights.min() if len(weights) else 0.0
        inner = ceil(most_rows * _row_bytes(group.files) / max(1, files) / RANGE_BYTES)
        inner = max(1, min(inner, rows // max(1, files)))
        bases = np.cumsum([0, *(file.rows for file in group.files)])
        cuts = make_cuts(staying, learned, bases, files * inner, weights)
        row_form, footer = group_row_form(place.storage, group.files, schema)
        options = work.sizes.written_with(group.folder)
        wish = (work.sizes.target.bytes, work.sizes.target.rows)
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
                options,
                work.sizes.group_rows,
                request.blooms,
                wish,
            )
        )
        first += files
    return tuple(ready)


def _weights(sample: pa.Table, files: Sequence[DataFile], sizes: OutputSizes) -> Weights:
    """What each row of a sample will weigh where only bytes are wanted: as much as the rows of its file do."""
    numbers = to_numpy(sample["file"])
    if not len(numbers) or sizes.target.bytes is None or sizes.target.rows is not None:
        return np.ones(len(numbers))
    each = np.array([max(1.0, sizes.weight([file]).parts) / max(1, file.rows) for file in files])[numbers]
    weights: Weights = np.maximum(each, each.mean() * _LIGHTEST)
    return weights


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
        items = row_group_spans(group.files, _SAMPLED_GROUPS_ROWS // 8)
        every = max(1, group.rows // _SAMPLED_GROUPS_ROWS)
        chosen = items[every // 2 :: every] if len(items) > every else items
        read = sum(s.file.row_groups[g] for item in chosen for s in item for g in s.row_groups)
        calls.append((chosen, max(1, read // _SAMPLE_ROWS)))
    on_done = reporter.stage("sample", sum(len(chosen) for chosen, _ in calls))
    return [
        pa.concat_tables(engine.map(SampleRows(place.storage, order, stride), chosen, on_done))
        for (chosen, stride), order in zip(calls, orders, strict=True)
    ]


def _without_duplicates(sample: pa.Table, group: Group, duplicates: Mapping[str, RowNumbers]) -> pa.Table:
    """A sample of the rows that stay, so that ranges are of equal size afterwards."""
    files, rows = to_numpy(sample["file"]), to_numpy(sample["row"])
    keep = np.ones(len(rows), dtype=bool)
    for number, file in enumerate(group.files):
        if file.path in duplicates:
            mine = np.flatnonzero(files == number)
            keep[mine] = ~np.isin(rows[mine], duplicates[file.path])
    return sample if keep.all() else sample.filter(to_arrow(keep))
