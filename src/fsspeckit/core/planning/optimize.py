"""Which files must be sorted together, and which stand as they are wanted. Pure functions over footers."""

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
_ENOUGH = 4
_AS_WANTED = (0.6, 1.3)
Flags = npt.NDArray[np.bool_]


def files_to_read(files: Sequence[DataFile], schema: pa.Schema, request: OptimizeRequest) -> list[DataFile]:
    """Files whose footers do not tell how far they reach, where it matters: what is all new is one piece of a curve."""
    assert request.columns is not None
    linear = is_linear(request.curve, request.columns)
    return [
        file
        for members in by_folder(files).values()
        if linear or not all(_is_fresh(file, request) for file in members if file.rows)
        for file in members
        if file.rows and not bounds_known(file, request.curve, request.columns, schema)
    ]


def plan_optimize(
    files: Sequence[DataFile],
    schema: pa.Schema,
    request: OptimizeRequest,
    sizes: OutputSizes,
    read: Mapping[str, FileBounds] | None = None,
) -> Plan:
    """Groups of files that must be sorted together: new ones, and those of the wanted order that they reach into.

    ``read`` are the ends of files whose footers do not tell.
    """
    groups: list[Group] = []
    for folder, members in by_folder(files).items():
        groups += _folder_groups(folder, members, schema, request, sizes, read or {})
    taken = {file.path for group in groups for file in group.files}
    left = [file for file in files if file.path not in taken]
    return Plan(tuple(groups), {file.path: "in this order already" if file.rows else "empty" for file in left})


def files_to_consider(
    files: Sequence[DataFile],
    schema: pa.Schema,
    request: OptimizeRequest,
    target: Target,
    read: Mapping[str, FileBounds],
) -> list[DataFile]:
    """Files that a plan may have sorted, whatever they turn out to weigh."""
    surveys = [_Survey.of(members, schema, request, target, read) for members in by_folder(files).values()]
    return [survey.filled[i] for survey in surveys for part in survey.parts for i in part]


@dataclass(frozen=True, slots=True, eq=False)
class _Survey:
    """The files of a folder that have rows: how far they reach, which are new, which must be sorted, with which."""

    filled: Sequence[DataFile]
    found: Boxes
    fresh: Flags
    must: Flags
    parts: list[list[int]]

    @classmethod
    def of(
        cls,
        members: Sequence[DataFile],
        schema: pa.Schema,
        request: OptimizeRequest,
        target: Target,
        read: Mapping[str, FileBounds],
    ) -> _Survey:
        assert request.columns is not None
        filled = [file for file in members if file.rows]
        found = file_boxes(filled, request.curve, request.columns, schema, read)
        fresh = np.array([_is_fresh(file, request) for file in filled], dtype=bool)
        linear = is_linear(request.curve, request.columns)
        must = fresh | _entangled(found, filled, fresh) if linear else fresh
        may = _small_runs(filled, must, target) | _of_other_size(filled, request)
        return cls(filled, found, fresh, must, components(found, must | may))


def _folder_groups(
    folder: str,
    members: Sequence[DataFile],
    schema: pa.Schema,
    request: OptimizeRequest,
    sizes: OutputSizes,
    read: Mapping[str, FileBounds],
) -> list[Group]:
    assert request.columns is not None
    survey = _Survey.of(members, schema, request, sizes.target, read)
    filled, found, fresh, must = survey.filled, survey.found, survey.fresh, survey.must
    # A curve leads through all values at once; only the linear order can be made one range after the other.
    whole = [[i for part in survey.parts for i in part]] if survey.parts else []
    linear = is_linear(request.curve, request.columns)
    groups: list[Group] = []
    for group in _merged(survey.parts, found, filled, sizes) if linear else whole:
        chosen = [filled[i] for i in group]
        if not must[group].any() and outputs(chosen, sizes) == len(chosen):
            continue
        empty = [file for file in members if not file.rows] if not groups else []
        low = {i: (not fresh[i], not must[i], *found[i, :, 0].tolist(), filled[i].path) for i in group}
        turn = (*(filled[i] for i in sorted(group, key=lambda i: low[i])), *empty)
        groups.append(
            Group(
                folder,
                tuple(sorted(turn, key=lambda file: file.path)),
                "not in this order" if must[group].any() else "of another size",
                "sort",
                turn,
                int(fresh[group].sum()),
            )
        )
    return groups


def _entangled(found: Boxes, files: Sequence[DataFile], fresh: Flags) -> Flags:
    """Files in order that reach into those of another run: limits cut what should have been sorted together."""
    runs = ["" if file.sort_note is None or fresh[i] else file.sort_note.run for i, file in enumerate(files)]
    return runs_overlap(found[:, 0], runs)


def _is_fresh(file: DataFile, request: OptimizeRequest) -> bool:
    return request.force or not _is_as_wanted(file, request)


def _is_as_wanted(file: DataFile, request: OptimizeRequest) -> bool:
    """Whether a file has the order, the codec, the row groups and the Bloom filters that are asked for."""
    note, options = file.sort_note, request.scope.options
    if note is None or (note.curve, note.columns) != (request.curve, request.columns):
        return False
    if options.compression is not None and codec_name(file.codec) != options.compression:
        return False
    if options.row_group_size is not None and max(file.row_groups) > options.row_group_size:
        return False
    blooms = [file.blooms.get(name) for name in request.blooms if name in file.schema.names]
    return all(found and None not in found for found in blooms)


def _of_other_size(files: Sequence[DataFile], request: OptimizeRequest) -> Flags:
    """Files that a run with another target made, too small or too large for the one that is asked for now."""
    wanted = (request.target.bytes, request.target.rows)
    low, high = _AS_WANTED
    return np.array(
        [
            bool(request.target)
            and (file.sort_note is None or file.sort_note.target != wanted)
            and not low <= request.target.fill(file.size, file.rows) <= high
            for file in files
        ],
        dtype=bool,
    )


def _small_runs(files: Sequence[DataFile], seeds: Flags, target: Target) -> Flags:
    """Small files that several runs left, once together they would fill a file; what this run leaves counts too."""
    fills = np.array([target.fill(file.size, file.rows) for file in files])
    small = ~seeds & (fills < _SMALL)
    runs = {
        file.sort_note.run
        for file, is_small in zip(files, small, strict=True)
        if is_small and file.sort_note is not None
    }
    fresh = fills[seeds].sum() if seeds.any() and fills[seeds].sum() < _SMALL else 0.0
    enough = len(runs) + (fresh > 0) > 1 and fills[small].sum() + fresh >= 1
    return small if enough else np.zeros(len(files), dtype=bool)


def _merged(
    groups: Sequence[list[int]], found: Boxes, files: Sequence[DataFile], sizes: OutputSizes
) -> list[list[int]]:
    """Neighbouring groups together until they fill a few files, unless a file that stays lies between them."""
    staying = np.ones(len(files), dtype=bool)
    staying[[i for group in groups for i in group]] = False
    result: list[tuple[list[int], float]] = []

    def join(group: list[int], fill: float) -> bool:
        joined = result[-1][0] + group
        if overlap(bounding_box(found, joined), found[staying]).any():
            return False
        result[-1] = joined, result[-1][1] + fill
        return True

    for group in groups:
        weight = sizes.weight([files[i] for i in group])
        fill = sizes.target.fill(weight.parts, weight.rows)
        if not result or result[-1][1] >= _ENOUGH or not join(group, fill):
            result.append((group, fill))
    if len(result) > 1 and result[-1][1] < _ENOUGH:
        last = result.pop()
        if not join(*last):
            result.append(last)
    return [group for group, _ in result]


def outputs(files: Sequence[DataFile], sizes: OutputSizes, dropped: int = 0) -> int:
    """How many files the rows of some files become."""
    return sizes.outputs(sizes.weight(files, dropped))
