"""Sort files of any size: sample rows, split the order into ranges, send rows to their range, sort and write ranges.

Every row goes through the exchange once. The output files do not overlap. A range that does not fit into memory is
split into smaller ranges on the local disk.
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
from fsspeckit.common.causes import report_writing
from fsspeckit.core.kernels.file_bounds import bounds_of, union_of_bounds
from fsspeckit.core.kernels.find_duplicates import RowGroupSpan, read_spanned
from fsspeckit.core.kernels.join_files import Output, RowForm, lead_footer, read_file, without_rows
from fsspeckit.core.model import DataFile, FileBounds, Outcome, RowNumbers, SortNote, WriteOptions
from fsspeckit.core.parquet.footer import Footer
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
    """Reads the sort columns and positions of every ``stride``-th row of some row groups."""

    storage: Storage
    ordering: Ordering
    stride: int

    def __call__(self, item: tuple[RowGroupSpan, ...]) -> pa.Table:
        """Return the columns ``0``, ``1`` ... in sortable form, ``file`` and ``row``."""
        return pa.concat_tables(for_each(self.storage, self._read, item))

    def _read(self, span: RowGroupSpan) -> pa.Table:
        count, picked, start = span.rows, [], 0
        names = [name for name in self.ordering.columns if name in span.file.schema.names]
        rows = np.arange(self.stride // 2 if count > self.stride // 2 else 0, count, self.stride)
        for table in read_spanned(self.storage, span, names, "reading"):
            low, high = np.searchsorted(rows, [start, start + table.num_rows])
            picked.append(take_rows(table, rows[low:high] - start) if names else pa.table({}))
            start += table.num_rows
        columns = {str(i): column for i, column in enumerate(self._columns(pa.concat_tables(picked), len(rows)))}
        columns["file"] = to_arrow(np.full(len(rows), span.number, dtype=np.int64))
        columns["row"] = to_arrow(rows + span.start)
        return pa.table(columns)

    def _columns(self, table: pa.Table, rows: int) -> list[pa.Array]:
        if not table.column_names:
            table = pa.table({"\0": pa.nulls(rows)})
        return [_as_array(form) for form in self.ordering.raw_forms(table)]


def _as_array(form: SortColumn) -> pa.Array:
    return to_arrow(form.values, form.valid) if isinstance(form.values, np.ndarray) else form.values


def sample_forms(sample: pa.Table, ordering: Ordering) -> list[SortColumn]:
    """Return the sort columns of a sample."""
    return [SortColumn.of(sample[str(i)]) for i in range(len(ordering.columns))]


def make_cuts(sample: pa.Table, ordering: Ordering, bases: RowNumbers, ranges: int, weights: Weights) -> RangeCuts:
    """Return sample rows that split the order into ranges of equal weight. Equal rows are ordered by position."""
    position = bases[to_numpy(sample["file"])] + to_numpy(sample["row"])
    forms = [*ordering.on_curve(sample_forms(sample, ordering)), SortColumn(position)]
    order = sort_order(forms)
    at = _range_starts(weights[order], ranges)
    return RangeCuts(tuple(form.take(order[at]) for form in forms))


def _range_starts(weights: Weights, ranges: int) -> RowNumbers:
    """Return where ranges of equal weight start, except the first. Each has at least one row if there are enough."""
    count = len(weights)
    number = np.arange(1, min(ranges, count))
    ranges = len(number) + 1
    sums = np.cumsum(weights)
    at = np.searchsorted(sums, sums[-1:] * number / ranges, "right")
    at = np.maximum.accumulate(np.maximum(at - number, 0)) + number
    return np.minimum(at, count - ranges + number)


@dataclass(frozen=True, slots=True, eq=False)
class SortGroup:
    """Files that are sorted together: their row form, their order, and its ranges.

    Attributes:
        cuts: The rows at which ranges start.
        first: The part of the exchange that writes the first output file.
        files: The number of output files, one in each part.
        inner: The number of ranges of each output file.
        bases: The position of the first row of each input file, by file number.
        target: The target size of a file in bytes and in rows.
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
    """A work item: row groups of one sort group, and the positions of dropped rows in the file of each span."""

    group: int
    spans: tuple[RowGroupSpan, ...]
    drops: tuple[RowNumbers, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RouteRows:
    """Reads row groups and sends each row to the part of its range. Positions on a curve are sent with the rows."""

    storage: Storage
    groups: tuple[SortGroup, ...]

    def __call__(self, item: SortItem) -> Iterator[tuple[int, pa.Table]]:
        """Yield tables of rows of one range, with the number of their part."""
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
        for span, drops in zip(item.spans, item.drops, strict=True):
            start = span.start
            for table in read_file(self.storage, span.file, group.row_form, span.row_groups):
                positions = np.arange(start, start + table.num_rows) + group.bases[span.number]
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
        range_of = group.cuts.locate([*forms, SortColumn(np.concatenate([positions for _, positions in held]))])
        order = np.argsort(range_of.astype(np.uint16) if ranges < 2**16 else range_of, kind="stable")
        stops = np.cumsum(np.bincount(range_of, minlength=ranges))
        if ranges > 1:
            table = take_rows(table, order)
        for number in np.flatnonzero(np.diff(stops, prepend=0)).tolist():
            start = int(stops[number - 1]) if number else 0
            piece = used_codes(table.slice(start, int(stops[number]) - start))
            yield group.first + number // group.inner, piece.replace_schema_metadata({_RANGE: str(number).encode()})


@dataclass(frozen=True, slots=True, eq=False)
class WriteSortedFile:
    """Sorts the rows of one part and writes them as a staged file."""

    storage: Storage
    groups: tuple[SortGroup, ...]
    staging: str
    run: str

    def __call__(self, part: int, pieces: Iterator[pa.Table]) -> Outcome | None:
        """Write the file of a part. Return ``None`` if it has no rows."""
        group = next(group for group in reversed(self.groups) if group.first <= part)
        staged = f"{self.staging}/{uuid.uuid4().hex}.staged"
        sink = partial(self.storage.open_output, staged)
        output = Output(sink, group.row_form, group.footer, group.options, group.group_rows, _extra(group))
        with report_writing(staged), output:
            bounds: FileBounds | None = None
            for tables in _ranges(pieces, (part - group.first) * group.inner, group.inner):
                if tables:
                    of_range = _write_sorted(tables, group, output)
                    bounds = union_of_bounds(bounds, of_range, linear=group.ordering.is_linear)
            if bounds is None:
                return None
            note = SortNote(group.ordering.curve, group.ordering.columns, self.run, output.total, bounds, group.target)
            size = output.finish(sort_note_metadata(note))
            return Outcome(staged, output.rows, size, 0, True)


def _ranges(pieces: Iterator[pa.Table], first: int, inner: int) -> Iterator[list[pa.Table]]:
    """Yield the pieces of each range. If there are several ranges, pieces are spilled to disk."""
    if inner == 1:
        yield list(pieces)
        return
    with Spill(inner, _SPILL_BUDGET) as spill:
        with spill.writer(0) as writer:
            for piece in pieces:
                writer.add(int(piece.schema.metadata[_RANGE]) - first, piece)
        for number in range(inner):
            yield list(spill.take(number))


def _write_sorted(pieces: list[pa.Table], group: SortGroup, output: Output) -> FileBounds:
    """Write the rows of one range in order, one row group at a time, and return their bounds. Clears ``pieces``."""
    table = pa.concat_tables([piece.replace_schema_metadata(None) for piece in pieces]).unify_dictionaries()
    pieces.clear()
    table = table.combine_chunks()
    if group.ordering.scales:
        names = [name for name in table.column_names if name.startswith(_KEY)]
        forms = [SortColumn.of(table[name]) for name in names]
        table = table.drop_columns(names)
        order, bounds = sort_order(forms), bounds_of(group.ordering.raw_forms(table), linear=False)
    else:
        forms = group.ordering.forms(table)
        order = sort_order(forms)
        bounds = bounds_of([form.take(order[[0, -1]]) for form in forms], linear=True)
    for start in range(0, len(order), group.group_rows):
        output.add(take_rows(table, order[start : start + group.group_rows]))
    return bounds


def _extra(group: SortGroup) -> WriterOptions:
    """Return the writer options that sorted files have in addition to those of their inputs."""
    extra: WriterOptions = {"write_page_index": True}
    schema = group.row_form.schema
    if group.ordering.is_linear:
        stored = [name for name in group.ordering.columns if name in schema.names]
        extra["sorting_columns"] = [pq.SortingColumn(_leaf(schema, name)) for name in stored] or None
    if group.blooms:
        extra["bloom_filter_options"] = {name: {"ndv": group.group_rows} for name in group.blooms}
    return extra


def _leaf(schema: pa.Schema, name: str) -> int:
    """Return the index of a column among Parquet's leaf columns."""
    return sum(leaf_count(schema.field(i).type) for i in range(schema.names.index(name)))


def group_row_form(storage: Storage, files: Sequence[DataFile], schema: pa.Schema) -> tuple[RowForm, Footer | None]:
    """Return the common row form of some files, and the footer of their lead file."""
    footer = lead_footer(storage, files)
    return RowForm.of(files, schema, footer), footer
