"""Count some rows of files, and write tables of numbers by part of a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.bridge import to_arrow
from fsspeckit.core.kernels.exchange.table_files import TableFolder, TablePlace
from fsspeckit.core.model import RowNumbers
from fsspeckit.core.values.hashing import position_sums, runs_of
from fsspeckit.core.values.take import in_parts

Sums = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class FileRows:
    """Some rows of files: the numbers of the files, and for each the number of rows and two sums of their positions.

    See `position_sums`.
    """

    files: RowNumbers
    counts: RowNumbers
    sums: Sums

    @classmethod
    def of(cls, numbers: RowNumbers, positions: RowNumbers) -> FileRows:
        """Count rows by file; the numbers of the files are ascending."""
        files, starts, counts = np.unique(numbers, return_index=True, return_counts=True)
        return cls(files, counts, sums_of_runs(positions, starts))


_NONE = np.empty(0, dtype=np.int64)
NO_FILE_ROWS = FileRows(_NONE, _NONE, np.empty((0, 2), np.uint64))


def sums_of_runs(positions: RowNumbers, starts: RowNumbers) -> Sums:
    """Return the two sums of the positions of each run; ``starts`` are the first rows of the runs."""
    if not len(starts):
        return np.empty((0, 2), np.uint64)
    return np.asarray(np.add.reduceat(position_sums(positions), starts, axis=0))


def write_by_part(
    folder: TableFolder, parts: RowNumbers, columns: Sequence[npt.NDArray[Any]], names: Sequence[str]
) -> dict[int, TablePlace]:
    """Write columns of numbers to a file, and return the place of the rows of each part."""
    order = in_parts(parts)
    table = pa.table([to_arrow(values[order]) for values in columns], list(names))
    with folder.writer() as writer:
        return {part: writer.add(table.slice(start, stop - start)) for part, start, stop in runs_of(parts[order])}
