"""Plan which small files are joined: groups of about the target size, inside one folder. Reads only footers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fsspeckit.core.file_names import is_compacted
from fsspeckit.core.model import DataFile, RowNumbers, WriteOptions
from fsspeckit.core.parquet.writer_options import codec_name
from fsspeckit.core.planning.maintenance_request import Group, Plan, by_folder, plan_deduplicate
from fsspeckit.core.planning.output_sizes import OutputSizes, OutputWeight, Target

_SETTLED = 0.5
"""A group of compacted files of at least this share of the target is not joined again."""


@dataclass(frozen=True, slots=True)
class _Bundle:
    """Files that are joined into one, and the estimated size of the result."""

    files: tuple[DataFile, ...]
    weight: OutputWeight

    @property
    def rows(self) -> int:
        return self.weight.rows

    def joined(self, other: _Bundle) -> _Bundle:
        return _Bundle(self.files + other.files, self.weight.joined(other.weight))

    def size(self, sizes: OutputSizes) -> float:
        return sizes.size(self.weight)

    def order(self, sizes: OutputSizes) -> tuple[float, str]:
        return self.size(sizes) if sizes.target.bytes else float(self.rows), self.files[0].path


def plan_compact(
    files: Sequence[DataFile], sizes: OutputSizes, duplicates: Mapping[str, RowNumbers] | None = None
) -> Plan:
    """Group small files of each folder, smallest first. A group ends where the next file would exceed the target.

    Rows in ``duplicates`` are dropped in the same pass. A file with duplicates that is not joined is rewritten alone.
    """
    duplicates = duplicates or {}
    groups: list[Group] = []
    skipped: dict[str, str] = {}
    for folder, members in by_folder(files).items():
        small = []
        for file in members:
            left = file.rows - len(duplicates.get(file.path, ()))
            if file.rows and not left:
                continue
            fills = sizes.target.fill(file.size * left / max(1, file.rows), left) >= 1
            change = _change(file, sizes.options)
            if fills and not change:
                skipped[file.path] = "large enough"
            elif fills:
                groups.append(Group(folder, (file,), change, "join"))
            else:
                small.append(_Bundle((file,), sizes.weight([file], file.rows - left)))
        for bundle in _bundles(small, sizes):
            reason = _skip_reason(bundle, sizes)
            if reason is not None:
                skipped |= dict.fromkeys((file.path for file in bundle.files), reason)
            else:
                in_order = tuple(sorted(bundle.files, key=lambda file: file.path))
                alone = _change(in_order[0], sizes.options) or "another codec"
                groups.append(Group(folder, in_order, "small files" if len(in_order) > 1 else alone, "join"))
    joined = {file.path for group in groups for file in group.files}
    drops = plan_deduplicate([file for file in files if file.path not in joined], duplicates).groups
    skipped = {path: reason for path, reason in skipped.items() if path not in duplicates}
    return Plan((*groups, *drops), skipped)


def _change(file: DataFile, options: WriteOptions) -> str:
    """Return why a file is rewritten whatever its size, or an empty text."""
    if options.changes_times(file):
        return "INT96 timestamps"
    return "column names that differ only in case" if options.changes_names(file) else ""


def _skip_reason(bundle: _Bundle, sizes: OutputSizes) -> str | None:
    """Return why a bundle is not rewritten, or ``None`` if it is."""
    codec = sizes.options.compression
    if codec is not None and any(file.rows and codec_name(file.codec) != codec for file in bundle.files):
        return None
    if any(_change(file, sizes.options) for file in bundle.files):
        return None
    if len(bundle.files) == 1:
        return "nothing small enough to join it with"
    return "compacted before" if _is_settled(bundle, sizes) else None


def _is_settled(bundle: _Bundle, sizes: OutputSizes) -> bool:
    """Return whether an earlier run with the same target already compacted the bundle.

    Its files can fit together again if they became smaller than estimated. At most one file may be another one.
    """
    target = sizes.target
    if target.bytes is None:
        return False
    others = sum(not is_compacted(file.path, target_tag(target)) for file in bundle.files)
    return others <= 1 and bundle.size(sizes) >= _SETTLED * target.bytes


def target_tag(target: Target) -> str:
    """Return the target size as text, for the names of compacted files."""
    return f"{target.bytes} {target.rows}"


def _bundles(bundles: Sequence[_Bundle], sizes: OutputSizes) -> list[_Bundle]:
    """Pack until no two bundles fit together, so that a second compaction has nothing to do."""
    while True:
        packed = list(_pack(sorted(bundles, key=lambda bundle: bundle.order(sizes)), sizes))
        if len(packed) == len(bundles):
            return packed
        bundles = packed


def _pack(bundles: Sequence[_Bundle], sizes: OutputSizes) -> Iterator[_Bundle]:
    current: _Bundle | None = None
    for bundle in bundles:
        joined = bundle if current is None else current.joined(bundle)
        if current is not None and sizes.target.fill(joined.size(sizes), joined.rows) > 1:
            yield current
            joined = bundle
        current = joined
    if current is not None:
        yield current
