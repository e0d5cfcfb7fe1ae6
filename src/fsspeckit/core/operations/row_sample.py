"""A sample of the rows that a change updates, inserts and deletes, read from the files before and after it.

The files after the change may be staged and not committed yet. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.commit.listing import View
from fsspeckit.core.dataset.snapshot import full_schema, load_snapshot
from fsspeckit.core.engine.changes import ADDED, CHANGE_TYPE, FilePair, ReadChanges, pair_files
from fsspeckit.core.file_names import name_stem
from fsspeckit.core.operations.changes import mark_updates
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.take import take_rows

SAMPLE_ROWS = 10
"""So many updated, inserted and deleted rows are shown."""
_MOST_PAIRS = 50
_MOST_BYTES = 512 * 2**20
Row = dict[str, Any]


@dataclass(slots=True)
class RowSample:
    """Some rows that a change updates (before and after), inserts and deletes.

    ``compared`` of ``pairs`` groups of files were compared; the others may have more changed rows.
    """

    columns: tuple[str, ...] = ()
    updated: list[tuple[Row, Row]] = field(default_factory=list)
    inserted: list[Row] = field(default_factory=list)
    deleted: list[Row] = field(default_factory=list)
    compared: int = 0
    pairs: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether no changed row was found."""
        return not (self.updated or self.inserted or self.deleted)

    def as_json(self) -> dict[str, Any]:
        """Return the sample as JSON types; values that JSON lacks become text when it is written."""
        updated = [{"before": old, "after": new} for old, new in self.updated]
        return {"updated": updated, "inserted": self.inserted, "deleted": self.deleted}


def sample_changes(storage: Storage, before: View, after: View, key_columns: Sequence[str] = ()) -> RowSample:
    """Compare the files that differ between two views, and return some of the rows that differ.

    Args:
        storage: The storage of the dataset.
        before: The files before the change.
        after: The files after it.
        key_columns: Columns that identify a row. Without them, rows of a file that has as many rows as before are
            compared by position.
    """
    old, new = ({file.path: file for file in view.files} for view in (before, after))
    removed = [file for path, file in old.items() if new.get(path) != file]
    added = [file for path, file in new.items() if old.get(path) != file]
    if not removed and not added:
        return RowSample()
    compared = replace(after, files=(*removed, *added), index=None)  # two files can have one path
    snapshot = load_snapshot(storage, compared, empty_may_differ=True)
    schema = full_schema(snapshot)
    files = list(snapshot.files)
    pairs = pair_files(0, "1970-01-01T00:00:00+00:00", files[: len(removed)], files[len(removed) :])
    chosen = tuple(pair for pair in pairs if pair.size <= _MOST_BYTES)[:_MOST_PAIRS]
    sample = RowSample(tuple(schema.names), compared=len(chosen), pairs=len(pairs))
    for table, pair in zip(_changes(ReadChanges(storage, snapshot, schema, chosen)), chosen, strict=True):
        _add(sample, table, pair, [name for name in key_columns if name in schema.names])
    return sample


def _changes(read: ReadChanges) -> Iterator[pa.Table]:
    """Yield the deleted and inserted rows of each pair of files."""
    empty = pa.schema([*read.schema, *ADDED]).empty_table()
    for number in range(len(read.pairs)):
        yield pa.concat_tables([empty, *(table.cast(empty.schema) for _, table in read(number))])


def _add(sample: RowSample, table: pa.Table, pair: FilePair, keys: Sequence[str]) -> None:
    kinds = np.array(mark_updates(table, keys)[CHANGE_TYPE].to_pylist(), dtype=object)
    by_kind = {kind: np.flatnonzero(kinds == kind) for kind in ("update_before", "update_after", "insert", "delete")}
    if not keys and len(by_kind["delete"]) == len(by_kind["insert"]) and _keeps_rows(pair):
        by_kind |= {"update_before": by_kind["delete"], "update_after": by_kind["insert"]}
        by_kind |= {"delete": by_kind["delete"][:0], "insert": by_kind["insert"][:0]}
    elif keys:
        for kind in ("update_before", "update_after"):
            by_kind[kind] = _in_key_order(table, by_kind[kind], keys)
    rows = {kind: _rows(table, numbers[:SAMPLE_ROWS], sample.columns) for kind, numbers in by_kind.items()}
    sample.updated += list(zip_longest(rows["update_before"], rows["update_after"], fillvalue={}))
    sample.inserted += rows["insert"]
    sample.deleted += rows["delete"]
    for each in (sample.updated, sample.inserted, sample.deleted):
        del each[SAMPLE_ROWS:]


def _keeps_rows(pair: FilePair) -> bool:
    """Return whether one file was rewritten with as many rows as before."""
    if len(pair.removed) != 1 or len(pair.added) != 1:
        return False
    old, new = pair.removed[0], pair.added[0]
    return old.rows == new.rows and name_stem(old.path) == name_stem(new.path)


def _in_key_order(table: pa.Table, numbers: Any, keys: Sequence[str]) -> Any:
    """Return row numbers in the order of their keys, so that rows before and after a change stand together."""
    texts = [[str(row[key]) for key in keys] for row in _rows(table, numbers, keys)]
    return numbers[sorted(range(len(texts)), key=texts.__getitem__)]


def _rows(table: pa.Table, numbers: Any, columns: Sequence[str]) -> list[Row]:
    rows: list[Row] = take_rows(table.select(columns), numbers).to_pylist()
    return rows
