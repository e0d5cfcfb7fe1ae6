"""What runs on which engine: collects the conformance tests and writes the table of `docs/engines.md`.

`make engines` runs all of them first and writes nothing unless they pass; `--collected` only counts them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sweeps import SIZES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "engines.md"
_START, _END = "<!-- parity -->", "<!-- end of parity -->"
_OPERATIONS = {
    "write: append, overwrite, overwrite partitions": ("test_write_examples",),
    "write: replace the rows of a condition, keep an existing dataset": ("test_replace_where",),
    "read: columns, filters, what counts as data": ("test_read_examples", "test_text_filters", "test_number_values"),
    "datasets without rows": ("test_empty_datasets",),
    "merge: every strategy": ("test_merge_examples", "test_merge_properties"),
    "merge: types and columns": ("test_schema_examples", "test_ordered_categories"),
    "merge: partitions": ("test_partition_examples",),
    "merge: pruning": ("test_pruning_examples",),
    "delete, update, conditions of merges, change feeds": (
        "test_row_changes",
        "test_row_change_traps",
        "test_nested_feeds",
    ),
    "histories of change feeds": ("test_history", "test_history_types"),
    "rows that move to another partition": ("test_moves",),
    "kept versions, restore, changes of commits": ("test_versions",),
    "plans of a dry run": ("test_dry_run",),
    "commits of other writers": ("test_conflicts",),
    "compact": ("test_compact",),
    "optimize: linear, z-order, Hilbert": ("test_optimize", "test_upkeep_wishes", "test_upkeep_types"),
    "deduplicate": ("test_deduplicate",),
    "every kind of source": ("test_sources", "test_text_sources", "test_polars_frames"),
    "local disk, memory, S3": ("test_storage",),
    "files that others wrote": ("test_foreign_files", "test_foreign_tables"),
    "odd names, large tables": ("test_odd_corners",),
    "refusals, with nothing changed": ("test_bad_input", "test_nested_datasets"),
}
_NEVER = "tests use the memory of one process as storage (`memory://`), which executors cannot see."
_LATER = "a variant of an engine that runs all tests always; it does so in a full sweep (`SWEEP=full`)."
_SAMPLED = "of a test that has more variations, such as one for every type, {count} always, all in a full sweep."
Counts = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Suite:
    """The number of tests of each engine and module: in every run, only in a full sweep, and skipped.

    A test with some variations in every run counts as run; skipped tests are counted by variation.
    """

    always: Counts
    full_only: Counts
    gaps: Counts


class _Collector:
    """A plugin that counts tests by engine and module."""

    def __init__(self) -> None:
        self.always: dict[str, Counter[str]] = {}
        self.full_only: dict[str, Counter[str]] = {}
        self.gaps: dict[str, Counter[str]] = {}
        self._deselected: list[pytest.Item] = []

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._deselected += items

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        ran = {_test_of(item) for item in session.items}
        never = [item for item in self._deselected if _is_never_run(item)]
        later = [item for item in self._deselected if item not in never and _test_of(item) not in ran]
        self._count(_one_each(session.items), self.always)
        self._count(_one_each(later), self.full_only)
        self._count(never, self.gaps)

    def counts(self) -> dict[str, Any]:
        """What was counted."""
        return {"always": self.always, "full_only": self.full_only, "gaps": self.gaps}

    @staticmethod
    def _count(items: Iterable[pytest.Item], counts: dict[str, Counter[str]]) -> None:
        for item in items:
            engine, _ = _test_of(item)
            if engine:
                counts.setdefault(engine, Counter())[item.path.stem] += 1


def _test_of(item: pytest.Item) -> tuple[str, str]:
    """The engine and the test, without its other parameters."""
    chosen = getattr(item, "callspec", None)
    return chosen.params.get("engine", "") if chosen is not None else "", item.nodeid.partition("[")[0]


def _is_never_run(item: pytest.Item) -> bool:
    """Whether a test needs the memory of its own process, which executors of Spark cannot see."""
    return _test_of(item)[0].startswith("spark") and item.get_closest_marker("one_process") is not None


def _one_each(items: Iterable[pytest.Item]) -> Iterable[pytest.Item]:
    return {_test_of(item): item for item in items}.values()


def collect() -> Suite:
    """Count the tests in a process of its own, where no other test has changed anything."""
    command = [sys.executable, __file__, "--count"]
    bounded = {**os.environ, "SWEEP": "ci"}
    done = subprocess.run(command, cwd=ROOT, env=bounded, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return Suite(**found)


def _count() -> None:
    collector = _Collector()
    options = ["--collect-only", "-qq", "-n0", str(ROOT / "tests" / "conformance")]
    code = pytest.main(options, plugins=[collector])
    assert code == 0, f"collecting ended with {code}"
    print(json.dumps(collector.counts()))


def render(suite: Suite) -> str:
    """The table, and the tests that only a full sweep runs."""
    engines = list(suite.always)
    modules = {module for counts in suite.always.values() for module in counts}
    unnamed = modules - {module for group in _OPERATIONS.values() for module in group}
    assert not unnamed, f"say in {Path(__file__).name} which operation {sorted(unnamed)} is about"
    lines = [f"| tests of | {' | '.join(engines)} |", "|---|" + "---|" * len(engines)]
    for operation, group in _OPERATIONS.items():
        cells = [_cell(suite, engine, group) for engine in engines]
        lines.append(f"| {operation} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_gaps(suite)])


def _cell(suite: Suite, engine: str, modules: tuple[str, ...]) -> str:
    always, full, gaps = (
        sum(counts.get(engine, {}).get(module, 0) for module in modules)
        for counts in (suite.always, suite.full_only, suite.gaps)
    )
    ran = "all" if not full else "some" if always else "in a full sweep"
    return f"{ran} but {gaps}" if gaps else ran


def _gaps(suite: Suite) -> list[str]:
    notes = [f"- `{engine}`: {sum(counts.values())} {_NEVER}" for engine, counts in sorted(suite.gaps.items())]
    notes += [f"- `{engine}`: {_LATER}" for engine in suite.full_only]
    notes += [f"- `{engine}`: {_SAMPLED.format(count=count)}" for engine, count in SIZES["ci"].variations.items()]
    return notes or ["No engine leaves out a test."]


def page_with(table: str) -> str:
    """The page with a new table."""
    text = PAGE.read_text("utf-8")
    head, tail = text.partition(_START)[0], text.partition(_END)[2]
    return f"{head}{_START}\n\n{table}\n\n{_END}{tail}"


def main() -> None:
    """Run the conformance tests, unless an option disables it, and write the table."""
    if "--count" in sys.argv:
        _count()
        return
    if "--collected" not in sys.argv:
        subprocess.run([sys.executable, "-m", "pytest", "tests/conformance", *sys.argv[1:]], cwd=ROOT, check=True)
    PAGE.write_text(page_with(render(collect())), "utf-8")


if __name__ == "__main__":
    main()
