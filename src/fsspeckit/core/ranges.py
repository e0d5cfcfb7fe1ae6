"""Which files may hold rows between each other's, from the statistics of their footers. No proof, no separation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import to_arrow, to_numpy
from fsspeckit.core.keys import key_type
from fsspeckit.core.model import ColumnStats, DataFile
from fsspeckit.core.pruning import Ordered, bound_values

Boxes = npt.NDArray[np.float64]


def boxes(files: Sequence[DataFile], columns: Sequence[str], schema: pa.Schema) -> Boxes:
    """Lower and upper end of each column of each file, as ranks among all ends; what is not known is infinite.

    The shape is files, columns, two ends. A null stands above all values.
    """
    result = np.empty((len(files), len(columns), 2))
    for at, name in enumerate(columns):
        result[:, at, :] = _ends(files, name, schema.field(name).type)
    return result


def _ends(files: Sequence[DataFile], name: str, type_: pa.DataType) -> Boxes:
    ends = np.tile([-np.inf, np.inf], (len(files), 1))
    known: list[Ordered] = []
    owners: list[tuple[int, bool]] = []
    for number, file in enumerate(files):
        stats = file.stats.get(name)
        if stats is None:
            continue
        if all(nulls == rows for nulls, rows in zip(stats.nulls, file.row_groups, strict=True)):
            ends[number] = np.inf, np.inf
            continue
        found = None if stats.native is None else _bounds(file, stats, stats.native, key_type(type_))
        if found is not None:
            known.append(found)
            owners.append((number, _may_be_null(stats)))
    if not known:
        return ends
    ranks = _ranks(known)
    for i, (number, has_null) in enumerate(owners):
        ends[number] = ranks[2 * i], np.inf if has_null else ranks[2 * i + 1]
    return ends


def _bounds(file: DataFile, stats: ColumnStats, native: pa.DataType, type_: pa.DataType) -> Ordered | None:
    """Lowest and highest value of a file, in ordered form; ``None`` where a row group does not tell."""
    groups = [i for i, rows in enumerate(file.row_groups) if stats.nulls[i] != rows]
    low, high = [stats.lower[i] for i in groups], [stats.upper[i] for i in groups]
    if not groups or any(value is None or value != value for value in (*low, *high)):
        return None
    found = bound_values([*low, *high], native, type_)
    if found is None:
        return None
    if isinstance(found, np.ndarray):
        return np.array([found.min(), found.max()])
    order = to_numpy(pc.sort_indices(found))
    return found.take(to_arrow(order[[0, -1]].astype(np.int64)))


def _may_be_null(stats: ColumnStats) -> bool:
    return any(count is None or count > 0 for count in stats.nulls)


def _ranks(ends: Sequence[Ordered]) -> npt.NDArray[np.float64]:
    if isinstance(ends[0], np.ndarray):
        return np.asarray(np.unique(np.concatenate(ends), return_inverse=True)[1], dtype=np.float64)
    encoded = pa.concat_arrays(list(ends)).dictionary_encode()
    order = to_numpy(pc.sort_indices(encoded.dictionary))
    ranks = np.empty(len(order))
    ranks[order] = np.arange(len(order))
    return np.asarray(ranks[to_numpy(encoded.indices)])


def overlap(one: Boxes, others: Boxes) -> npt.NDArray[np.bool_]:
    """Which of the other boxes touch a box in every column."""
    return np.asarray(((others[:, :, 0] <= one[:, 1]) & (others[:, :, 1] >= one[:, 0])).all(axis=1))


def components(found: Boxes, is_seed: npt.NDArray[np.bool_]) -> list[list[int]]:
    """Groups of boxes that hang together by touching a seed, in the order of their lower ends; lone others are out."""
    parent = list(range(len(found)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    joined = is_seed.copy()
    for seed in np.flatnonzero(is_seed).tolist():
        touched = np.flatnonzero(overlap(found[seed], found))
        joined[touched] = True
        for other in touched.tolist():
            parent[root(other)] = root(seed)
    groups: dict[int, list[int]] = {}
    for i in np.flatnonzero(joined).tolist():
        groups.setdefault(root(i), []).append(i)
    return sorted(groups.values(), key=lambda members: tuple(found[members, :, 0].min(axis=0)))


def entangled(ends: Boxes, runs: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which files hold values between those of a file that another run sorted; files without a run do not count.

    Files that only share a value at their ends are not entangled, nor is one whose ends are not known.
    """
    result = np.zeros(len(ends), dtype=bool)
    reach: dict[str, int] = {}
    for i in np.lexsort((ends[:, 1], ends[:, 0])).tolist():
        if not runs[i] or ends[i, 0] == -np.inf:
            continue
        reach = {run: other for run, other in reach.items() if ends[other, 1] > ends[i, 0]}
        for run, other in reach.items():
            if run != runs[i] and ends[i, 1] > ends[other, 0]:
                result[[i, other]] = True
        if runs[i] not in reach or ends[i, 1] > ends[reach[runs[i]], 1]:
            reach[runs[i]] = i
    return result


def hull(found: Boxes, members: Sequence[int]) -> Boxes:
    """The box around some boxes."""
    return np.stack([found[list(members), :, 0].min(axis=0), found[list(members), :, 1].max(axis=0)], axis=1)
