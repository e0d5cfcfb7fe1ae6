"""Turn the decisions of workers about rows into the changes of files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.kernels.exchange.change_histories import HistoryDecisions
from fsspeckit.core.kernels.exchange.decide_keys import KeyDecisions
from fsspeckit.core.kernels.exchange.file_rows import FileRows
from fsspeckit.core.kernels.exchange.stored_rows import RowsToStore, StoredRows, StoreRows
from fsspeckit.core.kernels.exchange.table_files import TableFolder
from fsspeckit.core.model import NO_ROWS, DataFile, RemoteMatch
from fsspeckit.core.planning.merge_request import FileChange
from fsspeckit.core.storage import Storage

_Counted = tuple[int, tuple[int, int]]
"""The number of some rows of a file, and the two sums of their positions."""
_ALL_BITS = (1 << 64) - 1


def other_rows(
    engine: Engine,
    storage: Storage,
    folder: TableFolder,
    files: Sequence[DataFile],
    decisions: Sequence[KeyDecisions],
) -> list[StoredRows | None]:
    """Return the rows of each file that a full merge without a scope may delete.

    None stands for all rows that are not replaced, where no other row has a key of the source.
    """
    special = sorted(frozenset[int]().union(*(each.special for each in decisions)))
    items = [RowsToStore(files[number], tuple(range(len(files[number].row_groups)))) for number in special]
    found: list[StoredRows | None] = [None] * len(files)
    if items:
        stored = engine.map(StoreRows(storage, folder, pa.schema([])), items, lambda _: None)
        for number, rows in zip(special, stored, strict=True):
            found[number] = rows
    return found


@dataclass(frozen=True, slots=True, eq=False)
class FileChanges:
    """Makes the changes of files.

    ``others`` has for each file the rows that a full merge may delete, or None for all rows that are not replaced; it
    is empty for other merges.
    """

    files: Sequence[DataFile]
    reasons: Sequence[str]
    others: Sequence[StoredRows | None]

    def of(self, decisions: Sequence[KeyDecisions] | Sequence[HistoryDecisions]) -> Iterator[FileChange]:
        """Yield the change of each file."""
        count = len(self.files)
        replaced, dropped, spared = (
            _by_file([getattr(each, name) for each in decisions], count) for name in ("replaced", "dropped", "spared")
        )
        moved = frozenset[int]().union(*(each.moved_from for each in decisions))
        for number, (file, reason) in enumerate(zip(self.files, self.reasons, strict=True)):
            others = self.others[number] if self.others else None
            if self.others and others is None:
                yield FileChange(file, RemoteMatch(*replaced[number]), NO_ROWS, reason, drop_others=True)
                continue
            drops = dropped[number]
            if others is not None:
                drops = _plus(drops, _minus((others.count, others.sums), spared[number]))
            why = "rows move to another partition" if number in moved else reason
            yield FileChange(file, RemoteMatch(*replaced[number], *drops), NO_ROWS, why)


def _by_file(found: Sequence[FileRows], files: int) -> list[_Counted]:
    """Return for each file the number of rows, and the two sums of their positions."""
    counts, sums = np.zeros(files, dtype=np.int64), np.zeros((files, 2), dtype=np.uint64)
    for each in found:
        counts[each.files] += each.counts
        sums[each.files] += each.sums
    return [(count, (first, second)) for count, (first, second) in zip(counts.tolist(), sums.tolist(), strict=True)]


def _plus(one: _Counted, other: _Counted) -> _Counted:
    first, second = ((a + b) & _ALL_BITS for a, b in zip(one[1], other[1], strict=True))
    return one[0] + other[0], (first, second)


def _minus(one: _Counted, other: _Counted) -> _Counted:
    first, second = ((a - b) & _ALL_BITS for a, b in zip(one[1], other[1], strict=True))
    return one[0] - other[0], (first, second)
