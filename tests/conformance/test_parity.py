"""The page that compares the engines is up to date with the conformance tests."""

from __future__ import annotations

from conformance.parity import PAGE, page_with, table
from lakes import results as lakes


def test_the_page_of_engines_is_fresh() -> None:
    assert PAGE.read_text("utf-8") == page_with(table(), lakes.table()), "docs/engines.md is stale: run `make engines`"
