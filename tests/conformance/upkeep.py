"""The guarantees of every maintenance operation, as checks: rows, schema, files, and no leftover files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from conformance.rows import rows_of
from kit import data_files, table_of, tree_of

COUNTS = (
    "before_file_count",
    "after_file_count",
    "before_total_bytes",
    "after_total_bytes",
    "compacted_file_count",
    "rewritten_bytes",
)


def bag_of(dataset: Path) -> Counter[Any]:
    """Folder and values of every row, as a multiset."""
    found: Counter[Any] = Counter()
    for path in data_files(dataset):
        rows = rows_of(table_of(path))
        found.update((str(path.parent.relative_to(dataset)), tuple(sorted(row.items()))) for row in rows)
    return found


def values(dataset: Path, column: str) -> list[list[Any]]:
    """The values of a column in each file, files in order of their names."""
    return [table_of(path)[column].to_pylist() for path in data_files(dataset)]


def check_statistics(result: Any, dataset: Path, before: dict[str, int]) -> None:
    """The result has the keys of the specification, and its numbers match the folder."""
    found = result if isinstance(result, dict) else result.to_dict()
    assert all(type(found[name]) is int and found[name] >= 0 for name in COUNTS)
    assert isinstance(found["compression_codec"], str)
    assert isinstance(found["dry_run"], bool)
    after = {str(path): path.stat().st_size for path in data_files(dataset)}
    assert (found["before_file_count"], found["before_total_bytes"]) == (len(before), sum(before.values()))
    if not found["dry_run"]:
        assert (found["after_file_count"], found["after_total_bytes"]) == (len(after), sum(after.values()))
        gone = [path for path in before if path not in after]
        assert found["compacted_file_count"] >= len(gone)


def sizes(dataset: Path) -> dict[str, int]:
    """Bytes of every data file."""
    return {str(path): path.stat().st_size for path in data_files(dataset)}


def check_upkeep(run: Any, dataset: Path, *, same_rows: bool = True, again: bool = True) -> Any:
    """Dry run, run, and run again: the plan matches the run, rows are kept, and the second run does nothing."""
    before, old, rows = sizes(dataset), tree_of(dataset.parent), bag_of(dataset)
    plan = run(dry_run=True)
    assert tree_of(dataset.parent) == old, "a dry run wrote something"
    check_statistics(plan, dataset, before)
    assert plan["estimated_after_file_count"] == plan["after_file_count"]
    result = run()
    check_statistics(result, dataset, before)
    assert result["compacted_file_count"] == plan["compacted_file_count"]
    assert result["rewritten_bytes"] == plan["rewritten_bytes"]
    assert result["skipped_files"] == plan["skipped_files"]
    assert result["planned_groups"] == plan["planned_groups"]
    assert result["after_file_count"] == plan["after_file_count"]
    assert result["after_row_count"] == plan["after_row_count"]
    planned = {path for group in plan["planned_groups"] for path in group}
    assert planned.isdisjoint(plan["skipped_files"])
    assert planned | plan["skipped_files"].keys() == before.keys()
    if same_rows:
        assert bag_of(dataset) == rows
    inside = {path.relative_to(dataset).parts[0] for path in dataset.rglob("*")}
    assert not any(name.startswith(".") for name in inside)
    if again:
        settled = tree_of(dataset)
        assert run()["compacted_file_count"] == 0
        assert tree_of(dataset) == settled, "a second run rewrote something"
    return result
