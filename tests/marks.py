"""Marks that say what a test needs: `spark`, `s3`, `browser`, `process` for those that start the command line as a
process, and `sweep` for those that try very many cases; and `more` for the tests that only `make test-more` runs.

They are set when tests are collected, from a test's folder, its fixtures and its parameters. A test that starts a
program of its own which needs Spark carries the mark in its file. `make quick` runs the tests without any of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

NEEDS = ("spark", "s3", "browser", "process", "sweep")
QUICK = " and ".join(f"not {mark}" for mark in NEEDS)
"""What `make quick` passes to `-m`."""

_TESTS = Path(__file__).parent
_FOLDERS = {"engines/spark": "spark", "versions": "spark", "stores": "s3"}
_FILES = {"cli/test_process.py": "process", "cli/test_tmux.py": "process"}
_FIXTURES = {"spark": "spark", "metastore": "spark", "s3_server": "s3", "browser": "browser", "sweep": "sweep"}
_VALUES = {"spark": "spark", "spark-exchange": "spark", "s3": "s3", "s3 filesystem": "s3"}


_MORE_ENGINES = {"spark", "spark-exchange"}
"""Engines of the conformance tests that only `make test-more` runs: engines/spark/test_verbs.py has every verb and
option on Spark, and the engine `pyarrow-exchange` runs all tests on the routes of a distributed engine."""


_OF_DUCKDB = {"deduplicate", "history", "merge_examples", "odd_corners", "optimize", "partition_examples"}
_OF_DUCKDB |= {"pruning_examples", "refusals", "sources", "storage", "types"}
"""Modules that `make test` runs on DuckDB, of what its engine does itself: it opens relations, matches keys, spills to
its folder, and tells errors of its library. It shares all other code with the engine of pyarrow."""


def is_more(item: pytest.Item) -> bool:
    """Whether only `make test-more` runs a test."""
    chosen = getattr(item, "callspec", None)
    engine = chosen.params.get("engine") if chosen is not None else None
    return engine in _MORE_ENGINES or (engine == "duckdb" and item.path.stem.removeprefix("test_") not in _OF_DUCKDB)


def is_smoke(item: pytest.Item) -> bool:
    """Whether a test of S3 is the one that `make test` runs."""
    return "smoke" in item.name


def marks_of(item: pytest.Item) -> set[str]:
    """The marks that a test gets from where it is and what it asks for."""
    folder = item.path.parent.relative_to(_TESTS).as_posix()
    found = {mark for name, mark in _FOLDERS.items() if folder == name}
    found |= {mark for name, mark in _FILES.items() if item.path == _TESTS / name}
    found |= {mark for fixture, mark in _FIXTURES.items() if fixture in getattr(item, "fixturenames", ())}
    chosen = getattr(item, "callspec", None)
    values = chosen.params.values() if chosen is not None else ()
    found |= {_VALUES[value] for value in values if isinstance(value, str) and value in _VALUES}
    is_at_length = item.get_closest_marker("s3") is not None or "s3" in found
    return found | ({"more"} if is_more(item) or (is_at_length and not is_smoke(item)) else set())
