"""How large files should be, and how large they will be once joined: learned from a few of them, folder by folder.

What a file holds beside its footer weighs less in a joined file, where dictionaries are shared, or more, where the
codec, the order or the row groups are others. How much is measured for each folder, codec and size of files by joining
some of their rows in memory. Large files that are only joined, and keep their codec, keep their weight.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import isfinite, log
from numbers import Real
from typing import Any

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
_SURELY_ONE = 0.5


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
class OutputWeight:
    """What some files bring into a joined one: rows, the bytes that add up, and those that are there once."""

    rows: int
    parts: float
    rate: SizeRate

    def joined(self, other: OutputWeight) -> OutputWeight:
        """The weight of both; of what is there once, the heavier counts."""
        one, two = self.rate, other.rate
        blooms = max(one.blooms, two.blooms, key=len)
        rate = SizeRate(max(one.once, two.once), max(one.group, two.group), 1.0, blooms)
        return OutputWeight(self.rows + other.rows, self.parts + other.parts, rate)


_AS_IT_IS = OutputStyle()


@dataclass(frozen=True, slots=True)
class OutputSizes:
    """What files will weigh in a joined file of their folder."""

    target: Target
    options: WriteOptions
    codecs: Mapping[str, str]
    style: OutputStyle
    rates: Mapping[Kind, SizeRate] = field(default_factory=dict)

    @classmethod
    def of(
        cls, files: Sequence[DataFile], target: Target, options: WriteOptions, style: OutputStyle = _AS_IT_IS
    ) -> OutputSizes:
        """Before anything is learned."""
        return cls(target, options, _codecs(files), style)

    @property
    def group_rows(self) -> int:
        """Most rows of a row group."""
        return self.options.row_group_size or self.style.group_rows or DEFAULT_ROW_GROUP

    def written_with(self, folder: str) -> WriteOptions:
        """How joined files of a folder are written: where codecs differ, with the one that most bytes have."""
        return (
            self.options
            if self.options.compression or not self.codecs.get(folder)
            else (replace(self.options, compression=self.codecs[folder]))
        )

    def weight(self, files: Sequence[DataFile], dropped: int = 0) -> OutputWeight:
        """What files bring into a joined one, less some rows."""
        total = sum(file.rows for file in files)
        found = reduce(OutputWeight.joined, map(self._weight, files))
        return OutputWeight(total - dropped, found.parts * (total - dropped) / max(1, total), found.rate)

    def _weight(self, file: DataFile) -> OutputWeight:
        rate = self.rates.get(self._kind(file)) or SizeRate(float(file.footer), 0.0, 1.0)
        return OutputWeight(file.rows, file.data * rate.each, rate)

    def size(self, weight: OutputWeight, files: int = 1) -> float:
        """Bytes of each file that so much becomes."""
        rows, rate = -(-weight.rows // files), weight.rate
        groups = max(1, -(-rows // self.group_rows))
        filters = sum(growth.filter_bytes(min(rows, self.group_rows)) for growth in rate.blooms)
        return weight.parts / files + rate.once + groups * (rate.group + filters)

    def outputs(self, weight: OutputWeight) -> int:
        """How many files it becomes: never above the rows that are wanted, as near the wanted size as can be."""
        target = self.target
        by_rows = -(-weight.rows // target.rows) if target.rows else 1
        by_size = self._by_size(weight, target.bytes) if target.bytes else 1
        return min(weight.rows, max(by_size, by_rows))

    def _by_size(self, weight: OutputWeight, wanted: float) -> int:
        """Many small files would be made of what each file has once, so that is not divided further."""
        most = max(1, round(2 * weight.parts / wanted))
        first = bisect_left(range(1, most + 1), -wanted, key=lambda files: -self.size(weight, files)) + 1
        near = [files for files in (first - 1, first) if 1 <= files <= most]
        return min(near, key=lambda files: abs(log(self.size(weight, files) / wanted)))

    def trials(self, files: Sequence[DataFile]) -> list[Trial]:
        """What must be measured before the weight of these files is known."""
        if self.target.bytes is None:
            return []
        kinds: dict[Kind, list[DataFile]] = {}
        most: dict[str, float] = {}
        for file in files:
            folder = file.folder
            most[folder] = most.get(folder, 0.0) + (file.size if self._keeps_codec(file) else file.uncompressed)
            if file.rows and not self._keeps_weight(file):
                kinds.setdefault(self._kind(file), []).append(file)
        return [
            self._trial(kind, members)
            for kind, members in kinds.items()
            if most[kind[0]] > _SURELY_ONE * self.target.bytes
        ]

    def learned(self, trials: Sequence[Trial], rates: Sequence[SizeRate]) -> OutputSizes:
        """The same with what was measured."""
        return replace(self, rates={trial.kind: rate for trial, rate in zip(trials, rates, strict=True)})

    def _kind(self, file: DataFile) -> Kind:
        return file.folder, file.codec, max(1, file.data).bit_length() // 2

    def _keeps_codec(self, file: DataFile) -> bool:
        wanted = self.written_with(file.folder).compression
        return wanted is None or codec_name(file.codec) == wanted

    def _keeps_weight(self, file: DataFile) -> bool:
        """Whether a file is large, and written again as it is."""
        as_it_is = self.options.row_group_size is None and self.style == _AS_IT_IS and self._keeps_codec(file)
        return as_it_is and file.rows >= _TRIAL_ROWS

    def _trial(self, kind: Kind, files: list[DataFile]) -> Trial:
        rows = sum(file.rows for file in files)
        width = max(1, sum(file.uncompressed for file in files) // rows)
        wanted = min(_TRIAL_ROWS, max(_FEWEST_ROWS, rows // _TRIAL_SHARE), max(1, _TRIAL_BYTES // width))
        count = min(len(files), _TRIAL_FILES, max(2, wanted * len(files) // rows))
        step = len(files) / count
        chosen = tuple(files[int(step * i)] for i in range(count))
        each = max(1, min(_TRIAL_ROWS, max(1, _TRIAL_BYTES // width)) // count)
        return Trial(kind, chosen, joint_schema(chosen, ""), each, self.written_with(kind[0]), self.style)


def _codecs(files: Sequence[DataFile]) -> dict[str, str]:
    """The codec that most bytes of a folder have, for folders with several."""
    weights: dict[str, dict[str, int]] = {}
    for file in files:
        if file.rows and file.codec:
            found = weights.setdefault(file.folder, {})
            found[codec_name(file.codec)] = found.get(codec_name(file.codec), 0) + file.uncompressed
    return {
        folder: max(sorted(found), key=lambda name: found[name]) for folder, found in weights.items() if len(found) > 1
    }
