"""A plan: exact counts, a reason per file, and not one byte written."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from conformance.builders import by_day, numbers, three_files
from conformance.tree import tree_of

STRATEGIES = ("upsert", "insert", "update", "full_merge", "deduplicate")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_plan_tells_what_the_run_then_does(io: Any, tmp_path: Path, strategy: str) -> None:
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


def test_a_dry_run_of_a_missing_target_creates_nothing(io: Any, tmp_path: Path) -> None:
    plan = io.merge(numbers([1]), str(tmp_path / "no" / "d"), strategy="upsert", key_columns=["id"], dry_run=True)
    assert (plan["inserted"], plan["total"]) == (1, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_dry_run_refuses_what_the_run_refuses(io: Any, tmp_path: Path, strategy: str) -> None:
    three_files(tmp_path / "d")
    before = tree_of(tmp_path)
    with pytest.raises(ValueError, match="id"):
        io.merge(numbers([None, 1]), str(tmp_path / "d"), strategy=strategy, key_columns=["id"], dry_run=True)
    assert tree_of(tmp_path) == before


def test_progress_is_told_and_every_stage_ends_at_its_total(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    told: list[Any] = []
    call: dict[str, Any] = {"strategy": "upsert", "key_columns": ["id"], "progress": told.append}
    io.merge(numbers([1, 11], "new"), str(tmp_path / "d"), **call)
    last = {event.stage: event for event in told}
    assert last, "the callback was never called"
    assert all(event.done == event.total for event in last.values()), last
    assert {event.operation for event in told} == {"merge"}


def test_a_progress_bar_on_request(io: Any, tmp_path: Path) -> None:
    three_files(tmp_path / "d")
    call: dict[str, Any] = {"strategy": "upsert", "key_columns": ["id"], "progress": True}
    assert io.merge(numbers([1], "new"), str(tmp_path / "d"), **call).updated == 1
