"""Keeping to a plan that was agreed on before: a merge that would do anything else stops before its commit.

The plan names every file of the dataset with its size and stamp, so a dataset that has changed since is recognised.
Nothing here reads storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from posixpath import dirname

from fsspeckit.common.errors import CommitConflictError, DocumentError
from fsspeckit.core.dataset.snapshot import Snapshot
from fsspeckit.core.file_names import is_data_file, is_inside
from fsspeckit.core.model import Outcome, RewriteTask, WriteTask
from fsspeckit.core.results import MergePlan


def check_plan_names(agreed: MergePlan) -> None:
    """Check that a plan names only data files inside its dataset, each once.

    Raises:
        DocumentError: A name leads out of the dataset, is not the name of a data file, or is used twice.
    """
    seen = set[str]()
    for entry in agreed.entries:
        if not is_inside(entry.path):
            raise _bad_name(entry.path, "is not a path inside the dataset")
        if not is_data_file(entry.path):
            raise _bad_name(entry.path, "is not the name of a data file")
        if entry.path in seen:
            raise _bad_name(entry.path, "is used twice")
        seen.add(entry.path)


def _bad_name(name: str, what: str) -> DocumentError:
    return DocumentError(f"the plan names the file {name!r}, which {what}; make a new plan")


def check_against_plan(
    agreed: MergePlan, path: str, snapshot: Snapshot, counts: Mapping[str, int], inserts: Sequence[WriteTask]
) -> tuple[WriteTask, ...]:
    """Check that the dataset and the counts are those of the plan, and give new files the names they have in it."""
    _check_files(agreed, path, snapshot)
    for name, count in counts.items():
        if count != getattr(agreed, name):
            raise _differs(path, f"{name} is {count:,} and {getattr(agreed, name):,} in the plan")
    promised = [entry for entry in agreed.entries if entry.action == "insert"]
    if [(dirname(e.path), e.rows) for e in promised] != [(dirname(t.path), len(t.rows)) for t in inserts]:
        raise _differs(path, "the new files are not those of the plan")
    return tuple(replace(task, path=entry.path) for task, entry in zip(inserts, promised, strict=True))


def check_outcomes(
    agreed: MergePlan, path: str, tasks: Sequence[RewriteTask], outcomes: Sequence[Outcome], deletes: Sequence[str]
) -> None:
    """Check, when everything is staged, that just the files of the plan are rewritten and deleted."""
    pairs = list(zip(tasks, outcomes[: len(tasks)], strict=True))
    done: dict[str, tuple[str, int]] = {
        task.file.path: ("rewrite", outcome.rows) for task, outcome in pairs if outcome.changed
    }
    done |= dict.fromkeys(deletes, ("delete", 0))
    changed = [entry for entry in agreed.entries if entry.action in ("rewrite", "delete")]
    promised: dict[str, tuple[str, int]] = {
        entry.path: (entry.action, entry.rows if entry.action == "rewrite" else 0) for entry in changed
    }
    if done != promised:
        raise _differs(path, "other files would be rewritten or deleted than those of the plan")
    unchanged = sum(outcome.unchanged for _, outcome in pairs)
    if unchanged != agreed.unchanged:
        raise _differs(path, f"{unchanged:,} rows are unchanged and {agreed.unchanged:,} in the plan")


def _check_files(agreed: MergePlan, path: str, snapshot: Snapshot) -> None:
    known = {e.path: (e.bytes, e.stamp) for e in agreed.entries if e.action != "insert"}
    found = {file.path: (file.size, file.stamp) for file in snapshot.files}
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
