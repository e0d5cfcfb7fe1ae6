"""Find files whose value ranges overlap, from sort notes and statistics. A file with unknown bounds overlaps all."""

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
"""Lowest and highest value of a column: a number, bytes, null or unknown."""


def bounds_known(file: DataFile, curve: str, columns: Sequence[str], schema: pa.Schema) -> bool:
    """Return whether the footer contains the bounds of a file; in the linear order, those of the first column."""
    if _bounds_from_note(file, curve, columns, schema) is not None:
        return True
    required = columns[:1] if is_linear(curve, columns) else columns
    return all(_UNKNOWN not in _span_from_stats(file, name, schema.field(name).type) for name in required)


def file_boxes(
    files: Sequence[DataFile], curve: str, columns: Sequence[str], schema: pa.Schema, known: Mapping[str, FileBounds]
) -> Boxes:
    """Return the bounds of each file as ranks among all bounds. An unknown bound is infinite; null is the highest.

    The shape is files, columns, 2. The linear order compares whole rows, so it has one column. ``known`` has bounds
    that were read from rows, by path.
    """
    spans = [_spans(file, curve, columns, schema, known.get(file.path)) for file in files]
    boxes = np.empty((len(files), len(columns), 2))
    for at in range(len(columns)):
        boxes[:, at, :] = _ranked([span[at] for span in spans])
    if not is_linear(curve, columns):
        return boxes
    rows = np.concatenate([boxes[:, :, 0], boxes[:, :, 1]])
    ranks = np.unique(rows, axis=0, return_inverse=True)[1].reshape(2, len(files)).T.astype(np.float64)
    ranks[boxes[:, 0, 0] == -_INF, 0] = -_INF
    return ranks[:, None, :]


def _spans(
    file: DataFile, curve: str, columns: Sequence[str], schema: pa.Schema, known: FileBounds | None
) -> list[Span]:
    bounds = known or _bounds_from_note(file, curve, columns, schema)
    if bounds is not None:
        return list(zip(*bounds, strict=True))
    return [_span_from_stats(file, name, schema.field(name).type) for name in columns]


def _bounds_from_note(file: DataFile, curve: str, columns: Sequence[str], schema: pa.Schema) -> FileBounds | None:
    """Return the bounds in the sort note, if it has this order and its columns are compared in the same form."""
    note = file.sort_note
    if note is None or note.columns != tuple(columns) or is_linear(note.curve, columns) != is_linear(curve, columns):
        return None
    types = [(file.schema.field(n).type, schema.field(n).type) for n in columns if n in file.schema.names]
    if not all(_form(own) == _form(joined) for own, joined in types):
        return None
    kinds = [bytes if is_bytewise(schema.field(name).type) else int for name in columns]
    fits = all(
        value is None or type(value) is kind for row in note.bounds for value, kind in zip(row, kinds, strict=True)
    )
    return note.bounds if fits else None


def _form(type_: pa.DataType) -> Any:
    """Return the form in which values of a type are compared. Types of one form represent equal values equally."""
    type_ = key_type(type_)
    if pa.types.is_integer(type_) and type_ != pa.uint64():
        return "integer"
    return "float" if pa.types.is_floating(type_) else type_


def _span_from_stats(file: DataFile, name: str, type_: pa.DataType) -> Span:
    """Return the bounds in the statistics of a column. They do not cover NaN, so floats have no upper bound."""
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
    """Return raw statistics in sortable form, or ``None`` if one is missing or its conversion is not exact."""
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
    """Return which of the other boxes overlap a box in every column."""
    return np.asarray(((others[:, :, 0] <= one[:, 1]) & (others[:, :, 1] >= one[:, 0])).all(axis=1))


def components(boxes: Boxes, is_seed: npt.NDArray[np.bool_]) -> list[list[int]]:
    """Return groups of boxes that are connected by overlapping a seed, ordered by their lower bounds.

    A box that overlaps no seed is in no group.
    """
    labels = np.arange(len(boxes))
    joined = is_seed.copy()
    for seed in np.flatnonzero(is_seed).tolist():
        overlapping = overlap(boxes[seed], boxes)
        joined |= overlapping
        found = labels[overlapping]
        if (found != found[0]).any():
            labels[np.isin(labels, found)] = found[0]
    groups: dict[int, list[int]] = {}
    for i in np.flatnonzero(joined).tolist():
        groups.setdefault(int(labels[i]), []).append(i)
    return sorted(groups.values(), key=lambda members: tuple(boxes[members, :, 0].min(axis=0)))


def runs_overlap(bounds: Boxes, runs: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which files overlap a file that another run sorted. Files without a run are ignored.

    Files that share only a bound do not overlap, and a file with unknown bounds is ignored.
    """
    result = np.zeros(len(bounds), dtype=bool)
    last: dict[str, int] = {}  # the file of each run that has the highest upper bound so far
    for i in np.lexsort((bounds[:, 1], bounds[:, 0])).tolist():
        if not runs[i] or bounds[i, 0] == -np.inf:
            continue
        last = {run: other for run, other in last.items() if bounds[other, 1] > bounds[i, 0]}
        for run, other in last.items():
            if run != runs[i] and bounds[i, 1] > bounds[other, 0]:
                result[[i, other]] = True
        if runs[i] not in last or bounds[i, 1] > bounds[last[runs[i]], 1]:
            last[runs[i]] = i
    return result


def bounding_box(boxes: Boxes, members: Sequence[int]) -> Boxes:
    """Return the smallest box that contains some boxes."""
    return np.stack([boxes[list(members), :, 0].min(axis=0), boxes[list(members), :, 1].max(axis=0)], axis=1)
