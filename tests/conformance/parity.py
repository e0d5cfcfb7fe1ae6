"""What runs on which engine: collects the conformance tests and writes the table of `docs/engines.md`.

`make engines` runs all of them first and writes nothing unless they pass; `--collected` only counts them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "engines.md"
_START, _END = "<!-- parity -->", "<!-- end of parity -->"
_OPERATIONS = {
    "write: append, overwrite, overwrite partitions": ("test_write_examples",),
    "read: columns, filters, what counts as data": ("test_read_examples", "test_text_filters"),
    "merge: every strategy": ("test_merge_examples", "test_merge_properties"),
    "merge: types and columns": ("test_schema_examples",),
    "merge: partitions": ("test_partition_examples",),
    "merge: pruning": ("test_pruning_examples",),
    "plans of a dry run": ("test_dry_run",),
    "compact": ("test_compact",),
    "optimize: linear, z-order, Hilbert": ("test_optimize", "test_upkeep_wishes", "test_upkeep_types"),
    "deduplicate": ("test_deduplicate",),
    "every kind of source": ("test_sources", "test_text_sources"),
    "local disk, memory, S3": ("test_storage",),
    "files that others wrote": ("test_foreign_files",),
    "odd names, large tables": ("test_odd_corners",),
    "refusals, with nothing changed": ("test_bad_input", "test_nested_datasets"),
}
_NEVER = "tests use the memory of one process as storage (`memory://`), which executors cannot see."
_LATER = "a variant of an engine that runs all tests always; it does so in a full sweep (`SWEEP=full`)."
Counts = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Suite:
    """How many tests of each engine and module every run runs, only a full sweep runs, and nobody runs."""

    always: Counts
    full_only: Counts
    gaps: Counts


class _Collector:
    """A plugin that counts tests by engine and module."""

    def __init__(self) -> None:
        self.always: dict[str, Counter[str]] = {}
        self.full_only: dict[str, Counter[str]] = {}
        self.gaps: dict[str, Counter[str]] = {}

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        never = [item for item in items if item.get_closest_marker("one_process")]
        self._count(never, self.gaps)
        self._count([item for item in items if item not in never], self.full_only)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._count(session.items, self.always)

    @staticmethod
    def _count(items: list[pytest.Item], counts: dict[str, Counter[str]]) -> None:
        for item in items:
            chosen = getattr(item, "callspec", None)
            if chosen is not None and "engine" in chosen.params:
                counts.setdefault(chosen.params["engine"], Counter())[item.path.stem] += 1


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
    print(json.dumps(vars(collector)))


def render(suite: Suite) -> str:
    """The table, and what of it not every run runs."""
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
    return notes or ["No engine leaves out a test."]


def page_with(table: str) -> str:
    """The page with a new table."""
    text = PAGE.read_text("utf-8")
    head, tail = text.partition(_START)[0], text.partition(_END)[2]
    return f"{head}{_START}\n\n{table}\n\n{_END}{tail}"


def main() -> None:
    """Run the conformance tests, unless told not to, and write the table."""
    if "--count" in sys.argv:
        _count()
        return
    if "--collected" not in sys.argv:
        subprocess.run([sys.executable, "-m", "pytest", "tests/conformance", *sys.argv[1:]], cwd=ROOT, check=True)
    PAGE.write_text(page_with(render(collect())), "utf-8")


if __name__ == "__main__":
    main()
