"""Dry runs: exact counts, a reason per file, and nothing is written."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from conformance.effort import for_each
from fsspeckit import CommitConflictError, DocumentError
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from inside import MergePlan
from kit import by_day, numbers, three_files, tree_of

STRATEGIES = ("upsert", "insert", "update", "full_merge", "deduplicate")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.names_stay
def test_a_plan_predicts_the_run(io: Any, tmp_path: Path, strategy: str) -> None:
    three_files(tmp_path / "d")
    source = numbers([1, 2, 12, 50], ["old", "new", "new", "new"])
    call: dict[str, Any] = {"strategy": strategy, "key_columns": ["id"]}
    before = tree_of(tmp_path)
    plan = io.merge(source, str(tmp_path / "d"), dry_run=True, **call)
    assert tree_of(tmp_path) == before
    result = io.merge(source, str(tmp_path / "d"), **call)
    for name in ("inserted", "updated", "deleted", "unchanged", "total"):
        assert plan[name] == result[name], name
    actions = {(Path(entry.path).name, entry.action) for entry in plan.entries if entry.action != "insert"}
    done = {"rewritten_files": "rewrite", "deleted_files": "delete", "preserved_files": "keep"}
    assert actions == {(Path(p).name, verb) for field, verb in done.items() for p in getattr(result, field)}
    planned = [entry for entry in plan.entries if entry.action == "insert"]
    assert sum(entry.rows for entry in planned) == result.inserted
    assert len(planned) == len(result.inserted_files)


def test_every_file_has_a_reason(io: Any, tmp_path: Path) -> None:
    by_day(tmp_path / "d", mon=[1, 2], tue=[3, 4])
    plan = io.merge(
        numbers([1], "new", day=["mon"]), str(tmp_path / "d"), strategy="upsert", key_columns="id", dry_run=True
    )
    assert {Path(e.path).parent.name: e.reason for e in plan.entries} == {"day=mon": "key scan", "day=tue": "partition"}
    assert all(entry.rows > 0 and entry.bytes > 0 for entry in plan.entries)


def test_a_plan_is_frozen_picklable_and_printable(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    plan = io.merge(numbers([1], "new"), str(tmp_path / "d"), strategy="upsert", key_columns=["id"], dry_run=True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.inserted = 3
    copy = pickle.loads(pickle.dumps(plan))
    assert copy.to_dict() == plan.to_dict()
    assert json.loads(json.dumps(plan.to_dict()))["updated"] == 1
    assert "part-0.parquet" in str(plan)
    assert "statistics" in str(plan)


def test_every_stage_of_progress_ends_at_its_total(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    told: list[Any] = []
    call: dict[str, Any] = {"strategy": "upsert", "key_columns": ["id"], "progress": told.append}
    io.merge(numbers([1, 11], "new"), str(tmp_path / "d"), **call)
    last = {event.stage: event for event in told}
    assert last, "the callback was never called"
    assert all(event.done == event.total for event in last.values()), last
    assert {event.operation for event in told} == {"merge"}


def planned(io: Any, folder: Path) -> MergePlan:
    """A plan that inserts, updates, deletes and keeps, written to a file and read again."""
    io.write_dataset(numbers([1, 2, 3]), str(folder))
    io.write_dataset(numbers([4, 5]), str(folder))
    io.write_dataset(numbers([6]), str(folder))
    rows = pa.concat_tables([numbers([1, 7], "new"), numbers([2, 6])])
    plan = io.merge(rows, str(folder), strategy="full_merge", key_columns="id", dry_run=True)
    return MergePlan.from_dict(json.loads(json.dumps(plan.to_dict())))


def test_a_pinned_plan_is_executed_exactly(io: Any, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    plan = planned(io, folder)
    rows = pa.concat_tables([numbers([1, 7], "new"), numbers([2, 6])])
    result = io.merge(rows, str(folder), strategy="full_merge", key_columns="id", plan=plan)
    assert (result.stats(), result.unchanged) == (plan.stats(), plan.unchanged)
    assert result.inserted_files == [f"{folder}/{e.path}" for e in plan.entries if e.action == "insert"]
    assert (len(result.rewritten_files), result.deleted_files) == (
        plan.count("rewrite"),
        [f"{folder}/{e.path}" for e in plan.entries if e.action == "delete"],
    )
    with pytest.raises(CommitConflictError, match="make a new plan"):
        io.merge(rows, str(folder), strategy="full_merge", key_columns="id", plan=plan)


@for_each("change", ["dataset", "counts", "equal counts"])
def test_a_plan_for_something_else_is_refused(io: Any, tmp_path: Path, change: str) -> None:
    folder = tmp_path / "d"
    plan = planned(io, folder)
    rows = pa.concat_tables([numbers([1, 7], "new"), numbers([2, 6])])
    if change == "dataset":
        io.write_dataset(numbers([8]), str(folder))
    elif change == "counts":
        rows = rows.slice(1)
    else:
        rows = pa.concat_tables([numbers([1, 7, 6], "new"), numbers([2])])
    before = {file: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(CommitConflictError, match="make a new plan"):
        io.merge(rows, str(folder), strategy="full_merge", key_columns="id", plan=plan)
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


@for_each("name", ["../x.parquet", "/x.parquet", "a/../x.parquet", "x.txt", "_x.parquet", "kept"])
def test_a_plan_whose_files_are_not_those_of_the_dataset_is_refused(io: Any, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "d"
    plan = planned(io, folder)
    name = next(entry.path for entry in plan.entries if entry.action == "keep") if name == "kept" else name
    entries = [dataclasses.replace(entry, path=name) if entry.action == "insert" else entry for entry in plan.entries]
    rows = pa.concat_tables([numbers([1, 7], "new"), numbers([2, 6])])
    before = tree_of(tmp_path)
    with pytest.raises(DocumentError, match="Make a new plan"):
        io.merge(
            rows,
            str(folder),
            strategy="full_merge",
            key_columns="id",
            plan=dataclasses.replace(plan, entries=tuple(entries)),
        )
    assert tree_of(tmp_path) == before


@pytest.mark.parametrize("change", [{"inserted": -1}, {"entries": [{}]}, {"path": 5}, {"deleted": 10**9}])
def test_a_document_that_is_no_plan_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    document = planned(PyarrowDatasetIO(), tmp_path / "d").to_dict()
    with pytest.raises(DocumentError, match=r"plan\..*make a new plan"):
        MergePlan.from_dict(document | change)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_dry_run_of_a_write_lists_its_files(io: Any, tmp_path: Path, mode: str) -> None:
    folder = str(tmp_path / "d")
    empty = io.write_dataset(numbers([1]), folder, mode=mode, dry_run=True)
    assert (empty.rows, len(empty.files), empty.commit_seq, os.listdir(tmp_path)) == (1, 1, None, [])
    io.write_dataset(numbers([1, 2]), folder)
    before = sorted(os.listdir(folder))
    plan = io.write_dataset(numbers([3, 4]), folder, mode=mode, max_rows_per_file=1, dry_run=True)
    assert (plan.rows, len(plan.files), len(plan.deleted_files)) == (2, 2, mode == "overwrite")
    assert plan["dry_run"]
    assert "would be written" in str(plan)
    assert sorted(os.listdir(folder)) == before
