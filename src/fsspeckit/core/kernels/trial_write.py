"""Measure the size of joined files by writing some of their rows to memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import pyarrow as pa

from fsspeckit.core.kernels.join_files import Output, RowForm, lead_footer, read_file, read_files
from fsspeckit.core.model import DataFile, WriteOptions
from fsspeckit.core.parquet.footer import Footer
from fsspeckit.core.parquet.writer_options import WriterOptions, filter_bytes, rows_per_group
from fsspeckit.core.storage import Storage
from fsspeckit.core.values.curves import Ordering, sort_order
from fsspeckit.core.values.keys import comparable, key_type
from fsspeckit.core.values.take import take_rows

Kind = tuple[str, str, int]
"""Files that share a rate: their folder, codec and size class."""


@dataclass(frozen=True, slots=True)
class DistinctGrowth:
    """The distinct values of a column with a Bloom filter as a function of rows: ``scale * rows ** power``."""

    scale: float
    power: float

    def filter_bytes(self, rows: int) -> int:
        """Return the bytes of the filter of so many rows."""
        return filter_bytes(self.scale * max(1, rows) ** self.power)


@dataclass(frozen=True, slots=True)
class SizeRate:
    """The size of a joined file: fixed bytes per file and per row group, and bytes per byte of input data."""

    per_file: float
    per_group: float
    per_byte: float
    blooms: tuple[DistinctGrowth, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputStyle:
    """Properties of outputs that their inputs do not have: an order, Bloom filters and rows per row group."""

    ordering: Ordering | None = None
    blooms: tuple[str, ...] = ()
    group_rows: int | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial write: sample files of one kind, the rows of each to read, and how they are written."""

    kind: Kind
    files: tuple[DataFile, ...]
    schema: pa.Schema
    rows: int
    options: WriteOptions
    style: OutputStyle


@dataclass(frozen=True, slots=True)
class TrialWrite:
    """Writes a sample of rows, and half of it, to memory and returns the rate that fits both sizes."""

    storage: Storage

    def __call__(self, trial: Trial) -> SizeRate:
        """Return the rate of the kind of files."""
        footer = lead_footer(self.storage, trial.files)
        row_form = RowForm.of(trial.files, trial.schema, footer, dict(trial.options.renames))
        read = pa.concat_tables(self._rows(trial, row_form)).unify_dictionaries()
        sample = _in_order(read, trial.style.ordering)
        data = sum(file.data * min(1.0, trial.rows / file.rows) for file in trial.files) / sample.num_rows
        requested = trial.options.row_group_size or trial.style.group_rows
        group_rows = requested or rows_per_group(trial.files, trial.options)
        groups = sample.num_rows // group_rows
        more = groups * group_rows if groups > 1 else min(sample.num_rows, group_rows)
        less = groups // 2 * group_rows if groups > 1 else more // 2
        large, filtered = self._written(trial, row_form, footer, group_rows, sample, more)
        small = self._written(trial, row_form, footer, group_rows, sample, less)[0] if less else 0
        fixed, per_byte = _fit(data * less, small, data * more, large, float(trial.files[0].footer))
        blooms = tuple(_growth(sample[name], less, more) for name in filtered if name in sample.column_names)
        # With several row groups, the fixed size of a group is part of the bytes per byte.
        return SizeRate(fixed, 0.0, per_byte, blooms) if groups > 1 else SizeRate(0.0, fixed, per_byte, blooms)

    def _rows(self, trial: Trial, row_form: RowForm) -> list[pa.Table]:
        if all(file.rows <= trial.rows for file in trial.files):
            return list(read_files(self.storage, trial.files, row_form, {}))
        return [self._first_rows(file, row_form, trial.rows) for file in trial.files]

    def _first_rows(self, file: DataFile, row_form: RowForm, most: int) -> pa.Table:
        pieces: list[pa.Table] = []
        held = 0
        for table in read_file(self.storage, file, row_form):
            pieces.append(table.slice(0, most - held))
            held += pieces[-1].num_rows
            if held >= most:
                break
        return pa.concat_tables(pieces)

    @staticmethod
    def _written(
        trial: Trial, row_form: RowForm, footer: Footer | None, group_rows: int, sample: pa.Table, rows: int
    ) -> tuple[int, list[str]]:
        """Return the size of a file of so many rows without Bloom filters, and the columns that would have one."""
        extra: WriterOptions = {"write_page_index": True} if trial.style.ordering is not None else {}
        first = sample.slice(0, group_rows)
        output = Output(
            pa.MockOutputStream, row_form, footer, trial.options, group_rows, extra, sample=first, blooms=False
        )
        with output:
            output.add(sample.slice(0, rows))
            size = output.finish()
        return size, list(dict.fromkeys((*output.bloom_columns, *trial.style.blooms)))


def _in_order(sample: pa.Table, ordering: Ordering | None) -> pa.Table:
    if ordering is None:
        return sample
    learned = ordering.learned(ordering.raw_forms(sample))
    return take_rows(sample.combine_chunks(), sort_order(learned.forms(sample)))


def _growth(column: pa.ChunkedArray, less: int, more: int) -> DistinctGrowth:
    """Return the growth of distinct values, from the counts in two numbers of rows."""
    many = _distinct(column.slice(0, more))
    few = _distinct(column.slice(0, less)) if less else many
    power = min(1.0, max(0.0, log(many / few) / log(more / less))) if 0 < less < more else 1.0
    return DistinctGrowth(many / more**power, power)


def _distinct(column: pa.ChunkedArray) -> int:
    if pa.types.is_dictionary(column.type):
        column = pa.chunked_array([chunk.indices for chunk in column.chunks])
    return max(1, len(comparable(column, key_type(column.type)).unique()))


def _fit(less: float, small: float, more: float, large: float, footer: float) -> tuple[float, float]:
    """Return fixed bytes and bytes per byte: the line through two sizes. The fixed bytes are at least a footer."""
    per_byte = (large - small) / max(1.0, more - less)
    fixed = large - per_byte * more
    if per_byte <= 0 or fixed < footer:
        fixed = min(footer, large)
        per_byte = (large - fixed) / max(1.0, more)
    return fixed, per_byte
