"""Marks that say what a test needs: `spark`, `s3`, `browser`, `process` for those that start the command line as a
process, and `sweep` for those that try very many cases.

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
_FOLDERS = {"engines/spark": "spark", "versions": "spark"}
_FILES = {"cli/test_process.py": "process", "cli/test_tmux.py": "process"}
_FIXTURES = {"spark": "spark", "metastore": "spark", "s3_server": "s3", "browser": "browser", "sweep": "sweep"}
_VALUES = {"spark": "spark", "spark-exchange": "spark", "s3": "s3", "s3 filesystem": "s3"}


def marks_of(item: pytest.Item) -> set[str]:
    """The marks that a test gets from where it is and what it asks for."""
    folder = item.path.parent.relative_to(_TESTS).as_posix()
    found = {mark for name, mark in _FOLDERS.items() if folder == name}
    found |= {mark for name, mark in _FILES.items() if item.path == _TESTS / name}
    found |= {mark for fixture, mark in _FIXTURES.items() if fixture in getattr(item, "fixturenames", ())}
    chosen = getattr(item, "callspec", None)
    values = chosen.params.values() if chosen is not None else ()
    return found | {_VALUES[value] for value in values if isinstance(value, str) and value in _VALUES}
