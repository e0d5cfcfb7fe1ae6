"""Plan which files are sorted together, and which are already sorted as requested. Reads only footers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.core.model import DataFile, FileBounds
from fsspeckit.core.parquet.writer_options import codec_name
from fsspeckit.core.planning.file_overlap import (
    Boxes,
    bounding_box,
    bounds_known,
    components,
    file_boxes,
    overlap,
    runs_overlap,
)
from fsspeckit.core.planning.maintenance_request import Group, OptimizeRequest, Plan, by_folder
from fsspeckit.core.planning.output_sizes import OutputSizes, Target
from fsspeckit.core.values.curves import is_linear

_SMALL = 0.5
"""A sorted file of less than this share of the target is small."""
_MERGED_FILES = 4
"""Neighbouring groups are merged until they fill this many files."""
_ACCEPTED_SIZE = (0.6, 1.3)
"""Sizes that are kept when the target changes, relative to the target."""
Flags = npt.NDArray[np.bool_]


def files_to_read(files: Sequence[DataFile], schema: pa.Schema, request: OptimizeRequest) -> list[DataFile]:
    """Return the files whose bounds must be read because their footers do not contain them.

    On a curve, a folder without sorted files is sorted as a whole, so its bounds are not needed.
    """
    assert request.columns is not None
    linear = is_linear(request.curve, request.columns)
    return [
        file
        for members in by_folder(files).values()
        if linear or not all(_is_unsorted(file, request) for file in members if file.rows)
        for file in members
        if file.rows and not bounds_known(file, request.curve, request.columns, schema)
    ]


def plan_optimize(
    files: Sequence[DataFile],
    schema: pa.Schema,
    request: OptimizeRequest,
    sizes: OutputSizes,
    bounds: Mapping[str, FileBounds] | None = None,
) -> Plan:
    """Plan groups of files that are sorted together: unsorted files, and the sorted files that they overlap.

    ``bounds`` are those of files whose footers do not contain them.
    """
    groups: list[Group] = []
    for folder, members in by_folder(files).items():
        groups += _folder_groups(folder, members, schema, request, sizes, bounds or {})
    taken = {file.path for group in groups for file in group.files}
    left = [file for file in files if file.path not in taken]
    return Plan(tuple(groups), {file.path: "in this order already" if file.rows else "empty" for file in left})


def files_to_consider(
    files: Sequence[DataFile],
    schema: pa.Schema,
    request: OptimizeRequest,
    target: Target,
    bounds: Mapping[str, FileBounds],
) -> list[DataFile]:
    """Return the files that a plan may sort, whatever their estimated sizes are."""
    folders = [_FolderFiles.of(members, schema, request, target, bounds) for members in by_folder(files).values()]
    return [folder.filled[i] for folder in folders for group in folder.groups for i in group]


@dataclass(frozen=True, slots=True, eq=False)
class _FolderFiles:
    """The files of a folder that have rows.

    Attributes:
        boxes: The bounds of each file.
        unsorted: Which files do not have the requested order or format.
        must_sort: Which files are sorted in any case.
        groups: Numbers of the files that overlap, and so are sorted together.
    """

    filled: Sequence[DataFile]
    boxes: Boxes
    unsorted: Flags
    must_sort: Flags
    groups: list[list[int]]

    @classmethod
    def of(
        cls,
        members: Sequence[DataFile],
        schema: pa.Schema,
        request: OptimizeRequest,
        target: Target,
        bounds: Mapping[str, FileBounds],
    ) -> _FolderFiles:
        assert request.columns is not None
        filled = [file for file in members if file.rows]
        boxes = file_boxes(filled, request.curve, request.columns, schema, bounds)
        unsorted = np.array([_is_unsorted(file, request) for file in filled], dtype=bool)
        linear = is_linear(request.curve, request.columns)
        must_sort = unsorted | _overlaps_other_run(boxes, filled, unsorted) if linear else unsorted
        may_sort = _small_runs(filled, must_sort, target) | _of_other_size(filled, request)
        return cls(filled, boxes, unsorted, must_sort, components(boxes, must_sort | may_sort))


def _folder_groups(
    folder: str,
    members: Sequence[DataFile],
    schema: pa.Schema,
    request: OptimizeRequest,
    sizes: OutputSizes,
    bounds: Mapping[str, FileBounds],
) -> list[Group]:
    assert request.columns is not None
    found = _FolderFiles.of(members, schema, request, sizes.target, bounds)
    filled, boxes, unsorted, must_sort = found.filled, found.boxes, found.unsorted, found.must_sort
    # A curve orders all columns together, so its files are one group; the linear order is sorted range by range.
    whole = [[i for group in found.groups for i in group]] if found.groups else []
    linear = is_linear(request.curve, request.columns)
    groups: list[Group] = []
    for group in _merged(found.groups, boxes, filled, sizes) if linear else whole:
        chosen = [filled[i] for i in group]
        if not must_sort[group].any() and outputs(chosen, sizes) == len(chosen):
            continue
        empty = [file for file in members if not file.rows] if not groups else []
        priority = {i: (not unsorted[i], not must_sort[i], *boxes[i, :, 0].tolist(), filled[i].path) for i in group}
        by_priority = (*(filled[i] for i in sorted(group, key=lambda i: priority[i])), *empty)
        groups.append(
            Group(
                folder,
                tuple(sorted(by_priority, key=lambda file: file.path)),
                "not in this order" if must_sort[group].any() else "of another size",
                "sort",
                by_priority,
                int(unsorted[group].sum()),
            )
        )
    return groups


def _overlaps_other_run(boxes: Boxes, files: Sequence[DataFile], unsorted: Flags) -> Flags:
    """Return the sorted files that overlap sorted files of another run. Limits can leave such files."""
    runs = ["" if file.sort_note is None or unsorted[i] else file.sort_note.run for i, file in enumerate(files)]
    return runs_overlap(boxes[:, 0], runs)


def _is_unsorted(file: DataFile, request: OptimizeRequest) -> bool:
    """Return whether a file lacks the requested order, codec, row group size or Bloom filters."""
    note, options = file.sort_note, request.scope.options
    if request.force or note is None or (note.curve, note.columns) != (request.curve, request.columns):
        return True
    if options.compression is not None and codec_name(file.codec) != options.compression:
        return True
    if options.changes_times(file):
        return True
    if options.row_group_size is not None and max(file.row_groups) > options.row_group_size:
        return True
    filters = [file.blooms.get(name) for name in request.blooms if name in file.schema.names]
    return not all(of_column and None not in of_column for of_column in filters)


def _of_other_size(files: Sequence[DataFile], request: OptimizeRequest) -> Flags:
    """Return the files that a run with another target wrote and that are too small or too large for this target."""
    target = (request.target.bytes, request.target.rows)
    low, high = _ACCEPTED_SIZE
    return np.array(
        [
            bool(request.target)
            and (file.sort_note is None or file.sort_note.target != target)
            and not low <= request.target.fill(file.size, file.rows) <= high
            for file in files
        ],
        dtype=bool,
    )


def _small_runs(files: Sequence[DataFile], seeds: Flags, target: Target) -> Flags:
    """Return the small files of several runs, if together they fill a file. The output of this run counts as well."""
    fills = np.array([target.fill(file.size, file.rows) for file in files])
    small = ~seeds & (fills < _SMALL)
    runs = {
        file.sort_note.run
        for file, is_small in zip(files, small, strict=True)
        if is_small and file.sort_note is not None
    }
    this_run = fills[seeds].sum() if seeds.any() and fills[seeds].sum() < _SMALL else 0.0
    fills_a_file = len(runs) + (this_run > 0) > 1 and fills[small].sum() + this_run >= 1
    return small if fills_a_file else np.zeros(len(files), dtype=bool)


def _merged(
    groups: Sequence[list[int]], boxes: Boxes, files: Sequence[DataFile], sizes: OutputSizes
) -> list[list[int]]:
    """Merge neighbouring groups until they fill a few files, unless a file that is not sorted lies between them."""
    kept = np.ones(len(files), dtype=bool)
    kept[[i for group in groups for i in group]] = False
    result: list[tuple[list[int], float]] = []

    def join(group: list[int], fill: float) -> bool:
        joined = result[-1][0] + group
        if overlap(bounding_box(boxes, joined), boxes[kept]).any():
            return False
        result[-1] = joined, result[-1][1] + fill
        return True

    for group in groups:
        weight = sizes.weight([files[i] for i in group])
        fill = sizes.target.fill(weight.data, weight.rows)
        if not result or result[-1][1] >= _MERGED_FILES or not join(group, fill):
            result.append((group, fill))
    if len(result) > 1 and result[-1][1] < _MERGED_FILES:
        last = result.pop()
        if not join(*last):
            result.append(last)
    return [group for group, _ in result]


def outputs(files: Sequence[DataFile], sizes: OutputSizes, dropped: int = 0) -> int:
    """Return the number of files that the rows of some files are written as."""
    return sizes.outputs(sizes.weight(files, dropped))
