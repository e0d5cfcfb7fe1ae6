"""How large files should be, and how large they will be once joined: learned from a few of them, folder by folder.

What a file holds beside its footer weighs less in a joined file, where dictionaries are shared, or more, where the
codec is another one. How much is measured for each folder, codec and size of files by joining some of their rows in
memory. Files that are not small to the target, and keep their codec, keep their weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from numbers import Real
from posixpath import dirname
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.combine import Dress, Output, lead_footer, read_file
from fsspeckit.core.layout import DEFAULT_ROW_GROUP, codec_name, rows_per_group
from fsspeckit.core.model import DataFile, WriteOptions
from fsspeckit.core.snapshot import joint_schema
from fsspeckit.core.storage import Storage

_MB = 1024 * 1024
_TRIAL_ROWS = 100_000
_TRIAL_BYTES = 32 * _MB
_TRIAL_FILES = 64
_TRIAL_SHARE = 10
_FEWEST_ROWS = 8192
_LARGE = 0.5
_SURELY_ONE = 0.5

Kind = tuple[str, str, int]
"""Files that weigh alike: their folder, their codec, and about how large they are."""


@dataclass(frozen=True, slots=True)
class Target:
    """How large files should be; at least one of the two is known."""

    bytes: float | None
    rows: int | None

    @classmethod
    def of(cls, mb: Any, rows: Any) -> Target:
        """Check what the caller gave."""
        for name, value in (("target_mb_per_file", mb), ("target_rows_per_file", rows)):
            number = isinstance(value, Real) and not isinstance(value, bool)
            if value is not None and (not number or not isfinite(value) or not value > 0):
                raise ValueError(f"{name}={value!r} must be a number above zero")
        if rows is not None and rows != int(rows):
            raise ValueError(f"target_rows_per_file={rows!r} must be a whole number")
        return cls(None if mb is None else float(mb) * _MB, None if rows is None else int(rows))

    def __bool__(self) -> bool:
        return self.bytes is not None or self.rows is not None

    def fill(self, size: float, rows: int) -> float:
        """How full a file of this size is, by the threshold that is nearer."""
        return max(size / self.bytes if self.bytes else 0.0, rows / self.rows if self.rows else 0.0)


@dataclass(frozen=True, slots=True)
class Rate:
    """What files of a kind weigh when joined: so many bytes for a row group, and so many for each byte of theirs."""

    fixed: float
    each: float


@dataclass(frozen=True, slots=True)
class Trial:
    """Files of one kind to learn from, how many rows of each, and how they would be written."""

    kind: Kind
    files: tuple[DataFile, ...]
    rows: int
    options: WriteOptions


@dataclass(frozen=True, slots=True)
class Sizes:
    """What files will weigh in a joined file of their folder."""

    target: Target
    options: WriteOptions
    codecs: Mapping[str, str]
    group_rows: int
    rates: Mapping[Kind, Rate] = field(default_factory=dict)

    @classmethod
    def of(
        cls, files: Sequence[DataFile], target: Target, options: WriteOptions, group_rows: int = DEFAULT_ROW_GROUP
    ) -> Sizes:
        """Before anything is learned."""
        return cls(target, options, _codecs(files), options.row_group_size or group_rows)

    def written_with(self, folder: str) -> WriteOptions:
        """How joined files of a folder are written: where codecs differ, with the one that most bytes have."""
        return (
            self.options
            if self.options.compression or not self.codecs.get(folder)
            else (replace(self.options, compression=self.codecs[folder]))
        )

    def part(self, file: DataFile) -> float:
        """Bytes that a file adds to a joined one."""
        rate = self.rates.get(self._kind(file))
        return file.data * rate.each if rate else float(file.data)

    def fixed(self, file: DataFile) -> float:
        """Bytes that a row group with rows of such a file takes once."""
        rate = self.rates.get(self._kind(file))
        return rate.fixed if rate else float(file.footer)

    def whole(self, parts: float, fixed: float, rows: int) -> float:
        """Bytes of a joined file."""
        return parts + fixed * max(1, -(-rows // self.group_rows))

    def joined(self, files: Sequence[DataFile]) -> float:
        """Bytes of all files as one."""
        parts, fixed = sum(map(self.part, files)), max(map(self.fixed, files), default=0.0)
        return self.whole(parts, fixed, sum(file.rows for file in files))

    def trials(self, files: Sequence[DataFile]) -> list[Trial]:
        """What must be measured before the weight of these files is known."""
        if self.target.bytes is None:
            return []
        kinds: dict[Kind, list[DataFile]] = {}
        most: dict[str, float] = {}
        for file in files:
            folder = dirname(file.path)
            most[folder] = most.get(folder, 0.0) + (file.size if self._keeps_codec(file) else file.uncompressed)
            if file.rows and not self._keeps_weight(file):
                kinds.setdefault(self._kind(file), []).append(file)
        return [
            self._trial(kind, members)
            for kind, members in kinds.items()
            if most[kind[0]] > _SURELY_ONE * self.target.bytes
        ]

    def learned(self, trials: Sequence[Trial], rates: Sequence[Rate]) -> Sizes:
        """The same with what was measured."""
        return replace(self, rates={trial.kind: rate for trial, rate in zip(trials, rates, strict=True)})

    def _kind(self, file: DataFile) -> Kind:
        return dirname(file.path), file.codec, max(1, file.data).bit_length() // 2

    def _keeps_codec(self, file: DataFile) -> bool:
        wanted = self.written_with(dirname(file.path)).compression
        return wanted is None or codec_name(file.codec) == wanted

    def _keeps_weight(self, file: DataFile) -> bool:
        large = file.rows >= _TRIAL_ROWS or self.target.fill(file.size, file.rows) >= _LARGE
        return large and self._keeps_codec(file)

    def _trial(self, kind: Kind, files: list[DataFile]) -> Trial:
        rows = sum(file.rows for file in files)
        width = max(1, sum(file.uncompressed for file in files) // rows)
        wanted = min(_TRIAL_ROWS, max(_FEWEST_ROWS, rows // _TRIAL_SHARE), max(1, _TRIAL_BYTES // width))
        count = min(len(files), _TRIAL_FILES, max(2, wanted * len(files) // rows))
        step = len(files) / count
        chosen = tuple(files[int(step * i)] for i in range(count))
        each = max(1, min(_TRIAL_ROWS, max(1, _TRIAL_BYTES // width)) // count)
        return Trial(kind, chosen, each, self.written_with(kind[0]))


def _codecs(files: Sequence[DataFile]) -> dict[str, str]:
    """The codec that most bytes of a folder have, for folders with several."""
    weights: dict[str, dict[str, int]] = {}
    for file in files:
        if file.rows and file.codec:
            found = weights.setdefault(dirname(file.path), {})
            found[codec_name(file.codec)] = found.get(codec_name(file.codec), 0) + file.uncompressed
    return {
        folder: max(sorted(found), key=lambda name: found[name]) for folder, found in weights.items() if len(found) > 1
    }


@dataclass(frozen=True, slots=True)
class Probe:
    """Joins some rows of a few files in memory, half of them and all of them, and tells what they weigh."""

    storage: Storage

    def __call__(self, trial: Trial) -> Rate:
        """The rate of the files' kind."""
        schema = joint_schema(trial.files, "")
        meta = lead_footer(self.storage, trial.files)
        dress = Dress.of(trial.files, schema, meta)
        tables, data = [], []
        for file in trial.files:
            rows = self._rows(file, dress, trial.rows)
            tables.append(rows)
            data.append(file.data * rows.num_rows / file.rows)
        half, sample = len(tables) // 2, pa.concat_tables(tables)
        whole = self._size(trial, dress, meta, tables, sample)
        footer = float(trial.files[0].footer)
        if half == 0:
            return Rate(footer, max(0.0, whole - footer) / max(1.0, data[0]))
        less = self._size(trial, dress, meta, tables[:half], sample)
        return _fitted(sum(data[:half]), less, sum(data), whole, footer)

    def _rows(self, file: DataFile, dress: Dress, most: int) -> pa.Table:
        pieces: list[pa.Table] = []
        held = 0
        for table in read_file(self.storage, file, dress):
            pieces.append(table.slice(0, most - held))
            held += pieces[-1].num_rows
            if held >= most:
                break
        return pa.concat_tables(pieces)

    def _size(
        self,
        trial: Trial,
        dress: Dress,
        meta: pq.FileMetaData | None,
        tables: Sequence[pa.Table],
        sample: pa.Table,
    ) -> int:
        group_rows = rows_per_group(trial.files, trial.options)
        with Output(pa.BufferOutputStream, dress, meta, trial.options, group_rows, sample=sample) as output:
            for table in tables:
                output.add(table)
            return output.finish()


def _fitted(less: float, small: float, more: float, large: float, footer: float) -> Rate:
    """The line through two measured sizes; at least a footer is there once."""
    each = (large - small) / max(1.0, more - less)
    fixed = large - each * more
    if each <= 0 or fixed < footer:
        fixed = min(footer, large)
        each = (large - fixed) / max(1.0, more)
    return Rate(fixed, each)
