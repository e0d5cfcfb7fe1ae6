"""Find rows of files by a condition and keep their positions in files of a scratch folder, for other workers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import to_arrow, to_numpy
from fsspeckit.core.expressions.tree import Expression
from fsspeckit.core.kernels.exchange.table_files import TableFolder, TablePlace
from fsspeckit.core.kernels.find_rows import FindRows
from fsspeckit.core.model import NO_ROWS, DataFile, RowNumbers, Scan
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.hashing import position_sums


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Some rows of a file: their number, the two sums of their positions, and where the positions are.

    ``place`` is None if they are all rows of the file, or none.
    """

    count: int
    sums: tuple[int, int]
    place: TablePlace | None = None

    def positions(self, folder: TableFolder) -> RowNumbers:
        """Return the positions, ascending."""
        if self.place is None:
            return np.arange(self.count, dtype=np.int64)
        return to_numpy(folder.read(self.place)["position"]).astype(np.int64)

    def mask(self, folder: TableFolder, positions: RowNumbers) -> npt.NDArray[np.bool_]:
        """Return which of some positions are among them."""
        if self.place is None:
            return np.full(len(positions), self.count > 0)
        mine = self.positions(folder)
        at = np.minimum(np.searchsorted(mine, positions), len(mine) - 1)
        return np.asarray(mine[at] == positions)


NO_STORED_ROWS = StoredRows(0, (0, 0))


@dataclass(frozen=True, slots=True)
class RowsToStore:
    """A file with the row groups in which every row counts, and those in which a condition decides."""

    file: DataFile
    whole: tuple[int, ...]
    unknown: tuple[int, ...] = ()
    condition: Expression | None = None


@dataclass(frozen=True, slots=True)
class StoreRows:
    """Stores positions of rows; ``schema`` has the types of the columns over the whole dataset."""

    storage: Storage
    folder: TableFolder
    schema: pa.Schema

    def __call__(self, item: RowsToStore) -> StoredRows:
        """Store the positions of the rows of one file."""
        positions = self._positions(item)
        first, second = position_sums(positions).sum(axis=0).tolist()
        if len(positions) in (0, item.file.rows):
            return StoredRows(len(positions), (first, second))
        with self.folder.writer() as writer:
            place = writer.add(pa.table([to_arrow(positions.astype(np.uint32))], ["position"]))
        return StoredRows(len(positions), (first, second), place)

    def _positions(self, item: RowsToStore) -> RowNumbers:
        starts = np.concatenate([[0], np.cumsum(item.file.row_groups)])
        parts = [NO_ROWS, *(np.arange(starts[group], starts[group + 1]) for group in item.whole)]
        if item.unknown:
            assert item.condition is not None
            parts.append(FindRows(self.storage, self.schema)((Scan(item.file, item.unknown, 0), item.condition)))
        return np.sort(np.concatenate(parts))
