"""What rows of some files weigh when they are written together: learned by writing a few of them into memory."""

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
"""Files that weigh alike: their folder, their codec, and about how large they are."""


@dataclass(frozen=True, slots=True)
class DistinctGrowth:
    """How many distinct values a column with a Bloom filter has in so many rows: ``scale`` times rows to a power."""

    scale: float
    power: float

    def filter_bytes(self, rows: int) -> int:
        """Bytes of the filter over so many rows."""
        return filter_bytes(self.scale * max(1, rows) ** self.power)


@dataclass(frozen=True, slots=True)
class SizeRate:
    """What files of a kind weigh when joined: bytes for a file, for a row group, and for each byte of theirs."""

    once: float
    group: float
    each: float
    blooms: tuple[DistinctGrowth, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputStyle:
    """What files get beyond what their inputs had: an order, Bloom filters, and the rows of a row group."""

    ordering: Ordering | None = None
    blooms: tuple[str, ...] = ()
    group_rows: int | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """Files of one kind to learn from, how many rows of each, and how they would be written."""

    kind: Kind
    files: tuple[DataFile, ...]
    schema: pa.Schema
    rows: int
    options: WriteOptions
    style: OutputStyle


@dataclass(frozen=True, slots=True)
class TrialWrite:
    """Joins some rows of a few files in memory, half of them and all of them, and tells what they weigh."""

    storage: Storage

    def __call__(self, trial: Trial) -> SizeRate:
        """The rate of the files' kind."""
        footer = lead_footer(self.storage, trial.files)
        row_form = RowForm.of(trial.files, trial.schema, footer)
        read = pa.concat_tables(self._rows(trial, row_form)).unify_dictionaries()
        sample = _in_order(read, trial.style.ordering)
        data = sum(file.data * min(1.0, trial.rows / file.rows) for file in trial.files) / sample.num_rows
        asked = trial.options.row_group_size or trial.style.group_rows
        group_rows = asked or rows_per_group(trial.files, trial.options)
        groups = sample.num_rows // group_rows
        more = groups * group_rows if groups > 1 else min(sample.num_rows, group_rows)
        less = groups // 2 * group_rows if groups > 1 else more // 2
        large, filtered = self._written(trial, row_form, footer, group_rows, sample, more)
        small = self._written(trial, row_form, footer, group_rows, sample, less)[0] if less else 0
        fixed, each = _fitted(data * less, small, data * more, large, float(trial.files[0].footer))
        blooms = tuple(_growth(sample[name], less, more) for name in filtered if name in sample.column_names)
        # Over several row groups, what a group has once is part of what each byte weighs.
        return SizeRate(fixed, 0.0, each, blooms) if groups > 1 else SizeRate(0.0, fixed, each, blooms)

    def _rows(self, trial: Trial, row_form: RowForm) -> list[pa.Table]:
        if all(file.rows <= trial.rows for file in trial.files):
            return list(read_files(self.storage, trial.files, row_form, {}, sum(file.rows for file in trial.files)))
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
        """The size of a file of so many rows without Bloom filters, and the columns that would have one."""
        extra: WriterOptions = {"write_page_index": True} if trial.style.ordering is not None else {}
        first = sample.slice(0, group_rows)
        output = Output(
            pa.MockOutputStream, row_form, footer, trial.options, group_rows, extra, sample=first, blooms=False
        )
        with output:
            output.add(sample.slice(0, rows))
            size = output.finish()
        return size, list(dict.fromkeys((*output.filtered, *trial.style.blooms)))


def _in_order(sample: pa.Table, ordering: Ordering | None) -> pa.Table:
    if ordering is None:
        return sample
    learned = ordering.learned(ordering.raw_forms(sample))
    return take_rows(sample.combine_chunks(), sort_order(learned.forms(sample)))


def _growth(column: pa.ChunkedArray, less: int, more: int) -> DistinctGrowth:
    """How distinct values grow with rows, from two counts."""
    many = _distinct(column.slice(0, more))
    few = _distinct(column.slice(0, less)) if less else many
    power = min(1.0, max(0.0, log(many / few) / log(more / less))) if 0 < less < more else 1.0
    return DistinctGrowth(many / more**power, power)


def _distinct(column: pa.ChunkedArray) -> int:
    if pa.types.is_dictionary(column.type):
        column = pa.chunked_array([chunk.indices for chunk in column.chunks])
    return max(1, len(comparable(column, key_type(column.type)).unique()))


def _fitted(less: float, small: float, more: float, large: float, footer: float) -> tuple[float, float]:
    """What is there once, and bytes for each byte: the line through two measured sizes; once is a footer at least."""
    each = (large - small) / max(1.0, more - less)
    fixed = large - each * more
    if each <= 0 or fixed < footer:
        fixed = min(footer, large)
        each = (large - fixed) / max(1.0, more)
    return fixed, each
