"""Check a change feed that is applied as history (type 2), and plan the changes to history rows.

Nothing here writes files. All checks raise before the first write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.choices import EvolveFiles, SchemaMode
from fsspeckit.common.errors import ColumnNameError, PartitionError, SchemaMismatchError
from fsspeckit.common.schema import field_remedy
from fsspeckit.core.dataset.snapshot import Snapshot, full_schema
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.kernels.history_rows import ReadHistory
from fsspeckit.core.model import Match, RowNumbers
from fsspeckit.core.planning.merge_request import (
    FileChange,
    MergeRequest,
    MergeSchemas,
    check_keys_exist,
    columns_not_written,
    merge_schemas,
    partition_columns_of,
    without_columns,
)
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.history import (
    HISTORY_COLUMNS,
    IS_CURRENT,
    VALID_FROM,
    VALID_TO,
    HistoryChanges,
    HistoryLayout,
)
from fsspeckit.core.values.keys import check_sortable

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """The options of a change feed that is applied as history."""

    key_columns: tuple[str, ...]
    sequence_by: str
    delete_when: str | None = None
    columns: tuple[str, ...] | None = None
    except_columns: tuple[str, ...] = ()
    ignore_null_updates: bool = False
    partition_by: tuple[str, ...] | None = None
    schema_mode: SchemaMode = "strict"
    evolve_files: EvolveFiles | None = None

    @property
    def feed(self) -> MergeRequest:
        """The request in terms of the feed: its keys, its conditions, its columns."""
        return MergeRequest(
            strategy="upsert",
            key_columns=self.key_columns,
            partition_by=self.partition_by,
            delete_when=self.delete_when,
            columns=self.columns,
            except_columns=self.except_columns,
            schema_mode=self.schema_mode,
            operation="apply_changes",
        )

    @property
    def writing(self) -> MergeRequest:
        """The request in terms of history rows, which key and start identify."""
        keys = (*self.key_columns, VALID_FROM)
        return MergeRequest(
            strategy="upsert",
            key_columns=keys,
            partition_by=self.partition_by,
            schema_mode=self.schema_mode,
            evolve_files=self.evolve_files,
            operation="apply_changes",
        )


@dataclass(frozen=True, slots=True)
class HistorySchemas:
    """Schemas of a history.

    Attributes:
        writing: The schemas of the history rows, whose key is the key of the feed and the start.
        matching: The same with the key of the feed.
        rows: History rows in memory: all columns are nullable and plain, and partition columns are included.
        written: The columns of the feed that history rows have.
        layout: The roles of the columns.
    """

    writing: MergeSchemas
    matching: MergeSchemas
    rows: pa.Schema
    written: tuple[str, ...]
    layout: HistoryLayout


def feed_target(snapshot: Snapshot, request: HistoryRequest) -> pa.Schema | None:
    """Return the schema of the dataset in terms of the feed: the sequence has the type of the starts."""
    known = snapshot.schema
    if known is None or VALID_FROM not in known.names or request.sequence_by in known.names:
        return known
    return known.append(known.field(VALID_FROM).with_name(request.sequence_by))


def history_schemas(
    feed: pa.Schema, snapshot: Snapshot, request: HistoryRequest, path: str, *, ordered: bool
) -> HistorySchemas:
    """Check keys, sequence and columns of feed and dataset, and return the schemas of the history."""
    check_keys_exist(request.key_columns, feed.names, "source")
    _check_sequence_column(feed, request)
    _check_history_columns(feed, snapshot, path)
    partitions = partition_columns_of(snapshot, request.partition_by)
    if clash := [name for name in (VALID_FROM, VALID_TO) if name in partitions]:
        raise PartitionError(
            f"a history cannot be partitioned by {clash}. Choose {IS_CURRENT!r} or a column of the feed."
        )
    new = _history_schema(feed, snapshot, request, partitions)
    _check_no_column_is_missing(new, snapshot, request, path)
    writing = merge_schemas(new, snapshot, request.writing, path)
    matching = replace(writing, keys=tuple(key for key in writing.keys if key.name != VALID_FROM))
    if not matching.file_keys:
        raise ColumnNameError("all key columns are partition columns. Name at least one column that is in the files.")
    fields = [*writing.body, *(new.field(name) for name in writing.in_folders)]
    rows = pa.schema([pa.field(field.name, _plain(field.type)) for field in fields])
    untracked = {*request.key_columns, *HISTORY_COLUMNS, request.sequence_by}
    layout = HistoryLayout(
        keys=matching.keys,
        tracked=tuple(name for name in rows.names if name not in untracked),
        partitions=partitions,
        ignore_nulls=request.ignore_null_updates,
        ordered=ordered,
    )
    written = tuple(name for name in rows.names if name in feed.names)
    return HistorySchemas(writing, matching, rows, written, layout)


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _check_sequence_column(feed: pa.Schema, request: HistoryRequest) -> None:
    name = request.sequence_by
    if name not in feed.names:
        remedy = field_remedy([name], feed.names) or f"Choose among {feed.names}."
        raise ColumnNameError(f"the source does not have the column {name!r} of sequence_by. {remedy}")
    if name in request.key_columns:
        raise ColumnNameError(f"sequence_by={name!r} is a key column. Name the column that orders changes.")
    check_sortable(feed.field(name), "sequence_by")


def _check_history_columns(feed: pa.Schema, snapshot: Snapshot, path: str) -> None:
    if clash := [name for name in feed.names if name.lower() in HISTORY_COLUMNS]:
        raise SchemaMismatchError(f"the source has the column(s) {clash}, which scd_type=2 adds. Rename them.")
    if snapshot.schema is None:
        return
    known = full_schema(snapshot)
    advice = "Apply the feed to a new dataset, or with scd_type=1."
    if missing := [name for name in HISTORY_COLUMNS if name not in known.names]:
        raise SchemaMismatchError(f"{path} is not a history: it lacks the column(s) {missing}. {advice}")
    start, end = (_plain(known.field(name).type) for name in (VALID_FROM, VALID_TO))
    if start != end:
        raise SchemaMismatchError(f"{path}: {VALID_FROM} is {start} and {VALID_TO} is {end}. Give both one type.")
    current = known.field(IS_CURRENT).type
    if IS_CURRENT in snapshot.schema.names and not pa.types.is_boolean(current):
        raise SchemaMismatchError(f"{path}: {IS_CURRENT} is {current} and must be bool. {advice}")


def _check_no_column_is_missing(new: pa.Schema, snapshot: Snapshot, request: HistoryRequest, path: str) -> None:
    """Raise if the feed lacks a column that new history rows would then not have; other modes refuse it anyway."""
    known = () if snapshot.schema is None else snapshot.schema.names
    if missing := [name for name in known if name not in new.names and request.schema_mode == "evolve"]:
        raise SchemaMismatchError(
            f"apply_changes of {path}: the feed lacks the columns {missing} of the history. Add them to the feed."
        )


def _history_schema(
    feed: pa.Schema, snapshot: Snapshot, request: HistoryRequest, partitions: Sequence[str]
) -> pa.Schema:
    """Return the columns of new history rows. The sequence is ``valid_from``, and a column of its own where wanted."""
    known = snapshot.schema.names if snapshot.schema is not None else ()
    left_out = {*columns_not_written(request.feed, feed, partitions, known), request.sequence_by}
    if request.sequence_by in {*(request.columns or ()), *known, *partitions}.difference(request.except_columns):
        left_out.remove(request.sequence_by)
    type_ = _plain(feed.field(request.sequence_by).type)
    added = [pa.field(VALID_FROM, type_), pa.field(VALID_TO, type_), pa.field(IS_CURRENT, pa.bool_())]
    kept = without_columns(feed, sorted(left_out))
    metadata = {name: value for name, value in (kept.metadata or {}).items() if name != b"pandas"}
    return pa.schema([*kept, *added], metadata or None)


def check_feed_values(
    source: Source, schemas: HistorySchemas, request: HistoryRequest, path: str, deletes: Mask | None
) -> None:
    """Raise if a value of a change does not fit the type of the dataset; ``deletes`` marks changes without values."""
    compared = ordering_columns(schemas, request)
    source.check_casts(feed_columns(schemas), operation="apply_changes", path=path, without=deletes, compared=compared)


def ordering_columns(schemas: HistorySchemas, request: HistoryRequest) -> pa.Schema:
    """Return the keys and the sequence of the feed with the types of the dataset, which all changes must fit."""
    start = schemas.rows.field(VALID_FROM).with_name(request.sequence_by)
    return pa.schema([*(schemas.rows.field(key.name) for key in schemas.matching.keys), start])


def feed_columns(schemas: HistorySchemas) -> pa.Schema:
    """Return the columns of files that get values of the feed."""
    names = [name for name in schemas.written if name in schemas.writing.body.names]
    return pa.schema([schemas.writing.body.field(name) for name in names])


def read_history(storage: Storage, snapshot: Snapshot, schemas: HistorySchemas, request: HistoryRequest) -> ReadHistory:
    """Return a function that reads changes and history rows."""
    columns = snapshot.partition_columns
    in_folders = [(name, columns.index(name)) for name in schemas.writing.in_folders] if columns else []
    return ReadHistory(
        storage, schemas.rows, request.key_columns, schemas.written, request.sequence_by, tuple(in_folders)
    )


@dataclass(frozen=True, slots=True, eq=False)
class PlannedHistory:
    """The changes to files and the source rows to insert."""

    files: tuple[FileChange, ...]
    inserts: RowNumbers
    moved: int
    effective: int


def plan_history(found: Sequence[HistoryChanges], snapshot: Snapshot, reasons: Sequence[str]) -> PlannedHistory:
    """Return the changes to each file. Rows of ``found`` are source rows, numbered in order."""
    files, positions, dropped_files, dropped = (
        np.concatenate([np.empty(0, dtype=np.int64), *arrays])
        for arrays in zip(
            *((each.files, each.positions, each.removed_files, each.removed_positions) for each in found), strict=True
        )
    )
    replaced = np.flatnonzero(files >= 0)
    replaced = replaced[np.lexsort((positions[replaced], files[replaced]))]
    removed = np.lexsort((dropped, dropped_files))
    numbers = np.arange(len(snapshot.files) + 1)
    cuts = np.searchsorted(files[replaced], numbers)
    ends = np.searchsorted(dropped_files[removed], numbers)
    changes = []
    for number, (file, reason) in enumerate(zip(snapshot.files, reasons, strict=True)):
        rows = replaced[cuts[number] : cuts[number + 1]]
        lost = dropped[removed[ends[number] : ends[number + 1]]]
        changes.append(FileChange(file, Match(positions[rows], rows), lost, reason))
    return PlannedHistory(
        files=tuple(changes),
        inserts=np.flatnonzero(files < 0),
        moved=sum(each.moved for each in found),
        effective=sum(each.effective for each in found),
    )
