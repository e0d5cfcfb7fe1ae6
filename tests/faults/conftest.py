"""All faults also with a footer index: datasets of a few files have one here too, and it must not change a result."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from faults.worlds import WORLDS, World
from inside import lower


@pytest.fixture(autouse=True, scope="module")
def _index_of_every_dataset() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        lower(patch, "files of an index")
        yield


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """An empty place for a dataset, on a disk and on a store of objects."""
    made = WORLDS[request.param]()
    yield made
    made.close()
