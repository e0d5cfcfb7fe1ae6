"""From a snapshot and a source to a draft of a merge: partitions, statistics, Bloom filters, then the keys.

Reads footers' facts and key columns, nothing else, and writes nothing. Each file ends with its matched rows or with
the reason why it has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from posixpath import dirname

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.errors import PartitionError
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.dataset.source_keys import PartitionIdentities, PartitionRows, null_key_error, split_by_partition
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.kernels.match_keys import find_nulls
from fsspeckit.core.model import NO_MATCH, DataFile, KeyColumn, KeySetSpec, Match, RowNumbers, Scan
from fsspeckit.core.planning.bloom import drop_by_bloom
from fsspeckit.core.planning.merge_request import MergeRequest, MergeSchemas
from fsspeckit.core.planning.statistics import KeySet, live_row_groups
from fsspeckit.core.progress import Reporter
from fsspeckit.core.storage import Storage

_NO_ROWS: RowNumbers = np.empty(0, dtype=np.int64)
_SHOWN = 5


@dataclass(frozen=True, slots=True, eq=False)
class MatchedFiles:
    """Every file with its matched rows and the reason, and the source rows that matched nothing."""

    files: tuple[tuple[DataFile, Match, str], ...]
    groups: tuple[PartitionRows, ...]
    unmatched: tuple[RowNumbers, ...]

    @property
    def hits(self) -> int:
        """Target rows that have a source row."""
        return sum(len(match.positions) for _, match, _ in self.files)

    @property
    def new_rows(self) -> int:
        """Source rows that have no target row."""
        return sum(len(rows) for rows in self.unmatched)


@dataclass(frozen=True, slots=True, eq=False)
class _Target:
    """The sides of a merge and who looks things up."""

    storage: Storage
    snapshot: Snapshot
    source: Source
    shape: MergeSchemas
    engine: Engine
    reporter: Reporter


def check_target_keys(storage: Storage, snapshot: Snapshot, shape: MergeSchemas) -> None:
    """Raise for a null key in the target: footers first, then only files whose footers do not tell."""
    for file in snapshot.files:
        if file.rows == 0:
            continue
        for key in shape.file_keys:
            count = _nulls(storage, file, key.name)
            if count:
                raise null_key_error(key.name, f"target (file {file.path})", count)
        inner = [key.name for key in shape.keys if key.name not in shape.body.names]
        for name in inner:
            if file.partition is None or file.partition[shape.partitions.index(name)] is None:
                raise null_key_error(name, f"target (file {file.path})", file.rows)


def _nulls(storage: Storage, file: DataFile, key: str) -> int:
    if key not in file.schema.names:
        return file.rows
    if not file.schema.field(key).nullable:
        return 0
    known = file.stats[key].nulls if key in file.stats else (None,)
    if all(count is not None for count in known):
        return sum(count or 0 for count in known)
    return find_nulls(storage, file, key)


def match_source(
    engine: Engine,
    storage: Storage,
    snapshot: Snapshot,
    source: Source,
    rows: range | RowNumbers,
    shape: MergeSchemas,
    request: MergeRequest,
    reporter: Reporter,
) -> MatchedFiles:
    """Find the target row of every source row."""
    target = _Target(storage, snapshot, source, shape, engine, reporter)
    spellings = _spellings(target, shape.partitions)
    identities = _identities(target, shape.partitions, spellings)
    folders = {
        name: dirname(file.path) for file, name in reversed(list(zip(snapshot.files, identities, strict=True))) if name
    }
    groups = split_by_partition(source, rows, shape.partitions, folders)
    spellings.check(groups)
    found = _look(target, "match", groups, identities, rows, shape.partitions)
    seen = np.zeros(source.rows, dtype=bool)
    for match, _ in found:
        seen[match.source_rows] = True
    unmatched = tuple(_absent(group.rows, seen) for group in groups)
    if request.partition_move == "check":
        _check_moves(target, np.concatenate(unmatched) if unmatched else _NO_ROWS, request)
    files = tuple((file, match, reason) for file, (match, reason) in zip(snapshot.files, found, strict=True))
    return MatchedFiles(files, tuple(groups), unmatched)


def _absent(rows: range | RowNumbers, seen: npt.NDArray[np.bool_]) -> RowNumbers:
    if isinstance(rows, range):
        return np.flatnonzero(~seen[rows.start : rows.stop]) + rows.start
    return np.asarray(rows[~seen[rows]])


def _spellings(target: _Target, columns: Sequence[str]) -> PartitionIdentities:
    return PartitionIdentities(columns, target.source.schema, target.shape.in_folders)


def _identities(target: _Target, columns: Sequence[str], spellings: PartitionIdentities) -> list[str | None]:
    """Which partition each file is in, as far as the given columns tell; ``None`` when only its rows can tell."""
    if not target.snapshot.files:
        return []
    at = [target.snapshot.partition_columns.index(name) for name in columns]
    result: list[str | None] = []
    for file in target.snapshot.files:
        if file.partition is None and columns and set(columns) <= set(file.schema.names):
            result.append(None)
            continue
        values = tuple(file.partition[i] if file.partition is not None else None for i in at)
        result.append(spellings.of(values))
    return result


def _look(
    target: _Target,
    stage: str,
    groups: Sequence[PartitionRows],
    identities: Sequence[str | None],
    rows: range | RowNumbers,
    columns: Sequence[str],
) -> list[tuple[Match, str]]:
    """For each file the match against the group of its partition, or the reason why none was looked for."""
    shape, files = target.shape, target.snapshot.files
    specs = [KeySetSpec(group.rows, shape.file_keys) for group in groups]
    names = {key.name for key in shape.keys}
    loose = tuple(KeyColumn(n, shape.body.field(n).type) for n in columns if n in shape.body.names and n not in names)
    specs.append(KeySetSpec(rows, (*shape.file_keys, *loose)))
    number = {group.identity: i for i, group in enumerate(groups)}
    wanted = [len(groups) if name is None else number.get(name) for name in identities]
    result: list[tuple[Match, str]] = [(NO_MATCH, "partition")] * len(files)
    scans: list[tuple[int, Scan]] = []
    for spec_number, spec in enumerate(specs):
        members = [i for i, want in enumerate(wanted) if want == spec_number]
        if not members or len(spec.rows) == 0:
            continue
        key_sets = _key_sets(target, spec)
        live = live_row_groups([files[i] for i in members], key_sets)
        for i, groups_left in zip(members, live, strict=True):
            result[i] = (NO_MATCH, "statistics" if files[i].rows else "empty")
            if groups_left:
                kept = drop_by_bloom(target.storage, files[i], groups_left, key_sets)
                result[i] = (NO_MATCH, "key scan" if kept else "bloom")
                if kept:
                    scans.append((i, Scan(files[i], kept, spec_number)))
    scanned = [scan.file for _, scan in scans]
    height, size = sum(file.rows for file in scanned), sum(file.size for file in scanned)
    on_done = target.reporter.stage(stage, len(scans), rows=height, size=size)
    matches = target.engine.match(target.storage, target.source, specs, [scan for _, scan in scans], on_done)
    for (i, _), match in zip(scans, matches, strict=True):
        result[i] = (match, "key scan")
    return result


def _key_sets(target: _Target, spec: KeySetSpec) -> dict[str, KeySet]:
    schema = pa.schema([(key.name, key.type) for key in spec.keys])
    table = target.source.take(spec.rows, schema)
    return {key.name: KeySet.of(table[key.name]) for key in spec.keys}


def _check_moves(target: _Target, rows: RowNumbers, request: MergeRequest) -> None:
    """Source keys that stand in another partition than their row says would move; that is refused."""
    in_key = [name for name in target.shape.partitions if name in request.key_columns]
    if len(in_key) == len(target.shape.partitions) or len(rows) == 0:
        return
    rows = np.sort(rows)
    groups = split_by_partition(target.source, rows, in_key, {})
    found = _look(target, "check for moves", groups, _identities(target, in_key, _spellings(target, in_key)), rows, ())
    for file, (match, _) in zip(target.snapshot.files, found, strict=True):
        if len(match.source_rows):
            raise _move_error(target, file, match, request)


def _move_error(target: _Target, file: DataFile, match: Match, request: MergeRequest) -> PartitionError:
    names = [*request.key_columns, *(n for n in target.shape.partitions if n not in request.key_columns)]
    schema = pa.schema([target.source.schema.field(name) for name in names])
    rows = target.source.take(match.source_rows[:_SHOWN], schema).to_pylist()
    return PartitionError(
        f"partition columns cannot change for existing keys: {rows} already stand(s) in {file.path}. Delete the old "
        'rows first, or correct the partition column, or pass partition_move="unchecked" to insert them as new rows'
    )
