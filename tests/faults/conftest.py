"""All faults also with a footer index."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _index_of_every_dataset() -> Iterator[None]:
    """Datasets of a few files have a footer index here too: it must not change a result."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fsspeckit.core.dataset.indexed_files.MIN_FILES", 1)
        patch.setattr("fsspeckit.core.dataset.indexed_files.MIN_LOCAL_FILES", 1)
        patch.setattr("fsspeckit.core.planning.pruned_files.MIN_FILES", 1)
        patch.setattr("fsspeckit.core.commit.listing.MANY_FILES", 1)
        yield
