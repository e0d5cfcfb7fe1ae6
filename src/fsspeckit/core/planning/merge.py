"""Match source rows with target rows: prune by partitions, statistics and Bloom filters, then compare keys.

Only footers and key columns are read. The result has, for each file, its matched rows and the last step that was
applied to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from posixpath import dirname
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.errors import PartitionError
from fsspeckit.core.dataset.indexed_files import DataFiles
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.dataset.source_columns import SourceColumns
from fsspeckit.core.dataset.source_keys import PartitionIdentities, PartitionRows, null_key_error, split_by_partition
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.kernels.match_keys import find_nulls
from fsspeckit.core.model import (
    NO_MATCH,
    NO_ROWS,
    DataFile,
    KeyColumn,
    KeySetSpec,
    Match,
    PartitionValues,
    RowNumbers,
    Scan,
)
from fsspeckit.core.parquet.footer_table import FooterTable, Numbers
from fsspeckit.core.parquet.reader import confirmed
from fsspeckit.core.planning.bloom import drop_by_bloom
from fsspeckit.core.planning.folder_values import check_folder_values
from fsspeckit.core.planning.merge_request import MergeRequest, MergeSchemas, keeps_schema
from fsspeckit.core.planning.pruned_files import (
    PrunedFiles,
    has_no_nulls,
    has_value_of_folder,
    may_have_keys,
    set_aside,
)
from fsspeckit.core.planning.statistics import KeySet, Mask, candidate_row_groups
from fsspeckit.core.progress import Reporter
from fsspeckit.core.storage import Storage

_SHOWN = 5
_ROWS_PER_FILE = 500  # source rows whose keys are sorted in the time in which a file is looked at


@dataclass(frozen=True, slots=True, eq=False)
class MatchedFiles:
    """Every file with its matched rows and the reason, and the source rows without a match, by partition.

    ``moves`` has for each file the rows with the keys of unmatched source rows: these rows move to another partition.
    """

    files: tuple[tuple[DataFile, Match, str], ...]
    groups: tuple[PartitionRows, ...]
    unmatched: tuple[RowNumbers, ...]
    moves: tuple[Match, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Target:
    """The source and the target of a merge, and the engine that matches them."""

    storage: Storage
    snapshot: Snapshot
    source: Source
    schemas: MergeSchemas
    engine: Engine
    reporter: Reporter


def check_target_keys(storage: Storage, snapshot: Snapshot, schemas: MergeSchemas, operation: str) -> None:
    """Raise if a key in the target is null. Columns are read only if their footers have no null counts."""
    for file in snapshot.files:
        if file.rows == 0:
            continue
        for key in schemas.file_keys:
            count = _nulls(storage, file, key.name)
            if count:
                confirmed(storage, file, reads_rows=False)
                raise null_key_error(key.name, f"target (file {file.path})", count, operation)
        in_folder_names = [key.name for key in schemas.keys if key.name not in schemas.body.names]
        for name in in_folder_names:
            if file.partition is None or file.partition[schemas.partitions.index(name)] is None:
                raise null_key_error(name, f"target (file {file.path})", file.rows, operation)


def _nulls(storage: Storage, file: DataFile, key: str) -> int:
    if key not in file.schema.names:
        return file.rows
    if not file.schema.field(key).nullable:
        return 0
    known = file.stats[key].nulls if key in file.stats else (None,)
    if all(count is not None for count in known):
        return sum(count or 0 for count in known)
    return find_nulls(storage, file, key)


def set_aside_without_keys(
    snapshot: Snapshot, source: Source, schemas: MergeSchemas, request: MergeRequest
) -> tuple[Snapshot, PrunedFiles | None]:
    """Return the snapshot of the files that a merge may change or must check, and the other files."""
    if request.rule.delete or source.rows > _ROWS_PER_FILE * len(snapshot.files):
        return snapshot, None
    keys = _key_sets(SourceColumns(source), KeySetSpec(range(source.rows), schemas.file_keys))
    names = [key.name for key in schemas.file_keys]

    def may_change(files: DataFiles, table: FooterTable, numbers: Numbers) -> Mask:
        if not keeps_schema(table.shared.schema, schemas):
            return np.ones(len(numbers), dtype=bool)
        found = may_have_keys(files, table, numbers, keys)
        found |= ~has_value_of_folder(files, table, numbers, schemas.partitions)
        if request.null_keys == "error":
            found |= ~has_no_nulls(files, table, numbers, names)
        return np.asarray(found | (table.numbers("rows")[files.rows_in(table, numbers)] == 0))

    return set_aside(snapshot, may_change)


def match_source(
    engine: Engine,
    storage: Storage,
    snapshot: Snapshot,
    source: Source,
    rows: range | RowNumbers,
    schemas: MergeSchemas,
    request: MergeRequest,
    reporter: Reporter,
) -> MatchedFiles:
    """Find the target row of every source row. Raise if a row would move to another partition."""
    if len(rows) and snapshot.files:
        check_folder_values(engine, storage, snapshot.files, snapshot.partition_columns, schemas.partitions, reporter)
    target = _Target(storage, snapshot, source, schemas, engine, reporter)
    groups, identities = partition_groups(snapshot, source, rows, schemas)
    results = _match_files(target, "match", groups, identities, rows, schemas.partitions)
    is_matched = np.zeros(source.rows, dtype=bool)
    for match, _ in results:
        is_matched[match.source_rows] = True
    unmatched = tuple(_unmatched(group.rows, is_matched) for group in groups)
    moves = _find_moves(target, np.concatenate(unmatched) if unmatched else NO_ROWS, request)
    files = tuple((file, match, reason) for file, (match, reason) in zip(snapshot.files, results, strict=True))
    return MatchedFiles(files, tuple(groups), unmatched, moves)


def partition_groups(
    snapshot: Snapshot, source: Source, rows: range | RowNumbers, schemas: MergeSchemas
) -> tuple[list[PartitionRows], list[str | None]]:
    """Return source rows by partition, with the folders that exist, and the partition of each file."""
    spellings = PartitionIdentities(schemas.partitions, source.schema, schemas.text_folders)
    identities = file_identities(snapshot, schemas.partitions, spellings)
    groups = split_by_partition(source, rows, schemas.partitions, folders_of(snapshot, identities))
    spellings.check(groups)
    return groups, identities


def folders_of(snapshot: Snapshot, identities: Sequence[str | None]) -> dict[str, str]:
    """Return the folder of each partition that has files; ``identities`` has the partition of each file."""
    pairs = reversed(list(zip(snapshot.files, identities, strict=True)))
    return {name: dirname(file.path) for file, name in pairs if name}


def match_anywhere(
    engine: Engine,
    storage: Storage,
    snapshot: Snapshot,
    source: Source,
    rows: RowNumbers,
    schemas: MergeSchemas,
    request: MergeRequest,
    reporter: Reporter,
    *,
    stage: str,
) -> list[tuple[Match, str]]:
    """Return for each file its rows with the keys of some source rows, whatever partition these name, and a reason."""
    target = _Target(storage, snapshot, source, schemas, engine, reporter)
    return _match_in_all_partitions(target, stage, rows, request)


def _unmatched(rows: range | RowNumbers, is_matched: npt.NDArray[np.bool_]) -> RowNumbers:
    if isinstance(rows, range):
        return np.flatnonzero(~is_matched[rows.start : rows.stop]) + rows.start
    return np.asarray(rows[~is_matched[rows]])


def file_identities(snapshot: Snapshot, columns: Sequence[str], spellings: PartitionIdentities) -> list[str | None]:
    """Return the partition of each file by the given columns; ``None`` if its rows have the values, not its folder."""
    if not snapshot.files:
        return []
    at = [snapshot.partition_columns.index(name) for name in columns]
    values: list[PartitionValues | None] = []
    for file in snapshot.files:
        if file.partition is not None:
            values.append(tuple(file.partition[i] for i in at))
        else:
            in_rows = columns and set(columns) <= set(file.schema.names)
            values.append(None if in_rows else (None,) * len(at))
    return spellings.of_all(values)


def _match_files(
    target: _Target,
    stage: str,
    groups: Sequence[PartitionRows],
    identities: Sequence[str | None],
    rows: range | RowNumbers,
    columns: Sequence[str],
) -> list[tuple[Match, str]]:
    """Return for each file its match with the source rows of its partition, and the reason for a file without one."""
    schemas, files = target.schemas, target.snapshot.files
    specs = [KeySetSpec(group.rows, schemas.file_keys) for group in groups]
    names = {key.name for key in schemas.keys}
    # Files outside partition folders are matched with all source rows, by key and partition columns.
    stored = [name for name in columns if name in schemas.body.names and name not in names]
    partition_keys = tuple(KeyColumn(name, schemas.body.field(name).type) for name in stored)
    columns_of_source = SourceColumns(target.source)
    specs.append(KeySetSpec(rows, (*schemas.file_keys, *partition_keys)))
    number = {group.identity: i for i, group in enumerate(groups)}
    spec_of = [len(groups) if name is None else number.get(name) for name in identities]
    result: list[tuple[Match, str]] = [(NO_MATCH, "partition")] * len(files)
    scans: list[tuple[int, Scan]] = []
    for spec_number, spec in enumerate(specs):
        members = [i for i, its_spec in enumerate(spec_of) if its_spec == spec_number]
        if not members or len(spec.rows) == 0:
            continue
        key_sets = _key_sets(columns_of_source, spec)
        candidates = candidate_row_groups([files[i] for i in members], key_sets)
        for i, row_groups in zip(members, candidates, strict=True):
            result[i] = (NO_MATCH, "statistics" if files[i].rows else "empty")
            if row_groups:
                kept = drop_by_bloom(target.storage, files[i], row_groups, key_sets)
                result[i] = (NO_MATCH, "key scan" if kept else "bloom")
                if kept:
                    scans.append((i, Scan(files[i], kept, spec_number)))
    scanned = [scan.file for _, scan in scans]
    scanned_rows, size = sum(file.rows for file in scanned), sum(file.size for file in scanned)
    on_done = target.reporter.stage(stage, len(scans), rows=scanned_rows, size=size)
    matches = target.engine.match(target.storage, target.source, specs, [scan for _, scan in scans], on_done)
    for (i, _), match in zip(scans, matches, strict=True):
        result[i] = (match, "key scan")
    return result


def _key_sets(source: SourceColumns, spec: KeySetSpec) -> dict[str, KeySet]:
    schema = pa.schema([(key.name, key.type) for key in spec.keys])
    table = source.take(spec.rows, schema)
    return {key.name: KeySet.of(table[key.name]) for key in spec.keys}


def _find_moves(target: _Target, rows: RowNumbers, request: MergeRequest) -> tuple[Match, ...]:
    """Return the target rows with the keys of unmatched source rows in other partitions, or raise if there are any."""
    nothing = (NO_MATCH,) * len(target.snapshot.files)
    if request.partition_move == "unchecked" or set(target.schemas.partitions) <= set(request.key_columns):
        return nothing
    if not len(rows):
        return nothing
    found = [match for match, _ in _match_in_all_partitions(target, "check for moves", rows, request)]
    if request.partition_move == "move":
        return tuple(found)
    for file, match in zip(target.snapshot.files, found, strict=True):
        if len(match.source_rows):
            raise _move_error(target, file, match, request)
    return nothing


def _match_in_all_partitions(
    target: _Target, stage: str, rows: RowNumbers, request: MergeRequest
) -> list[tuple[Match, str]]:
    in_key = [name for name in target.schemas.partitions if name in request.key_columns]
    rows = np.sort(rows)
    groups = split_by_partition(target.source, rows, in_key, {})
    spellings = PartitionIdentities(in_key, target.source.schema, target.schemas.text_folders)
    identities = file_identities(target.snapshot, in_key, spellings)
    return _match_files(target, stage, groups, identities, rows, ())


def _move_error(target: _Target, file: DataFile, match: Match, request: MergeRequest) -> PartitionError:
    names = [*request.key_columns, *(n for n in target.schemas.partitions if n not in request.key_columns)]
    schema = pa.schema([target.source.schema.field(name) for name in names])
    return move_error(target.source.take(match.source_rows[:_SHOWN], schema).to_pylist(), file)


def move_error(rows: Sequence[Mapping[str, Any]], file: DataFile) -> PartitionError:
    """Return the error for source rows whose keys are in a file of another partition."""
    return PartitionError(
        f"partition columns cannot change for existing keys: the keys of {list(rows)} are already in {file.path}. "
        'Delete the old rows first, correct the partition column, or pass partition_move="move" to move the rows.'
    )
