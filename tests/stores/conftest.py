"""Every server, and what its tests counted, for the table of docs/guarantees.md."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stores.servers import Store, running

PAGE = Path(__file__).parents[2] / "docs" / "guarantees.md"
BEGIN, END = "<!-- stores: begin -->\n", "<!-- stores: end -->\n"
TITLES = {
    "moto": "moto (S3)",
    "versitygw": "versitygw 1.8.0, posix (S3)",
    "azurite": "Azurite 3.35.0 (Azure)",
}
_counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))

Count = Callable[[str, int], None]


@pytest.fixture(scope="session", params=["moto", "versitygw"])
def s3_server(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Each S3 server."""
    with running(request.param) as store:
        yield store


@pytest.fixture(scope="session", params=["versitygw", "azurite"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Each server that is a program of its own. Other tests use that of moto."""
    with running(request.param) as store:
        yield store


@pytest.fixture
def count(request: pytest.FixtureRequest) -> Count:
    """Note how often something was tried on the server of a test."""
    name = next(each for each in request.node.callspec.params.values() if each in TITLES)

    def note(what: str, number: int) -> None:
        _counts[name][what] += number

    return note


def pytest_sessionfinish(exitstatus: int) -> None:
    """Write the table, if the tests passed on all servers (`make stores`)."""
    if exitstatus or not os.environ.get("STORES_TABLE") or _counts.keys() != TITLES.keys():
        return
    kinds = list(dict.fromkeys(kind for counts in _counts.values() for kind in counts))
    lines = ["| server | " + " | ".join(kinds) + " |", "|---|" + "--:|" * len(kinds)]
    for name, title in TITLES.items():
        lines.append(f"| {title} | " + " | ".join(f"{_counts[name].get(kind, 0) or '-'}" for kind in kinds) + " |")
    text = PAGE.read_text()
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n\n{END}{after}")
