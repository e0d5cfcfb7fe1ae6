"""Tombstones of a change feed: find its late changes, and plan the files of the keys that it deletes.

The files of tombstones are a dataset of their own, with the key columns and the sequence of each delete. So they are
pruned, matched and compared like the files of the dataset, and written, joined and exchanged by the same tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import pyarrow as pa

from fsspeckit.common.errors import ColumnNameError, DamagedFileError, SchemaMismatchError
from fsspeckit.common.types import common_type
from fsspeckit.core.commit.emptied import Emptied
from fsspeckit.core.commit.tombstones import FOLDER, TombstoneFile
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot, emptied_as
from fsspeckit.core.dataset.source import Source
from fsspeckit.core.dataset.source_columns import SourceColumns
from fsspeckit.core.dataset.source_keys import PartitionRows
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.file_names import new_file_name
from fsspeckit.core.kernels.row_rules import RowRules, raise_first
from fsspeckit.core.model import NO_ROWS, CombineTask, DataFile, KeyColumn, Outcome, RowNumbers, WriteTask
from fsspeckit.core.parquet.data_files import read_data_files
from fsspeckit.core.planning.merge import match_anywhere
from fsspeckit.core.planning.merge_request import MergeRequest, MergeSchemas, insert_tasks
from fsspeckit.core.planning.merge_rules import MergeRules, RuleCheck, row_rules
from fsspeckit.core.progress import Reporter
from fsspeckit.core.values.keys import key_type

MOST_ROWS = 10_000_000
"""The most tombstones of a dataset. The oldest files beyond it are removed, but never those of the last deletes."""
_PERIODS = 8
"""Tombstones that expire in the same eighth of the time for which they are kept are joined in one file."""
_MOST_FILES = 16
NEW_TOMBSTONES = PartitionRows(f"/{FOLDER}", "", NO_ROWS)
"""Stands for the partition of new tombstones among those of new rows. No folder of a dataset has this name."""


@dataclass(frozen=True, slots=True, eq=False)
class Tombstones:
    """The tombstones of a dataset, and what a feed does to them.

    Attributes:
        slot: The slot of the commit that made the list of files.
        files: The listed files, oldest first.
        snapshot: The same files as a dataset, whose schema has the types of the feed too.
        rules: Compares the sequence of changes with that of tombstones.
        retain: For how many seconds new tombstones are kept; with 0 none is used or kept.
        emptied: The columns of the dataset, if the feed creates it without rows.
        is_changed: Whether the tombstones change, also if no row does.
        new: The tasks that write the new files.
    """

    slot: int
    files: tuple[TombstoneFile, ...]
    snapshot: Snapshot
    rules: RowRules
    retain: int
    emptied: Emptied | None
    is_changed: bool = False
    new: tuple[WriteTask, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the files."""
        assert self.snapshot.schema is not None
        return self.snapshot.schema

    def widen(self, schemas: MergeSchemas) -> MergeSchemas:
        """Return the schemas of a merge with keys in a type in which those of the tombstones can be compared too.

        All keys and sequences must fit these types: those of deletes become new tombstones.
        """
        schemas = replace(schemas, compared=self.schema) if self.retain else schemas
        if not self.files:
            return schemas
        keys = tuple(KeyColumn(key.name, self.schema.field(key.name).type) for key in schemas.keys)
        return replace(schemas, keys=keys)

    def late_rows(
        self,
        engine: Engine,
        place: Place,
        source: Source,
        rows: range | RowNumbers,
        schemas: MergeSchemas,
        request: MergeRequest,
        reporter: Reporter,
    ) -> RowNumbers:
        """Return the source rows that are not newer than a tombstone of their key."""
        if not self.files or not len(rows):
            return NO_ROWS
        own, numbers = MergeSchemas(self.schema, schemas.keys, (), ()), np.asarray(rows, dtype=np.int64)
        found = match_anywhere(
            engine, place.storage, self.snapshot, source, numbers, own, request, reporter, stage="match deleted keys"
        )
        pairs = enumerate(zip(self.snapshot.files, found, strict=True))
        matches = [(number, file, match) for number, (file, (match, _)) in pairs if len(match.positions)]
        check = RuleCheck(engine, place, self.snapshot, SourceColumns(source), self.rules, reporter)
        verdicts = check.apply(matches, conditions=False)
        raise_first(check.failures)
        late = [match.source_rows[~mask] for (_, _, match), (mask, _) in zip(matches, verdicts, strict=True)]
        return np.unique(np.concatenate([NO_ROWS, *late]))

    def with_new(self, rows: range | RowNumbers, schemas: MergeSchemas, request: MergeRequest) -> Tombstones:
        """Return the tombstones with tasks that write those of some source rows."""
        if not len(rows) or not self.retain:
            return self
        columns = replace(schemas, body=self.schema)
        tasks = insert_tasks([(NEW_TOMBSTONES, rows)], columns, self.snapshot, request.options)
        return replace(self, new=tuple(tasks), is_changed=True)

    def after(
        self, outcomes: Sequence[Outcome], now: int, join: Callable[[Sequence[CombineTask]], Sequence[Outcome]]
    ) -> tuple[TombstoneFile, ...] | None:
        """Return all files after the change, oldest first, or None if they stay as they are.

        ``outcomes`` are those of the tasks, ``now`` is the time, and ``join`` runs tasks that join files.
        """
        until = now + self.retain
        new = [TombstoneFile(0, 0, outcome.rows, 0, until, staged=outcome.staged) for outcome in outcomes]
        rows, old = sum(file.rows for file in new), list[TombstoneFile]()
        for file in reversed(self.files):
            rows += file.rows
            if file.until > now and rows <= MOST_ROWS:
                old.insert(0, file)
        if not new:
            return tuple(old) if self.is_changed or len(old) < len(self.files) else None
        groups = list(self._groups(old, until))
        joins = [files for files, is_joined in groups if is_joined]
        joined = iter(join([self._join(files) for files in joins]) if joins else ())
        kept: list[TombstoneFile] = []
        for files, is_joined in groups:
            if is_joined:
                outcome = next(joined)
                ends, since = max(file.until for file in files), max(file.since for file in files)
                kept.append(TombstoneFile(0, 0, outcome.rows, 0, ends, since, outcome.staged))
            else:
                kept += files
        return (*kept, *new)

    def _groups(self, old: Sequence[TombstoneFile], until: int) -> Iterator[tuple[list[TombstoneFile], bool]]:
        """Yield files that expire at about the same time, and whether they are joined. The newest ones can wait."""
        period = max(1, self.retain // _PERIODS)
        for number, files in groupby(old, key=lambda file: file.until // period):
            group = list(files)
            yield group, len(group) >= (_MOST_FILES if number == until // period else 2)

    def _join(self, files: Sequence[TombstoneFile]) -> CombineTask:
        known = dict(zip(self.files, self.snapshot.files, strict=True))
        options = self.new[0].options
        return CombineTask(new_file_name(NEW_TOMBSTONES.folder), tuple(known[f] for f in files), self.schema, options)


def load_tombstones(
    place: Place, snapshot: Snapshot, source: pa.Schema, schemas: MergeSchemas, request: MergeRequest
) -> Tombstones | None:
    """Return the tombstones of a dataset, or None for an operation that is not a change feed.

    Raises:
        ColumnNameError: The tombstones are those of a feed with other key columns or another sequence.
        DamagedFileError: A file is missing or damaged.
    """
    if request.tombstones is None or request.newer_by is None:
        return None
    names = list(dict.fromkeys((*request.key_columns, request.newer_by)))
    schema = _schema(place, source, schemas, names, ())
    empty = Snapshot(place.root, snapshot.view, (), schema, ())
    emptied = None if snapshot.schema is not None else emptied_as(schemas.body, schemas.partitions, source)
    slot, count = snapshot.view.log.tombstones
    if not request.tombstones:
        return Tombstones(slot, (), empty, RowRules(), 0, emptied, is_changed=count > 0)
    found = place.journal.tombstones(snapshot.view)
    files = read_data_files(place.storage, found.located, names) if found.files else []
    for listed, file in zip(found.files, files, strict=True):
        _check(place, listed, file, names, request)
    joint = _schema(place, source, schemas, names, files)
    own = replace(empty, files=tuple(files), schema=joint)
    rules = row_rules(MergeRules(target=joint, newer_by=request.newer_by), source, own)
    return Tombstones(found.slot, found.files, own, rules, request.tombstones, emptied)


def _schema(
    place: Place, source: pa.Schema, schemas: MergeSchemas, names: Sequence[str], files: Sequence[DataFile]
) -> pa.Schema:
    """Return the columns in a type for those of the dataset, of files and of the source, whose values are checked."""
    keys, fields = {key.name: key.type for key in schemas.keys}, []
    for name in names:
        type_ = keys[name] if name in keys else key_type(schemas.body.field(name).type, name)
        for other in (*(file.schema for file in files), source):
            found = common_type(type_, key_type(other.field(name).type, name), checked=True)
            if found is None:
                raise SchemaMismatchError(
                    f"The deleted keys of {place.path} have the column {name!r} as {other.field(name).type}, which "
                    f"cannot be compared with {type_}. Pass tombstones=None once to remove the deleted keys."
                )
            type_ = found
        fields.append((name, type_))
    return pa.schema(fields)


def _check(place: Place, listed: TombstoneFile, file: DataFile, names: Sequence[str], request: MergeRequest) -> None:
    if file.rows != listed.rows:
        raise DamagedFileError(
            f"The file of deleted keys {file.location} does not have {listed.rows:,} rows. Nothing was changed. "
            "Restore it from a backup, or pass tombstones=None once to remove the deleted keys."
        )
    if set(file.schema.names) != set(names):
        raise ColumnNameError(
            f"The deleted keys of {place.path} have the columns {file.schema.names}, but the feed has key_columns="
            f"{list(request.key_columns)} and sequence_by={request.newer_by!r}. Use the same ones, or pass "
            "tombstones=None once to remove the deleted keys."
        )
