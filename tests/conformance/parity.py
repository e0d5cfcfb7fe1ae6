"""What runs on which engine: writes the table of `docs/engines.md` from the modules of the conformance tests.

`make engines` runs all of them first and writes nothing unless they pass; `--written` only writes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance.conftest import BOUNDED, ENGINES
from lakes import results as lakes
from sweeps import SIZES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "engines.md"
_PARTS = ("parity", "lakes")
_OPERATIONS = {
    "write: append, overwrite, overwrite partitions": ("test_write_examples",),
    "write: replace the rows of a condition, keep an existing dataset": ("test_replace_where",),
    "read: columns, filters, what counts as data": ("test_read_examples", "test_text_filters"),
    "merge: every strategy": ("test_merge_examples",),
    "every verb: columns, keys, orders and sequences of every type": ("test_types",),
    "merge: types and columns": ("test_schema_examples", "test_stored_types"),
    "merge: partitions": ("test_partition_examples",),
    "types of partition columns": ("test_partition_types",),
    "adopt a folder of others": ("test_adopt",),
    "merge: pruning": ("test_pruning_examples",),
    "delete, update, conditions of merges, change feeds": (
        "test_row_changes",
        "test_row_change_traps",
        "test_nested_feeds",
    ),
    "histories of change feeds": ("test_history", "test_history_types"),
    "rows that move to another partition": ("test_moves",),
    "plans of a dry run": ("test_dry_run",),
    "compact": ("test_compact",),
    "optimize: linear, z-order, Hilbert": ("test_optimize", "test_upkeep_wishes", "test_upkeep_types"),
    "deduplicate": ("test_deduplicate",),
    "every kind of source": ("test_sources", "test_text_sources", "test_polars_frames"),
    "local disk, memory, S3; kept versions, restore, changes of commits": ("test_storage",),
    "files that others wrote": ("test_foreign_files", "test_foreign_tables", "test_int96", "test_logical_types"),
    "odd names, large tables, numbers at their limits, categories, datasets without rows": (
        "test_odd_corners",
        "test_number_values",
        "test_ordered_categories",
        "test_empty_datasets",
    ),
    "late changes of deleted keys": ("test_tombstones",),
    "datasets that another program removed": ("test_lost_datasets",),
    "refusals, with nothing changed": ("test_refusals", "test_nested_datasets"),
}
_OTHERS = {"test_oracle", "test_parity", "test_state_machine"}
"""Modules without engines, and the random lives, in which engines take turns."""
_NOTES = """\
- `spark` and `spark-exchange` run no test that uses the memory of one process as storage (`memory://`), which executors
  cannot see.
- `spark-exchange` is a variant of an engine that runs all tests always; it does so in a full sweep (`SWEEP=full`).
- `duckdb` runs tests of what its engine does itself in `make test`, the others in `make test-more`.
- Of a test with several variations, {counts} always, all in a full sweep."""


def table() -> str:
    """The table, and what only a full sweep runs."""
    modules = {path.stem for path in Path(__file__).parent.glob("test_*.py")} - _OTHERS
    named = {module for group in _OPERATIONS.values() for module in group}
    assert modules == named, f"say in {Path(__file__).name} which operation {sorted(modules ^ named)} is about"
    lines = [f"| tests of | {' | '.join(ENGINES)} |", "|---|" + "---|" * len(ENGINES)]
    for operation, group in _OPERATIONS.items():
        lines.append(f"| {operation} | {' | '.join(_cell(engine, group) for engine in ENGINES)} |")
    counts = ", ".join(f"`{engine}` runs {count}" for engine, count in SIZES["ci"].variations.items())
    return "\n".join([*lines, "", _NOTES.format(counts=counts)])


def _cell(engine: str, group: tuple[str, ...]) -> str:
    ran = {engine not in BOUNDED or module in BOUNDED[engine] for module in group}
    return "some" if len(ran) == 2 else "all" if ran == {True} else "in a full sweep"


def page_with(*tables: str) -> str:
    """The page with new tables."""
    text = PAGE.read_text("utf-8")
    for part, table in zip(_PARTS, tables, strict=True):
        start, end = f"<!-- {part} -->", f"<!-- end of {part} -->"
        head, tail = text.partition(start)[0], text.partition(end)[2]
        text = f"{head}{start}\n\n{table}\n\n{end}{tail}"
    return text


if __name__ == "__main__":
    if "--written" not in sys.argv:
        subprocess.run(
            [sys.executable, "-m", "pytest", "tests/conformance", "tests/lakes", *sys.argv[1:]], cwd=ROOT, check=True
        )
    PAGE.write_text(page_with(table(), lakes.table()), "utf-8")
