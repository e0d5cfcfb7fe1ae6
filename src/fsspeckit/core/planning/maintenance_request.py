"""What maintenance means: what callers ask for, groups of files, and how much of them one run does.

Nothing here reads or writes. Which files are joined is planned in `compact.py`, which are ordered in
`optimize.py`; a dry run returns what the planners say, and the real run does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, get_args

import pyarrow as pa

from fsspeckit.common.choices import Curve, NullKeys, check_choice
from fsspeckit.core.dataset.source_keys import check_order_columns
from fsspeckit.core.model import DataFile, KeyColumn, RowNumbers, WriteOptions, whole_number
from fsspeckit.core.parquet.writer_options import check_blooms
from fsspeckit.core.planning.merge_request import check_keys_exist
from fsspeckit.core.planning.output_sizes import Target
from fsspeckit.core.values.keys import check_sortable, key_type

Work = Literal["join", "sort", "drop"]


@dataclass(frozen=True, slots=True)
class Limits:
    """A bound on one run, so that a nightly job ends; and how much of it one commit publishes."""

    max_files: int | None = None
    max_bytes: int | None = None
    max_groups_per_commit: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_files", "max_bytes", "max_groups_per_commit"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, whole_number(name, value))


@dataclass(frozen=True, slots=True)
class MaintenanceScope:
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
    """Files of one folder that are worked on together: joined, sorted, or one that loses rows.

    ``turn`` are the files in the order in which a limit takes them, ``fresh`` how many of the first were never sorted;
    a group that is not ``whole`` was cut by a limit.
    """

    folder: str
    files: tuple[DataFile, ...]
    reason: str
    work: Work
    turn: tuple[DataFile, ...] = ()
    fresh: int = 0
    whole: bool = True

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
    scope: MaintenanceScope

    def __post_init__(self) -> None:
        if not self.target:
            raise ValueError("pass target_mb_per_file or target_rows_per_file, or both, such as target_mb_per_file=128")


@dataclass(frozen=True, slots=True)
class DeduplicateRequest:
    """A deduplication as the caller asked for it."""

    key_columns: tuple[str, ...]
    order_by: tuple[str, ...] = ()
    null_keys: NullKeys = "error"
    scope: MaintenanceScope = field(default_factory=MaintenanceScope)

    def __post_init__(self) -> None:
        check_choice("null_keys", self.null_keys, get_args(NullKeys))

    @property
    def named(self) -> tuple[str, ...]:
        """Columns that are looked at, in both spellings of those that the lowest wins in."""
        return tuple(dict.fromkeys((*self.key_columns, *self.order_by, *(n.removeprefix("-") for n in self.order_by))))

    def columns(self, schema: pa.Schema) -> tuple[tuple[KeyColumn, ...], tuple[KeyColumn, ...], tuple[bool, ...]]:
        """Key columns, order columns, and for each of these whether the lowest wins."""
        check_keys_exist(self.key_columns, schema.names, "dataset")
        check_order_columns(schema, self.order_by, "dataset")
        names = [name if name in schema.names else name.removeprefix("-") for name in self.order_by]
        lowest = tuple(name not in schema.names for name in self.order_by)
        keys = tuple(KeyColumn(name, key_type(schema.field(name).type, name)) for name in self.key_columns)
        return keys, tuple(KeyColumn(name, key_type(schema.field(name).type)) for name in names), lowest


def plan_deduplicate(files: Sequence[DataFile], duplicates: Mapping[str, RowNumbers]) -> Plan:
    """Rewrite the files that lose rows, each by itself, and no other."""
    groups = [
        Group(file.folder, (file,), f"{len(duplicates[file.path]):,} duplicate rows", "drop")
        for file in files
        if file.path in duplicates
    ]
    return Plan(tuple(groups), {file.path: "no duplicates" for file in files if file.path not in duplicates})


@dataclass(frozen=True, slots=True)
class OptimizeRequest:
    """A clustering as the caller asked for it; ``deduplicate`` drops rows on the way."""

    columns: tuple[str, ...] | None
    curve: Curve
    target: Target
    scope: MaintenanceScope
    blooms: tuple[str, ...] = ()
    force: bool = False
    deduplicate: DeduplicateRequest | None = None

    def __post_init__(self) -> None:
        check_choice("curve", self.curve, get_args(Curve))
        if self.columns is None and self.deduplicate is None:
            raise ValueError("pass zorder_columns, the columns to order by, or deduplicate_key_columns")
        if self.columns is not None and (not self.columns or len(set(self.columns)) < len(self.columns)):
            raise ValueError(f"zorder_columns={list(self.columns)} must name at least one column, and none twice")
        if self.deduplicate is not None and not self.deduplicate.order_by and self.scope.limits != Limits():
            limits = [each.name for each in fields(Limits) if getattr(self.scope.limits, each.name) is not None]
            raise ValueError(
                f"a run in pieces ({', '.join(limits)}) moves rows between files, so which of several rows with one "
                "key is the last would change from piece to piece; name dedup_order_by, an order without ties, or run "
                "deduplicate_parquet_dataset first"
            )
        if self.columns is None:
            given = {"curve": self.curve != "linear", "bloom_filter_columns": bool(self.blooms), "force": self.force}
            if unused := [name for name, is_given in given.items() if is_given]:
                raise ValueError(
                    f"{' and '.join(unused)} would do nothing without zorder_columns; name the columns to order by, "
                    f"or leave {' and '.join(unused)} out"
                )

    def check(self, schema: pa.Schema, partitions: Sequence[str]) -> None:
        """Raise for columns that rows cannot be ordered by, or that can have no Bloom filter."""
        for name in self.columns or ():
            if name not in schema.names:
                folder = "; it is a partition column, and the order holds within each partition"
                raise ValueError(
                    f"zorder_columns names {name!r}, which no file has{folder if name in partitions else ''}; "
                    f"choose among {schema.names}"
                )
            check_sortable(schema.field(name), "zorder_columns")
        check_blooms(schema, self.blooms)


def by_folder(files: Iterable[DataFile]) -> dict[str, list[DataFile]]:
    """Files of each folder, in order."""
    found: dict[str, list[DataFile]] = {}
    for file in files:
        found.setdefault(file.folder, []).append(file)
    return found


def apply_limits(plan: Plan, limits: Limits) -> Plan:
    """As many groups as the limits allow, all kinds counted together.

    Files to join are cut wherever a limit falls. Files that belong in one order are cut only where no group at all
    would fit: then some of them are ordered now, and the others follow in later runs.
    """
    groups: list[Group] = []
    left, size = limits.max_files, limits.max_bytes
    for group in plan.groups:
        kept = _fitting(group, left, size)
        if kept is None or (not kept.whole and group.work != "join"):
            continue
        groups.append(kept)
        left = None if left is None else left - len(kept.files)
        size = None if size is None else size - kept.size
    if not groups:
        cut = (_fitting(group, left, size) for group in plan.groups)
        groups = [group for group in cut if group is not None][:1]
    taken = {file.path for group in groups for file in group.files}
    skipped = dict(plan.skipped)
    for group in plan.groups:
        reason = _reason_left(group, limits)
        skipped |= {file.path: reason for file in group.files if file.path not in taken}
    return Plan(tuple(groups), skipped)


def _fitting(group: Group, files: int | None, size: int | None) -> Group | None:
    """The group or as much of it as still fits; nothing where that would not get any further."""
    turn = group.turn or group.files
    kept = turn if files is None else turn[: max(0, files)]
    if size is not None:
        total, count = 0, 0
        for file in kept:
            total += file.size
            if total > size:
                break
            count += 1
        kept = kept[:count]
    if len(kept) == len(group.files):
        return group
    if not kept or (len(kept) == 1 and not group.fresh):
        return None
    return replace(group, files=tuple(sorted(kept, key=lambda file: file.path)), turn=(), whole=False)


def _reason_left(group: Group, limits: Limits) -> str:
    """Why files of a group wait: for their turn, or for limits that are enough for the first step with them."""
    turn = group.turn or group.files
    first = turn[: 1 if group.fresh else 2]
    needed = {"max_files": len(first), "max_bytes": sum(file.size for file in first)}
    given = {name: getattr(limits, name) for name in needed}
    missing = [f"{name}={least}" for name, least in needed.items() if given[name] is not None and given[name] < least]
    if missing:
        return f"no run with {_limit_text(limits)} can do it; its group takes {' and '.join(missing)} at least"
    return f"left for a later run by {_limit_text(limits)}; its group has {group.size:,} bytes"


def _limit_text(limits: Limits) -> str:
    given = {"max_files": limits.max_files, "max_bytes": limits.max_bytes}
    return " and ".join(f"{name}={value}" for name, value in given.items() if value is not None)


def commit_rounds(groups: Sequence[Group], limits: Limits) -> Iterator[Sequence[Group]]:
    """Groups of one commit each time."""
    step = limits.max_groups_per_commit or max(1, len(groups))
    for start in range(0, len(groups), step):
        yield groups[start : start + step]
