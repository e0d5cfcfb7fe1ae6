"""The target size of files, and estimates of the size of files that are joined or sorted.

A joined file is smaller than its inputs if they share dictionaries, and may be larger with another codec, order or row
group size. The ratio is measured for each folder, codec and size class by writing some rows to memory. Large files that
are only joined, with the same codec, are assumed to keep their size.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import isfinite, log
from numbers import Real
from typing import Any

from fsspeckit.common.choices import DEFAULT_TARGET_MB
from fsspeckit.core.dataset.snapshot import joint_schema
from fsspeckit.core.kernels.trial_write import Kind, OutputStyle, SizeRate, Trial
from fsspeckit.core.model import DataFile, WriteOptions
from fsspeckit.core.parquet.writer_options import DEFAULT_ROW_GROUP, codec_name

_MB = 1024 * 1024
_TRIAL_ROWS = 100_000
_TRIAL_BYTES = 32 * _MB
_TRIAL_FILES = 64
_TRIAL_SHARE = 4
_FEWEST_ROWS = 8192
_ONE_FILE = 0.5
"""A folder of less than this share of the target becomes one file, so no size is measured."""


@dataclass(frozen=True, slots=True)
class Target:
    """The largest size of files in bytes, in rows, or both. A target without either is false."""

    bytes: float | None
    rows: int | None

    @classmethod
    def of(cls, mb: Any, rows: Any) -> Target:
        """Validate ``target_mb_per_file`` and ``target_rows_per_file``."""
        for name, value in (("target_mb_per_file", mb), ("target_rows_per_file", rows)):
            number = isinstance(value, Real) and not isinstance(value, bool)
            if value is not None and (not number or not isfinite(value) or not value > 0):
                raise ValueError(f"{name}={value!r} must be a number above zero.")
        if rows is not None and rows != int(rows):
            raise ValueError(f"target_rows_per_file={rows!r} must be a whole number.")
        return cls(None if mb is None else float(mb) * _MB, None if rows is None else int(rows))

    def __bool__(self) -> bool:
        return self.bytes is not None or self.rows is not None

    def fill(self, size: float, rows: int) -> float:
        """Return the size of a file relative to the target, by bytes or rows, whichever is larger."""
        return max(size / self.bytes if self.bytes else 0.0, rows / self.rows if self.rows else 0.0)


DEFAULT_TARGET = Target.of(DEFAULT_TARGET_MB, None)
"""The target where the caller names none."""


@dataclass(frozen=True, slots=True)
class OutputWeight:
    """What some files add to a joined file: rows, bytes of data, and the fixed sizes of a file and a row group."""

    rows: int
    data: float
    rate: SizeRate

    def joined(self, other: OutputWeight) -> OutputWeight:
        """Return the weight of both. Rows and data are summed; of fixed sizes the larger is used."""
        one, two = self.rate, other.rate
        blooms = max(one.blooms, two.blooms, key=len)
        rate = SizeRate(max(one.per_file, two.per_file), max(one.per_group, two.per_group), 1.0, blooms)
        return OutputWeight(self.rows + other.rows, self.data + other.data, rate)


_LIKE_INPUTS = OutputStyle()


@dataclass(frozen=True, slots=True)
class OutputSizes:
    """Size estimates of joined files: the target, the write options, and the measured rates of each kind of files."""

    target: Target
    options: WriteOptions
    codecs: Mapping[str, str]
    style: OutputStyle
    rates: Mapping[Kind, SizeRate] = field(default_factory=dict)

    @classmethod
    def of(
        cls, files: Sequence[DataFile], target: Target, options: WriteOptions, style: OutputStyle = _LIKE_INPUTS
    ) -> OutputSizes:
        """Return estimates without measured rates."""
        return cls(target, options, _codecs(files), style)

    @property
    def group_rows(self) -> int:
        """The most rows of a row group."""
        return self.options.row_group_size or self.style.group_rows or DEFAULT_ROW_GROUP

    def options_for(self, folder: str) -> WriteOptions:
        """Return the write options of a folder. If its codecs differ, the one of the most bytes is used."""
        if self.options.compression or not self.codecs.get(folder):
            return self.options
        return replace(self.options, compression=self.codecs[folder])

    def weight(self, files: Sequence[DataFile], dropped: int = 0) -> OutputWeight:
        """Return what some files add to a joined file, without ``dropped`` rows."""
        total = sum(file.rows for file in files)
        joined = reduce(OutputWeight.joined, map(self._weight, files))
        return OutputWeight(total - dropped, joined.data * (total - dropped) / max(1, total), joined.rate)

    def _weight(self, file: DataFile) -> OutputWeight:
        rate = self.rates.get(self._kind(file)) or SizeRate(float(file.footer), 0.0, 1.0)
        return OutputWeight(file.rows, file.data * rate.per_byte, rate)

    def size(self, weight: OutputWeight, files: int = 1) -> float:
        """Return the bytes of each file, if so much is written as ``files`` files."""
        rows, rate = -(-weight.rows // files), weight.rate
        groups = max(1, -(-rows // self.group_rows))
        filters = sum(growth.filter_bytes(min(rows, self.group_rows)) for growth in rate.blooms)
        return weight.data / files + rate.per_file + groups * (rate.per_group + filters)

    def outputs(self, weight: OutputWeight) -> int:
        """Return the number of files: at most the target rows in each, and as near the target bytes as possible."""
        target = self.target
        by_rows = -(-weight.rows // target.rows) if target.rows else 1
        by_size = self._by_size(weight, target.bytes) if target.bytes else 1
        return min(weight.rows, max(by_size, by_rows))

    def _by_size(self, weight: OutputWeight, target: float) -> int:
        """Return the number of files whose size is nearest the target.

        Fixed sizes are not divided, so each file gets data of at least half the target.
        """
        most = max(1, round(2 * weight.data / target))
        first = bisect_left(range(1, most + 1), -target, key=lambda files: -self.size(weight, files)) + 1
        near = [files for files in (first - 1, first) if 1 <= files <= most]
        return min(near, key=lambda files: abs(log(self.size(weight, files) / target)))

    def trials(self, files: Sequence[DataFile]) -> list[Trial]:
        """Return the trial writes that are needed to estimate the sizes of these files."""
        if self.target.bytes is None:
            return []
        kinds: dict[Kind, list[DataFile]] = {}
        most: dict[str, float] = {}
        for file in files:
            folder = file.folder
            most[folder] = most.get(folder, 0.0) + (file.size if self._keeps_codec(file) else file.uncompressed)
            if file.rows and not self._keeps_size(file):
                kinds.setdefault(self._kind(file), []).append(file)
        return [
            self._trial(kind, members)
            for kind, members in kinds.items()
            if most[kind[0]] > _ONE_FILE * self.target.bytes
        ]

    def with_rates(self, trials: Sequence[Trial], rates: Sequence[SizeRate]) -> OutputSizes:
        """Return these estimates with the measured rates."""
        return replace(self, rates={trial.kind: rate for trial, rate in zip(trials, rates, strict=True)})

    def _kind(self, file: DataFile) -> Kind:
        return file.folder, file.codec, max(1, file.data).bit_length() // 2

    def _keeps_codec(self, file: DataFile) -> bool:
        codec = self.options_for(file.folder).compression
        return codec is None or codec_name(file.codec) == codec

    def _keeps_size(self, file: DataFile) -> bool:
        """Return whether a file is large and is written with its own codec, order and row groups."""
        like_input = self.options.row_group_size is None and self.style == _LIKE_INPUTS and self._keeps_codec(file)
        return like_input and file.rows >= _TRIAL_ROWS

    def _trial(self, kind: Kind, files: list[DataFile]) -> Trial:
        rows = sum(file.rows for file in files)
        width = max(1, sum(file.uncompressed for file in files) // rows)
        wanted = min(_TRIAL_ROWS, max(_FEWEST_ROWS, rows // _TRIAL_SHARE), max(1, _TRIAL_BYTES // width))
        count = min(len(files), _TRIAL_FILES, max(2, wanted * len(files) // rows))
        step = len(files) / count
        chosen = tuple(files[int(step * i)] for i in range(count))
        each = max(1, min(_TRIAL_ROWS, max(1, _TRIAL_BYTES // width)) // count)
        schema = joint_schema(chosen, "", dict(self.options.renames))
        return Trial(kind, chosen, schema, each, self.options_for(kind[0]), self.style)


def _codecs(files: Sequence[DataFile]) -> dict[str, str]:
    """Return, for folders with several codecs, the codec of the most bytes."""
    folders: dict[str, dict[str, int]] = {}
    for file in files:
        if file.rows and file.codec:
            sizes = folders.setdefault(file.folder, {})
            sizes[codec_name(file.codec)] = sizes.get(codec_name(file.codec), 0) + file.uncompressed
    return {
        folder: max(sorted(sizes), key=lambda name: sizes[name]) for folder, sizes in folders.items() if len(sizes) > 1
    }
