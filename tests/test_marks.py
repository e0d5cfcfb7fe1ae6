"""The marks of `marks.py` are set where they belong, and what `make quick` selects needs none of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from marks import NEEDS, QUICK

pytestmark = pytest.mark.sweep  # all of these folders are collected

ROOT = Path(__file__).parents[1]
CHOSEN = ("engines/spark", "conformance/test_storage.py", "faults/test_verb_faults.py", "report", "cli")
COLLECT = """
import json, sys, pytest
class Marks:
    def pytest_collection_finish(self, session):
        marks = {item.nodeid: [mark.name for mark in item.iter_markers()] for item in session.items}
        print(json.dumps(marks))
sys.exit(pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[Marks()]))
"""


@pytest.fixture(scope="module")
def marks() -> Mapping[str, Sequence[str]]:
    """The marks of every chosen test, found in a process of its own."""
    command = [sys.executable, "-c", COLLECT, *(f"tests/{path}" for path in CHOSEN)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"SWEEP": "ci"}, capture_output=True, text=True, check=True
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found: dict[str, list[str]] = json.loads(lines[-1])
    return found


MARKED = {
    "tests/engines/spark/": "spark",
    "[spark-": "spark",
    "test_spark_is_the_default": "spark",
    "-s3]": "s3",
    "-s3 filesystem]": "s3",
    "engines/spark/test_s3.py": "s3",
    "test_a_browser_shows": "browser",
    "tests/cli/test_process.py": "process",
    "test_any_single_fault": "sweep",
}
"""Parts of names of tests, and the mark that all of these have."""


def test_what_a_test_needs_is_marked(marks: Mapping[str, Sequence[str]]) -> None:
    for part, mark in MARKED.items():
        tests = {name: found for name, found in marks.items() if part in name}
        assert tests, part
        assert {name for name, found in tests.items() if mark not in found} == set()
    assert set(MARKED.values()) == set(NEEDS)


def test_quick_selects_the_rest(marks: Mapping[str, Sequence[str]]) -> None:
    quick = [name for name, found in marks.items() if not set(found) & set(NEEDS)]
    assert len(quick) > 200
    assert any("[pyarrow-local]" in name for name in quick)


def test_make_quick_leaves_these_out() -> None:
    assert f"-m '{QUICK}'" in (ROOT / "Makefile").read_text()
