"""Requests and plans of compact, deduplicate and optimize, and the limits of one run.

Nothing here reads or writes. `compact.py` plans which files are joined, `optimize.py` which files are sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, get_args

import pyarrow as pa

from fsspeckit.common.choices import Curve, NullKeys, check_choice
from fsspeckit.common.errors import ColumnNameError
from fsspeckit.core.dataset.source_keys import check_order_columns
from fsspeckit.core.model import DataFile, KeyColumn, RowNumbers, ViewFile, WriteOptions, whole_number
from fsspeckit.core.parquet.writer_options import check_blooms
from fsspeckit.core.planning.merge_request import check_keys_exist
from fsspeckit.core.planning.output_sizes import Target
from fsspeckit.core.values.keys import check_sortable, key_type

Work = Literal["join", "sort", "drop"]
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """The most files and bytes that one run rewrites, and the most groups of one commit."""

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
    """The files that an operation covers, its write options and its limits.

    Attributes:
        prefixes: Prefixes of the paths of files, relative to the dataset; ``None`` means all files.
    """

    prefixes: tuple[str, ...] | None = None
    options: WriteOptions = field(default_factory=WriteOptions)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for prefix in self.prefixes or ():
            parts = prefix.removesuffix("/").split("/") if isinstance(prefix, str) else []
            if not parts or any(part in ("", ".", "..") or "\0" in part for part in parts):
                raise ValueError(
                    f"partition_filter={prefix!r} is not a path inside the dataset. "
                    "Use a folder such as 'date=2025-11-04/', or the start of a path such as 'date=2025-11'."
                )

    def with_renames(self, names: Mapping[str, str]) -> MaintenanceScope:
        """Return the scope with new names of columns."""
        return replace(self, options=replace(self.options, renames=tuple(names.items())))

    def select(self, files: Sequence[ViewFile]) -> tuple[ViewFile, ...]:
        """Return the files whose path starts with one of the prefixes.

        Raises:
            ValueError: A prefix is the whole name of a folder and also the start of other names.
        """
        if self.prefixes is None:
            return tuple(files)
        for prefix in self.prefixes:
            _check_clear(prefix, files)
        return tuple(file for file in files if file.path.startswith(self.prefixes))


def _check_clear(prefix: str, files: Sequence[ViewFile]) -> None:
    """Raise if a prefix selects the folder with this name, and others whose names only start with it."""
    rests = (file.path[len(prefix) :] for file in files if file.path.startswith(prefix))
    ends = sorted({rest.partition("/")[0] for rest in rests})
    if prefix.endswith("/") or "" not in ends or ends == [""]:
        return
    shown = ", ".join(repr(prefix + end) for end in ends[1 : _SHOWN + 1])
    more = f" and {len(ends) - 1 - _SHOWN} more" if len(ends) - 1 > _SHOWN else ""
    raise ValueError(
        f"partition_filter={prefix!r} selects {prefix!r} and also {shown}{more}, whose names start with it. "
        f"Use '{prefix}/' for the folder alone, or a longer prefix."
    )


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one folder that are joined or sorted together, or one file from which rows are dropped.

    Attributes:
        by_priority: The files in the order in which limits select them. Default: the order of ``files``.
        unsorted: How many files at the start of ``by_priority`` are not sorted yet.
        whole: Whether the group is complete, and not cut by a limit.
    """

    folder: str
    files: tuple[DataFile, ...]
    reason: str
    work: Work
    by_priority: tuple[DataFile, ...] = ()
    unsorted: int = 0
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
    """Groups to rewrite, and the reason for every file that is skipped."""

    groups: tuple[Group, ...]
    skipped: Mapping[str, str]

    def paths(self) -> list[list[str]]:
        """Return the paths of each group."""
        return [[file.path for file in group.files] for group in self.groups]


@dataclass(frozen=True, slots=True)
class CompactRequest:
    """The options of a compaction, validated."""

    target: Target
    scope: MaintenanceScope
    ignore_case: bool = False
    """Whether columns of different files whose names differ only in case become one column."""

    def __post_init__(self) -> None:
        if not self.target:
            raise ValueError(
                "Pass target_mb_per_file or target_rows_per_file, or both, such as target_mb_per_file=128."
            )


@dataclass(frozen=True, slots=True)
class DeduplicateRequest:
    """The options of a deduplication, validated."""

    key_columns: tuple[str, ...]
    order_by: tuple[str, ...] = ()
    null_keys: NullKeys = "error"
    scope: MaintenanceScope = field(default_factory=MaintenanceScope)

    def __post_init__(self) -> None:
        check_choice("null_keys", self.null_keys, get_args(NullKeys))

    @property
    def named(self) -> tuple[str, ...]:
        """Columns that are read. A name with a leading ``-`` is listed with and without it."""
        return tuple(dict.fromkeys((*self.key_columns, *self.order_by, *(n.removeprefix("-") for n in self.order_by))))

    def columns(self, schema: pa.Schema) -> tuple[tuple[KeyColumn, ...], tuple[KeyColumn, ...], tuple[bool, ...]]:
        """Return key columns, order columns, and for each order column whether the lowest value is kept."""
        check_keys_exist(self.key_columns, schema.names, "dataset")
        check_order_columns(schema, self.order_by, "dataset")
        names = [name if name in schema.names else name.removeprefix("-") for name in self.order_by]
        lowest = tuple(name not in schema.names for name in self.order_by)
        keys = tuple(KeyColumn(name, key_type(schema.field(name).type, name)) for name in self.key_columns)
        return keys, tuple(KeyColumn(name, key_type(schema.field(name).type)) for name in names), lowest


def plan_deduplicate(files: Sequence[DataFile], duplicates: Mapping[str, RowNumbers]) -> Plan:
    """Plan to rewrite each file that has duplicates."""
    groups = [
        Group(file.folder, (file,), f"{len(duplicates[file.path]):,} duplicate rows", "drop")
        for file in files
        if file.path in duplicates
    ]
    return Plan(tuple(groups), {file.path: "no duplicates" for file in files if file.path not in duplicates})


@dataclass(frozen=True, slots=True)
class OptimizeRequest:
    """The options of `optimize`, validated; with ``deduplicate``, duplicates are dropped in the same pass."""

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
            raise ValueError("Pass zorder_columns, the columns to sort by, or deduplicate_key_columns.")
        if self.columns is not None and (not self.columns or len(set(self.columns)) < len(self.columns)):
            raise ValueError(f"zorder_columns={list(self.columns)} must name at least one column, and each only once.")
        if self.deduplicate is not None and not self.deduplicate.order_by and self.scope.limits != Limits():
            limits = [each.name for each in fields(Limits) if getattr(self.scope.limits, each.name) is not None]
            raise ValueError(
                f"A run with {', '.join(limits)} may move rows between files in several commits, which changes the "
                "last row of a key. Pass dedup_order_by with an order without ties, or run deduplicate_parquet_dataset "
                "first."
            )
        if self.columns is None:
            given = {"curve": self.curve != "linear", "bloom_filter_columns": bool(self.blooms), "force": self.force}
            if unused := [name for name, is_given in given.items() if is_given]:
                raise ValueError(
                    f"{' and '.join(unused)} has no effect without zorder_columns. "
                    f"Pass zorder_columns, or omit {' and '.join(unused)}."
                )

    def check(self, schema: pa.Schema, partitions: Sequence[str]) -> None:
        """Raise if a column cannot be sorted, or cannot have a Bloom filter."""
        for name in self.columns or ():
            if name not in schema.names:
                hint = " It is a partition column, and rows are sorted within each partition."
                raise ColumnNameError(
                    f"zorder_columns names {name!r}, which no file has.{hint if name in partitions else ''} "
                    f"Choose among {schema.names}."
                )
            check_sortable(schema.field(name), "zorder_columns")
        check_blooms(schema, self.blooms)


def by_folder(files: Iterable[DataFile]) -> dict[str, list[DataFile]]:
    """Return the files of each folder, in order."""
    folders: dict[str, list[DataFile]] = {}
    for file in files:
        folders.setdefault(file.folder, []).append(file)
    return folders


def apply_limits(plan: Plan, limits: Limits) -> Plan:
    """Return a plan with as many groups as the limits allow.

    A group to join is cut where a limit is reached. A group to sort is cut only if no whole group fits: later runs sort
    the rest of it.
    """
    groups: list[Group] = []
    left, size = limits.max_files, limits.max_bytes
    for group in plan.groups:
        kept = _within_limits(group, left, size)
        if kept is None or (not kept.whole and group.work != "join"):
            continue
        groups.append(kept)
        left = None if left is None else left - len(kept.files)
        size = None if size is None else size - kept.size
    if not groups:
        cut = (_within_limits(group, left, size) for group in plan.groups)
        groups = [group for group in cut if group is not None][:1]
    taken = {file.path for group in groups for file in group.files}
    skipped = dict(plan.skipped)
    for group in plan.groups:
        reason = _limit_reason(group, limits)
        skipped |= {file.path: reason for file in group.files if file.path not in taken}
    return Plan(tuple(groups), skipped)


def _within_limits(group: Group, files: int | None, size: int | None) -> Group | None:
    """Return the group, cut to the limits; ``None`` if what fits is a single sorted file or nothing."""
    ordered = group.by_priority or group.files
    kept = ordered if files is None else ordered[: max(0, files)]
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
    if not kept or (len(kept) == 1 and not group.unsorted):
        return None
    return replace(group, files=tuple(sorted(kept, key=lambda file: file.path)), by_priority=(), whole=False)


def _limit_reason(group: Group, limits: Limits) -> str:
    """Return why the limits exclude files of a group, and the limits that are needed to start with it."""
    ordered = group.by_priority or group.files
    first = ordered[: 1 if group.unsorted else 2]
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
    """Split groups into those of each commit."""
    step = limits.max_groups_per_commit or max(1, len(groups))
    for start in range(0, len(groups), step):
        yield groups[start : start + step]
