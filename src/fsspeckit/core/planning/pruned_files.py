"""Set files aside that statistics in the footer index exclude, before the files of a dataset are looked at one by one.

The statistics of all files are compared at once. What is set aside is proven; everything else, and one file of each
folder and schema, is planned as usual. So the plan is the same as without this step, and its cost depends on the
number of files that may change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.common.bridge import to_arrow, to_numpy, valid_mask
from fsspeckit.core.commit.file_list import paths_of
from fsspeckit.core.dataset.indexed_files import DataFiles
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.model import PlanEntry, ViewFile
from fsspeckit.core.parquet.footer_table import FooterTable, Numbers
from fsspeckit.core.planning.statistics import KeySet, Mask, Ordered, contradict, ordered, stored_bounds

MIN_FILES = 32
"""The number of files from which on files are set aside."""

_COMPARED = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}


@dataclass(frozen=True, slots=True, eq=False)
class PrunedFiles:
    """Files of a snapshot that are kept without a further look.

    Attributes:
        files: All files of the snapshot.
        numbers: The numbers of the files that were set aside, ascending.
        examples: For each of them, a file of the same folder and schema that was not set aside.
        planned: The numbers of the files that were not set aside, ascending.
    """

    files: DataFiles
    numbers: Numbers
    examples: Numbers
    planned: Numbers

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.files.row_counts[self.numbers].sum())

    def reasons(self, reason_of: Mapping[str, str]) -> dict[int, str]:
        """Return the reasons of the examples by their numbers; ``reason_of`` has them by path."""
        numbers = np.unique(self.examples).tolist()
        return {number: reason_of[self.files.listed[number].path] for number in numbers}

    def paths(self) -> list[str]:
        """Return the paths of the files."""
        return list(paths_of(self.files.listed).take(to_arrow(self.numbers)).to_pylist())


class PlanEntries(Sequence[PlanEntry]):
    """The lines of a plan. Those of files that were set aside are built when asked for."""

    def __init__(
        self, pruned: PrunedFiles, planned: Sequence[PlanEntry], reasons: Mapping[int, str], new: Sequence[PlanEntry]
    ) -> None:
        self._files, self._new = pruned.files, tuple(new)
        self._planned: dict[int, PlanEntry] = dict(zip(pruned.planned.tolist(), planned, strict=True))
        self._examples = np.zeros(len(pruned.files), dtype=np.int64)
        self._examples[pruned.numbers] = pruned.examples
        self._reasons, self._rows = reasons, pruned.files.row_counts

    def __reduce__(self) -> tuple[type[tuple[PlanEntry, ...]], tuple[list[PlanEntry]]]:
        return tuple, (list(self),)

    def __len__(self) -> int:
        return len(self._files) + len(self._new)

    @overload
    def __getitem__(self, at: int) -> PlanEntry: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[PlanEntry, ...]: ...
    def __getitem__(self, at: int | slice) -> PlanEntry | tuple[PlanEntry, ...]:
        if isinstance(at, slice):
            return tuple(self[number] for number in range(*at.indices(len(self))))
        number = range(len(self))[at]
        if number >= len(self._files):
            return self._new[number - len(self._files)]
        return self._entry(number, self._files.listed[number])

    def __iter__(self) -> Iterator[PlanEntry]:
        for number, listed in enumerate(self._files.listed):
            yield self._entry(number, listed)
        yield from self._new

    def _entry(self, number: int, listed: ViewFile) -> PlanEntry:
        if number in self._planned:
            return self._planned[number]
        reason, rows = self._reasons[int(self._examples[number])], int(self._rows[number])
        return PlanEntry(listed.path, "keep", reason, rows, listed.size, stamp=listed.version)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]


def set_aside(
    snapshot: Snapshot, may_change: Callable[[DataFiles, FooterTable, Numbers], Mask]
) -> tuple[Snapshot, PrunedFiles | None]:
    """Return the snapshot of the files that may change, and the other files.

    ``may_change`` returns for some files of a table whether each may change. The first file of each folder and
    schema is never set aside.
    """
    files = snapshot.files
    if not isinstance(files, DataFiles) or len(files) < MIN_FILES:
        return snapshot, None
    planned = files.entries < 0
    planned[0] = True
    examples = np.zeros(len(files), dtype=np.int64)
    folders = files.partitions.folders
    for table, numbers in files.by_table(np.flatnonzero(~planned)):
        _, first, inverse = np.unique(folders[numbers], return_index=True, return_inverse=True)
        examples[numbers] = numbers[first][inverse]
        planned[numbers] = may_change(files, table, numbers)
        planned[numbers[first]] = True
    rest, chosen = np.flatnonzero(~planned), np.flatnonzero(planned)
    if not len(rest):
        return snapshot, None
    kept = replace(snapshot, files=tuple(files.take(chosen.tolist())))
    return kept, PrunedFiles(files, rest, examples[rest], chosen)


def may_have_keys(files: DataFiles, table: FooterTable, numbers: Numbers, keys: Mapping[str, KeySet]) -> Mask:
    """Return for files of a table whether each may have a row with one of the keys in every column."""
    groups = table.groups_of(files.rows_in(table, numbers))
    maybe = table.group_rows[groups] > 0
    for name, key_set in keys.items():
        maybe &= _groups_may_have(table, groups, name, key_set)
    return any_group(files, table, numbers, maybe)


def any_group(files: DataFiles, table: FooterTable, numbers: Numbers, mask: Mask) -> Mask:
    """Return for each file whether a value is true for one of its row groups."""
    rows = files.rows_in(table, numbers)
    owner = np.repeat(np.arange(len(rows)), table.starts[rows + 1] - table.starts[rows])
    return np.asarray(np.bincount(owner, weights=mask, minlength=len(rows)) > 0)


def _groups_may_have(table: FooterTable, groups: Numbers, name: str, keys: KeySet) -> Mask:
    maybe = np.ones(len(groups), dtype=bool)
    native, facts = table.shared.natives.get(name), table.columns.get(name)
    if native is None or facts is None or (keys.values is None and keys.bounds is None) or keys.has_nan:
        return maybe
    at = to_arrow(groups)
    lower, upper, nulls = (array.take(at) for array in (facts.lower, facts.upper, facts.nulls))
    usable = valid_mask(lower) & valid_mask(upper)
    if keys.has_null:
        usable &= valid_mask(nulls) & (to_numpy(nulls) == 0)
    chosen = to_arrow(np.flatnonzero(usable))
    low, high = (stored_bounds(array.take(chosen), native, keys.type) for array in (lower, upper))
    if low is None or high is None:
        return maybe
    found = keys.hits(low, high) | contradict(low, high)
    if isinstance(low, np.ndarray) and low.dtype.kind == "f":
        found |= np.isnan(low) | np.isnan(high)
    maybe[usable] = found
    return maybe


def may_compare(
    files: DataFiles, table: FooterTable, numbers: Numbers, name: str, operator: str, constant: pa.Scalar
) -> Mask:
    """Return for files of a table whether a value of a column may be below, at or above a constant."""
    groups = table.groups_of(files.rows_in(table, numbers))
    maybe = table.group_rows[groups] > 0
    native, facts = table.shared.natives.get(name), table.columns.get(name)
    is_below, is_float = operator in ("<", "<="), pa.types.is_floating(constant.type)
    unknown = is_float and (not is_below or math.isnan(constant.as_py()))  # NaN is above all, and not in bounds
    if native is None or facts is None or unknown:
        return any_group(files, table, numbers, maybe)
    at = to_arrow(groups)
    lower, upper = (array.take(at) for array in (facts.lower, facts.upper))
    usable = valid_mask(lower) & valid_mask(upper)
    chosen = to_arrow(np.flatnonzero(usable))
    low, high = (stored_bounds(array.take(chosen), native, constant.type) for array in (lower, upper))
    limit = ordered(pa.repeat(constant, 1), constant.type)
    if low is not None and high is not None and limit is not None:
        found = to_numpy(pc.call_function(_COMPARED[operator], [_array(low if is_below else high), _array(limit)[0]]))
        maybe[usable] &= found | contradict(low, high)
    return any_group(files, table, numbers, maybe)


def _array(values: Ordered) -> pa.Array:
    return to_arrow(values) if isinstance(values, np.ndarray) else values


def has_no_nulls(files: DataFiles, table: FooterTable, numbers: Numbers, names: Sequence[str]) -> Mask:
    """Return for files of a table whether null counts prove that none of the columns has a null."""
    schema = table.shared.schema
    proven = np.ones(len(numbers), dtype=bool)
    for name in names:
        if schema.names.count(name) != 1:
            return np.zeros(len(numbers), dtype=bool)
        if not schema.field(name).nullable:
            continue
        facts = table.columns.get(name)
        if facts is None:
            return np.zeros(len(numbers), dtype=bool)
        groups = to_arrow(table.groups_of(files.rows_in(table, numbers)))
        nulls = facts.nulls.take(groups)
        proven &= ~any_group(files, table, numbers, ~(valid_mask(nulls) & (to_numpy(nulls) == 0)))
    return proven


def has_value_of_folder(files: DataFiles, table: FooterTable, numbers: Numbers, names: Sequence[str]) -> Mask:
    """Return for files of a table whether all rows have the value of the first file of their folder, in all columns.

    That file is not set aside, so its value is compared with the folder's name.
    """
    proven = np.ones(len(numbers), dtype=bool)
    rows = files.rows_in(table, numbers)
    _, first, inverse = np.unique(files.partitions.folders[numbers], return_index=True, return_inverse=True)
    for name in names:
        if name not in table.shared.schema.names:
            continue
        facts = table.columns.get(name)
        if facts is None or bool((table.starts[rows[first] + 1] == table.starts[rows[first]]).any()):
            return np.zeros(len(numbers), dtype=bool)
        groups = table.groups_of(rows)
        owner = np.repeat(inverse, table.starts[rows + 1] - table.starts[rows])
        example = to_arrow(table.starts[rows[first]][owner])
        at = to_arrow(groups)
        same = valid_mask(facts.nulls.take(at)) & (to_numpy(facts.nulls.take(at)) == 0)
        for one, other in ((facts.lower, facts.lower), (facts.upper, facts.lower), (facts.upper, facts.upper)):
            same &= _equal(one.take(at), other.take(example))
        proven &= ~any_group(files, table, numbers, ~same)
    return proven


def _equal(one: pa.Array, other: pa.Array) -> Mask:
    found = pc.equal(one, other)
    return np.asarray(valid_mask(found) & to_numpy(found))
