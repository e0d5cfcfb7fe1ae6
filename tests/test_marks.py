"""The marks of `marks.py` are set where they belong, and what `make quick` selects needs none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from marks import NEEDS, QUICK

pytestmark = pytest.mark.sweep  # so that `make test-more` looks at its tests too

ROOT = Path(__file__).parents[1]
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


def test_what_a_test_needs_is_marked(request: pytest.FixtureRequest) -> None:
    """Of the tests of this run. Names of lakes begin with that of their writer, such as spark."""
    items = [item for item in request.session.items if not item.nodeid.startswith("tests/lakes/")]
    marks = {item.nodeid: {mark.name for mark in item.iter_markers()} for item in items}
    for part, mark in MARKED.items():
        assert [name for name, found in marks.items() if part in name and mark not in found] == []
    assert set(MARKED.values()) == set(NEEDS)
    local = [found for name, found in marks.items() if "[pyarrow-local]" in name]
    assert not [found for found in local if found & set(NEEDS)], "make quick runs them"


def test_make_quick_leaves_these_out() -> None:
    assert f"-m '{QUICK}'" in (ROOT / "Makefile").read_text()
