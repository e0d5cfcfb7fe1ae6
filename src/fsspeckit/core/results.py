"""Results and plans of operations: available as attributes, as a mapping, as JSON and as a table.

Every number is measured by the run that the result describes. Nothing here reads storage.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Literal, Self, cast, get_args

from fsspeckit.common.choices import EvolveFiles
from fsspeckit.common.documents import Node
from fsspeckit.common.text import counted
from fsspeckit.core.model import Action, PlanEntry, Task
from fsspeckit.core.result_view import SHOWN_FILES, FileRow, ResultMapping, ResultView, below, plain, readable_bytes

_COUNTS = ("source_count", "target_count_before", "inserted", "updated", "deleted", "unchanged", "stale", "moved")
FileOperation = Literal["rewritten", "inserted", "preserved"]
RowOperation = Literal["merge", "apply_changes", "delete", "update"]
WITH_SOURCE = ("merge", "apply_changes")
"""The operations that have source rows."""
_PLANNED = ("operation", "strategy", "path", *_COUNTS, "source_route", "settings", "digest")
_CHANGES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(WITH_SOURCE, ("inserted", "updated", "deleted")),
    "delete": ("deleted",),
    "update": ("updated",),
}
"""The counts of rows that an operation can change."""


@dataclass(frozen=True, slots=True)
class MergeFileMetadata:
    """A file of the dataset after an operation."""

    path: str
    row_count: int
    operation: FileOperation
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A column of a dataset that is added or gets a wider type.

    Attributes:
        change: What happens.
        old: The type before; empty for a new column.
        new: The type after.
        files: Whether all files get it, or only those that change anyway.
    """

    column: str
    change: Literal["added", "widened"]
    old: str
    new: str
    files: EvolveFiles

    def __str__(self) -> str:
        what = f"{self.new} is new" if self.change == "added" else f"{self.old} -> {self.new}"
        return f"{self.column} {what}, in {'all' if self.files == 'all' else 'changed'} files"


def _schema_lines(changes: Sequence[SchemaChange]) -> list[tuple[str, str]]:
    return [("schema", str(change)) for change in changes]


class _MergeView(ResultView):
    """The common base of the results and plans of merge, delete and update."""

    __slots__ = ()

    def _count_lines(self, route: str = "") -> list[tuple[str, str]]:
        """The counts that mean something for the operation."""
        notes = {"updated": f" ({self['unchanged']:,} of them unchanged)"}
        source = [("source rows", f"{self['source_count']:,}{route}")] if self["operation"] in WITH_SOURCE else []
        changes = [(name, f"{self[name]:,}{notes.get(name, '')}") for name in _CHANGES[self["operation"]]]
        changes += [(name, f"{self[name]:,}") for name in ("stale", "moved") if self[name]]
        return [*source, *changes, ("total rows", f"{self['target_count_before']:,} -> {self['total']:,}")]

    def stats(self) -> dict[str, int]:
        """Return the four counts of the specification."""
        return {name: int(self[name]) for name in ("inserted", "updated", "deleted", "total")}


def _recorded(types: Sequence[str]) -> list[tuple[str, str]]:
    return [("partition types", f"recorded: {', '.join(types)}")] if types else []


def _unpublished(published: bool) -> list[tuple[str, str]]:
    return [] if published else [("published", "no: other readers see old and new rows; run `fsspeckit recover`")]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MergeResult(_MergeView):
    """Counts and files of a finished merge, delete or update.

    If not ``published``, the change is committed, but the storage refused to publish or remove some files: other
    readers see rows of both states until the next operation, or `recover`, finishes it. ``partition_types`` are the
    types that this commit recorded for the partition columns, if it did.
    """

    strategy: str
    source_count: int
    target_count_before: int
    target_count_after: int
    inserted: int
    updated: int
    deleted: int
    files: list[MergeFileMetadata] = field(default_factory=list)
    rewritten_files: list[str] = field(default_factory=list)
    inserted_files: list[str] = field(default_factory=list)
    preserved_files: list[str] = field(default_factory=list)
    deleted_files: list[str] = field(default_factory=list)
    unchanged: int = 0
    commit_seq: int | None = None
    seconds: float = 0.0
    commit_seconds: float = 0.0
    stale: int = 0
    moved: int = 0
    operation: RowOperation = "merge"
    published: bool = True
    schema_changes: list[SchemaChange] = field(default_factory=list)
    partition_types: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Rows in the dataset after the operation."""
        return self.target_count_after

    def _names(self) -> tuple[str, ...]:
        return (*ResultMapping._names(self), "total")

    def _file_counts(self) -> str:
        lists = (self.rewritten_files, self.inserted_files, self.deleted_files, self.preserved_files)
        labels = ("rewritten", "new", "deleted", "untouched")
        return _file_counts(self.operation, {label: len(paths) for label, paths in zip(labels, lists, strict=True)})

    def _lines(self) -> list[tuple[str, str]]:
        detail = f" ({self.strategy})" if self.operation == "apply_changes" else ""
        is_merge = self.operation == "merge"
        return [
            ("strategy", self.strategy) if is_merge else ("operation", f"{self.operation}{detail}"),
            *self._count_lines(),
            *_schema_lines(self.schema_changes),
            ("files", self._file_counts()),
            *_recorded(self.partition_types),
            *_unpublished(self.published),
            ("seconds", f"{self.seconds:.2f} (commit {self.commit_seconds:.3f})"),
        ]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WriteResult(ResultView):
    """Files and rows of a write; of a dry run, those that it would write.

    ``replaced`` is the number of rows that ``replace_where`` removed, ``None`` without it. ``skipped`` says that
    nothing was written, because the dataset exists and the mode is ``"ignore"``. ``published`` and ``partition_types``
    as in `MergeResult`.
    """

    mode: str
    rows: int
    files: list[MergeFileMetadata] = field(default_factory=list)
    deleted_files: list[str] = field(default_factory=list)
    commit_seq: int | None = None
    seconds: float = 0.0
    commit_seconds: float = 0.0
    dry_run: bool = False
    rewritten_files: list[str] = field(default_factory=list)
    replaced: int | None = None
    skipped: bool = False
    path: str = ""
    published: bool = True
    partition_types: list[str] = field(default_factory=list)

    def _lines(self) -> list[tuple[str, str]]:
        size = sum(file.size_bytes or 0 for file in self.files)
        written = "would be written" if self.dry_run else f"written ({readable_bytes(size)})"
        rewritten = f", {len(self.rewritten_files):,} rewritten" if self.rewritten_files else ""
        return [
            ("mode", f"{self.mode} (the dataset exists)" if self.skipped else self.mode),
            ("rows", f"{self.rows:,}"),
            *([] if self.replaced is None else [("replaced rows", f"{self.replaced:,}")]),
            ("files", f"{len(self.files):,} {written}{rewritten}, {len(self.deleted_files):,} removed"),
            *_recorded(self.partition_types),
            *_unpublished(self.published),
            *([] if self.dry_run else [("seconds", f"{self.seconds:.2f} (commit {self.commit_seconds:.3f})")]),
        ]

    def _files(self) -> tuple[Sequence[FileRow], int]:
        if not self.dry_run:
            return (), 0
        changed: list[FileRow] = [
            *(("insert", file.path, "new rows", f"{file.row_count:,}", "-") for file in self.files),
            *(("rewrite", path, "some rows are replaced", "", "") for path in self.rewritten_files),
            *(("delete", path, "all rows are replaced", "", "") for path in self.deleted_files),
        ]
        shown: list[FileRow] = [(row[0], below(self.path, row[1]), *row[2:]) for row in changed[:SHOWN_FILES]]
        return shown, len(changed)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MergePlan(_MergeView):
    """The plan of a merge, delete or update: exact counts, and an entry with a reason for every file.

    ``share_limit`` is the number of bytes above which the source is exchanged, if the engine has such a limit.
    """

    strategy: str
    path: str
    source_count: int
    target_count_before: int
    inserted: int
    updated: int
    deleted: int
    unchanged: int
    entries: Sequence[PlanEntry]
    source_route: str = field(default="memory", compare=False)
    share_limit: int | None = field(default=None, compare=False)
    operation: RowOperation = "merge"
    tasks: tuple[Task, ...] = field(repr=False, compare=False, default=())
    stale: int = 0
    moved: int = 0
    digest: str = field(default="", repr=False)
    settings: tuple[str, ...] = field(default=(), compare=False)
    """Names of the settings of the engine that configure the storage."""
    schema_changes: list[SchemaChange] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Rows in the dataset after the operation."""
        return self.target_count_before + self.inserted - self.deleted

    @property
    def dry_run(self) -> bool:
        """Always true: a plan is the result of a dry run."""
        return True

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the plan of a result of `to_dict`, without its tasks.

        Raises:
            DocumentError: A value is missing or has the wrong type.
        """
        return cls.from_node(Node(dict(data), "plan", "make a new plan"))

    @classmethod
    def from_node(cls, node: Node) -> Self:
        """Return the plan from a part of a document."""
        node.only((*_PLANNED, "share_limit", "total", "dry_run", "schema_changes", "entries"))
        texts = {name: node[name].text() for name in ("strategy", "path", "source_route", "digest")}
        counts = {name: node[name].count() for name in _COUNTS}
        operation = cast("RowOperation", node["operation"].choice(get_args(RowOperation)))
        entries = tuple(node["entries"].each(_entry))
        known = node.keys()
        limit = node["share_limit"].count() if "share_limit" in known else None
        settings = tuple(node["settings"].each(Node.text)) if "settings" in known else ()
        changes = list(node["schema_changes"].each(_schema_change)) if "schema_changes" in known else []
        used = {"share_limit": limit, "settings": settings, "schema_changes": changes}
        plan = cls(**texts, **counts, **used, entries=entries, operation=operation)  # type: ignore[arg-type]
        if plan.total < 0:
            raise node["deleted"].refuse("is more than the dataset has rows")
        for name in ("source_count", *_CHANGES["merge"]):
            if operation not in WITH_SOURCE and name not in _CHANGES[operation] and counts[name]:
                raise node[name].refuse(f"does not go with the operation {operation}")
        if node["total"].count() != plan.total:
            raise node["total"].refuse("does not agree with the other counts")
        return plan

    def _names(self) -> tuple[str, ...]:
        limit = () if self.share_limit is None else ("share_limit",)
        return (*_PLANNED, *limit, "total", "dry_run", "schema_changes", "entries")

    def count(self, action: str) -> int:
        """Return the number of files with the given action."""
        return sum(entry.action == action for entry in self.entries)

    def _lines(self) -> list[tuple[str, str]]:
        titles = {"delete": "delete from", "update": "update of", "apply_changes": f"changes ({self.strategy}) into"}
        title = titles.get(self.operation, f"{self.strategy} into")
        counts = Counter(entry.action for entry in self.entries)
        actions = {name: counts[name] for name in get_args(Action)}
        return [
            ("plan", f"{title} {self.path}"),
            *self._count_lines(f" (by {self.source_route})"),
            *([] if self.share_limit is None else [("share limit", f"{self.share_limit:,} bytes")]),
            *_schema_lines(self.schema_changes),
            ("files", _file_counts(self.operation, actions)),
            *([("settings", ", ".join(self.settings))] if self.settings else []),
        ]

    def _files(self) -> tuple[Sequence[FileRow], int]:
        shown = heapq.nsmallest(SHOWN_FILES, self.entries, key=lambda entry: entry.action == "keep")
        return [(e.action, e.path, e.reason, f"{e.rows:,}", _size(e)) for e in shown], len(self.entries)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MaintenanceResult(ResultView):
    """The result of `compact`, `optimize` or `deduplicate`; with ``dry_run``, what it would do.

    ``details`` has the keys of one operation, such as ``zorder_columns``. They are keys of the result like the others.
    ``published`` as in `MergeResult`.
    """

    operation: str
    path: str
    before_file_count: int
    after_file_count: int
    before_total_bytes: int
    after_total_bytes: int
    before_row_count: int
    after_row_count: int
    compacted_file_count: int
    rewritten_bytes: int
    compression_codec: str
    dry_run: bool
    planned_groups: list[list[str]] = field(default_factory=list)
    skipped_files: dict[str, str] = field(default_factory=dict)
    new_files: list[str] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)
    seconds: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)
    published: bool = True

    @property
    def estimated_after_file_count(self) -> int:
        """The number of files after the planned run."""
        return self.after_file_count

    def _names(self) -> tuple[str, ...]:
        own = tuple(name for name in ResultMapping._names(self) if name != "details")
        return (*own, *self.details, *(("estimated_after_file_count",) if self.dry_run else ()))

    def __getitem__(self, key: str) -> Any:
        return plain(self.details[key]) if key in self.details else ResultMapping.__getitem__(self, key)

    def _lines(self) -> list[tuple[str, str]]:
        sizes = f"{readable_bytes(self.before_total_bytes)} -> {readable_bytes(self.after_total_bytes)}"
        done = "would be rewritten" if self.dry_run else "rewritten"
        rewritten = f"{counted(self.compacted_file_count, 'file')} ({readable_bytes(self.rewritten_bytes)})"
        lines = [
            (self.operation, self.path),
            ("files", f"{self.before_file_count:,} -> {self.after_file_count:,}"),
            ("size", readable_bytes(self.before_total_bytes) if self.dry_run else sizes),
            ("rows", f"{self.before_row_count:,} -> {self.after_row_count:,}"),
            (done, rewritten),
            ("skipped", counted(len(self.skipped_files), "file")),
            *self._detail_lines(),
            *_unpublished(self.published),
        ]
        commits = counted(len(self.commits), "commit")
        return lines if self.dry_run else [*lines, ("seconds", f"{self.seconds:.2f} ({commits})")]

    def _detail_lines(self) -> list[tuple[str, str]]:
        """Return the order of the rows, and the rows that are removed."""
        found, lines = self.details, []
        if found.get("zorder_columns"):
            curve = "" if found["curve"] == "linear" else f" ({found['curve']})"
            lines.append(("order by", ", ".join(found["zorder_columns"]) + curve))
        if found.get("deduplicated"):
            highest = ", ".join(found["dedup_order_by"])
            lines.append(("one row for each", ", ".join(found["key_columns"])))
            lines += [("with the highest", highest)] if highest else []
            lines.append(("duplicates", counted(found["deduplicated_rows"], "row")))
        return lines

    def _files(self) -> tuple[Sequence[FileRow], int]:
        if not self.dry_run:
            return (), 0
        groups = enumerate(self.planned_groups, 1)
        rewritten = ((below(self.path, path), f"group {number}") for number, group in groups for path in group)
        rows = chain((("rewrite", *file, "", "") for file in rewritten), self._kept())
        return list(islice(rows, SHOWN_FILES)), sum(map(len, self.planned_groups)) + len(self.skipped_files)

    def _kept(self) -> Iterator[FileRow]:
        return (("keep", below(self.path, path), reason, "", "") for path, reason in self.skipped_files.items())


def _file_counts(operation: str, counts: Mapping[str, int]) -> str:
    """Files by what happens to them; a delete or an update names only what it does."""
    first, *_, last = counts
    shown = [name for name in counts if operation in WITH_SOURCE or counts[name] or name in (first, last)]
    return ", ".join(f"{counts[name]:,} {name}" for name in shown)


def _entry(node: Node) -> PlanEntry:
    return PlanEntry(
        path=node["path"].text(),
        action=cast("Action", node["action"].choice(get_args(Action))),
        reason=node["reason"].text(),
        rows=node["rows"].count(),
        bytes=node["bytes"].count(),
        updated=node["updated"].count(),
        deleted=node["deleted"].count(),
        stamp=node["stamp"].text(),
    )


def _schema_change(node: Node) -> SchemaChange:
    return SchemaChange(
        column=node["column"].text(),
        change=cast("Literal['added', 'widened']", node["change"].choice(("added", "widened"))),
        old=node["old"].text(),
        new=node["new"].text(),
        files=cast("EvolveFiles", node["files"].choice(get_args(EvolveFiles))),
    )


def _size(entry: PlanEntry) -> str:
    """Return the size of a file as text. The size of a new file is not known before it is written."""
    return "-" if entry.action == "insert" else readable_bytes(entry.bytes)
