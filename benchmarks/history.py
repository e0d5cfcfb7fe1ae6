"""The cases of kept versions: what they cost a merge, and journals with very many commits."""

from __future__ import annotations

from benchmarks.cases import OURS, Bar, Case, clustered

_OFF, _EMPTY = "without history", "empty journal"

HISTORY: tuple[Case, ...] = (
    Case(
        "history-merge",
        "The small upsert (3 of 100 files, 10M rows) into a dataset that keeps the files that commits replace",
        "upsert",
        clustered,
        {OURS: "history:merge_with_history", _OFF: "ours:merge"},
        (Bar("wall", 1.1, _OFF),),
        cold=False,
        base=_OFF,
    ),
    Case(
        "history-list",
        "List the versions of 100,000 commits",
        "upsert",
        clustered,
        {OURS: "history:list_versions"},
        (Bar("wall", 0.3),),
        checked=False,
        cold=False,
        base=OURS,
        most_repeats=3,
    ),
    Case(
        "history-open",
        "Open a dataset of 100 files (list it, read the footers) with 100,000 commits in the journal",
        "upsert",
        clustered,
        {OURS: "history:open_after_commits", _EMPTY: "history:open_dataset"},
        (Bar("wall", 2.0, _EMPTY),),
        checked=False,
        cold=False,
        base=_EMPTY,
        most_repeats=3,
    ),
    Case(
        "history-view",
        "List a dataset of 100 files 200 times, without its footers, with 100,000 commits in the journal",
        "upsert",
        clustered,
        {OURS: "history:view_after_commits", _EMPTY: "history:view_dataset"},
        (Bar("wall", 2.0, _EMPTY),),
        checked=False,
        cold=False,
        base=_EMPTY,
        most_repeats=3,
    ),
)
