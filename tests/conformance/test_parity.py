"""The page that compares the engines is up to date with the conformance tests."""

from __future__ import annotations

import pytest

from conformance.conftest import ENGINES
from conformance.parity import PAGE, Suite, collect, page_with, render

pytestmark = pytest.mark.sweep  # all conformance tests are collected


@pytest.fixture(scope="module")
def suite() -> Suite:
    """All conformance tests, counted."""
    return collect()


def test_the_page_of_engines_is_fresh(suite: Suite) -> None:
    assert set(suite.always) == set(ENGINES)
    assert PAGE.read_text("utf-8") == page_with(render(suite)), "docs/engines.md is stale: run `make engines`"


def test_embedded_engines_run_every_test(suite: Suite) -> None:
    assert suite.always["duckdb"] == suite.always["pyarrow"]
    assert set(suite.full_only) <= {"spark-exchange"}
