"""Which files may hold rows between each other's, from notes and statistics in footers. No proof, no separation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.core.model import DataFile, FileBounds
from fsspeckit.core.planning.statistics import native_array
from fsspeckit.core.values.curves import is_linear
from fsspeckit.core.values.keys import is_bytewise, key_type, sortable

Boxes = npt.NDArray[np.float64]
_INF = np.inf
_UNKNOWN = object()
Span = tuple[Any, Any]
"""Lowest and highest value of a column: a number or bytes, null, or unknown."""


def bounds_known(file: DataFile, curve: str, columns: Sequence[str], schema: pa.Schema) -> bool:
    """Whether the footer of a file tells how far it reaches in an order; the linear order begins with one column."""
    if _noted(file, curve, columns, schema) is not None:
        return True
    first = columns[:1] if is_linear(curve, columns) else columns
    return all(_UNKNOWN not in _told(file, name, schema.field(name).type) for name in first)


def file_boxes(
    files: Sequence[DataFile], curve: str, columns: Sequence[str], schema: pa.Schema, read: Mapping[str, FileBounds]
) -> Boxes:
    """How far each file reaches, as ranks among all ends; what is not known is infinite. ``read`` are ends from rows.

    The shape is files, columns, two ends; the linear order compares whole rows, and is one column. A null stands
    above all values.
    """
    linear = is_linear(curve, columns)
    spans = [_spans(file, curve, columns, schema, read.get(file.path)) for file in files]
    ends = np.empty((len(files), len(columns), 2))
    for at in range(len(columns)):
        ends[:, at, :] = _ranked([span[at] for span in spans])
    if not linear:
        return ends
    rows = np.concatenate([ends[:, :, 0], ends[:, :, 1]])
    ranks = np.unique(rows, axis=0, return_inverse=True)[1].reshape(2, len(files)).T.astype(np.float64)
    ranks[ends[:, 0, 0] == -_INF, 0] = -_INF
    return ranks[:, None, :]


def _spans(
    file: DataFile, curve: str, columns: Sequence[str], schema: pa.Schema, read: FileBounds | None
) -> list[Span]:
    known = read or _noted(file, curve, columns, schema)
    if known is not None:
        return list(zip(*known, strict=True))
    return [_told(file, name, schema.field(name).type) for name in columns]


def _noted(file: DataFile, curve: str, columns: Sequence[str], schema: pa.Schema) -> FileBounds | None:
    """What the file's own note says, where it is of this kind of order and of columns that are compared in its form."""
    note = file.sort_note
    if note is None or note.columns != tuple(columns) or is_linear(note.curve, columns) != is_linear(curve, columns):
        return None
    types = [(file.schema.field(n).type, schema.field(n).type) for n in columns if n in file.schema.names]
    if not all(_form(own) == _form(joined) for own, joined in types):
        return None
    kinds = [bytes if is_bytewise(schema.field(name).type) else int for name in columns]
    fits = all(
        value is None or type(value) is kind for end in note.ends for value, kind in zip(end, kinds, strict=True)
    )
    return note.ends if fits else None


def _form(type_: pa.DataType) -> Any:
    """Types of one form have the same numbers or bytes for the same values."""
    type_ = key_type(type_)
    if pa.types.is_integer(type_) and type_ != pa.uint64():
        return "integer"
    return "float" if pa.types.is_floating(type_) else type_


def _told(file: DataFile, name: str, type_: pa.DataType) -> Span:
    """What the statistics of a column say. They leave NaN out, so of floats they tell no upper end."""
    if name not in file.schema.names:
        return None, None
    stats = file.stats.get(name)
    if stats is None:
        return _UNKNOWN, _UNKNOWN
    groups = [i for i, rows in enumerate(file.row_groups) if stats.nulls[i] != rows]
    if not groups:
        return None, None
    bounds = [*(stats.lower[i] for i in groups), *(stats.upper[i] for i in groups)]
    values = _sortable(bounds, stats.native, key_type(type_))
    if values is None:
        return _UNKNOWN, _UNKNOWN
    has_null = any(count is None or count > 0 for count in stats.nulls)
    high = _UNKNOWN if pa.types.is_floating(key_type(type_)) else None if has_null else max(values)
    return min(values), high


def _sortable(raw: Sequence[Any], native: pa.DataType | None, type_: pa.DataType) -> list[Any] | None:
    """Raw statistics in sortable form; ``None`` where they do not tell or the conversion is not exact."""
    if native is None or any(value is None or value != value for value in raw):
        return None
    if pa.types.is_binary(native):
        return list(raw)
    try:
        return list(sortable(pa.chunked_array([native_array(raw, native).cast(type_)])).to_pylist())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError):
        return None


def _ranked(spans: Sequence[Span]) -> Boxes:
    known = sorted({value for span in spans for value in span if value is not None and value is not _UNKNOWN})
    ranks: dict[Any, float] = {value: float(rank) for rank, value in enumerate(known)}
    return np.array(
        [
            (
                -_INF if low is _UNKNOWN else _INF if low is None else ranks[low],
                _INF if high is None or high is _UNKNOWN else ranks[high],
            )
            for low, high in spans
        ],
        dtype=np.float64,
    ).reshape(len(spans), 2)


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


def runs_overlap(ends: Boxes, runs: Sequence[str]) -> npt.NDArray[np.bool_]:
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


def bounding_box(found: Boxes, members: Sequence[int]) -> Boxes:
    """The box around some boxes."""
    return np.stack([found[list(members), :, 0].min(axis=0), found[list(members), :, 1].max(axis=0)], axis=1)
