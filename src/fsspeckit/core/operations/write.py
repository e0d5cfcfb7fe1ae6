"""Write rows as new files: append, overwrite the dataset, the partitions of the rows, or the rows of a condition.

Only ``replace_where`` rewrites existing files. An append reads one footer to check its schema against the dataset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from posixpath import dirname
from typing import Any, get_args

import pyarrow as pa

from fsspeckit.common.choices import DEFAULT_RETRIES, WriteMode, check_choice
from fsspeckit.common.errors import (
    CommitConflictError,
    DatasetExistsError,
    FsspeckitError,
    PartitionError,
    SchemaMismatchError,
)
from fsspeckit.common.int96 import same_int96
from fsspeckit.common.logging import log_unexpected
from fsspeckit.common.schema import reconcile, same_storage
from fsspeckit.common.stored_types import with_types_kept
from fsspeckit.common.text import is_storable
from fsspeckit.core.commit.emptied import Emptied
from fsspeckit.core.commit.listing import View
from fsspeckit.core.commit.partition_types import PartitionTypes
from fsspeckit.core.commit.transaction import Changes, Commit, Publish, Revalidate
from fsspeckit.core.dataset.categories import categories_for, columns_left, own_categories
from fsspeckit.core.dataset.folder_types import settled, types_written
from fsspeckit.core.dataset.place import Place, load_unchanged, vanished_file_is_conflict
from fsspeckit.core.dataset.snapshot import (
    Snapshot,
    emptied_as,
    load_files,
    load_snapshot,
    partition_layout,
    same_types,
)
from fsspeckit.core.dataset.source import Input, Source
from fsspeckit.core.dataset.source_keys import PartitionIdentities, PartitionRows
from fsspeckit.core.dataset.text_source import TextFiles, read_later
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.expressions.conditions import columns_named, errors_name, parse_once
from fsspeckit.core.file_names import is_data_file, is_inside, new_file_name
from fsspeckit.core.model import Outcome, RewriteTask, Task, WriteOptions, WriteTask
from fsspeckit.core.operations.attempts import Attempts
from fsspeckit.core.operations.change import Revalidation, publications
from fsspeckit.core.operations.replace import Removal, remove_matching_rows
from fsspeckit.core.operations.row_balance import check_balance
from fsspeckit.core.operations.run_tasks import run_tasks
from fsspeckit.core.parquet.stored_types import check_stored
from fsspeckit.core.parquet.writer_options import check_writable
from fsspeckit.core.planning.exchange.routed_rows import ExchangedRows
from fsspeckit.core.planning.folder_values import check_folder_values, may_have_rows_of
from fsspeckit.core.planning.merge_request import (
    check_partition_columns,
    new_file_options,
    partition_columns_of,
    text_folders,
    visible_partitions,
    without_columns,
)
from fsspeckit.core.planning.statistics import KeySet
from fsspeckit.core.planning.written_rows import plan_rows
from fsspeckit.core.progress import Progress, Reporter, reporting
from fsspeckit.core.results import MergeFileMetadata, WriteResult


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """The options of a write, validated."""

    mode: WriteMode = "append"
    partition_by: tuple[str, ...] | None = None
    basename_template: str | None = None
    options: WriteOptions = field(default_factory=WriteOptions)
    replace_where: Any = None

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, get_args(WriteMode))
        if self.replace_where is not None and self.mode != "overwrite":
            raise ValueError(
                f'replace_where needs mode="overwrite", not {self.mode!r}. Pass it, or omit replace_where.'
            )
        template = self.basename_template
        if template is not None and not _is_file_name(template):
            raise ValueError(
                f"basename_template={template!r} is not the name of a data file. Use a name like 'part-{{i}}.parquet'."
            )

    @property
    def replaces_all(self) -> bool:
        """Whether no row of the dataset is kept."""
        return self.mode == "overwrite" and self.replace_where is None


def _is_file_name(template: object) -> bool:
    return is_storable(template) and "/" not in template and is_inside(template) and is_data_file(template)


@dataclass(frozen=True, slots=True)
class _Existing:
    """The existing dataset: its files, the footer of one file, and its partition columns.

    ``identities`` has the partition of each file, in the same order; ``None`` for a file outside partition folders.
    ``source`` are the rows, with partition columns in the types of the dataset.
    """

    view: View
    sample: Snapshot
    partitions: tuple[str, ...]
    identities: Sequence[str | None]
    spellings: PartitionIdentities
    source: Source

    @property
    def folders(self) -> Mapping[str, str]:
        """The folder for new files of each partition. A partition can have several, with other spellings."""
        pairs = zip(reversed(self.identities), reversed(self.view.files), strict=True)
        return {name: dirname(file.path) for name, file in pairs if name is not None}

    def with_categories(self, place: Place, source: Source) -> _Existing:
        """Return the dataset with the categories of the ordered columns that the source writes to."""
        found = categories_for(source, replace(self.sample, view=self.view), place, "write")
        return replace(self, sample=replace(self.sample, schema=found.schema))


def write(
    engine: Engine,
    given: Input,
    place: Place,
    request: WriteRequest,
    *,
    dry_run: bool = False,
    progress: Progress = None,
    retries: int = DEFAULT_RETRIES,
) -> WriteResult:
    """Write a source into a dataset as new files. A dry run only returns their names."""
    started = time.perf_counter()
    with log_unexpected("write", place.path), reporting("write", progress) as reporter, ExitStack() as stack:
        if not dry_run:
            place.journal.recover()
        if request.mode in ("error", "ignore") and not (view := place.journal.view_to_change()).is_missing:
            return _keep_existing(place, view, request, started, dry_run=dry_run)
        with errors_name("replace_where"):
            request = replace(request, replace_where=parse_once(request.replace_where))
        given, parsed = _read_text(replace(given, on_tasks=reporter.tasks("source")), place, request)
        source = stack.enter_context(engine.open_source(given, place.storage, place.scratch))
        attempts = stack.enter_context(Attempts(place, retries))

        def attempt() -> WriteResult:
            existing = _load_existing(place, source, request)
            if parsed is not None and not request.replaces_all and not _same_columns(place, existing.view, parsed):
                raise _changed(place)
            if request.mode in ("error", "ignore") and not existing.view.is_missing:
                return _keep_existing(place, existing.view, request, started, dry_run=dry_run)
            work = _Work.plan(engine, place, existing, request, reporter)
            if dry_run:
                return work.result(None, (), None, started)
            return work.commit(engine, attempts, reporter, started)

        return attempts.run(attempt)


def _same_columns(place: Place, view: View, parsed: Snapshot) -> bool:
    """Return whether a dataset still has the columns with which text files were parsed."""
    if view.head == parsed.view.head and len(view.files) == len(parsed.view.files):
        return True
    with vanished_file_is_conflict(place, "write"):
        return same_types(load_snapshot(place.storage, view), parsed)


def _changed(place: Place) -> CommitConflictError:
    return CommitConflictError(
        f"{place.path}: another writer committed files or columns on which this write depends. "
        "Nothing was changed. Run the operation again."
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """A planned write: the new files, the files to delete, and the rows to remove.

    ``emptied`` returns the columns of the dataset if no row is left. ``examine`` returns what the write must know of a
    view, and the files to delete then. ``exchanged`` has the routes
    of source rows to tasks, if the source is exchanged.
    """

    place: Place
    request: WriteRequest
    existing: _Existing
    new: Sequence[WriteTask]
    retire: tuple[str, ...]
    removal: Removal
    rows: int
    emptied: Callable[[], Emptied | None]
    examine: Callable[[View], tuple[_Existing, tuple[str, ...]]]
    exchanged: ExchangedRows | None = None

    @classmethod
    def plan(
        cls,
        engine: Engine,
        place: Place,
        existing: _Existing,
        request: WriteRequest,
        reporter: Reporter,
    ) -> _Work:
        """Check the source against the dataset, and plan the write."""
        source = existing.source
        if not request.replaces_all:
            existing = existing.with_categories(place, source)
        body = _body(source, existing, request, place.path)
        partitions, folders, most = existing.partitions, existing.folders, request.options.max_rows_per_file
        rows = plan_rows(engine, source, body, partitions, folders, most, place.path, reporter)
        groups = rows.groups
        existing.spellings.check(groups)
        tasks = _tasks(groups, body, existing, request)
        where, options = request.replace_where, request.options
        removal = remove_matching_rows(engine, place, existing.sample, source, where, options, reporter)
        retire = (*_files_to_delete(existing, groups, request), *removal.deletes)
        if request.mode == "overwrite_partitions":
            _check_partitions(engine, place, rows.values, existing, retire, reporter)

        def examine(view: View) -> tuple[_Existing, tuple[str, ...]]:
            newer = _examine(place, view, source, request)
            if not _body(source, newer, request, place.path).equals(body):
                raise _changed(place)
            return newer, _files_to_delete(newer, groups, request)

        def left() -> Emptied | None:
            if request.replaces_all or existing.sample.schema is None:
                return emptied_as(own_categories(body, source), partitions, source.schema)
            return columns_left(place.storage, replace(existing.sample, view=existing.view))

        count, routes = source.rows, rows.exchanged
        return cls(place, request, existing, tasks, retire, removal, count, left, examine, routes)

    def commit(self, engine: Engine, attempts: Attempts, reporter: Reporter, started: float) -> WriteResult:
        """Stage the new files and commit them."""
        source = self.existing.source
        transaction = attempts.begin(self.existing.view, f"write:{self.request.mode}")
        outcomes = attempts.staged.run(
            source, self.tasks, lambda tasks: self._run(engine, source, tasks, transaction.staging, reporter)
        )
        changes = self.changes(outcomes)
        has_changes = not changes.is_empty or self.place.journal.terms
        commit = transaction.commit(changes, self._revalidation()) if has_changes else None
        return self.result(outcomes, changes.publish, commit, started)

    def _revalidation(self) -> Revalidate | None:
        """Return the check of a newer view. Modes that replace or refuse all files have none."""
        if self.removal.rows is not None:
            columns = columns_named(self.request.replace_where)
            return Revalidation(self.place, self.existing.sample, columns, self.removal.depends_on)
        return self._check_newer if self.request.mode in ("append", "overwrite_partitions") else None

    def _check_newer(self, view: View, new: frozenset[str]) -> None:
        """Raise if a newer view has other columns, other files to delete, or new files outside of partitions."""
        try:
            newer, retire = self.examine(view)
        except (FsspeckitError, ValueError) as error:
            if isinstance(error, OSError):
                raise
            raise _changed(self.place) from error
        pairs = zip(newer.view.files, newer.identities, strict=True)
        outside = [file.path for file, name in pairs if name is None and file.path in new]
        is_same = newer.partitions == self.existing.partitions and set(retire) == set(self.retire)
        is_same &= newer.sample.view.partition_types == self.existing.sample.view.partition_types
        if not is_same or (outside and self.request.mode == "overwrite_partitions"):
            raise _changed(self.place)

    @property
    def tasks(self) -> tuple[RewriteTask | WriteTask, ...]:
        """All tasks, rewrites first."""
        return (*self.removal.rewrites, *self.new)

    def _run(
        self, engine: Engine, source: Source, tasks: Sequence[Task], staging: str, reporter: Reporter
    ) -> list[Outcome]:
        """Write files to the staging folder."""
        size = sum(task.weight for task in tasks)
        on_done = reporter.stage("write", len(tasks), rows=self.rows, size=size)
        with vanished_file_is_conflict(self.place, "write"):
            outcomes = run_tasks(engine, self.place.storage, source, self.exchanged, tasks, staging, on_done)
        check_balance(tasks, outcomes, self.place.path)
        return outcomes

    def changes(self, outcomes: Sequence[Outcome]) -> Changes:
        """Return the change to commit. The first append needs a complete view: others may create the dataset too."""
        publish, renamed = publications(self.place, self.tasks, outcomes)
        mode = self.request.mode
        needs_view = mode != "append" or not self.existing.view.files
        info = {"operation": "write", "mode": mode, "rows": self.rows}
        slot, tombstones = self.existing.view.log.tombstones
        if self.removal.rows is not None:
            info["replaced"] = self.removal.rows
        return Changes(
            publish,
            (*self.retire, *renamed),
            complete_view=needs_view,
            info=info,
            emptied=self.emptied,
            is_empty_write=not publish and (self.request.replaces_all or self.existing.view.is_missing),
            tombstones=() if self.request.replaces_all and tombstones else None,
            tombstones_at=slot if self.request.replaces_all else None,
            partition_types=self._partition_types,
        )

    @property
    def _partition_types(self) -> PartitionTypes | None:
        """The types of the partition columns after the write."""
        existing = self.existing
        sample = replace(existing.sample, schema=None) if self.request.replaces_all else existing.sample
        return types_written(sample, existing.partitions, existing.source)

    def result(
        self, outcomes: Sequence[Outcome] | None, publish: Sequence[Publish], commit: Commit | None, started: float
    ) -> WriteResult:
        """Return the result; that of a dry run has no outcomes."""
        count, full = len(self.removal.rewrites), self.place.full
        sizes = [None] * len(self.new) if outcomes is None else [outcome.size for outcome in outcomes[count:]]
        rewritten = [item.path for item in publish[:count]] or [task.file.path for task in self.removal.rewrites]
        return WriteResult(
            mode=self.request.mode,
            rows=sum(task.rows_out for task in self.new),
            files=[
                MergeFileMetadata(full(task.path), task.rows_out, "inserted", size)
                for task, size in zip(self.new, sizes, strict=True)
            ],
            deleted_files=[full(path) for path in self.retire],
            commit_seq=commit.seq if commit else None,
            seconds=time.perf_counter() - started,
            commit_seconds=commit.seconds if commit else 0.0,
            dry_run=outcomes is None,
            rewritten_files=[full(path) for path in rewritten],
            replaced=self.removal.rows,
            path=self.place.path,
            published=commit is None or commit.published,
            partition_types=[] if commit is None else list(commit.partition_types),
        )


def _keep_existing(place: Place, view: View, request: WriteRequest, started: float, *, dry_run: bool) -> WriteResult:
    """Raise because the dataset exists, or return a result without files if the mode is to ignore the write."""
    if request.mode == "error":
        found = f"already has {len(view.files):,} data file(s)" if view.files else "is a dataset without rows"
        raise DatasetExistsError(
            f'{place.path} {found}, and mode="error" writes only a new dataset. '
            "Nothing was changed. Use another path, or another mode."
        )
    commit = None
    if place.journal.terms and not dry_run:
        with place.journal.begin(view, "write:ignore") as transaction:
            info = {"operation": "write", "mode": request.mode, "rows": 0}
            commit = transaction.commit(Changes(info=info))
    return WriteResult(
        mode=request.mode,
        rows=0,
        commit_seq=commit.seq if commit else None,
        seconds=time.perf_counter() - started,
        commit_seconds=commit.seconds if commit else 0.0,
        dry_run=dry_run,
        skipped=True,
        path=place.path,
    )


def _read_text(given: Input, place: Place, request: WriteRequest) -> tuple[Input, Snapshot | None]:
    """Parse CSV and JSON files with the types of the dataset, unless it is overwritten. Return it with these types."""
    if not isinstance(given.data, TextFiles):
        return given, None

    def load() -> tuple[View, Snapshot]:
        view = place.journal.view()
        view = replace(view, files=(), emptied=None) if request.replaces_all else view
        return view, load_snapshot(place.storage, view)

    view, whole = load_unchanged(place, "write", load)
    return read_later(given, replace(whole, view=view)), whole


def _load_existing(place: Place, source: Source, request: WriteRequest) -> _Existing:
    """Return what the write must know of the dataset. An append needs no consistent view, unless it shows an error."""
    if request.mode == "append" and place.journal.terms.check is None and not place.storage.is_local:
        with suppress(FsspeckitError, OSError):
            return _examine(place, place.journal.view_to_change(consistent=False), source, request)
    return _examine(place, place.journal.view_to_change(), source, request)


def _examine(place: Place, view: View, source: Source, request: WriteRequest) -> _Existing:
    sample = _load_sample(place, view, source, request)
    columns, values = partition_layout([file.path for file in view.files])
    columns = sample.partition_columns if view.emptied is not None else columns
    if request.replaces_all:
        requested = columns if request.partition_by is None else tuple(request.partition_by)
        partitions = columns if requested == columns else visible_partitions(requested)
    else:
        partitions = partition_columns_of(replace(sample, partition_columns=columns), request.partition_by)
    check_partition_columns(partitions, source.schema, request.partition_by)
    if request.mode == "overwrite_partitions" and not partitions:
        remedy = 'Pass partition_by or mode="overwrite".' if view.is_missing else 'Use mode="overwrite".'
        raise PartitionError(f'mode="overwrite_partitions" needs a partitioned dataset. {remedy}')
    if not request.replaces_all and sample.schema is not None:
        sample = replace(sample, partition_columns=columns)
        source, sample = settled(source, sample, [each for each in values if each is not None])
        view = replace(view, partition_types=sample.view.partition_types)
    spellings = PartitionIdentities(partitions, source.schema, text_folders(sample))
    keeps = partitions == columns and not request.replaces_all
    identities = spellings.of_all([texts if keeps else None for texts in values])
    return _Existing(view, sample, partitions, identities, spellings, source)


def _load_sample(place: Place, view: View, source: Source, request: WriteRequest) -> Snapshot:
    """Return a snapshot of one file with the columns of the source, or of all files to find rows or columns in them."""
    with vanished_file_is_conflict(place, "write"):
        if request.replace_where is not None:
            return load_snapshot(place.storage, view, stats_for=columns_named(request.replace_where))
        one = load_snapshot(place.storage, replace(view, files=view.files[:1]))
        if request.replaces_all or len(view.files) < 2 or _has_columns(one, source.schema):
            return one
        return replace(one, schema=load_snapshot(place.storage, view).schema)


def _has_columns(one: Snapshot, source: pa.Schema) -> bool:
    """Return whether the source has the columns of a file, with their types, and no others."""
    own = {} if one.schema is None else {field.name: field.type for field in one.schema}
    given = {field.name: field.type for field in source if field.name in own or field.name not in one.partition_columns}
    return own.keys() == given.keys() and all(same_storage(type_, given[name]) for name, type_ in own.items())


def _body(source: Source, existing: _Existing, request: WriteRequest, path: str) -> pa.Schema:
    """Return the schema of the new files. Unless the dataset is overwritten, it is the schema of the dataset."""
    target = existing.sample.schema
    if request.replaces_all or target is None:
        body = without_columns(source.schema, existing.partitions)
        body = body if target is None else with_types_kept(same_int96(body, target), target)
    else:
        ours = source.schema_for(target)
        ours = without_columns(ours, [name for name in existing.partitions if name not in target.names])
        body = reconcile(target, ours, operation=request.mode, path=path)
    if not body.names:
        problem = "every column is a partition column" if source.schema.names else "the source has no columns"
        raise SchemaMismatchError(f"{problem}. Add a column that is not a partition column.")
    check_writable(body, request.mode)
    check_stored(body, request.mode)
    return body


def _tasks(
    groups: Sequence[PartitionRows], body: pa.Schema, existing: _Existing, request: WriteRequest
) -> list[WriteTask]:
    options, step = request.options, request.options.max_rows_per_file
    if not request.replaces_all:
        options = new_file_options(existing.sample, options)
    pieces = [
        (group.folder, group.rows[start : start + step])
        for group in groups
        for start in range(0, len(group.rows), step)
    ]
    replaces_all = request.replaces_all or existing.view.is_missing
    if not pieces and replaces_all and not existing.partitions:
        pieces = [("", range(0))]
    names = [new_file_name(folder, request.basename_template, i) for i, (folder, _) in enumerate(pieces)]
    _check_names(names, existing.view, request)
    return [WriteTask(name, rows, body, options) for name, (_, rows) in zip(names, pieces, strict=True)]


def _check_names(names: Sequence[str], view: View, request: WriteRequest) -> None:
    taken = {file.path for file in view.files} & set(names)
    if taken or len(set(names)) < len(names):
        what = f"gives the name of the existing file {sorted(taken)[0]}" if taken else "gives two new files one name"
        raise ValueError(
            f"basename_template={request.basename_template!r} {what}. "
            "Add {i} and something unique, such as a date, to it."
        )


def _files_to_delete(existing: _Existing, groups: Sequence[PartitionRows], request: WriteRequest) -> tuple[str, ...]:
    if request.replaces_all:
        return tuple(file.path for file in existing.view.files)
    if request.mode != "overwrite_partitions":
        return ()
    replaced = {group.identity for group in groups}
    pairs = zip(existing.identities, existing.view.files, strict=True)
    return tuple(file.path for name, file in pairs if name in replaced)


def _check_partitions(
    engine: Engine,
    place: Place,
    values: Callable[[str], pa.ChunkedArray],
    existing: _Existing,
    deleted: Sequence[str],
    reporter: Reporter,
) -> None:
    """Raise if a file to delete has rows of other partitions, or a file that stays may have rows of these.

    ``values`` returns a partition column of the source.
    """
    outside = {file.path for name, file in zip(existing.identities, existing.view.files, strict=True) if name is None}
    read = outside | set(deleted)
    view = replace(existing.view, files=tuple(file for file in existing.view.files if file.path in read))
    with vanished_file_is_conflict(place, "write"):
        columns, files = load_files(place.storage, view, existing.partitions)
        check_folder_values(engine, place.storage, files, columns, columns, reporter)
    keys = {name: KeySet.of(values(name)) for name in existing.partitions} if outside else {}
    for file in files:
        if file.path in outside and may_have_rows_of(file, keys):
            raise PartitionError(
                f"{file.path} is outside the partition folders and may have rows of the partitions to replace. "
                "Nothing was changed. Move its rows into partition folders first."
            )
