"""Check a merge against a pinned plan. A merge that would do anything else raises before its commit.

The plan has the size and stamp of every file, so a dataset that has changed since is detected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from posixpath import dirname

from fsspeckit.common.errors import CommitConflictError, DocumentError
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.expressions.tree import text_of
from fsspeckit.core.file_names import is_data_file, is_inside, is_visible
from fsspeckit.core.model import MoveTask, NewFileTask, Outcome, RewriteTask, RowNumbers
from fsspeckit.core.results import MergePlan, SchemaChange
from fsspeckit.core.values.hashing import position_sums


def check_plan_names(plan: MergePlan) -> None:
    """Check that a plan names only data files inside its dataset, and each only once.

    Raises:
        DocumentError: A path is outside the dataset, is not the name of a data file, or occurs twice.
    """
    seen = set[str]()
    for entry in plan.entries:
        if not is_inside(entry.path):
            raise _bad_name(entry.path, "is not a path inside the dataset")
        if not (is_data_file if entry.action == "insert" else is_visible)(entry.path):
            raise _bad_name(entry.path, "is not the name of a data file")
        if entry.path in seen:
            raise _bad_name(entry.path, "is used twice")
        seen.add(entry.path)


def _bad_name(name: str, what: str) -> DocumentError:
    return DocumentError(f"the plan names the file {name!r}, which {what}. Make a new plan.")


def digest_of(tasks: Sequence[RewriteTask | NewFileTask], deletes: Sequence[str]) -> str:
    """Return a digest of the rows that tasks change, by file and position, and of the values that they compute.

    Source rows are not part of it: a query may return the same rows in another order.
    """
    digest = hashlib.sha256()
    for task in tasks:
        changes = [task] if isinstance(task, RewriteTask) else task.parts if isinstance(task, MoveTask) else []
        digest.update(f"{dirname(task.path)!r} {task.rows_out} ".encode() if not isinstance(task, RewriteTask) else b"")
        for each in changes:
            change = each.change
            computed = sorted((name, text_of(value)) for name, value in change.computed.items())
            values = (change.drop_others, change.columns, computed, change.keep_for_null)
            remote = change.remote
            replaced = _position_sums(change.replaced) if remote is None else remote.sums
            dropped = _position_sums(change.dropped) if remote is None else remote.drop_sums
            counts = (change.hits, replaced, change.drops, dropped)
            digest.update(f"{each.file.path!r} {values!r} {counts!r} ".encode())
    digest.update(repr(tuple(deletes)).encode())
    return digest.hexdigest()


def _position_sums(positions: RowNumbers) -> tuple[int, int]:
    first, second = position_sums(positions).sum(axis=0).tolist()
    return first, second


def check_rows(plan: MergePlan, path: str, strategy: str, digest: str) -> None:
    """Check that the strategy and the rows that would change are those of the plan."""
    if strategy != plan.strategy:
        raise _differs(path, f"the strategy is {strategy} and {plan.strategy} in the plan")
    if digest != plan.digest:
        raise _differs(path, "other rows or other values would be changed")


def check_against_plan(
    plan: MergePlan, path: str, snapshot: Snapshot, counts: Mapping[str, int], inserts: Sequence[NewFileTask]
) -> tuple[NewFileTask, ...]:
    """Check the dataset and the counts against the plan. Return the insert tasks with the file names of the plan."""
    _check_files(plan, path, snapshot)
    for name, count in counts.items():
        if count != getattr(plan, name):
            raise _differs(path, f"{name} is {count:,} and {getattr(plan, name):,} in the plan")
    planned = [entry for entry in plan.entries if entry.action == "insert"]
    if [(dirname(e.path), e.rows) for e in planned] != [(dirname(t.path), t.rows_out) for t in inserts]:
        raise _differs(path, "the new files are not those of the plan")
    return tuple(replace(task, path=entry.path) for task, entry in zip(inserts, planned, strict=True))


def check_schema_changes(plan: MergePlan, path: str, changes: Sequence[SchemaChange]) -> None:
    """Check that the columns change as in the plan."""
    if list(changes) != list(plan.schema_changes):
        raise _differs(path, "the columns change in another way")


def check_outcomes(
    plan: MergePlan,
    path: str,
    tasks: Sequence[RewriteTask],
    outcomes: Sequence[Outcome],
    deletes: Sequence[str],
    unread: int,
) -> None:
    """Check after staging that exactly the files of the plan are rewritten and deleted.

    ``unread`` is the number of unchanged rows that no task reads.
    """
    pairs = list(zip(tasks, outcomes[: len(tasks)], strict=True))
    done: dict[str, tuple[str, int]] = {
        task.file.path: ("rewrite", outcome.rows) for task, outcome in pairs if outcome.changed
    }
    done |= dict.fromkeys(deletes, ("delete", 0))
    changed = [entry for entry in plan.entries if entry.action in ("rewrite", "delete")]
    planned: dict[str, tuple[str, int]] = {
        entry.path: (entry.action, entry.rows if entry.action == "rewrite" else 0) for entry in changed
    }
    if done != planned:
        raise _differs(path, "other files would be rewritten or deleted than those of the plan")
    unchanged = unread + sum(outcome.unchanged for _, outcome in pairs)
    if unchanged != plan.unchanged:
        raise _differs(path, f"{unchanged:,} rows are unchanged and {plan.unchanged:,} in the plan")


def _check_files(plan: MergePlan, path: str, snapshot: Snapshot) -> None:
    known = {e.path: (e.bytes, e.stamp) for e in plan.entries if e.action != "insert"}
    found = {file.path: (file.size, file.version) for file in snapshot.view.files}
    for name in sorted(known.keys() | found.keys()):
        if known.get(name) != found.get(name):
            what = "is new" if name not in known else "is gone" if name not in found else "was changed"
            raise CommitConflictError(
                f"{path} is not what the plan was made for: {name} {what}. Nothing was changed; make a new plan."
            )


def _differs(path: str, what: str) -> CommitConflictError:
    return CommitConflictError(
        f"the source or the options for {path} are not what the plan was made for: {what}. "
        "Nothing was changed; make a new plan."
    )
