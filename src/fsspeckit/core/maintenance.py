"""What maintenance means: which files belong together, which are left alone and why. Pure functions over footers.

Nothing here reads or writes; the straight lines that call it are in `fsspeckit.core.upkeep`. A dry run returns what
these planners say, and the real run does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import dirname

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fsspeckit.common.errors import SchemaMismatchError
from fsspeckit.common.types import unwrapped
from fsspeckit.core.curves import CURVES, Curve
from fsspeckit.core.keys import key_type
from fsspeckit.core.layout import check_blooms, codec_name
from fsspeckit.core.matching import KeyColumn
from fsspeckit.core.merge import NullKeys, check_keys_exist
from fsspeckit.core.model import DataFile, RowNumbers, WriteOptions
from fsspeckit.core.names import is_compacted
from fsspeckit.core.profile import check_order_columns
from fsspeckit.core.ranges import Boxes, boxes, components, hull, overlap

_MB = 1024 * 1024
_SETTLED = 0.5


@dataclass(frozen=True, slots=True)
class Target:
    """How large files should be; at least one of the two is known."""

    bytes: float | None
    rows: int | None

    @classmethod
    def of(cls, mb: float | None, rows: int | None) -> Target:
        """Check what the caller gave."""
        for name, value in (("target_mb_per_file", mb), ("target_rows_per_file", rows)):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and (not number or not value > 0):
                raise ValueError(f"{name}={value!r} must be above zero")
        if rows is not None and rows != int(rows):
            raise ValueError(f"target_rows_per_file={rows!r} must be a whole number")
        return cls(None if mb is None else float(mb) * _MB, None if rows is None else int(rows))

    def fill(self, size: float, rows: int) -> float:
        """How full a file of this size is, by the threshold that is nearer."""
        return max(size / self.bytes if self.bytes else 0.0, rows / self.rows if self.rows else 0.0)


@dataclass(frozen=True, slots=True)
class Limits:
    """A bound on one run, so that a nightly job ends; and how much of it one commit publishes."""

    max_files: int | None = None
    max_bytes: int | None = None
    max_groups_per_commit: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_files", "max_bytes", "max_groups_per_commit"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value <= 0):
                raise ValueError(f"{name}={value!r} must be a whole number above zero")


@dataclass(frozen=True, slots=True)
class Scope:
    """Which files an operation looks at, how it writes, and how much of it."""

    folders: tuple[str, ...] | None = None
    options: WriteOptions = field(default_factory=WriteOptions)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for folder in self.folders or ():
            parts = folder.split("/") if isinstance(folder, str) else []
            if not parts or any(part in ("", ".", "..") or "\0" in part for part in parts):
                raise ValueError(
                    f"partition_filter={folder!r} is not a folder inside the dataset; "
                    "use prefixes such as 'date=2025-11-04' or 'year=2025/month=11'"
                )

    def holds(self, path: str) -> bool:
        """Whether a file is below one of the folders; whole folder names count."""
        if self.folders is None:
            return True
        return any(path.startswith(f"{folder}/") for folder in self.folders)


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one folder that are worked on together."""

    folder: str
    files: tuple[DataFile, ...]
    reason: str

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class Plan:
    """Groups to work on, and the reason for every file that is left alone."""

    groups: tuple[Group, ...]
    skipped: Mapping[str, str]

    def paths(self) -> list[list[str]]:
        """The files of each group."""
        return [[file.path for file in group.files] for group in self.groups]


@dataclass(frozen=True, slots=True)
class CompactRequest:
    """A compaction as the caller asked for it."""

    target: Target
    scope: Scope

    def __post_init__(self) -> None:
        if self.target.bytes is None and self.target.rows is None:
            raise ValueError("pass target_mb_per_file or target_rows_per_file, or both, such as target_mb_per_file=128")


@dataclass(frozen=True, slots=True)
class DeduplicateRequest:
    """A deduplication as the caller asked for it."""

    key_columns: tuple[str, ...]
    order_by: tuple[str, ...] = ()
    null_keys: NullKeys = "error"
    scope: Scope = field(default_factory=Scope)

    def __post_init__(self) -> None:
        if self.null_keys not in ("error", "match"):
            raise ValueError(f"null_keys={self.null_keys!r} is unknown; choose 'error' or 'match'")

    def columns(self, schema: pa.Schema) -> tuple[tuple[KeyColumn, ...], tuple[KeyColumn, ...], tuple[bool, ...]]:
        """Key columns, order columns, and for each of these whether the lowest wins."""
        check_keys_exist(self.key_columns, schema.names, "dataset")
        check_order_columns(schema, self.order_by)
        names = [name if name in schema.names else name.removeprefix("-") for name in self.order_by]
        lowest = tuple(name not in schema.names for name in self.order_by)
        keys = tuple(KeyColumn(name, key_type(schema.field(name).type)) for name in self.key_columns)
        return keys, tuple(KeyColumn(name, key_type(schema.field(name).type)) for name in names), lowest


def plan_deduplicate(files: Sequence[DataFile], losers: Mapping[str, RowNumbers], limits: Limits) -> Plan:
    """Rewrite the files that lose rows, each by itself, and no other."""
    groups = [
        Group(dirname(file.path), (file,), f"{len(losers[file.path]):,} duplicate rows")
        for file in files
        if file.path in losers
    ]
    skipped = {file.path: "no duplicates" for file in files if file.path not in losers}
    return limited(Plan(tuple(groups), skipped), limits, divisible=False)


@dataclass(frozen=True, slots=True)
class OptimizeRequest:
    """A clustering as the caller asked for it; ``deduplicate`` drops rows on the way."""

    columns: tuple[str, ...] | None
    curve: Curve
    target: Target
    scope: Scope
    blooms: tuple[str, ...] = ()
    force: bool = False
    deduplicate: DeduplicateRequest | None = None

    def __post_init__(self) -> None:
        if self.curve not in CURVES:
            raise ValueError(f"curve={self.curve!r} is unknown; choose one of {', '.join(map(repr, CURVES))}")
        if self.columns is None and self.deduplicate is None:
            raise ValueError("pass zorder_columns, the columns to order by, or deduplicate_key_columns")
        if self.columns is not None and (not self.columns or len(set(self.columns)) < len(self.columns)):
            raise ValueError(f"zorder_columns={list(self.columns)} must name at least one column, and none twice")

    def check(self, schema: pa.Schema, partitions: Sequence[str]) -> None:
        """Raise for columns that rows cannot be ordered by, or that can have no Bloom filter."""
        for name in self.columns or ():
            if name not in schema.names:
                folder = "; it is a partition column, and the order holds within each partition"
                raise ValueError(
                    f"zorder_columns names {name!r}, which no file has{folder if name in partitions else ''}; "
                    f"choose among {schema.names}"
                )
            check_sortable(schema.field(name))
        check_blooms(schema, self.blooms)


def check_sortable(field: pa.Field) -> None:
    """Raise for a column whose values have no order."""
    type_ = unwrapped(field.type)
    if pa.types.is_nested(type_) or pa.types.is_interval(type_):
        raise SchemaMismatchError(
            f"zorder_columns names {field.name!r} of type {field.type}, which has no order; use flat columns"
        )


def plan_optimize(
    files: Sequence[DataFile], schema: pa.Schema, request: OptimizeRequest, target: Target, density: float = 1.0
) -> Plan:
    """Groups of files that must be sorted together: new ones, and those of the wanted order that they reach into."""
    assert request.columns is not None
    groups: list[Group] = []
    linear = request.curve == "linear" or len(request.columns) == 1
    leading = request.columns[:1] if linear else request.columns
    for folder, members in by_folder(files).items():
        filled = [file for file in members if file.rows]
        seeds = np.array([request.force or not _in_order(file, request) for file in filled], dtype=bool)
        small = _small_runs(filled, seeds, target)
        found = boxes(filled, leading, schema)
        parts = components(found, seeds | small) if filled else []
        # A curve leads through all values at once; only the linear order can be made one range after the other.
        whole = [[i for part in parts for i in part]] if parts else []
        for group in _merged(parts, found, filled, target, density) if linear else whole:
            chosen = [filled[i] for i in group]
            if not seeds[group].any() and outputs(chosen, target, density) >= len(chosen):
                continue
            empty = [file for file in members if not file.rows] if not groups or groups[-1].folder != folder else []
            reason = "not in this order" if seeds[group].any() else "small files"
            groups.append(Group(folder, tuple(sorted([*chosen, *empty], key=lambda file: file.path)), reason))
    taken = {file.path for group in groups for file in group.files}
    left = [file for file in files if file.path not in taken]
    skipped = {file.path: "in this order already" if file.rows else "empty" for file in left}
    return limited(Plan(tuple(groups), skipped), request.scope.limits, divisible=False)


def _in_order(file: DataFile, request: OptimizeRequest) -> bool:
    mark, codec = file.mark, request.scope.options.compression
    if mark is None or (codec is not None and codec_name(file.codec) != plain_codec(codec)):
        return False
    return (mark.curve, mark.columns) == (request.curve, request.columns)


def _small_runs(files: Sequence[DataFile], seeds: npt.NDArray[np.bool_], target: Target) -> npt.NDArray[np.bool_]:
    """Small files that several runs left, once together they would fill a file; what this run leaves counts too."""
    fills = np.array([target.fill(file.size, file.rows) for file in files])
    small = ~seeds & (fills < _SETTLED) if len(files) else seeds
    runs = {file.mark.run for file, is_small in zip(files, small, strict=True) if is_small and file.mark is not None}
    fresh = fills[seeds].sum() if seeds.any() and fills[seeds].sum() < _SETTLED else 0.0
    enough = len(runs) + (fresh > 0) > 1 and fills[small].sum() + fresh >= 1
    return small if enough else np.zeros(len(files), dtype=bool)


def _merged(
    groups: Sequence[list[int]], found: Boxes, files: Sequence[DataFile], target: Target, density: float
) -> list[list[int]]:
    """Neighbouring groups together until they fill a file, unless a file that stays lies between them."""
    staying = np.ones(len(files), dtype=bool)
    staying[[i for group in groups for i in group]] = False
    result: list[list[int]] = []
    for group in groups:
        if result:
            joined = result[-1] + group
            size, rows = sum(files[i].size for i in result[-1]) * density, sum(files[i].rows for i in result[-1])
            if target.fill(size, rows) < 1 and not overlap(hull(found, joined), found[staying]).any():
                result[-1] = joined
                continue
        result.append(list(group))
    return result


def outputs(files: Sequence[DataFile], target: Target, density: float, dropped: int = 0) -> int:
    """How many files the rows of some files become: never above the rows that are wanted, near the wanted size."""
    total = sum(file.rows for file in files)
    rows = total - dropped
    size = sum(file.size for file in files) * density * rows / max(1, total)
    by_size = max(1, round(size / target.bytes)) if target.bytes else 1
    by_rows = -(-rows // target.rows) if target.rows else 1
    return min(rows, max(by_size, by_rows))


def by_folder(files: Iterable[DataFile]) -> dict[str, list[DataFile]]:
    """Files of each folder, in order."""
    found: dict[str, list[DataFile]] = {}
    for file in files:
        found.setdefault(dirname(file.path), []).append(file)
    return found


@dataclass(frozen=True, slots=True)
class _Bundle:
    """Files that become one, with the size that file is expected to have."""

    files: tuple[DataFile, ...]
    size: float
    rows: int

    def joined(self, other: _Bundle) -> _Bundle:
        return _Bundle(self.files + other.files, self.size + other.size, self.rows + other.rows)

    def order(self, target: Target) -> tuple[float, str]:
        return self.size if target.bytes else float(self.rows), self.files[0].path


def plan_compact(files: Sequence[DataFile], request: CompactRequest, density: float = 1.0) -> Plan:
    """Group small files of each folder, smallest first; a group ends where the next file would pass a threshold.

    ``density`` is how many bytes a byte of the small files takes in a joined file.
    """
    groups: list[Group] = []
    skipped: dict[str, str] = {}
    codec = request.scope.options.compression
    for folder, members in by_folder(files).items():
        small = []
        for file in members:
            if request.target.fill(file.size, file.rows) >= 1:
                skipped[file.path] = "large enough"
            else:
                small.append(file)
        for bundle in _bundles(small, request.target, density):
            recoded = codec is not None and any(codec_name(file.codec) != plain_codec(codec) for file in bundle.files)
            if len(bundle.files) == 1 and not recoded:
                skipped[bundle.files[0].path] = "nothing small enough to join it with"
            elif _is_settled(bundle, request.target) and not recoded:
                skipped |= dict.fromkeys((file.path for file in bundle.files), "compacted before")
            else:
                in_order = tuple(sorted(bundle.files, key=lambda file: file.path))
                groups.append(Group(folder, in_order, "small files" if len(in_order) > 1 else "another codec"))
    return limited(Plan(tuple(groups), skipped), request.scope.limits, divisible=True)


def plain_codec(name: str) -> str:
    """A codec in the spelling of `codec_name`."""
    return "none" if name.lower() in ("none", "uncompressed") else name.lower()


def _bundles(files: Sequence[DataFile], target: Target, density: float) -> list[_Bundle]:
    """Bundles of which no two fit together, so that compacting again finds nothing to do."""
    bundles = [_Bundle((file,), file.size * density, file.rows) for file in files]
    while True:
        packed = list(_pack(sorted(bundles, key=lambda bundle: bundle.order(target)), target))
        if len(packed) == len(bundles):
            return packed
        bundles = packed


def _pack(bundles: Sequence[_Bundle], target: Target) -> Iterator[_Bundle]:
    current: _Bundle | None = None
    for bundle in bundles:
        joined = bundle if current is None else current.joined(bundle)
        if current is not None and target.fill(joined.size, joined.rows) > 1:
            yield current
            joined = bundle
        current = joined
    if current is not None:
        yield current


def _is_settled(bundle: _Bundle, target: Target) -> bool:
    """Whether all of it came out of a compaction and is large; only the error of an estimate makes it fit again."""
    fullest = max(target.fill(file.size, file.rows) for file in bundle.files)
    return fullest >= _SETTLED and all(is_compacted(file.path) for file in bundle.files)


def limited(plan: Plan, limits: Limits, *, divisible: bool) -> Plan:
    """As many groups as the limits allow; a ``divisible`` group that is too large is cut."""
    groups: list[Group] = []
    skipped = dict(plan.skipped)
    files, size = limits.max_files, limits.max_bytes
    for group in plan.groups:
        kept = _fitting(group, files, size)
        whole = len(kept) == len(group.files)
        if not whole and (not divisible or len(kept) < 2):
            kept = ()
        for file in group.files[len(kept) :]:
            skipped[file.path] = f"left for a later run by {_limit_text(limits)}; its group has {group.size:,} bytes"
        if kept:
            groups.append(group if whole else Group(group.folder, kept, group.reason))
            files = None if files is None else files - len(kept)
            size = None if size is None else size - sum(file.size for file in kept)
    return Plan(tuple(groups), skipped)


def _fitting(group: Group, files: int | None, size: int | None) -> tuple[DataFile, ...]:
    """The first files of a group that still fit."""
    kept = group.files if files is None else group.files[: max(0, files)]
    if size is None:
        return kept
    total, count = 0, 0
    for file in kept:
        total += file.size
        if total > size:
            break
        count += 1
    return kept[:count]


def _limit_text(limits: Limits) -> str:
    given = {"max_files": limits.max_files, "max_bytes": limits.max_bytes}
    return " and ".join(f"{name}={value}" for name, value in given.items() if value is not None)


def rounds(groups: Sequence[Group], limits: Limits) -> Iterator[Sequence[Group]]:
    """Groups of one commit each time."""
    step = limits.max_groups_per_commit or max(1, len(groups))
    for start in range(0, len(groups), step):
        yield groups[start : start + step]
