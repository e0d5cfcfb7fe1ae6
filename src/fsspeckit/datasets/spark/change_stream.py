"""Changes of a dataset as a stream or a batch of Spark: ``option("changes", "true")`` of the format "fsspeckit".

An offset is a version of the dataset. A batch has the changes of the commits after one offset up to another, so Spark
gets the same rows again if it repeats a batch. Offsets are planned in a Python process without a session, and tasks
compare the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader

from fsspeckit.common.errors import SchemaMismatchError, UnsupportedDataError, VersionNotFoundError
from fsspeckit.common.schema import cast_schema
from fsspeckit.core.commit.versions import Versions
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import Snapshot, full_schema, load_snapshot
from fsspeckit.core.engine.changes import ADDED, FilePair, ReadChanges, with_facts
from fsspeckit.core.engine.protocol import ReadRequest
from fsspeckit.core.engine.read import read_snapshot
from fsspeckit.core.operations.changes import Feed, mark_updates, plan_changes, with_last_version
from fsspeckit.core.operations.versions import with_versions
from fsspeckit.core.storage import Storage
from fsspeckit.datasets.spark.frames import FileRows, ReadFiles, files_reader
from fsspeckit.datasets.spark.source_options import check_known, listed, number_of, place_of

_START = -1
"""The offset before all rows: the first batch has the rows of a version, as inserts."""
_KNOWN = frozenset(("path", "changes", "columns", "keys", "since", "until"))


def changes_schema(options: Mapping[str, str], chosen: Sequence[str] = ()) -> pa.Schema:
    """Return the columns of changes: those of the dataset or of the option ``columns``, and what a commit did.

    ``chosen`` are the names that Spark knows, if it knows them.
    """
    check_known(options, _KNOWN)
    place = place_of(options)
    found = with_versions(place, lambda versions: full_schema(load_snapshot(place.storage, versions.view)))
    taken = [field.name for field in ADDED if field.name in found.names]
    if taken:
        raise ValueError(f"{place.path} has a column {taken[0]!r}, which changes need. Rename the column.")
    added = [field.name for field in ADDED]
    names = [name for name in chosen if name not in added] or listed(options.get("columns")) or found.names
    missing = [name for name in names if name not in found.names]
    if missing:
        raise ValueError(f"{place.path} has no column {missing[0]!r}. Choose among {found.names}.")
    return pa.schema([*(found.field(name) for name in names), *ADDED])


class ChangeReader(DataSourceReader):
    """Reads the changes between two versions as one batch."""

    def __init__(self, options: Mapping[str, str], schema: pa.Schema) -> None:
        self._options, self._schema = dict(options), schema

    def partitions(self) -> Sequence[datasource.InputPartition]:
        """Return the tasks."""
        since = number_of(self._options, "since")
        if since is None:
            raise ValueError(
                "a batch of changes needs the option 'since', the version after which they start. Name it, or use "
                "readStream."
            )
        return _partitions(self._options, self._schema, since, number_of(self._options, "until"))

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a task."""
        return rows_of(partition)


class ChangeStreamReader(DataSourceStreamReader):
    """Reads the changes of a dataset from version to version."""

    def __init__(self, options: Mapping[str, str], schema: pa.Schema) -> None:
        if "until" in options:
            raise ValueError("a stream has no last version. Omit the option 'until', or read a batch with spark.read.")
        self._options, self._schema = dict(options), schema
        self._since = number_of(options, "since")

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Return the version of the option ``since``, or the offset before all rows."""
        place = place_of(self._options)
        if not place.journal.view().log.retain:
            raise UnsupportedDataError(
                f"{place.path} keeps no versions, so it has no changes to read. Call keep_history on it first."
            )
        return {"version": _START if self._since is None else self._since}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802
        """Return the newest version, and its time, by which the next start of the query knows the dataset again."""

        def newest(versions: Versions) -> dict[str, int]:
            return {"version": versions.view.head, "time": versions.history.commit_time(versions.view.head) or 0}

        return with_versions(place_of(self._options), newest)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[datasource.InputPartition]:
        """Return the tasks of a batch."""
        first, last = start["version"], end["version"]
        if "time" in start:
            _check_same_dataset(place_of(self._options), first, start["time"])
        return [] if first == last else _partitions(self._options, self._schema, first, last)

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a task."""
        return rows_of(partition)


def rows_of(partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task. Spark makes a task without files where there is nothing to read."""
    body: ReadFiles | None = partition.value
    return iter(()) if body is None else body([pa.record_batch({"id": pa.array([0], pa.int64())})])


def _partitions(
    options: Mapping[str, str], schema: pa.Schema, since: int, until: int | None
) -> list[datasource.InputPartition]:
    """Return the tasks that read the changes after a version up to another."""
    place, keys = place_of(options), listed(options.get("keys"))

    def plan(versions: Versions, last: int) -> list[ReadFiles]:
        if since == _START:
            return _all_rows(place, versions, last, schema)
        feed = plan_changes(place, versions, since, last, keys)
        _check_columns(place, feed, schema, is_all="columns" not in options)
        tasks = _by_commit(feed) if keys else [(pair,) for pair in feed.pairs]
        rows = _ChangedRows(feed.read, tuple(tasks), tuple(keys), schema)
        return _tasks(rows, [sum(pair.size for pair in task) for task in tasks], schema)

    return [datasource.InputPartition(task) for task in with_last_version(place, until, plan)]


def _check_same_dataset(place: Place, version: int, time: int) -> None:
    """Raise if an offset is one in another dataset: the changes of this one would be skipped."""
    if with_versions(place, lambda versions: versions.history.commit_time(version)) != time:
        raise VersionNotFoundError(
            f"The query has read another dataset than {place.path} up to version {version}: it was deleted and written "
            "anew, or has another path. Start the query with a new checkpoint."
        )


def _check_columns(place: Place, feed: Feed, schema: pa.Schema, *, is_all: bool) -> None:
    """Raise if commits have added columns since the query started, whose values would be lost."""
    new = [name for name in feed.schema.names if name not in schema.names]
    if is_all and new and feed.pairs:
        raise SchemaMismatchError(
            f"{place.path} has got the column {new[0]!r} since the query started. Start the query again with the same "
            "checkpoint to read it, or name the columns to read in the option 'columns'."
        )


def _by_commit(feed: Feed) -> list[tuple[FilePair, ...]]:
    """Return the files of each commit together: a row can leave one file and be added to another."""
    return [tuple(pairs) for _, pairs in groupby(feed.pairs, key=lambda pair: pair.version)]


def _all_rows(place: Place, versions: Versions, version: int, schema: pa.Schema) -> list[ReadFiles]:
    """Return the tasks that read all rows of a version, as inserts."""
    at = next(entry.at for entry in versions.history if entry.version == version)
    snapshot = load_snapshot(place.storage, versions.view_of(version))
    rows = _InsertedRows(place.storage, snapshot, version, at, schema)
    return _tasks(rows, [file.size for file in snapshot.files], schema)


def _tasks(rows: FileRows, sizes: Sequence[int], schema: pa.Schema) -> list[ReadFiles]:
    body, _ = files_reader(rows, sizes, schema)
    return [body.alone(number) for number in range(len(body.bundles))]


@dataclass(frozen=True, slots=True)
class _ChangedRows:
    """Yields the changes in the pairs of files of one task, which is a commit if keys identify rows."""

    changes: ReadChanges
    tasks: tuple[tuple[FilePair, ...], ...]
    keys: tuple[str, ...]
    schema: pa.Schema

    def only(self, numbers: Sequence[int]) -> _ChangedRows:
        return replace(self, tasks=tuple(self.tasks[number] for number in numbers))

    def __call__(self, number: int) -> Iterator[tuple[str, pa.Table]]:
        read = replace(self.changes, pairs=self.tasks[number])
        found = [item for pair in range(len(read.pairs)) for item in read(pair)]
        if found:
            table = mark_updates(pa.concat_tables([table for _, table in found]), self.keys)
            yield found[0][0], _with_columns(table, self.schema, found[0][0])


@dataclass(frozen=True, slots=True)
class _InsertedRows:
    """Yields the rows of one file of a version, as inserts."""

    storage: Storage
    snapshot: Snapshot
    version: int
    at: str
    schema: pa.Schema

    def only(self, numbers: Sequence[int]) -> _InsertedRows:
        files = tuple(self.snapshot.files[number] for number in numbers)
        return replace(self, snapshot=replace(self.snapshot, files=files))

    def __call__(self, number: int) -> Iterator[tuple[str, pa.Table]]:
        file = self.snapshot.files[number]
        one = replace(self.snapshot, files=(file,))
        table = read_snapshot(self.storage, one, ReadRequest(use_threads=False), str, schema=full_schema(self.snapshot))
        yield file.path, _with_columns(with_facts(table, "insert", self.version, self.at), self.schema, file.path)


def _with_columns(table: pa.Table, schema: pa.Schema, path: str) -> pa.Table:
    """Return the columns of a query; a column that a file of an earlier version lacks is null."""
    own = table.select([name for name in schema.names if name in table.column_names])
    return cast_schema(own, schema, fill_missing=True, operation="read", path=path)
