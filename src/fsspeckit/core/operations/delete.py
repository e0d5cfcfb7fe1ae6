"""Delete the rows for which a condition is true."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsspeckit.common.choices import DEFAULT_RETRIES
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.engine.protocol import Engine
from fsspeckit.core.model import RewriteTask, RowChange, WriteOptions
from fsspeckit.core.operations.change import PreparedChange
from fsspeckit.core.operations.where import Prepare, Target, change_rows_where
from fsspeckit.core.planning.conditions import MatchingRows
from fsspeckit.core.progress import Progress
from fsspeckit.core.results import MergePlan, MergeResult


def delete(
    engine: Engine,
    place: Place,
    where: Any,
    options: WriteOptions,
    *,
    dry_run: bool = False,
    progress: Progress = None,
    pinned: MergePlan | None = None,
    retries: int = DEFAULT_RETRIES,
) -> MergeResult | MergePlan:
    """Delete matching rows. A dry run only returns the plan."""

    def compile_change(target: Target) -> Prepare:
        return lambda rows, _: _prepare(target, rows, options)

    return change_rows_where(
        engine,
        place,
        "delete",
        where,
        compile_change,
        dry_run=dry_run,
        progress=progress,
        pinned=pinned,
        retries=retries,
    )


def _prepare(target: Target, rows: Sequence[MatchingRows], options: WriteOptions) -> PreparedChange:
    rewrites, deletes = removal_tasks(rows, options)
    return PreparedChange(
        operation="delete",
        strategy="delete",
        options=options,
        snapshot=target.snapshot,
        rewrites=rewrites,
        deletes=deletes,
        deleted=sum(match.count for match in rows),
        reasons={match.file.path: match.reason for match in rows},
    )


def removal_tasks(
    rows: Sequence[MatchingRows], options: WriteOptions
) -> tuple[tuple[RewriteTask, ...], tuple[str, ...]]:
    """Return tasks that rewrite files without matching rows, and the files without other rows, which are deleted."""
    deletes = [match.file.path for match in rows if match.is_whole_file]
    rewrites = [
        RewriteTask(match.file, RowChange(dropped=match.positions), match.file.schema, (), True, options)
        for match in rows
        if match.count and not match.is_whole_file
    ]
    return tuple(rewrites), tuple(sorted(deletes))
