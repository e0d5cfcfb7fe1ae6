"""Rows that a merge moves to another partition and that keep values of the target.

Such a row is read from its old file. A row of which the source has all values is written from the source instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import text_array, to_numpy
from fsspeckit.common.errors import PartitionError
from fsspeckit.common.partitions import partition_folders, render, typed_values
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.dataset.source_columns import SourceColumns
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.kernels.read_values import ReadValues
from fsspeckit.core.model import DataFile, Match, MoveTask, RewriteTask, RowChange
from fsspeckit.core.planning.merge import MatchedFiles
from fsspeckit.core.planning.merge_request import MergeRequest, MergeSchemas
from fsspeckit.core.planning.moves import existing_folders, move_tasks
from fsspeckit.core.progress import Reporter
from fsspeckit.core.storage import Storage

_Places = tuple[pa.Array, npt.NDArray[np.bool_]]
"""The folder of each row of a match after the merge, and whether the row stays in its partition."""


@dataclass(frozen=True, slots=True, eq=False)
class MergeMoves:
    """Plans the moves of a merge."""

    engine: Engine
    storage: Storage
    snapshot: Snapshot
    source: SourceColumns
    schemas: MergeSchemas
    request: MergeRequest
    reporter: Reporter

    @property
    def need_old_rows(self) -> bool:
        """Whether a row that moves keeps values of the target."""
        return self.schemas.updated is not None or self.request.ignore_null_updates

    def without_null_moves(self, matched: MatchedFiles) -> MatchedFiles:
        """Return the matches in which rows do not move if NULL in the source keeps their partition value."""
        if not self.request.ignore_null_updates or not any(len(match.positions) for match in matched.moves):
            return matched
        stays = [stays for _, stays in self._places(matched.moves)]
        kept = [_chosen(match, mask) for match, mask in zip(matched.moves, stays, strict=True)]
        moves = [_chosen(match, ~mask) for match, mask in zip(matched.moves, stays, strict=True)]
        files = [
            (file, _joined(match, own), "key scan" if len(own.positions) else reason)
            for (file, match, reason), own in zip(matched.files, kept, strict=True)
        ]
        updated = np.concatenate([match.source_rows for match in kept])
        unmatched = tuple(rows[~np.isin(rows, updated)] for rows in matched.unmatched)
        return replace(matched, files=tuple(files), unmatched=unmatched, moves=tuple(moves))

    def tasks(self, moves: Sequence[Match]) -> list[MoveTask]:
        """Return the tasks that write moved rows to their partitions; ``moves`` has the moved rows of each file."""
        if not any(len(match.positions) for match in moves):
            return []
        return move_tasks(self._parts(moves), self.schemas.body, self.snapshot, self.request.options)

    def _parts(self, moves: Sequence[Match]) -> Iterator[tuple[str, RewriteTask]]:
        request, schemas = self.request, self.schemas
        types = pa.schema([self.source.schema.field(name) for name in schemas.partitions])
        existing = existing_folders(self.snapshot, types, schemas.text_folders)
        columns = None if schemas.updated is None else tuple(dict.fromkeys((*schemas.updated, *schemas.partitions)))
        for file, match, (folders, _) in zip(self.snapshot.files, moves, self._places(moves), strict=True):
            encoded = pc.dictionary_encode(folders)
            for number, folder in enumerate(encoded.dictionary.to_pylist()):
                part = _chosen(match, to_numpy(encoded.indices) == number)
                change = RowChange(
                    replaced=part.positions,
                    source_rows=part.source_rows,
                    drop_others=True,
                    columns=columns,
                    keep_for_null=request.ignore_null_updates,
                )
                task = RewriteTask(file, change, schemas.body, request.key_columns, True, request.options)
                yield existing.get(folder, folder), task

    def _places(self, moves: Sequence[Match]) -> list[_Places]:
        """Return for each file the folders of its matched rows after the merge."""
        olds = iter(self._old_values([n for n, match in enumerate(moves) if len(match.positions)], moves))
        return [self._new_places(match, next(olds)) if len(match.positions) else _NOWHERE for match in moves]

    def _new_places(self, match: Match, old: Sequence[pa.Array]) -> _Places:
        names = self.schemas.partitions
        types = pa.schema([self.source.schema.field(name).with_nullable(True) for name in names])
        new = [render(column) for column in self.source.take(match.source_rows, types).columns]
        if self.request.ignore_null_updates:
            new = [pc.coalesce(mine, before) for mine, before in zip(new, old, strict=True)]
        folders, before = (partition_folders(dict(zip(names, texts, strict=True))) for texts in (new, old))
        return folders, to_numpy(pc.equal(folders, before))

    def _old_values(self, numbers: Sequence[int], moves: Sequence[Match]) -> list[list[pa.Array]]:
        """Return the partition values of matched rows as text. Only files outside partition folders are read."""
        files, names = self.snapshot.files, self.schemas.partitions
        outside = [number for number in numbers if files[number].partition is None]
        schema = pa.schema([self.schemas.body.field(name) for name in names if name in self.schemas.body.names])
        tables = {}
        if outside and schema.names:
            items = [(files[number], moves[number].positions) for number in outside]
            on_done = self.reporter.stage("find partitions", len(items))
            found = self.engine.map(ReadValues(self.storage, schema), items, on_done)
            tables = dict(zip(outside, found, strict=True))
        return [self._texts(files[n], tables.get(n), len(moves[n].positions)) for n in numbers]

    def _texts(self, file: DataFile, table: pa.Table | None, rows: int) -> list[pa.Array]:
        texts = []
        for at, name in enumerate(self.schemas.partitions):
            if table is not None and name in table.column_names:
                texts.append(render(table[name]))
            else:
                text = None if file.partition is None else canonical(name, file.partition[at], self.source.schema)
                texts.append(pa.repeat(text_array([text])[0], rows))
        return texts


def canonical(name: str, text: str | None, source: pa.Schema) -> str | None:
    """Return the text that the value of a folder has in new folders."""
    try:
        found = render(typed_values([text], source.field(name).type))[0].as_py()
    except PartitionError:  # no value of the source has this text
        return text
    return None if found is None else str(found)


_NOWHERE: _Places = (pa.nulls(0, pa.string()), np.empty(0, dtype=bool))


def _chosen(match: Match, mask: npt.NDArray[np.bool_]) -> Match:
    return Match(match.positions[mask], match.source_rows[mask])


def _joined(one: Match, other: Match) -> Match:
    """Return two matches of different rows of a file as one."""
    if not len(other.positions):
        return one
    positions = np.concatenate([one.positions, other.positions])
    order = np.argsort(positions)
    return Match(positions[order], np.concatenate([one.source_rows, other.source_rows])[order])
