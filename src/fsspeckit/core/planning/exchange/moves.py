"""Plan the tasks that write rows which move and keep values, if only workers know the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.file_names import new_file_name
from fsspeckit.core.kernels.exchange.file_rows import Sums
from fsspeckit.core.kernels.exchange.move_targets import NewPlaces
from fsspeckit.core.kernels.exchange.route_moves import CutGroups, MovedPlaces, MoveRoutes, SplitMoved
from fsspeckit.core.kernels.exchange.table_files import TableFolder
from fsspeckit.core.model import MoveTask, RemoteMatch, RewriteTask, RowChange, RowNumbers
from fsspeckit.core.planning.merge_request import MergeRequest, MergeSchemas, new_file_options
from fsspeckit.core.planning.moves import cut_pieces, existing_folders
from fsspeckit.core.values.hashing import runs_of

_MANY_PARTS = 64


@dataclass(frozen=True, slots=True, eq=False)
class ExchangedMoves:
    """The tasks that write moved rows, the routes of source rows to them, and the moved rows of each source part."""

    tasks: tuple[MoveTask, ...]
    routes: MoveRoutes
    places: tuple[MovedPlaces, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """The rows that move from a file to a folder: file and number of the folder as one number, count, and sums."""

    numbers: RowNumbers
    counts: RowNumbers
    sums: Sums


def plan_moves(
    engine: Engine,
    folder: TableFolder,
    found: Sequence[NewPlaces | None],
    source: pa.Schema,
    parts: int,
    snapshot: Snapshot,
    schemas: MergeSchemas,
    request: MergeRequest,
) -> ExchangedMoves:
    """Return the moves; ``found`` are those of each part of the key exchange, ``parts`` the number of source parts."""
    moved = [each for each in found if each is not None]
    if not moved:
        return ExchangedMoves((), MoveRoutes(), (MovedPlaces(),) * parts)
    types = pa.schema([source.field(name) for name in schemas.partitions])
    existing = existing_folders(snapshot, types, schemas.text_folders)
    folders = sorted({existing.get(name, name) for each in moved for name in each.folders})
    numbers = {name: number for number, name in enumerate(folders)}
    maps = [np.array([numbers[existing.get(name, name)] for name in each.folders], dtype=np.int64) for each in moved]
    places = tuple(
        MovedPlaces(
            tuple((each.places[part], map_) for each, map_ in zip(moved, maps, strict=True) if part in each.places)
        )
        for part in range(parts)
    )
    groups = _groups(moved, maps)
    pieces = _pieces(groups, request.options.max_rows_per_file)
    cuts = _cut(engine, folder, places, groups, pieces)
    maker = _PartMaker(snapshot, schemas, request, groups, cuts)
    options = new_file_options(snapshot, request.options)
    tasks = [
        MoveTask(new_file_name(folders[number]), tuple(maker.part(*piece) for piece in chosen), schemas.body, options)
        for number, chosen in pieces
    ]
    return ExchangedMoves(tuple(tasks), _routes(groups, pieces, cuts), places)


def _groups(moved: Sequence[NewPlaces], maps: Sequence[RowNumbers]) -> _Groups:
    """Join the groups of all parts of the key exchange."""
    pairs = zip(moved, maps, strict=True)
    numbers = np.concatenate([each.groups[:, 0] << 32 | map_[each.groups[:, 1]] for each, map_ in pairs])
    unique, at = np.unique(numbers, return_inverse=True)
    counts, sums = np.zeros(len(unique), dtype=np.int64), np.zeros((len(unique), 2), dtype=np.uint64)
    np.add.at(counts, at, np.concatenate([each.groups[:, 2] for each in moved]))
    np.add.at(sums, at, np.concatenate([each.sums for each in moved]))
    return _Groups(unique, counts, sums)


_Piece = tuple[int, int, int]
"""A group, and the first and last of its rows that a task writes."""


def _pieces(groups: _Groups, most: int) -> list[tuple[int, list[_Piece]]]:
    """Return the folder and the pieces of each task, in the order of folders and files."""
    folders = groups.numbers & 0xFFFFFFFF
    order, found = np.argsort(folders, kind="stable"), list[tuple[int, list[_Piece]]]()
    for number, first, last in runs_of(folders[order]):
        mine = order[first:last].tolist()
        pieces = cut_pieces(groups.counts[mine].tolist(), most)
        found += [(number, [(mine[at], start, stop) for at, start, stop in piece]) for piece in pieces]
    return found


_Cuts = dict[int, tuple[RowNumbers, RowNumbers, list[tuple[int, int]]]]
"""For each group that is cut: the ranks of the first rows, their positions but the first, and the sums."""


def _cut(
    engine: Engine,
    folder: TableFolder,
    places: Sequence[MovedPlaces],
    groups: _Groups,
    pieces: Sequence[tuple[int, Sequence[_Piece]]],
) -> _Cuts:
    starts: dict[int, list[int]] = {}
    for _, chosen in pieces:
        for group, start, stop in chosen:
            if stop - start < groups.counts[group]:
                starts.setdefault(group, []).append(start)
    if not starts:
        return {}
    numbers, parts = sorted(starts), min(_MANY_PARTS, len(starts))
    split = SplitMoved(folder, groups.numbers[numbers], parts)
    cut = CutGroups(tuple(np.array(starts[group], dtype=np.int64) for group in numbers))
    found = engine.exchange(split, [each for each in places if each.places], cut, parts, lambda _: None)
    return {numbers[at]: (cut.starts[at], *rest) for part in found for at, rest in part.items()}


@dataclass(frozen=True, slots=True, eq=False)
class _PartMaker:
    """Makes the parts of the tasks."""

    snapshot: Snapshot
    schemas: MergeSchemas
    request: MergeRequest
    groups: _Groups
    cuts: _Cuts

    def part(self, group: int, start: int, stop: int) -> RewriteTask:
        """Return the rewrite that keeps only some moved rows of a file."""
        schemas, request = self.schemas, self.request
        first, second = self.groups.sums[group].tolist()
        if group in self.cuts:
            starts, _, sums = self.cuts[group]
            first, second = sums[int(np.searchsorted(starts, start))]
        columns = None if schemas.updated is None else tuple(dict.fromkeys((*schemas.updated, *schemas.partitions)))
        change = RowChange(
            drop_others=True,
            columns=columns,
            keep_for_null=request.ignore_null_updates,
            remote=RemoteMatch(stop - start, (first, second)),
        )
        file = self.snapshot.files[int(self.groups.numbers[group]) >> 32]
        return RewriteTask(file, change, schemas.body, request.key_columns, True, request.options)


def _routes(groups: _Groups, pieces: Sequence[tuple[int, Sequence[_Piece]]], cuts: _Cuts) -> MoveRoutes:
    """Number the parts of all tasks, in order."""
    first, number = np.zeros(len(groups.numbers), dtype=np.int64), 0
    for _, chosen in pieces:
        for group, start, _ in chosen:
            if not start:
                first[group] = number
            number += 1
    return MoveRoutes(groups.numbers, first, {group: positions for group, (_, positions, _) in cuts.items()})
