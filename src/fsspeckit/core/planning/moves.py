"""Rows that move to another partition: find their new partitions, and plan the tasks that write them there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from posixpath import dirname

import pyarrow as pa

from fsspeckit.common.partitions import typed_values
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.dataset.source_keys import PartitionIdentities
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.expressions.tree import Column, Expression, Literal, with_constants
from fsspeckit.core.expressions.types import plain_type
from fsspeckit.core.file_names import new_file_name
from fsspeckit.core.kernels.new_partitions import FindNewPartitions, NewPartitions, PartitionChange
from fsspeckit.core.model import DataFile, MoveTask, RewriteTask, WriteOptions
from fsspeckit.core.planning.conditions import MatchingRows, constants_of
from fsspeckit.core.planning.folder_values import check_folder_values
from fsspeckit.core.planning.merge_request import new_file_options, text_folders
from fsspeckit.core.progress import Reporter
from fsspeckit.core.storage import Storage


def find_new_partitions(
    engine: Engine,
    storage: Storage,
    snapshot: Snapshot,
    schema: pa.Schema,
    rows: Sequence[MatchingRows],
    computed: Mapping[str, Expression],
    reporter: Reporter,
) -> list[NewPartitions]:
    """Return for each file the partitions that its matching rows move to, in existing folders where there are any.

    Files are read only if a computed partition value depends on their rows.

    Raises:
        PartitionError: A value cannot be the name of a folder, or a file has another value than its folder.
    """
    columns, files = snapshot.partition_columns, [match.file for match in rows if match.count]
    check_folder_values(engine, storage, files, columns, columns, reporter)
    items = [_partition_change(snapshot, schema, match, computed) for match in rows]
    find = FindNewPartitions(storage, schema)
    read = [item for item in items if item.columns]
    on_done = reporter.stage("find partitions", len(read), rows=sum(len(item.positions) for item in read))
    found = iter(engine.map(find, read, on_done) if read else ())
    folders = existing_folders(snapshot, schema, text_folders(snapshot))
    results = [next(found) if item.columns else find(item) for item in items]
    return [replace(result, folders=tuple(folders.get(name, name) for name in result.folders)) for result in results]


def _partition_change(
    snapshot: Snapshot, schema: pa.Schema, match: MatchingRows, computed: Mapping[str, Expression]
) -> PartitionChange:
    columns = snapshot.partition_columns
    constants = constants_of(snapshot, match.file, schema) | _folder_values(columns, schema, match.file)
    own = {name: Column(name, plain_type(schema.field(name).type)) for name in columns}
    if not match.count:
        return PartitionChange(match.file, match.positions, {}, {})
    old = {name: with_constants(own[name], constants) for name in columns}
    new = {name: with_constants(computed.get(name, own[name]), constants) for name in columns}
    return PartitionChange(match.file, match.positions, old, new)


def _folder_values(columns: Sequence[str], schema: pa.Schema, file: DataFile) -> dict[str, Literal]:
    """Return the values of the folder of a file. A file outside partition folders has none."""
    found = {}
    for name, text in zip(columns, file.partition or (), strict=file.partition is not None):
        type_ = schema.field(name).type
        found[name] = Literal(typed_values([text], type_, name).cast(plain_type(type_))[0])
    return found


def existing_folders(snapshot: Snapshot, schema: pa.Schema, in_text: Sequence[str]) -> dict[str, str]:
    """Return the folder of each partition that has files, by the name that a new folder would have.

    ``schema`` has the types of the partition columns; those in ``in_text`` are text and not in the files.
    """
    spellings = PartitionIdentities(snapshot.partition_columns, schema, in_text)
    identities = spellings.of_all([file.partition for file in snapshot.files])
    pairs = reversed(list(zip(snapshot.files, identities, strict=True)))
    return {name: dirname(file.path) for file, name in pairs if name is not None}


def move_tasks(
    parts: Iterable[tuple[str, RewriteTask]], schema: pa.Schema, snapshot: Snapshot, options: WriteOptions
) -> list[MoveTask]:
    """Return tasks that write moved rows: new files with at most ``max_rows_per_file`` rows.

    ``parts`` has pairs of a folder and the rows of one file that move there.
    """
    by_folder: dict[str, list[RewriteTask]] = {}
    for folder, part in parts:
        by_folder.setdefault(folder, []).append(part)
    options = new_file_options(snapshot, options)
    return [
        MoveTask(new_file_name(folder), piece, schema, options)
        for folder, moved in sorted(by_folder.items())
        for piece in _pieces(moved, options.max_rows_per_file)
    ]


def _pieces(parts: Sequence[RewriteTask], most: int) -> Iterable[tuple[RewriteTask, ...]]:
    """Divide parts into pieces with at most so many rows."""
    for piece in cut_pieces([part.rows_out for part in parts], most):
        yield tuple(_slice(parts[at], start, stop) for at, start, stop in piece)


def cut_pieces(counts: Sequence[int], most: int) -> Iterable[list[tuple[int, int, int]]]:
    """Divide rows into pieces of at most so many; a piece has places among ``counts``, each with a range of rows."""
    piece: list[tuple[int, int, int]] = []
    free = most
    for at, rows in enumerate(counts):
        start = 0
        while start < rows:
            stop = min(rows, start + free)
            piece.append((at, start, stop))
            free -= stop - start
            start = stop
            if not free:
                yield piece
                piece, free = [], most
    if piece:
        yield piece


def _slice(part: RewriteTask, start: int, stop: int) -> RewriteTask:
    if stop - start == part.rows_out:
        return part
    change = part.change
    chosen = replace(change, replaced=change.replaced[start:stop], source_rows=change.source_rows[start:stop])
    return replace(part, change=chosen)
