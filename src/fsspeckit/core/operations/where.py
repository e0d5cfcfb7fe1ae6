"""The common part of delete and update: find the rows of a dataset for which a condition is true, and change them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from fsspeckit.common.categories import same_categories
from fsspeckit.common.errors import DatasetNotFoundError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.core.dataset.categories import read_categories
from fsspeckit.core.dataset.place import Place, load_unchanged, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import Snapshot, check_one_dataset, full_schema, load_snapshot
from fsspeckit.core.dataset.source import Input, Source
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.expressions.conditions import columns_named, compile_condition, errors_name, parse_once
from fsspeckit.core.expressions.tree import Expression
from fsspeckit.core.model import WriteOptions
from fsspeckit.core.operations.change import PlannedChange, PreparedChange, run_change
from fsspeckit.core.planning.conditions import (
    NO_ROW_MATCHES,
    MatchingRows,
    find_matching_rows,
    set_aside_without_matches,
)
from fsspeckit.core.planning.pinned_plan import check_plan_names
from fsspeckit.core.progress import SILENT, Progress, Reporter, reporting
from fsspeckit.core.results import MergePlan, MergeResult, RowOperation
from fsspeckit.core.storage import Storage


@dataclass(frozen=True, slots=True)
class Target:
    """A dataset whose rows are changed; ``schema`` has all its columns, those of folders included."""

    snapshot: Snapshot
    schema: pa.Schema

    def with_categories(self, storage: Storage, columns: Collection[str]) -> Target:
        """Return the dataset with the categories of ordered columns that get values."""
        snapshot = read_categories(storage, self.snapshot, columns)
        if snapshot is self.snapshot or snapshot.schema is None:
            return self
        own = {field.name: field for field in snapshot.schema}
        fields = [same_categories(field, own.get(field.name, field)) for field in self.schema]
        return Target(snapshot, pa.schema(fields, self.schema.metadata))


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
    retries: int,
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
        change = _ChangeWhere(engine, place, operation, where, compile_change, reporter)
        with engine.open_source(Input(pa.table({})), place.storage, place.scratch) as no_rows:
            return run_change(
                engine,
                place,
                lambda: change.plan(_load(engine, place, operation, columns, dry_run=dry_run), no_rows),
                reporter,
                stats_for=columns,
                started=started,
                dry_run=dry_run,
                pinned=pinned,
                retries=retries,
            )


@dataclass(frozen=True, slots=True, eq=False)
class _ChangeWhere:
    """Plans the change of the rows for which a condition is true."""

    engine: Engine
    place: Place
    operation: RowOperation
    where: Any
    compile_change: Callable[[Target], Prepare]
    reporter: Reporter

    def plan(self, snapshot: Snapshot, no_rows: Source) -> PlannedChange:
        """Plan the change of the files of a snapshot. It depends on files with matching rows."""
        if snapshot.schema is None:
            nothing = PreparedChange(self.operation, self.operation, WriteOptions(), snapshot, {})
            return PlannedChange(nothing, no_rows, snapshot, lambda _: True)
        whole, schema = snapshot, full_schema(snapshot)
        with errors_name("where"):
            condition = compile_condition(self.where, schema)
        snapshot, pruned = set_aside_without_matches(whole, condition)
        prepare = self.compile_change(Target(snapshot, schema))
        with vanished_file_is_conflict(self.place, self.operation):
            rows = self._find(snapshot, schema, condition, self.reporter)
            prepared = prepare(rows, self.reporter)
        prepared = replace(prepared, read=frozenset(match.file.path for match in rows if match.count))
        if pruned is not None:
            prepared = replace(prepared, pruned=pruned, pruned_reasons=defaultdict(lambda: NO_ROW_MATCHES))

        def depends_on(added: Snapshot) -> bool:
            return any(match.count for match in self._find(added, schema, condition, SILENT))

        return PlannedChange(prepared, no_rows, whole, depends_on)

    def _find(
        self, snapshot: Snapshot, schema: pa.Schema, condition: Expression, reporter: Reporter
    ) -> list[MatchingRows]:
        with errors_name("where"):
            return find_matching_rows(self.engine, self.place.storage, snapshot, schema, condition, reporter)


def _load(engine: Engine, place: Place, operation: str, stats_for: Sequence[str], *, dry_run: bool) -> Snapshot:
    """Return a snapshot of a dataset that must exist. A real run first recovers from a crashed writer.

    It exists if it has commits, also if the last file was removed by a version of fsspeckit that kept no columns of it.
    """
    if not dry_run:
        place.journal.recover()

    def load() -> Snapshot:
        view = place.journal.view_to_change()
        if not view.files and not view.head:
            raise DatasetNotFoundError(f"no parquet dataset at {place.path}. Check the path.")
        map_footers = engine.map if engine.distributes else None
        return load_snapshot(place.storage, view, stats_for=stats_for, map_footers=map_footers)

    snapshot = load_unchanged(place, operation, load)
    check_one_dataset(snapshot)
    return snapshot
