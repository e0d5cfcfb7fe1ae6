"""Datasets with kept versions: a merge that keeps files, and journals with very many commits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.contenders.ours import merge
from benchmarks.job import Job, Work
from fsspeckit.core.commit.history import fold
from fsspeckit.core.commit.log import KEPT_RECORDS, Log
from fsspeckit.core.commit.record import new_id
from fsspeckit.core.dataset.place import Place
from fsspeckit.core.dataset.snapshot import load_snapshot
from fsspeckit.core.operations.read import existing_view
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

_COMMITS_PER_FILE = 1000
_FOLDED = 1000
_VIEWS = 200


def merge_with_history(job: Job) -> Work:
    """Merge into a dataset that keeps the files that the merge replaces."""
    PyarrowDatasetIO().keep_history(str(job.target))
    return merge(job)


def list_versions(job: Job) -> Work:
    """List the versions of a journal with a thousand commits for each file of the dataset."""
    io, commits = PyarrowDatasetIO(), add_commits(job)

    def work() -> dict[str, Any]:
        found = io.history(str(job.target))
        assert len(found) == commits
        return {"versions": len(found), "newest": found[0].version}

    return work


def open_dataset(job: Job) -> Work:
    """List a dataset and read its footers."""

    def work() -> dict[str, Any]:
        place = Place.of(str(job.target), None, None)
        place.journal.recover()
        return {"files": len(load_snapshot(place.storage, existing_view(place)).files)}

    return work


def open_after_commits(job: Job) -> Work:
    """The same, with very many commits in the journal."""
    add_commits(job)
    return open_dataset(job)


def view_dataset(job: Job) -> Work:
    """List a dataset many times, and read no footer."""

    def work() -> dict[str, Any]:
        views = [Place.of(str(job.target), None, None).journal.view() for _ in range(_VIEWS)]
        return {"files": len(views[-1].files)}

    return work


def view_after_commits(job: Job) -> Work:
    """The same, with very many commits in the journal."""
    add_commits(job)
    return view_dataset(job)


def add_commits(job: Job) -> int:
    """Add commits to the history of a dataset, as `prune` adds them, and return their number."""
    io, commits = PyarrowDatasetIO(), _COMMITS_PER_FILE * len(job.files())
    first = io.keep_history(str(job.target))
    place = Place.of(str(job.target), None, None)
    sidecar = place.journal.status().sidecar
    assert sidecar is not None
    log, start = Log(place.storage, sidecar), datetime(2026, 1, 1, tzinfo=UTC)
    pattern = log.read(first)

    def record(seq: int) -> Any:
        info = {"operation": "merge", "at": (start + timedelta(seconds=seq)).isoformat(), "inserted": 1, "updated": 2}
        return replace(pattern, seq=seq, owner=new_id(), keep=True, retain=None, info=info)

    folded = commits - KEPT_RECORDS
    for begin in range(1, folded + 1, _FOLDED):
        end = min(begin + _FOLDED - 1, folded)
        fold(place.storage, log.history_folder, [record(seq) for seq in range(begin, end + 1)], (begin, end))
    for seq in range(folded + 1, commits + 1):
        added = record(seq)
        place.storage.write_bytes(f"{log.folder}/{seq:020d}.json", added.to_bytes())
    log.finish(added)  # on a local disk only the newest record has a mark
    return commits
