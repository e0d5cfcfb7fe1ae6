"""The change feed: the rows that commits inserted, updated and deleted, read from the files that they replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import text_array, to_numpy
from fsspeckit.common.errors import ColumnNameError, VersionNotFoundError
from fsspeckit.common.logging import log_unexpected
from fsspeckit.common.stored_types import without_marks
from fsspeckit.core.commit.versions import FileChanges, Versions, check_version
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot, full_schema, load_snapshot
from fsspeckit.core.engine.changes import ADDED, CHANGE_TYPE, VERSION, FilePair, ReadChanges, pair_files
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.operations.versions import with_versions
from fsspeckit.core.values.keys import KeyEncoder, comparable, key_type

_SAME_ROWS = ("compact", "optimize")
"""Operations that move rows to other files. They change rows only if the number of rows changes."""
_T = TypeVar("_T")
_CHANGES = ("delete", "insert", "update_before", "update_after")


@dataclass(frozen=True, slots=True)
class Feed:
    """A planned change feed: the schema of its rows, and a task for each pair of files."""

    schema: pa.Schema
    read: ReadChanges
    until: int

    @property
    def pairs(self) -> tuple[FilePair, ...]:
        """The files to compare."""
        return self.read.pairs


def changes(engine: Engine, place: Place, since: int, until: int | None, key_columns: Sequence[str]) -> pa.Table:
    """Return the changed rows of the commits after ``since`` up to ``until``."""
    with log_unexpected("changes", place.path):

        def read(versions: Versions, last: int) -> pa.Table:
            feed = plan_changes(place, versions, since, last, key_columns)
            found = engine.map(_Collect(feed.read), range(len(feed.pairs)), lambda _: None)
            tables = [table.cast(feed.schema) for tables in found for table in tables]
            table = pa.concat_tables([pa.Table.from_batches([], feed.schema), *tables])
            return mark_updates(table, key_columns)

        return with_last_version(place, until, read)


def with_last_version(place: Place, until: int | None, read: Callable[[Versions, int], _T]) -> _T:
    """Call a function with the versions and the last one to read, which is the same in each attempt.

    Files of a version that is not the newest are kept, so that a second attempt finds them where they stay.
    """
    last = until

    def attempt(versions: Versions) -> _T:
        nonlocal last
        last = versions.view.head if last is None else last
        return read(versions, last)

    return with_versions(place, attempt)


@dataclass(frozen=True, slots=True)
class _Collect:
    """Returns all changes of a pair."""

    read: ReadChanges

    def __call__(self, number: int) -> list[pa.Table]:
        return [table for _, table in self.read(number)]


def plan_changes(place: Place, versions: Versions, since: int, until: int, key_columns: Sequence[str]) -> Feed:
    """Find the files to compare, and the schema of the feed. Only footers are read."""
    first, last = check_version("since", since), check_version("until", until)
    if first > last:
        raise ValueError(f"since={since} is later than version {last}, the last one. Call history() to list versions.")
    if last > versions.view.head:
        raise VersionNotFoundError(f"{place.path} has no version {last}. Call history() to list versions.")
    commits = versions.commits_between(since, last)
    view = versions.view_of(since) if not commits else versions.view
    located = [versions.locate(commit) for commit in commits]
    files = tuple(file for commit in located for file in (*commit.removed, *commit.published))
    compared = replace(view, files=files or view.files, index=None)  # two files can have one path
    snapshot = load_snapshot(place.storage, compared, empty_may_differ=True)
    schema = _schema_of(place, snapshot, key_columns)
    pairs = tuple(_pairs(located, snapshot) if files else ())
    body = pa.schema(list(schema)[: -len(ADDED)], schema.metadata)
    return Feed(schema, ReadChanges(place.storage, replace(snapshot, files=()), body, pairs), last)


def _pairs(commits: Iterable[FileChanges], snapshot: Snapshot) -> Iterable[FilePair]:
    files = iter(snapshot.files)
    for commit in commits:
        removed = [next(files) for _ in commit.removed]
        added = [next(files) for _ in commit.published]
        counts = [sum(file.rows for file in side) for side in (removed, added)]
        if commit.operation not in _SAME_ROWS or counts[0] != counts[1]:
            yield from pair_files(commit.version, commit.at, removed, added)


def _schema_of(place: Place, snapshot: Snapshot, key_columns: Sequence[str]) -> pa.Schema:
    schema = full_schema(snapshot) if snapshot.schema is not None else pa.schema([])
    added = {field.name for field in ADDED}
    taken = [name for name in schema.names if name.lower() in added]  # Spark does not distinguish case
    if taken:
        raise ValueError(f"{place.path} has a column {taken[0]!r}, which a change feed needs. Rename the column.")
    missing = [name for name in key_columns if name not in schema.names]
    if missing and schema.names:
        raise ColumnNameError(f"key_columns: {place.path} has no column {missing[0]!r}. Choose among {schema.names}.")
    for name in key_columns if schema.names else ():
        key_type(schema.field(name).type, name)
    return pa.schema([*without_marks(schema), *ADDED], schema.metadata)


def mark_updates(table: pa.Table, key_columns: Sequence[str]) -> pa.Table:
    """Return changes in which a key with deleted and inserted rows in one commit is an update."""
    if not key_columns or not table.num_rows:
        return table
    keys = [comparable(table[name], key_type(table.schema.field(name).type, name)) for name in key_columns]
    codes = KeyEncoder([*keys, table[VERSION]]).codes
    is_insert = to_numpy(pc.equal(table[CHANGE_TYPE], "insert"))
    both = np.intersect1d(codes[is_insert], codes[~is_insert])
    updated = np.isin(codes, both)
    names = np.array(_CHANGES)[2 * updated + is_insert]
    at = table.schema.get_field_index(CHANGE_TYPE)
    return table.set_column(at, ADDED[0], text_array(names.tolist()))
