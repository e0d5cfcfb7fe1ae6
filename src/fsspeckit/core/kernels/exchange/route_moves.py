"""Send rows that move and keep values to the tasks that write them.

The rows that move from one file to one folder are a group. If a group is divided among several tasks, workers find the
positions at which it is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from fsspeckit.common.bridge import to_arrow, to_numpy
from fsspeckit.core.kernels.exchange.file_rows import sums_of_runs
from fsspeckit.core.kernels.exchange.table_files import TableFolder, TablePlace
from fsspeckit.core.model import NO_ROWS, RowNumbers
from fsspeckit.core.values.hashing import runs_of


@dataclass(frozen=True, slots=True, eq=False)
class MovedRows:
    """Rows of a part of the source with the positions that they take the place of, and the groups of these."""

    rows: RowNumbers
    positions: RowNumbers
    groups: RowNumbers


@dataclass(frozen=True, slots=True, eq=False)
class MovedPlaces:
    """Where the moved rows of a part of the source are: tables, and for each the number of each of its folders."""

    places: tuple[tuple[TablePlace, RowNumbers], ...] = ()

    def read(self, folder: TableFolder) -> MovedRows:
        """Return the rows."""
        found: list[tuple[RowNumbers, ...]] = [(NO_ROWS, NO_ROWS, NO_ROWS)]
        for place, numbers in self.places:
            table = folder.read(place)
            rows, files, positions, folders = (
                to_numpy(table[name]).astype(np.int64) for name in ("row", "file", "position", "folder")
            )
            found.append((rows, positions, files << 32 | numbers[folders]))
        return MovedRows(*(np.concatenate(each) for each in zip(*found, strict=True)))


@dataclass(frozen=True, slots=True, eq=False)
class MoveRoutes:
    """The tasks of all groups.

    Attributes:
        groups: The file and the folder of each group as one number, ascending.
        first: The number of the first task of each group.
        cuts: For a group with several tasks: the first position of each task but the first.
        offset: The number of the first task of all.
    """

    groups: RowNumbers = field(default_factory=lambda: NO_ROWS)
    first: RowNumbers = field(default_factory=lambda: NO_ROWS)
    cuts: Mapping[int, RowNumbers] = field(default_factory=dict)
    offset: int = 0

    def tasks(self, moved: MovedRows) -> RowNumbers:
        """Return the number of the task of each row."""
        at = np.searchsorted(self.groups, moved.groups)
        tasks = self.first[at]
        for group, cuts in self.cuts.items():
            mine = np.flatnonzero(at == group)
            tasks[mine] += np.searchsorted(cuts, moved.positions[mine], "right")
        return np.asarray(tasks + self.offset)


@dataclass(frozen=True, slots=True, eq=False)
class SplitMoved:
    """Splits the positions of some groups by group; ``groups`` are their numbers, ascending."""

    folder: TableFolder
    groups: RowNumbers
    parts: int

    def __call__(self, item: MovedPlaces) -> Iterator[tuple[int, pa.Table]]:
        """Yield group and position of the rows of a part of the source."""
        moved = item.read(self.folder)
        at = np.searchsorted(self.groups, moved.groups)
        known = np.flatnonzero(self.groups[np.minimum(at, len(self.groups) - 1)] == moved.groups)
        at, positions = at[known], moved.positions[known]
        order = np.argsort(at % self.parts, kind="stable")
        table = pa.table([to_arrow(at[order]), to_arrow(positions[order])], ["group", "position"])
        for part, start, stop in runs_of(at[order] % self.parts):
            yield part, table.slice(start, stop - start)


@dataclass(frozen=True, slots=True, eq=False)
class CutGroups:
    """Finds the positions at which groups are cut; ``starts`` has for each group the ranks of the first rows."""

    starts: tuple[RowNumbers, ...]

    def __call__(self, part: int, pieces: Iterator[pa.Table]) -> dict[int, tuple[RowNumbers, list[tuple[int, int]]]]:  # noqa: ARG002
        """Return for each group the first positions of its tasks but the first, and the sums of positions of all."""
        tables = list(pieces)
        if not tables:
            return {}
        whole = pa.concat_tables(tables)
        groups, positions = to_numpy(whole["group"]), to_numpy(whole["position"])
        order = np.lexsort((positions, groups))
        found = {}
        for group, start, stop in runs_of(groups[order]):
            mine, starts = positions[order[start:stop]], self.starts[group]
            sums = [(first, second) for first, second in sums_of_runs(mine, starts).tolist()]
            found[group] = (mine[starts[1:]], sums)
        return found
