"""Sorting files by an order, however large they are: sample, cut into ranges, route rows, sort each range, write.

Rows go once through the exchange: read, sent to the range that they belong to, and there sorted and written as files
that do not overlap. A range that is too large for memory is cut further on a local disk. Which files belong together
is decided before (`fsspeckit.core.planning.maintenance_request`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.common.bridge import to_arrow, to_numpy
from fsspeckit.core.kernels.file_bounds import bounds_of, union_of_bounds
from fsspeckit.core.kernels.find_duplicates import RowGroupSpan
from fsspeckit.core.kernels.join_files import Output, RowForm, lead_footer, read_file, without_rows
from fsspeckit.core.model import DataFile, FileBounds, Outcome, RowNumbers, SortNote, WriteOptions
from fsspeckit.core.parquet.footer import Footer
from fsspeckit.core.parquet.reader import check_rows, open_parquet, report_damage
from fsspeckit.core.parquet.sort_note import sort_note_metadata
from fsspeckit.core.parquet.writer_options import WriterOptions, leaf_count
from fsspeckit.core.storage import Storage, for_each
from fsspeckit.core.values.curves import Ordering, RangeCuts, SortColumn, sort_order
from fsspeckit.core.values.spill import Spill
from fsspeckit.core.values.take import take_rows, used_codes

RANGE_BYTES = 64 * 1024 * 1024
_SPILL_BUDGET = 2 * RANGE_BYTES
_FEWEST_ROUTED = 65_536
_PIECE_ROWS = 4096
_RANGE = b"fsspeckit.range"
_KEY = "\0order"
Weights = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SampleRows:
    """Takes every ``stride``-th row of some row groups: the columns of an order, and positions."""

    storage: Storage
    ordering: Ordering
    stride: int

    def __call__(self, item: tuple[RowGroupSpan, ...]) -> pa.Table:
        """Columns ``0``, ``1`` ... in sortable form, and ``file`` and ``row``."""
        return pa.concat_tables(for_each(self.storage, self._read, item))

    def _read(self, stretch: RowGroupSpan) -> pa.Table:
        file = stretch.file
        names = [name for name in self.ordering.columns if name in file.schema.names]
        with (
            report_damage("reading", file.path),
            open_parquet(self.storage, file, verify=True, partial=True) as reader,
        ):
            table = reader.read_row_groups(list(stretch.row_groups), names, use_threads=False)
        count = sum(file.row_groups[group] for group in stretch.row_groups)
        if names:
            check_rows(table.num_rows, file, stretch.row_groups)
        rows = np.arange(self.stride // 2 if count > self.stride // 2 else 0, count, self.stride)
        picked = take_rows(table, rows) if names else pa.table({})
        columns = {str(i): column for i, column in enumerate(self._columns(picked, len(rows)))}
        columns["file"] = to_arrow(np.full(len(rows), stretch.number, dtype=np.int64))
        columns["row"] = to_arrow(rows + stretch.start)
        return pa.table(columns)

    def _columns(self, table: pa.Table, rows: int) -> list[pa.Array]:
        if not table.column_names:
            table = pa.table({"\0": pa.nulls(rows)})
        return [_as_array(form) for form in self.ordering.raw_forms(table)]


def _as_array(form: SortColumn) -> pa.Array:
    return to_arrow(form.values, form.valid) if isinstance(form.values, np.ndarray) else form.values


def sample_forms(sample: pa.Table, ordering: Ordering) -> list[SortColumn]:
    """The columns of a sample as forms."""
    return [SortColumn.of(sample[str(i)]) for i in range(len(ordering.columns))]


def make_cuts(sample: pa.Table, ordering: Ordering, bases: RowNumbers, ranges: int, weights: Weights) -> RangeCuts:
    """Rows of a sample that cut the order into ranges of equal weight; positions tell equal rows apart."""
    position = bases[to_numpy(sample["file"])] + to_numpy(sample["row"])
    forms = [*ordering.on_curve(sample_forms(sample, ordering)), SortColumn(position)]
    order = sort_order(forms)
    at = _cut_places(weights[order], ranges)
    return RangeCuts(tuple(form.take(order[at]) for form in forms))


def _cut_places(weights: Weights, ranges: int) -> RowNumbers:
    """Where ranges of equal weight begin, but the first; each has a row at least, as long as there are so many."""
    count = len(weights)
    number = np.arange(1, min(ranges, count))
    ranges = len(number) + 1
    sums = np.cumsum(weights)
    at = np.searchsorted(sums, sums[-1:] * number / ranges, "right")
    at = np.maximum.accumulate(np.maximum(at - number, 0)) + number
    return np.minimum(at, count - ranges + number)


@dataclass(frozen=True, slots=True, eq=False)
class SortGroup:
    """Files that are sorted together: their form, their order, and the ranges of it.

    ``files`` output files begin at part ``first`` of the exchange, each with ``inner`` ranges; ``bases`` are the
    positions at which the rows of each file begin, by the file's number; ``target`` is the wanted size of a file.
    """

    row_form: RowForm
    footer: Footer | None
    ordering: Ordering
    cuts: RangeCuts
    first: int
    files: int
    inner: int
    bases: RowNumbers
    options: WriteOptions
    group_rows: int
    blooms: tuple[str, ...]
    target: tuple[float | None, int | None]


@dataclass(frozen=True, slots=True, eq=False)
class SortItem:
    """Row groups to route, of one group of files, and the rows of each stretch that are dropped."""

    group: int
    stretches: tuple[RowGroupSpan, ...]
    drops: tuple[RowNumbers, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RouteRows:
    """Reads row groups and sends each row to the part of its range; places on a curve travel with the rows."""

    storage: Storage
    groups: tuple[SortGroup, ...]

    def __call__(self, item: SortItem) -> Iterator[tuple[int, pa.Table]]:
        """Pieces of one range each."""
        group = self.groups[item.group]
        ranges = group.files * group.inner
        at_once = max(_FEWEST_ROUTED, ranges * _PIECE_ROWS)
        held: list[tuple[pa.Table, RowNumbers]] = []
        rows = 0
        for table, positions in self._read(item, group):
            held.append((table, positions))
            rows += table.num_rows
            if rows >= at_once:
                yield from self._pieces(held, group)
                held, rows = [], 0
        if rows:
            yield from self._pieces(held, group)

    def _read(self, item: SortItem, group: SortGroup) -> Iterator[tuple[pa.Table, RowNumbers]]:
        for stretch, drops in zip(item.stretches, item.drops, strict=True):
            start = stretch.start
            for table in read_file(self.storage, stretch.file, group.row_form, stretch.row_groups):
                positions = np.arange(start, start + table.num_rows) + group.bases[stretch.number]
                if len(drops):
                    low, high = np.searchsorted(drops, [start, start + table.num_rows])
                    positions = np.delete(positions, drops[low:high] - start)
                    yield without_rows(table, drops, start), positions
                else:
                    yield table, positions
                start += table.num_rows

    @staticmethod
    def _pieces(held: Sequence[tuple[pa.Table, RowNumbers]], group: SortGroup) -> Iterator[tuple[int, pa.Table]]:
        table = held[0][0] if len(held) == 1 else pa.concat_tables([table for table, _ in held]).unify_dictionaries()
        forms = group.ordering.forms(table)
        if group.ordering.scales:
            for i, form in enumerate(forms):
                table = table.append_column(f"{_KEY}{i}", to_arrow(form.values))
        ranges = group.files * group.inner
        number = group.cuts.locate([*forms, SortColumn(np.concatenate([positions for _, positions in held]))])
        small = number.astype(np.uint16) if ranges < 2**16 else number
        order = np.argsort(small, kind="stable")
        ends = np.cumsum(np.bincount(number, minlength=ranges))
        if ranges > 1:
            table = take_rows(table, order)
        for found in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
            start = int(ends[found - 1]) if found else 0
            piece = used_codes(table.slice(start, int(ends[found]) - start))
            yield group.first + found // group.inner, piece.replace_schema_metadata({_RANGE: str(found).encode()})


@dataclass(frozen=True, slots=True, eq=False)
class WriteSortedFile:
    """Sorts the rows of one part and writes them as a staged file; a part without rows is no file."""

    storage: Storage
    groups: tuple[SortGroup, ...]
    staging: str
    run: str

    def __call__(self, part: int, pieces: Iterator[pa.Table]) -> Outcome | None:
        """Write the file of a part."""
        group = next(group for group in reversed(self.groups) if group.first <= part)
        staged = f"{self.staging}/{uuid.uuid4().hex}.staged"
        sink = partial(self.storage.open_output, staged)
        output = Output(sink, group.row_form, group.footer, group.options, group.group_rows, _extra(group))
        with output:
            ends: FileBounds | None = None
            for held in _ranges(pieces, (part - group.first) * group.inner, group.inner):
                if held:
                    ends = union_of_bounds(ends, _write_sorted(held, group, output), linear=group.ordering.is_linear)
            if ends is None:
                return None
            note = SortNote(group.ordering.curve, group.ordering.columns, self.run, output.total, ends, group.target)
            size = output.finish(sort_note_metadata(note))
            return Outcome(staged, output.rows, size, 0, True)


def _ranges(pieces: Iterator[pa.Table], first: int, inner: int) -> Iterator[list[pa.Table]]:
    """The pieces of each range; with several ranges they wait on disk for their turn."""
    if inner == 1:
        yield list(pieces)
        return
    with Spill(inner, _SPILL_BUDGET) as spill:
        with spill.writer(0) as writer:
            for piece in pieces:
                writer.add(int(piece.schema.metadata[_RANGE]) - first, piece)
        for number in range(inner):
            yield list(spill.take(number))


def _write_sorted(held: list[pa.Table], group: SortGroup, output: Output) -> FileBounds:
    """Write the rows of one range in order, a row group at a time, and tell how far they reach."""
    table = pa.concat_tables([piece.replace_schema_metadata(None) for piece in held]).unify_dictionaries()
    held.clear()
    table = table.combine_chunks()
    if group.ordering.scales:
        names = [name for name in table.column_names if name.startswith(_KEY)]
        forms = [SortColumn.of(table[name]) for name in names]
        table = table.drop_columns(names)
        order, ends = sort_order(forms), bounds_of(group.ordering.raw_forms(table), linear=False)
    else:
        forms = group.ordering.forms(table)
        order = sort_order(forms)
        ends = bounds_of([form.take(order[[0, -1]]) for form in forms], linear=True)
    for start in range(0, len(order), group.group_rows):
        output.add(take_rows(table, order[start : start + group.group_rows]))
    return ends


def _extra(group: SortGroup) -> WriterOptions:
    """What sorted files have beyond what their inputs had."""
    extra: WriterOptions = {"write_page_index": True}
    schema = group.row_form.schema
    if group.ordering.is_linear:
        stored = [name for name in group.ordering.columns if name in schema.names]
        extra["sorting_columns"] = [pq.SortingColumn(_leaf(schema, name)) for name in stored] or None
    if group.blooms:
        extra["bloom_filter_options"] = {name: {"ndv": group.group_rows} for name in group.blooms}
    return extra


def _leaf(schema: pa.Schema, name: str) -> int:
    """The number of a column among Parquet's leaves."""
    return sum(leaf_count(schema.field(i).type) for i in range(schema.names.index(name)))


def group_row_form(storage: Storage, files: Sequence[DataFile], schema: pa.Schema) -> tuple[RowForm, Footer | None]:
    """The form in which rows of these files travel, and the footer that their new files are written like."""
    footer = lead_footer(storage, files)
    return RowForm.of(files, schema, footer), footer
